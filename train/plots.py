"""Plots of a run, for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no screen needed
from matplotlib import pyplot as plt


def learning_curve(
    metrics: Sequence[dict[str, Any]],
    baseline: dict[str, float],
    keys: Sequence[str],
    best_step: int | None,
    title: str,
    path: Path,
) -> None:
    """Training loss by step, and below it the scores `keys` of each checkpoint from step 0 on.

    A dotted line marks the best checkpoint.
    """
    steps = [m for m in metrics if "loss" in m]
    scored = [m for m in metrics if "scores" in m]
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(8, 8), sharex=True, constrained_layout=True, height_ratios=[2, 3]
    )
    above.plot([m["step"] for m in steps], [m["loss"] for m in steps], color="0.5", linewidth=1)
    above.set_ylabel("training loss")
    above.set_title(title, loc="left")
    for key in keys:
        points = [(0, baseline.get(key)), *((m["step"], m["scores"].get(key)) for m in scored)]
        known = [(x, y) for x, y in points if y is not None]
        below.plot(*zip(*known, strict=True), marker="o", markersize=4, label=key)
    if best_step is not None:
        below.axvline(best_step, color="0.5", linestyle=":", label=f"best checkpoint (step {best_step})")
    below.set_xlabel("step (0 = untrained)")
    below.set_ylabel("score")
    below.grid(alpha=0.3)
    figure.legend(*below.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
