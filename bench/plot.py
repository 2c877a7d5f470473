"""The benchmark as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no screen needed
from matplotlib import pyplot as plt


def plot(results: Sequence[dict[str, Any]], path: Path, starts: Sequence[dict[str, float]] = ()) -> None:
    """Training throughput by case, and scorecard time by case, a bar a way; and the wait before a step.

    Args:
        results: of each case its `name` and `figures`, as :func:`bench.report.summary` gives them.
        starts: processor seconds by command, see :func:`bench.start.processor_times`.
    """
    panels = [
        ("tuples_per_cpu_s", "training: tuples a second of processor time (more is better)"),
        ("score_cpu_s", "scorecard: seconds of processor time (less is better)"),
    ]
    shown = [
        (key, title, cases)
        for key, title in panels
        if (cases := [r for r in results if any(key in way_figures for way_figures in r["figures"].values())])
    ]
    rows = len(shown) + bool(starts)
    figure, axes = plt.subplots(rows, 1, figsize=(9, 4 * rows), constrained_layout=True, squeeze=False)
    for (key, title, cases), axis in zip(shown, axes[:, 0], strict=False):
        ways = list(
            dict.fromkeys(w for r in cases for w, way_figures in r["figures"].items() if key in way_figures)
        )
        width = 0.8 / len(ways)
        for number, way in enumerate(ways):
            values = [r["figures"].get(way, {}).get(key, 0.0) for r in cases]
            bars = axis.bar([i + number * width for i in range(len(cases))], values, width, label=way)
            axis.bar_label(bars, [f"{value:.3g}" if value else "" for value in values], fontsize="small")
        axis.set_xticks([i + 0.4 - width / 2 for i in range(len(cases))], [r["name"] for r in cases])
        plt.setp(axis.get_xticklabels(), fontsize="small", rotation=15, ha="right")
        axis.set_title(title, loc="left")
        axis.margins(y=0.25)  # for the legend
        axis.legend(fontsize="small", ncols=len(ways), loc="upper right")
    if starts:
        axis = axes[-1, 0]
        bars = axis.barh(list(starts[0]), [median(start[name] for start in starts) for name in starts[0]])
        axis.bar_label(bars, fmt="%.1f", fontsize="small", padding=3)
        axis.invert_yaxis()
        axis.set_title("before the first step: seconds of processor time (less is better)", loc="left")
    figure.savefig(path, dpi=120)
    plt.close(figure)
