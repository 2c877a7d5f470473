// Sphinx's scores of what its search finds, but options before pages: those of training, then short names.
var Scorer = {
  score: ([, title, , , score, , kind]) =>
    kind === "object" && /^[a-z_0-9.]+$/.test(title)
      ? score + 20 + 5 * title.startsWith("trainer.") - title.length / 100
      : score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
