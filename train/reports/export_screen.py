"""An export compared with the model that it was made of: scores, size, speed, and a verdict."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from train.declarations.registry import is_compared, is_headline, smaller_is_better
from train.reports.score_tables import changeable, changes
from train.reports.tables import Table, print_notes, print_table

log = logging.getLogger(__name__)

_LOSS = 0.01  # of scores from 0 to 1: a point in percent


@dataclass(frozen=True)
class Measured:
    """What was measured of a model.

    Attributes:
        scores: flat key → score.
        num_bytes: of its folder.
        texts_per_second: embedded while it was scored.
        notes: how to read the scores, a sentence each.
    """

    scores: Mapping[str, float]
    num_bytes: int
    texts_per_second: float
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Comparison:
    """A model and its export.

    Attributes:
        model: its name.
        format: onnx, int8 or static.
        dimension: D of the export's embeddings.
        num_threads: that both computed with.
    """

    model: str
    format: str
    dimension: int
    original: Measured
    export: Measured
    num_threads: int

    @property
    def scores(self) -> Table:
        """The headline scores that depend on the model, the export's after the model's."""
        headline = {k: value for k, value in changeable(self.export.scores).items() if is_headline(k)}
        title = f"{self.model} as {self.format}, {self.dimension} dimensions"
        return changes(headline, self.original.scores, title, ("model", "export"))

    @property
    def table(self) -> list[Sequence[str]]:
        """What was measured, of the model, of the export, and the difference."""
        before, after = self.original, self.export
        sizes, speeds = (
            (before.num_bytes / 1e6, after.num_bytes / 1e6),
            (before.texts_per_second, after.texts_per_second),
        )
        threads = f"{self.num_threads} thread{'s' * (self.num_threads > 1)}"
        return [
            *self.scores.rows,
            ("size in MB", *(f"{size:.1f}" for size in sizes), f"× {sizes[1] / sizes[0]:.2f}"),
            (
                f"texts per second ({threads})",
                *(f"{speed:.0f}" for speed in speeds),
                f"× {speeds[1] / speeds[0]:.2f}",
            ),
        ]

    @property
    def notes(self) -> list[str]:
        """How to read the scores; notes on one of the two say on which."""
        before, after = self.original.notes, self.export.notes
        both = [note for note in before if note in after]
        alone = (("The model", before), ("This export", after))
        return both + [f"{which}: {n}" for which, notes in alone for n in notes if n not in both]

    @property
    def verdict(self) -> str:
        """Whether the export lost more than a point in any score by which models are compared."""
        before, after = self.original.scores, changeable(self.export.scores)
        lost = {
            key: after[key] - before[key]
            for key in after
            if key in before and is_headline(key) and is_compared(key) and not smaller_is_better(key)
        }
        if not lost:
            return "no score that could be compared"
        worst = min(lost, key=lambda key: lost[key])
        number, most = sum(change < -_LOSS for change in lost.values()), f"{worst} {lost[worst]:+.4f}"
        if number:
            return f"LOST more than 1 point ({_LOSS}) in {number} of {len(lost)} scores; most in {most}"
        return f"lost no more than 1 point ({_LOSS}) in any of {len(lost)} scores; the lowest: {most}"


def show_export(compared: Comparison, notes: Sequence[str], *, all_scores: bool) -> None:
    """The table and the verdict, on one screen; with `all_scores` every score before them."""
    if all_scores:
        before, after = compared.original.scores, changeable(compared.export.scores)
        print_table(changes(after, before, "all scores", ("before", "after")))
    scores = compared.scores
    print_table(replace(scores, rows=compared.table, verdicts=[*scores.verdicts, "", ""]))
    print_notes(notes)
    log.info("%s: %s", compared.format, compared.verdict)
