"""The benchmark as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no screen needed
from matplotlib import pyplot as plt


def plot(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Training throughput by case, and scorecard time by case, a bar a way.

    Args:
        results: of each case its `name` and `figures`, as :func:`tests.bench.report.summary` gives them.
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
    figure, axes = plt.subplots(
        len(shown), 1, figsize=(8, 4 * len(shown)), constrained_layout=True, squeeze=False
    )
    for (key, title, cases), axis in zip(shown, axes[:, 0], strict=True):
        ways = list(
            dict.fromkeys(w for r in cases for w, way_figures in r["figures"].items() if key in way_figures)
        )
        width = 0.8 / len(ways)
        for number, way in enumerate(ways):
            values = [r["figures"].get(way, {}).get(key, 0.0) for r in cases]
            bars = axis.bar([i + number * width for i in range(len(cases))], values, width, label=way)
            axis.bar_label(bars, [f"{value:.3g}" if value else "" for value in values], fontsize="small")
        axis.set_xticks([i + 0.4 - width / 2 for i in range(len(cases))], [r["name"] for r in cases])
        axis.tick_params(axis="x", labelsize="small", labelrotation=10)
        axis.set_title(title, loc="left")
        axis.legend(fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)
