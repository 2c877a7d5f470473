"""From measured runs to figures and printed lines, and whether all ways came to the same."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.measure import Measured, Time

# Without dropout all ways compute the same function in another order: rounding alone, which Adam
# amplifies, parts them. A swap of two neighbouring ranks moves a mean over queries by less than this.
LOSS_TOLERANCE = 1e-3
LOSS_TOLERANCE_OWN = 1e-5  # on a user's own file
SCORE_TOLERANCE = 5e-3
# In bfloat16 the others compute the loss itself in it too, at a temperature of 0.05.
LOSS_TOLERANCE_BF16 = 0.1
# With dropout each way draws other random numbers, and losses cannot be compared step by step.
SCORE_TOLERANCE_LOOSE = 3e-2


@dataclass(frozen=True)
class Run:
    """One way, once, in a process of its own.

    Attributes:
        peak_memory: MiB, of the whole process.
        train_rate, score_rate: the machine's matrix product in the precision of training and in float32,
            operations a second of processor time, beside this very run.
    """

    measured: Measured
    peak_memory: float
    train_rate: float
    score_rate: float


@dataclass(frozen=True)
class Work:
    """What a case asks for, whoever does it.

    Attributes:
        tuples: that are trained on in the steps that are timed.
        train_operations, score_operations: useful ones, see :func:`~bench.measure.useful_operations`.
        documents, queries: of the scored split.
    """

    tuples: int
    train_operations: float
    score_operations: float
    documents: int
    queries: int


def disagreements(
    ours: Measured, theirs: Measured, *, dropout: bool, bf16: bool, own: bool = False
) -> tuple[str, list[str]]:
    """How near losses and scores are, in words; and what is further apart than it may be."""
    problems = []
    shared = sorted(ours.scores.keys() & theirs.scores.keys())
    if len(shared) != len(theirs.scores) or len(ours.losses) != len(theirs.losses):
        problems.append("the two ways took other steps, or gave other scores")
    loss = max((abs(a - b) for a, b in zip(ours.losses, theirs.losses, strict=False)), default=0.0)
    gaps = {key: abs(ours.scores[key] - theirs.scores[key]) for key in shared}
    score = max(gaps.values(), default=0.0)
    loss_limit = LOSS_TOLERANCE_BF16 if bf16 else LOSS_TOLERANCE_OWN if own else LOSS_TOLERANCE
    score_limit = SCORE_TOLERANCE_LOOSE if dropout or bf16 else SCORE_TOLERANCE
    if not dropout and not loss <= loss_limit:
        problems.append(f"losses differ by {loss:.2g}, more than {loss_limit:g}")
    problems += [
        f"{key}: ours {ours.scores[key]:.5f}, theirs {theirs.scores[key]:.5f}"
        for key in shared
        if not gaps[key] <= score_limit
    ]
    near = []
    if ours.losses:
        allowed = "not compared: other dropout" if dropout else f"may be {loss_limit:g}"
        near.append(f"of {len(ours.losses)} losses {loss:.1e} ({allowed})")
    if shared:
        near.append(f"of {len(shared)} scores {score:.1e} (may be {score_limit:g})")
    return "largest difference " + ", ".join(near), problems


def summary(work: Work, runs: dict[str, list[Run]]) -> dict[str, dict[str, Any]]:
    """Figures of each way: medians over its runs, and how many times as long it took as ours.

    Of `runs[way][i]` all ways took their steps in turn. What a way did not do is missing.
    """
    result: dict[str, dict[str, Any]] = {}
    for way, way_runs in runs.items():
        figures: dict[str, Any] = {"peak_mib": median(r.peak_memory for r in way_runs)}
        memory = [r.measured.train_memory for r in way_runs if r.measured.train_memory is not None]
        if memory:
            figures["train_peak_mib"] = median(memory)
        for part, operations in (("train", work.train_operations), ("score", work.score_operations)):
            times = [_time(r, part) for r in way_runs]
            if None in times:
                continue
            known = [t for t in times if t is not None]
            figures[f"{part}_wall_s"] = median(t.wall for t in known)
            figures[f"{part}_cpu_s"] = median(t.cpu for t in known)
            rates = [getattr(r, f"{part}_rate") for r in way_runs]
            figures[f"{part}_of_matmul_rate"] = median(
                operations / t.cpu / rate for t, rate in zip(known, rates, strict=True)
            )
            if part == "train":
                figures["tuples_per_cpu_s"] = median(work.tuples / t.cpu for t in known)
            for unit in ("wall", "cpu"):
                figures[f"{part}_times_ours_{unit}"] = [
                    getattr(theirs, unit) / getattr(ours, unit)
                    for theirs, ours in zip(_times(way_runs, part), _times(runs["ours"], part), strict=True)
                ]
        result[way] = figures
    return result


def _times(runs: list[Run], part: str) -> list[Time]:
    """What is compared one by one: of training each step."""
    if part == "train":
        return [step for run in runs for step in run.measured.steps]
    return [run.measured.score for run in runs if run.measured.score is not None]


def _time(run: Run, part: str) -> Time | None:
    return run.measured.train if part == "train" else run.measured.score


_COLUMNS = {
    "train_wall_s": ("training", "wall s", "{:.1f}"),
    "train_cpu_s": ("training", "cpu s", "{:.1f}"),
    "tuples_per_cpu_s": ("tuples", "/ cpu s", "{:.2f}"),
    "train_of_matmul_rate": ("training", "% of matmul", "{:.0%}"),
    "train_peak_mib": ("training", "peak MiB", "{:.0f}"),
    "score_wall_s": ("scorecard", "wall s", "{:.1f}"),
    "score_cpu_s": ("scorecard", "cpu s", "{:.1f}"),
    "score_of_matmul_rate": ("scorecard", "% of matmul", "{:.0%}"),
    "peak_mib": ("process", "peak MiB", "{:.0f}"),
}


def table(figures: dict[str, dict[str, Any]]) -> str:
    """A line a way, then how many times as long the others took."""
    shown = [key for key in _COLUMNS if any(key in way_figures for way_figures in figures.values())]
    lines = [
        f"{'medians':<22}" + "".join(f"{_COLUMNS[key][0]:>13}" for key in shown),
        f"{'':<22}" + "".join(f"{_COLUMNS[key][1]:>13}" for key in shown),
    ]
    for way, way_figures in figures.items():
        cells = [_COLUMNS[key][2].format(way_figures[key]) if key in way_figures else "" for key in shown]
        lines.append(f"{way:<22}" + "".join(f"{cell:>13}" for cell in cells))
    for way, way_figures in figures.items():
        ratios = [
            f"{name} {_spread(way_figures[f'{part}_times_ours_{unit}'])} {unit}"
            for part, name in (("train", "training"), ("score", "scorecard"))
            for unit in ("cpu", "wall")
            if way != "ours" and f"{part}_times_ours_{unit}" in way_figures
        ]
        if ratios:
            lines.append(f"ours is faster than {way}: " + "; ".join(ratios))
    return "\n".join(lines)


LEGEND = """\
Ratios: medians (min–max) of training steps that the ways took in turn, and of the scorecard's rounds. cpu:
processor time of all threads; other programs hardly change it. Training: all steps but the first.
% of matmul: useful work a second of processor time, over the matrix product's (1536³, in the same precision,
measured beside each run). Useful: each distinct text of a step (or of all modes) once, without padding,
forward 2·P·T + 4·L·T²·D (P weights of linear layers, T tokens, L layers, width D), times 3 in training."""


def _spread(values: list[float]) -> str:
    return f"{median(values):.2f}× ({min(values):.2f}–{max(values):.2f})"
