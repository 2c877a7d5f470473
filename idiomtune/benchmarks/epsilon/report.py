"""The figure of ε-compositionality: what each class's pairs are like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from pydantic import BaseModel, Field

from idiomtune.benchmarks.epsilon import epsilon_score, reading_note
from idiomtune.data.names import EPSILON_CLASSES, EpsilonLanguage
from idiomtune.reports.benchmark_report import BenchmarkReport, RecordsOfRun

_SERIES = ("idiomaticity-ε", "baseline-ε")


class _PairRecord(BaseModel, strict=True):
    language: EpsilonLanguage
    class_: str = Field(alias="class")
    idiomaticity: float | None
    baseline: float | None


def report(run: RecordsOfRun) -> BenchmarkReport:
    """A figure for each language."""
    records = run.read(_PairRecord)
    names: dict[EpsilonLanguage, str] = {"en": "epsilon", "pt": "epsilon_pt"}
    figures = {
        names[language]: partial(
            _draw, language, [r for r in records if r.language == language], run.run.scores
        )
        for language in dict.fromkeys(record.language for record in records)
    }
    return BenchmarkReport(figures=figures)


def _draw(language: EpsilonLanguage, records: Sequence[_PairRecord], scores: Mapping[str, float]) -> Figure:
    groups = {}
    for class_ in EPSILON_CLASSES:
        pairs = [(r.idiomaticity, r.baseline) for r in records if r.class_ == class_]
        pairs = [(i, b) for i, b in pairs if i is not None and b is not None]
        groups[f"{class_} ({len(pairs)} pairs)"] = np.array(pairs, dtype=float).reshape(-1, 2).T
    keys = {class_: str(epsilon_score(language, class_, "p_value_order_free")) for class_ in EPSILON_CLASSES}
    caption = reading_note({class_: scores[key] for class_, key in keys.items() if key in scores})
    title = "ε-compositionality" + (", Portuguese" if language == "pt" else "")
    return violins(groups, title, caption)


def violins(groups: Mapping[str, np.ndarray], title: str, caption: str) -> Figure:
    """A violin for each series of each group, with its median and quartiles.

    Args:
        groups: heading → (2, P), the idiomaticity-ε and baseline-ε of its pairs.
    """
    width = 0.4
    figure = Figure(figsize=(8, 5.5), dpi=120, layout="constrained")
    axes = figure.subplots()
    for number, name in enumerate(_SERIES):
        shift = (number - 0.5) * width
        drawn = {n + shift: pairs[number] for n, pairs in enumerate(groups.values()) if pairs.size}
        if drawn:
            violin: dict[str, Any] = axes.violinplot(
                list(drawn.values()),
                list(drawn),
                widths=width,
                showextrema=False,
                quantiles=[[0.25, 0.5, 0.75]] * len(drawn),
            )
            violin["bodies"][0].set_label(name)
    if (everything := np.concatenate([pairs.ravel() for pairs in groups.values()])).size:
        low, high = np.quantile(everything, (0.001, 0.999))  # a few far values would flatten all others
        margin = 0.05 * (high - low) or 1.0
        axes.set_ylim(low - margin, high + margin)
        axes.legend()
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set(ylabel="ε = distance in context / distance alone − 1", title=title)
    axes.grid(visible=False, axis="x")
    figure.supxlabel(fill(caption, 100), fontsize="small", ha="center")
    return figure
