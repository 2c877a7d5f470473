"""What a finished run leaves for its readers: `scores.json`, per-query files, plots, the comparison."""

from __future__ import annotations

import logging
from pathlib import Path

from train.evaluation.suite import Scorecard
from train.io.files import write_json, write_jsonl, write_text
from train.recipes.knowledge import glossary_note, learnt_glossaries
from train.reports.runs import EXTERNAL_NOTE, SAMPLE_NOTE, read_run
from train.training.checkpoint import TrainerState
from train.training.setup import RunContext

log = logging.getLogger(__name__)


def report_run(
    context: RunContext,
    state: TrainerState,
    *,
    best: Scorecard,
    baseline: dict[str, float],
    suite_names: list[str],
    warnings: list[str],
) -> None:
    """Write the run's results.

    Args:
        state: the run's progress at its end.
        best: the scores of the best checkpoint.
        baseline: those of the untrained model.
        suite_names: the benchmarks that both are scored on.
        warnings: of what readers must know before they use the model.
    """
    settings, run = context.settings, context.run
    notes = [SAMPLE_NOTE] if settings.data.sample else []
    notes += [EXTERNAL_NOTE.format(extra=settings.data.extra)] if settings.data.extra else []
    learnt = learnt_glossaries(settings.model)
    glossary = run.record.get("glossary")
    notes += glossary_note(glossary, learnt)
    empty = [f"{n} of {state.step} steps learnt nothing: {why}" for why, n in state.empty_steps.items()]
    meta = {
        "checkpoint": f"step_{state.best_step}",
        "model": settings.model.path,
        "seed": settings.seed,
        "monitor": settings.trainer.monitor,
        "data": "; ".join([", ".join(suite_names), *notes]),
        "not_scored": run.record.get("not_scored", {}),
        "trained_on": run.record.get("trained_on"),
        "glossary": glossary,
        **({"glossary_learnt": learnt} if learnt else {}),
        "notes": [*best.notes, *empty],
        "warnings": warnings,
        "files": run.record.get("data", {}),
        "num_texts": best.num_texts,
        "seconds": round(best.seconds, 3),
        "encoder_seconds": round(best.encoder_seconds, 3),
    }
    write_json(run.path / "scores.json", {"scores": best.scores, "baseline": baseline, "meta": meta})
    for tracker in run.trackers:
        tracker.summarise(best.scores, state.best_step or 0)
    if settings.eval.per_query:
        write_per_query(run.path / "per_query", best)
    if settings.eval.predictions:
        for name, text in best.predictions.items():
            write_text(run.path / "predictions" / name, text)
    _draw_plots(context, best)
    for note in meta["notes"]:
        log.info("%s", note)


def write_per_query(folder: Path, scorecard: Scorecard) -> None:
    """Write each benchmark's records by query, and next to them the positions of its texts on a map."""
    for name, records in scorecard.per_query.items():
        write_jsonl(folder / f"{name}.jsonl", records)
    for name, records in scorecard.maps.items():
        if records:
            write_jsonl(folder / f"{name}.map.jsonl", records)


def _draw_plots(context: RunContext, best: Scorecard) -> None:
    # With matplotlib and pandas, which no step should wait for.
    from train.reports.curves import draw_figures
    from train.reports.plots import violins

    folder = context.run.path
    for name, distributions in best.plots.items():
        violins(distributions, folder / "plots" / f"{name}.png")
    draw_figures(read_run(folder, folder.name))
