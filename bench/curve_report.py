"""The curve's figures: the best score of each way, when ours reaches it, and the picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no screen needed
from matplotlib import pyplot as plt

from bench.curve_ways import MODES, SPLIT, WAYS

METRICS = {"ndcg@10": "nDCG@10", "r_precision": "R-Precision"}
CLOCKS = {"cpu": "processor seconds", "wall": "seconds"}


def key_of(metric: str, mode: str = "sentence") -> str:
    """The key of the curve's scores."""
    return f"idiolink/{SPLIT}/{mode}/{metric}"


def seconds(point: dict[str, Any], clock: str, *, evaluations: bool = True) -> float:
    """Of a point, since the command's start; on request without the time of evaluations."""
    return float(point[clock] - (0.0 if evaluations else point[f"evaluation_{clock}"]))


def best(run: dict[str, Any], key: str) -> dict[str, Any]:
    """The point with the best score, the first of equals."""
    found: dict[str, Any] = max(run["points"], key=lambda point: point["scores"][key])
    return found


def first_to_reach(run: dict[str, Any], key: str, score: float) -> dict[str, Any] | None:
    """The first point whose score is at least this; None if there is none."""
    return next((point for point in run["points"] if point["scores"][key] >= score), None)


def times_as_soon(
    runs: Sequence[dict[str, Any]], way: str, key: str, clock: str, *, evaluations: bool = True
) -> list[float | None]:
    """For each seed, the time of a way to its best over that of ours to the same score; None: not reached."""
    ratios: list[float | None] = []
    for theirs in (run for run in runs if run["way"] == way):
        ours = next(run for run in runs if (run["way"], run["seed"]) == ("ours", theirs["seed"]))
        at_best = best(theirs, key)
        reached = first_to_reach(ours, key, at_best["scores"][key])
        ratios.append(
            None
            if reached is None
            else seconds(at_best, clock, evaluations=evaluations)
            / seconds(reached, clock, evaluations=evaluations)
        )
    return ratios


def table(runs: Sequence[dict[str, Any]]) -> str:
    """By metric: the best of each way and its time, means over seeds; then how soon ours reaches it."""
    lines = [f"val's queries over the documents of {SPLIT}; seconds since the command's start"]
    for mode, metric in ((mode, metric) for mode in MODES for metric in METRICS):
        key, name = key_of(metric, mode), f"{mode}, {METRICS[metric]}"
        lines += ["", f"{name:<22}{'best':>8}{'cpu s':>9}{'wall s':>9}{'cpu s without evaluation':>27}"]
        for way in WAYS:
            points = [best(run, key) for run in runs if run["way"] == way]
            figures = [mean(seconds(p, clock) for p in points) for clock in CLOCKS]
            bare = mean(seconds(p, "cpu", evaluations=False) for p in points)
            score = mean(p["scores"][key] for p in points)
            lines.append(f"{way:<22}{score:>8.2%}{figures[0]:>9.0f}{figures[1]:>9.0f}{bare:>27.0f}")
        for way in WAYS[1:]:
            found = [
                f"{_ratio(times_as_soon(runs, way, key, clock, evaluations=all_of_it))} by {words}"
                for clock, all_of_it, words in (
                    ("cpu", True, "processor time"),
                    ("wall", True, "the clock"),
                    ("cpu", False, "processor time without evaluations"),
                )
            ]
            lines.append(f"ours reaches the best of {way}: " + ", ".join(found))
    return "\n".join(lines)


def _ratio(ratios: Sequence[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return "never"
    missing = f", not with {len(ratios) - len(known)} seeds" if len(known) < len(ratios) else ""
    spread = f" ({min(known):.1f}–{max(known):.1f})" if len(known) > 1 else ""
    return f"{median(known):.1f} times as soon{spread}{missing}"


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """A panel a metric and query mode; a line a way and seed, by processor time."""
    figure, axes = plt.subplots(
        len(METRICS), len(MODES), figsize=(10, 3.6 * len(METRICS)), constrained_layout=True
    )
    for row, (metric, name) in zip(axes, METRICS.items(), strict=True):
        for axis, mode in zip(row, MODES, strict=True):
            for run in runs:
                number = WAYS.index(run["way"])
                is_first = run["seed"] == runs[0]["seed"]
                axis.plot(
                    [seconds(point, "cpu") for point in run["points"]],
                    [100 * point["scores"][key_of(metric, mode)] for point in run["points"]],
                    color=f"C{number}",
                    marker="os^"[number],
                    markersize=4,
                    label=run["way"].replace("_", "-") if is_first else None,
                )
            axis.set_xlim(left=0)
            axis.set_xlabel("processor seconds since the command's start")
            axis.set_title(f"{name}, {mode} queries, {SPLIT}, percent", loc="left", fontsize="medium")
            axis.grid(alpha=0.3)
            axis.legend(fontsize="small", loc="lower right")
    figure.savefig(path, dpi=110)
    plt.close(figure)
