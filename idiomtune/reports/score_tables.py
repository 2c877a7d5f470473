"""Scores of groups as tables, laid out as the benchmarks' papers do; comparisons; the report's files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from idiomtune.io.spreadsheets import spreadsheet_text
from idiomtune.plugins.registry import benchmark_type, benchmark_types
from idiomtune.plugins.score import Score, ScoreTable
from idiomtune.reports.compare import UNTRAINED, Difference, GroupComparison, unit_of
from idiomtune.reports.frames import Group, ScoreMean, group_runs
from idiomtune.reports.runs import RunResults
from idiomtune.reports.tables import Table, cell, markdown

Column = tuple[str, str]  # heading, name
Cell = tuple[tuple[str, ...], Column, ScoreMean | None]  # labels of the row, column, score

READING = (
    "Means over seeds ± sample standard deviation (n − 1). Comparisons are query by query, each query's "
    "value the mean over seeds: 95% bootstrap intervals and two-sided paired permutation tests, over queries "
    "and over whole idioms (or compounds, expressions, groups), which say more about unseen ones. p are not "
    "adjusted for their number."
)
_CSV = (
    *("group", "runs", "score", "mean", "std", "seeds", "untrained", "difference"),
    *("low", "high", "p_by_query", "low_by_idiom", "high_by_idiom", "p_by_idiom"),
)
_NO_ENDS = (None, None)


def decimals(value: float | None, sign: str = "") -> str:
    """Four digits; nothing without a number."""
    return "" if value is None or pd.isna(value) else f"{value:{sign}.4f}"


def show_interval(ends: tuple[float, float] | None) -> str:
    """`[low, high]`."""
    return "–" if ends is None else f"[{ends[0]:+.4f}, {ends[1]:+.4f}]"


def _p(p: float | None) -> str:
    """Three digits, and not 0."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def changes(
    after: ScoreTable,
    before: Mapping[str, float],
    title: str = "",
    heads: Sequence[str] = (UNTRAINED, "trained"),
) -> Table:
    """Every score before and after, and the difference, which is not judged."""
    rows = []
    for key, value in after.items():
        change = value - before[key] if key in before else None
        rows.append([key, decimals(before.get(key)), decimals(value), decimals(change, "+")])
    return Table(title, ["score", *heads, "difference"], rows)


def changeable(scores: ScoreTable) -> ScoreTable:
    """Those of scores that training can change."""
    return ScoreTable(score for score in scores.parts.values() if not score.is_constant)


# ----------------------------------------------------------------------------------- of groups of runs


def score_frame(groups: Sequence[Group], compared: Sequence[GroupComparison] = ()) -> pd.DataFrame:
    """Every score of every group, with its comparison to the untrained model: the report's CSV file."""
    tested = {(c.candidate, d.key): d for c in compared if c.reference == UNTRAINED for d in c.differences}
    none = Difference(Score("", "", "", ""), 0, 0)
    rows = []
    for group in groups:
        runs = " ".join(run.name for run in group.runs)
        for key, mean in ((key, mean) for key in group.keys if (mean := group.mean(key))):
            before, d = group.mean(key, untrained=True), tested.get((group.name, key), none)
            change = (before.mean, mean.mean - before.mean) if before else (None, None)
            tests = (*(d.by_query or _NO_ENDS), d.p_query, *(d.by_cluster or _NO_ENDS), d.p_cluster)
            rows.append((group.name, runs, key, mean.mean, mean.std, mean.seeds, *change, *tests))
    return pd.DataFrame(rows, columns=_CSV)


def group_table(group: Group) -> Table:
    """Every score of a group."""
    frame = score_frame([group])
    texts = [frame[name].map(decimals) for name in ("untrained", "mean", "std")]
    columns = [frame.score, *texts, frame.seeds.map(str), frame.difference.map(lambda d: decimals(d, "+"))]
    names = ["score", UNTRAINED, "mean", "± std", "seeds", "difference"]
    rows = list(zip(*columns, strict=True))
    return Table(f"{group.name}: {group.summary}", names, rows)


def paper_tables(groups: Sequence[Group]) -> list[Table]:
    """A table for each benchmark and split that any group was scored on, ours first; then by dimension.

    Each has the rows that are the same whatever was trained, the untrained models, then the groups.
    """
    parts = {key: group.parts[key] for group in groups for key in group.keys}
    by_place: dict[tuple[str, str], list[Score]] = {}
    for score in parts.values():
        if score.dimension is None:
            by_place.setdefault((score.benchmark, score.split), []).append(score)
    benchmark_names = list(benchmark_types())
    ordered = sorted(
        by_place,
        key=lambda place_of: (
            benchmark_names.index(place_of[0]) if place_of[0] in benchmark_names else len(benchmark_names)
        ),
    )
    tables = [_benchmark_table(*table_of, by_place[table_of], groups) for table_of in ordered]
    return [table for table in [*tables, _by_dimension(parts, groups)] if table.rows]


def scorecard_tables(scores: ScoreTable, model: str) -> list[Table]:
    """The same of one model's scores."""
    return paper_tables(
        group_runs([RunResults(Path(), model, "scored", scores=scores, meta={"model": model})])
    )


def _benchmark_table(name: str, split: str, scores: Sequence[Score], groups: Sequence[Group]) -> Table:
    benchmark = benchmark_type(name)
    placed = [(score, table_cell) for score in scores if (table_cell := benchmark.cell_of(score))]
    headings = list(dict.fromkeys(above for _, (_, above, _) in placed))
    order = {metric.name: number for number, metric in enumerate(benchmark.metrics)}
    placed.sort(key=lambda cell: (headings.index(cell[1][1]), order.get(cell[0].metric, len(order))))
    cells: list[Cell] = []
    for score, (row, above, metric) in placed:
        if score.is_constant:
            mean = next((mean for group in groups if (mean := group.mean(str(score)))), None)
            cells.append(((row, ""), (above, metric), mean and ScoreMean(mean.mean)))
    for side, group, untrained in _models(groups):
        for score, (row, above, metric) in placed:
            if not score.is_constant:
                cells.append(((side, row), (above, metric), _mean(group, str(score), untrained)))
    title = ", ".join(filter(None, (benchmark.title or name, split, "in percent" * benchmark.percent)))
    title += ": ↓ smaller is better" * any(score.better == "lower" for score, _ in placed)
    columns = list(dict.fromkeys((above, column) for _, (_, above, column) in placed))
    factor, digits = (100.0, 2) if benchmark.percent else (1.0, 3)
    name = "-".join(filter(None, (name, split)))
    return pivot(title, ["model", benchmark.rows], columns, cells, name=name, factor=factor, digits=digits)


def _by_dimension(parts: Mapping[str, Score], groups: Sequence[Group]) -> Table:
    """The compared scores at each number of dimensions, if there are any.

    Args:
        parts: every score of the groups, by key.
    """
    truncated = [score for score in parts.values() if score.dimension is not None]
    sizes = sorted({score.dimension for score in truncated if score.dimension is not None}, reverse=True)
    full = dict.fromkeys(str(replace(score, dimension=None)) for score in truncated)
    cells: list[Cell] = []
    for side, group, untrained in _models(groups):
        for key in full:
            if key in parts and parts[key].is_compared:
                cells.append(((side, key), ("", "full"), _mean(group, key, untrained)))
                for size in sizes:
                    mean = _mean(group, str(replace(parts[key], dimension=size)), untrained)
                    cells.append(((side, key), ("dimensions", str(size)), mean))
    columns = [("", "full"), *(("dimensions", str(size)) for size in sizes)]
    return pivot("By dimension", ["model", "score"], columns, cells, name="by-dimension", digits=4)


def _mean(group: Group, key: str, untrained: bool) -> ScoreMean | None:
    mean = group.mean(key, untrained=untrained)
    return ScoreMean(mean.mean) if mean and untrained else mean  # an untrained model has no seed


def pivot(
    title: str,
    labels: Sequence[str],
    columns: Sequence[Column],
    cells: Iterable[Cell],
    *,
    name: str,
    factor: float = 1.0,
    digits: int = 3,
) -> Table:
    """A table of scores; rows without any are left out, and a label that is empty in all rows.

    Args:
        labels: names of the rows' labels.
        columns: heading and name of each.
        cells: labels of the row, column, score.
        factor, digits: how scores are shown: times `factor`, with this many digits.
    """

    def text(mean: ScoreMean | None) -> str:
        numbers = [] if mean is None else [mean.mean] if mean.std is None else [mean.mean, mean.std]
        return " ± ".join(f"{number * factor:.{digits}f}" for number in numbers) or "–"

    rows: dict[tuple[str, ...], dict[Column, ScoreMean]] = {}
    for row, column, mean in cells:
        if mean is not None:
            rows.setdefault(row, {})[column] = mean
    used = [number for number in range(len(labels)) if not number or any(row[number] for row in rows)]
    filled = [
        [*(row[number] for number in used), *(text(of_row.get(column)) for column in columns)]
        for row, of_row in rows.items()
    ]
    heads = [labels[number] for number in used] + ["\n".join(column).strip() for column in columns]
    return Table(title, heads, filled, len(used), name=name)


def _models(groups: Sequence[Group]) -> list[tuple[str, Group, bool]]:
    """The untrained models, then the groups: name, group, whether untrained.

    There is one untrained model if all groups start from the same one (pooling is part of it, too).
    """
    different: dict[str, Group] = {}
    for group in groups:
        means = {k: round(m.mean, 6) for (untrained, k), m in sorted(group.means.items()) if untrained}
        if means:
            different.setdefault(repr(means), group)
    is_single = len(different) == 1
    untrained = [(UNTRAINED if is_single else f"{UNTRAINED} ({g.name})", g, True) for g in different.values()]
    return [*untrained, *((group.name, group, False) for group in groups)]


# ------------------------------------------------------------------------------------- of comparisons


def paired_table(compared: GroupComparison) -> Table:
    """A comparison, a line a score."""
    rows = []
    for d in compared.differences:
        tests = show_interval(d.by_query), _p(d.p_query), show_interval(d.by_cluster), _p(d.p_cluster)
        rows.append([*_sides(d), *tests])
    sides = ("trained", UNTRAINED) if compared.reference == UNTRAINED else ("candidate", "reference")
    verdicts = [d.verdict for d in compared.differences]
    counts = dict.fromkeys((d.num_queries, d.num_clusters) for d in compared.differences if d.num_queries)
    unit = unit_of(d.score for d in compared.differences if d.num_queries)
    about = "; ".join(f"{queries} queries of {clusters} {unit}s" for queries, clusters in counts)
    title = f"{compared.title} ({about})" if about else compared.title
    columns = ["95% by query", "p by query", f"95% by {unit}", f"p by {unit}"]
    return Table(title, ["score", *sides, "difference", *columns], rows, verdicts=verdicts)


def _sides(d: Difference) -> list[str]:
    return [d.key, decimals(d.candidate), decimals(d.reference), decimals(d.difference, "+")]


def untested_table(compared: Sequence[GroupComparison]) -> Table:
    """All comparisons by means alone."""
    rows = []
    for comparison in compared:
        if not comparison.is_tested:
            rows += [[comparison.title * (not n), *_sides(d)] for n, d in enumerate(comparison.differences)]
    return Table(
        "Compared only by their means", ["groups", "score", "candidate", "reference", "difference"], rows, 2
    )


def detail_tables(compared: GroupComparison) -> list[Table]:
    """What each fold of a cross-validation, then each idiom, gains in the headline scores.

    The greatest gain is first; gains of correlations, which are in ranks, have a table of their own.
    """
    tables = []
    headline = [d for d in compared.differences if d.score.is_headline]
    clustered = [d for d in headline if len(d.changes)]
    unit = unit_of(d.score for d in clustered)
    for heading, gains in (
        ("fold by fold, difference", {d.key: d.folds for d in headline if len(d.folds)}),
        (f"{unit} by {unit}, mean difference", {d.key: d.clusters for d in clustered if not d.in_ranks}),
        (
            f"{unit} by {unit}, gain in rank, share of all",
            {d.key: d.clusters for d in clustered if d.in_ranks},
        ),
    ):
        names = dict.fromkeys(name for of_score in gains.values() for name in of_score.index)
        rows = [[str(name), *(decimals(g.get(name), "+") for g in gains.values())] for name in names]
        columns = [heading.partition(" ")[0], *gains]
        tables += [Table(f"{compared.title}, {heading}", columns, rows)] if rows else []
    return tables


# ---------------------------------------------------------------------------------------------- files


def as_markdown(
    groups: Sequence[Group],
    tables: Sequence[Table],
    compared: Sequence[GroupComparison],
    notes: Sequence[str],
) -> str:
    """What is compared, the papers' tables, the comparisons, every score."""
    lines = ["# Report", "", READING, ""]
    lines += [f"- **{cell(group.name)}**: {group.summary}" for group in groups]
    lines += ["", "Notes:", "", *(f"- {cell(note)}" for note in notes)] if notes else []
    tables = [*tables, *(table for pair in compared for table in (paired_table(pair), *detail_tables(pair)))]
    for table in [*tables, *map(group_table, groups)]:
        lines += ["", f"## {cell(table.title)}", "", markdown(table)]
    return "\n".join(lines) + "\n"


def as_csv(groups: Sequence[Group], compared: Sequence[GroupComparison] = ()) -> str:
    """Every score of every group, a line each, as fractions under its flat key."""
    frame = score_frame(groups, compared)
    texts = {name: frame[name].map(spreadsheet_text) for name in ("group", "runs", "score")}
    return str(frame.assign(**texts).to_csv(index=False, lineterminator="\n"))
