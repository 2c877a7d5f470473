"""IdioLink in reports: what is retrieved, and recall by usage."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from pydantic import BaseModel, Field

from idiomtune.benchmarks.idiolink import RELEVANT_USAGES
from idiomtune.io.files import fingerprint
from idiomtune.reports.benchmark_report import (
    GAINED_MOST,
    NUM_FIRST,
    Answer,
    BenchmarkReport,
    Example,
    RecordsOfRun,
    worst_and_best,
)
from idiomtune.reports.statistics import mean_interval
from idiomtune.reports.tables import Table

_OTHER = "other idiom"
_NARROW, _FINE = 5.0, 160  # inches and dots an inch: print that is read on a phone too


class _FoundDocument(BaseModel, strict=True):
    id: str
    usage: str
    relevant: bool


class _QueryRecord(BaseModel, strict=True):
    """A record of `idiolink.jsonl`: a query in one mode."""

    id: str
    split: str
    mode: str
    idiom: str
    sentence: str
    usage: str
    ndcg: float = Field(alias="ndcg@10")
    r_precision: float
    recall_at_r: dict[str, float] = {}
    top: list[_FoundDocument]

    def first_score(self) -> float:
        """Of the first three documents how many are right; among equals, nDCG@10."""
        return 10 * sum(document.relevant for document in self.top[:NUM_FIRST]) + self.ndcg

    @property
    def keys_begin(self) -> str:
        """How the keys of its split and mode begin."""
        return f"idiolink/{self.split}/{self.mode}/"


_Texts = Mapping[str, tuple[str, str]]  # id of a document → sentence, idiom
Pairs = Sequence[tuple[_QueryRecord, _QueryRecord]]  # a query's record before and after training


def report(run: RecordsOfRun) -> BenchmarkReport | None:
    """Worst and best queries by nDCG@10, those that training changed most, and figures."""
    queries, untrained = shown_queries(run)
    if not queries:
        return None
    texts, notes = _documents(run.run.files)

    def lists(
        shown: Sequence[_QueryRecord], score: Callable[[_QueryRecord], float]
    ) -> dict[str, list[Example]]:
        pairs = [(query, untrained.get(query.id)) for query in shown]
        return worst_and_best(pairs, score, lambda query, before: _example(query, before, texts))

    split, mode = queries[0].split, queries[0].mode
    of_queries, *others = split.split("+")
    about = f": queries of {of_queries}, documents of {split.replace('+', ' and ')}" if others else ""
    idiomatic = [query for query in queries if query.usage == "idiomatic"]
    (gain, *_) = lists(idiomatic, _QueryRecord.first_score).get(GAINED_MOST, [None])
    pairs = [(untrained[query.id], query) for query in queries if query.id in untrained]
    return BenchmarkReport(
        "What it retrieves",
        f"IdioLink {split}{about}; by {mode}",
        lists(queries, lambda query: query.ndcg),
        notes,
        _shares(queries, texts),
        greatest_gain=gain,
        figures={"idiolink_recall": lambda: _recall_chart(pairs)} if pairs else {},
    )


def shown_queries(run: RecordsOfRun) -> tuple[list[_QueryRecord], dict[str, _QueryRecord]]:
    """The queries of one split and mode, and those of the untrained model by id.

    It is the split and mode that picked the best checkpoint, else the first that was scored.
    """
    after, before = run.read(_QueryRecord), run.read(_QueryRecord, untrained=True)
    scored = dict.fromkeys(query.keys_begin for query in after)
    monitored = [start for key in run.run.monitor for start in scored if key.startswith(start)]
    chosen = next(iter([*monitored, *scored]), "")
    untrained = {query.id: query for query in before if query.keys_begin == chosen}
    return [query for query in after if query.keys_begin == chosen], untrained


def _documents(files: Mapping[str, str]) -> tuple[_Texts, list[str]]:
    """The documents in the run's own data files, if these have not changed since."""
    texts: dict[str, tuple[str, str]] = {}
    missing = []
    indexes = {Path(name): checksum for name, checksum in files.items() if Path(name).name == "indexes.json"}
    for path, checksum in indexes.items():
        try:
            if fingerprint(path) != checksum:
                missing.append(f"{path.parent.name}/{path.name} has changed since")
                continue
            for record in json.loads(path.read_text(encoding="utf-8")):
                texts[record["id"]] = record["sentence"], record["idiom"]
        except (OSError, ValueError, KeyError, TypeError):
            missing.append(f"{path.parent.name}/{path.name} is not here")
    return texts, [f"documents are shown by their ids: {', '.join(missing)}"] if missing else []


def _answers(query: _QueryRecord, texts: _Texts) -> list[Answer]:
    answers = []
    for document in query.top:
        text, idiom = texts.get(document.id, (document.id, query.idiom))
        mark = "✓ relevant" if document.relevant else "✗ not relevant"
        label = document.usage if idiom == query.idiom else f"{document.usage}, of “{idiom}”"
        answers.append(Answer(text, mark, document.relevant, document.usage, label))
    return answers


def _example(query: _QueryRecord, before: _QueryRecord | None, texts: _Texts) -> Example:
    return Example(
        query.sentence,
        kind=query.usage,
        topic=f"idiom “{query.idiom}”",
        metric="nDCG@10",
        score=f"{query.ndcg:.3f}",
        remark="" if before is None else f", untrained {before.ndcg:.3f}",
        answers=_answers(query, texts),
        untrained_answers=[] if before is None else _answers(before, texts),
    )


def _shares(queries: Sequence[_QueryRecord], texts: _Texts) -> Table:
    kinds = [*RELEVANT_USAGES, "literal", *([_OTHER] if texts else [])]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for query in queries:
        for document in query.top:
            _, idiom = texts.get(document.id, ("", query.idiom))
            counts[query.usage][document.usage if idiom == query.idiom else _OTHER] += 1
    rows = [
        [usage, *(f"{100 * count[kind] / max(1, count.total()):.1f} %" for kind in kinds)]
        for usage, count in counts.items()
    ]
    return Table("The first ten documents, by the query's own usage", ["queries", *kinds], rows)


# ---- figures


def recalls(pairs: Pairs) -> dict[str, dict[str, tuple[list[float], list[float]]]]:
    """Heading → usage → recall of the same queries before and after training."""
    groups: dict[str, dict[str, tuple[list[float], list[float]]]] = defaultdict(dict)

    def add(heading: str, usage: str, values: Sequence[tuple[float, float]]) -> None:
        if values:
            groups[heading][usage] = [b for b, _ in values], [a for _, a in values]

    for usage in ("literal", "idiomatic"):
        values = [(b.r_precision, a.r_precision) for b, a in pairs if a.usage == usage]
        add("queries, by usage", usage, values)
    for usage in RELEVANT_USAGES:
        by_usage = [(b.recall_at_r, a.recall_at_r) for b, a in pairs]
        values = [(b[usage], a[usage]) for b, a in by_usage if usage in b and usage in a]
        add("relevant documents of idiomatic queries, by usage", usage, values)
    return groups


def _recall_chart(pairs: Pairs) -> Figure:
    """Bars of means before and after training with 95% intervals, and the interval of each difference."""
    groups = recalls(pairs)
    counts = [len(rows) for rows in groups.values()]
    size = _NARROW, 1.8 + 0.3 * len(counts) + 0.62 * sum(counts)
    figure = Figure(figsize=size, dpi=_FINE, layout="constrained")
    column = figure.subplots(len(counts), 1, sharex=True, squeeze=False, height_ratios=counts)[:, 0]
    for axes, (heading, rows) in zip(column, groups.items(), strict=True):
        for position, (before, after) in enumerate(rows.values()):
            _draw_gain(axes, position, before, after)
        axes.set_yticks(
            range(len(rows)), [f"{usage}\n{len(after)} queries" for usage, (_, after) in rows.items()]
        )
        axes.invert_yaxis()
        axes.set_title(heading)
        axes.grid(visible=False, axis="y")
    column[0].text(1.02, 1.02, "difference", transform=column[0].transAxes, fontsize="small")
    column[-1].set_xlabel(
        "recall@R: share of the relevant documents that\nare among the first R (R: how many there are)"
    )
    title = f"IdioLink {pairs[0][1].split}, {pairs[0][1].mode}: recall by usage"
    figure.suptitle(title, x=0.02, ha="left", fontsize="large")
    handles = column[0].containers[:4:2]  # both sides' bars, without their intervals
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _draw_gain(axes: Any, row: int, before: Sequence[float], after: Sequence[float]) -> None:
    sides = ((-0.2, "untrained", "0.75", "///", before), (0.2, "trained", "#0072b2", "", after))
    for shift, side, colour, hatch, values in sides:
        mean, (low, high) = float(np.mean(values)), mean_interval(values)
        axes.barh(
            *(row + shift, mean, 0.38),
            xerr=[[max(mean - low, 0)], [max(high - mean, 0)]],
            error_kw={"elinewidth": 1, "capsize": 2},
            **{"color": colour, "hatch": hatch, "edgecolor": "0.3", "linewidth": 0.5},
            label=f"{side}, 95% interval by query",
        )
    changes = np.subtract(after, before)
    low, high = mean_interval(changes)
    text = f"{changes.mean():+.3f}\n[{low:+.3f}, {high:+.3f}]"
    axes.text(1.02, row, text, transform=axes.get_yaxis_transform(), va="center", fontsize="small")
