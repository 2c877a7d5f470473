"""An export beside the model that it was made of: scores, size and speed in one table, and a verdict."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from train.declarations.registry import benchmark_of, is_compared, is_headline, smaller_is_better
from train.reports.console import coloured, print_comparison, print_table
from train.reports.scorecard import ScoreRow, score_rows
from train.reports.terminal import print_notes

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
    def rows(self) -> list[ScoreRow]:
        """The headline scores that depend on the model, the export's beside the model's."""
        rows = score_rows(self.export.scores, self.original.scores)
        return [r for r in rows if is_headline(r.key) and not benchmark_of(r.key).is_constant(r.key)]

    @property
    def table(self) -> list[tuple[str, str, str, str]]:
        """What was measured, of the model, of the export, and the difference."""
        before, after = self.original, self.export
        faster = after.texts_per_second / before.texts_per_second
        sizes = [f"{measured.num_bytes / 1e6:.1f}" for measured in (before, after)]
        speeds = [f"{measured.texts_per_second:.0f}" for measured in (before, after)]
        threads = f"{self.num_threads} thread{'s' * (self.num_threads > 1)}"
        return [
            *((row.key, *row.cells) for row in self.rows),
            ("size in MB", sizes[0], sizes[1], f"× {after.num_bytes / before.num_bytes:.2f}"),
            (f"texts per second ({threads})", speeds[0], speeds[1], f"× {faster:.2f}"),
        ]

    @property
    def notes(self) -> list[str]:
        """How to read the scores; of notes on one of the two it says on which."""
        before, after = self.original.notes, self.export.notes
        both = [note for note in before if note in after]
        return [
            *both,
            *(f"The model: {note}" for note in before if note not in both),
            *(f"This export: {note}" for note in after if note not in both),
        ]

    @property
    def verdict(self) -> str:
        """Whether the export lost more than a point in any score by which models are compared."""
        changes = {
            row.key: row.difference
            for row in self.rows
            if row.difference is not None and is_compared(row.key) and not smaller_is_better(row.key)
        }
        if not changes:
            return "no score that could be compared"
        worst = min(changes, key=lambda key: changes[key])
        lost = [key for key, change in changes.items() if change < -_LOSS]
        most = f"{worst} {changes[worst]:+.4f}"
        if lost:
            return f"LOST more than 1 point ({_LOSS}) in {len(lost)} of {len(changes)} scores; most in {most}"
        return f"lost no more than 1 point ({_LOSS}) in any of {len(changes)} scores; the lowest: {most}"


def show_export(compared: Comparison, notes: Sequence[str], *, all_scores: bool) -> None:
    """The table and the verdict, on one screen; with `all_scores` every score before them."""
    title = f"{compared.model} as {compared.format}, {compared.dimension} dimensions"
    if all_scores:
        print_comparison(compared.original.scores, compared.export.scores, "all scores")
    verdicts = {row.key: row.verdict for row in compared.rows}
    rows = [[*cells, coloured(change, verdicts.get(cells[0], ""))] for *cells, change in compared.table]
    print_table(title, ["score"], ["model", "export", "difference"], rows)
    print_notes(notes)
    log.info("%s: %s", compared.format, compared.verdict)
