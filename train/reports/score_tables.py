"""Scores of groups as tables, laid out as the benchmarks' papers do; comparisons; the report's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from train.declarations.benchmark import Layout
from train.declarations.dimensions import at_dimension, dimension_of, full_key
from train.declarations.registry import (
    benchmark_of,
    benchmark_type,
    benchmark_types,
    is_compared,
    is_headline,
    judge,
)
from train.reports.compare import UNTRAINED, Comparison, Difference
from train.reports.frames import Group, Key, Mean
from train.reports.tables import Table, cell, markdown

READING = (
    "Means over seeds ± sample standard deviation (n − 1). Comparisons are query by query, each query's "
    "value the mean over seeds: 95% bootstrap intervals and two-sided paired permutation tests, over queries "
    "and over whole idioms (or compounds, expressions), which say more about unseen ones. p are not adjusted "
    "for their number."
)
_CSV = (
    *("group", "runs", "score", "mean", "std", "seeds", "untrained", "difference"),
    *("low", "high", "p_by_query", "low_by_idiom", "high_by_idiom", "p_by_idiom"),
)
_NO_ENDS = (None, None)
PAIRED = ("difference", "95% by query", "p by query", "95% by idiom", "p by idiom")


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
    after: Mapping[str, float],
    before: Mapping[str, float],
    title: str = "",
    heads: Sequence[str] = (UNTRAINED, "trained"),
) -> Table:
    """Every score before and after, and the difference."""
    rows, verdicts = [], []
    for key, value in after.items():
        change = value - before[key] if key in before else None
        rows.append([key, decimals(before.get(key)), decimals(value), decimals(change, "+")])
        verdicts.append(judge(key, change or 0.0))
    return Table(title, ["score", *heads, "difference"], rows, verdicts=verdicts)


def changeable(scores: Mapping[str, float]) -> dict[str, float]:
    """Those of scores that training can change."""
    return {key: value for key, value in scores.items() if not benchmark_of(key).is_constant(key)}


# ----------------------------------------------------------------------------------- of groups of runs


def score_frame(groups: Sequence[Group], compared: Sequence[Comparison] = ()) -> pd.DataFrame:
    """Every score of every group, with its comparison to the untrained model: the report's CSV file."""
    tested = {(c.ours, d.key): d for c in compared if c.theirs == UNTRAINED for d in c.differences}
    none = Difference("", 0, 0)
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
    verdicts = [
        judge(key, change) for key, change in zip(frame.score, frame.difference.fillna(0), strict=True)
    ]
    names = ["score", UNTRAINED, "mean", "± std", "seeds", "difference"]
    rows = list(zip(*columns, strict=True))
    return Table(f"{group.name}: {group.summary}", names, rows, verdicts=verdicts)


def paper_tables(groups: Sequence[Group]) -> list[Table]:
    """A table for each benchmark and split that any group was scored on, ours first; then by dimension."""
    every = list(dict.fromkeys(key for group in groups for key in group.keys))
    keys = [key for key in every if dimension_of(key) is None]
    places = dict.fromkeys(Key.of(key)[:2] for key in keys)
    known = list(benchmark_types())
    ordered = sorted(places, key=lambda one: known.index(one[0]) if one[0] in known else len(known))
    layouts = [benchmark_type(name).table(split, keys) for name, split in ordered]
    tables = [_filled(layout, groups) for layout in [*layouts, *_by_dimension(every)]]
    return [table for table in tables if table.rows and len(table.columns) > table.num_labels]


def _by_dimension(keys: Sequence[str]) -> list[Layout]:
    """One table of what models are compared by, at each size that embeddings were cut to, if any."""
    sizes = {key: size for key in keys if (size := dimension_of(key)) is not None}
    scores = [key for key in dict.fromkeys(map(full_key, sizes)) if is_compared(key)]
    ordered = sorted(set(sizes.values()), reverse=True)
    columns = [("", "full"), *(("dimensions", str(size)) for size in ordered)]
    rows = [([key], [key, *(at_dimension(key, size) for size in ordered)]) for key in scores]
    layout = Layout("by-dimension", "By dimension", columns, rows, labels=["score"], digits=4)
    return [layout] if scores else []


def _filled(layout: Layout, groups: Sequence[Group]) -> Table:
    """Rows that are the same whatever was trained, the untrained models, then the groups."""
    rows = []
    for label, keys in layout.constant:
        means = [next((mean for group in groups if (mean := group.mean(key))), None) for key in keys]
        rows.append(([label, *[""] * len(layout.labels)], [mean and Mean(mean.mean) for mean in means]))
    for name, group, untrained in [*_untrained(groups), *((group.name, group, False) for group in groups)]:
        for labels, keys in layout.rows:
            means = [group.mean(key, untrained=untrained) for key in keys]
            if untrained:  # it has no seed
                means = [mean and Mean(mean.mean) for mean in means]
            rows.append(([name, *labels], means))
    return layout_table(layout, "model", rows)


def layout_table(
    layout: Layout, label: str, rows: Sequence[tuple[Sequence[str], Sequence[Mean | None]]]
) -> Table:
    """A layout's table of these rows: labels, and a score for each column; those without any are left out."""

    def text(mean: Mean | None) -> str:
        if mean is None:
            return "–"
        numbers = [mean.mean] if mean.std is None else [mean.mean, mean.std]
        return " ± ".join(f"{number * layout.factor:.{layout.digits}f}" for number in numbers)

    columns = [label, *layout.labels, *(f"{above}\n{name}".strip() for above, name in layout.columns)]
    filled = [[*labels, *map(text, means)] for labels, means in rows if any(means)]
    return Table(layout.title, columns, filled, 1 + len(layout.labels), name=layout.name)


def _untrained(groups: Sequence[Group]) -> list[tuple[str, Group, bool]]:
    """An untrained model each, once if groups start from the same one (pooling is part of it, too)."""
    different: dict[str, Group] = {}
    for group in groups:
        means = {k: round(m.mean, 6) for (untrained, k), m in sorted(group.means.items()) if untrained}
        if means:
            different.setdefault(repr(means), group)
    alone = len(different) == 1
    return [(UNTRAINED if alone else f"{UNTRAINED} ({g.name})", g, True) for g in different.values()]


# ------------------------------------------------------------------------------------- of comparisons


def paired_table(compared: Comparison) -> Table:
    """A comparison, a line a score."""
    rows = [
        [*_sides(d), show_interval(d.by_query), _p(d.p_query), show_interval(d.by_cluster), _p(d.p_cluster)]
        for d in compared.differences
    ]
    sides = ("trained", UNTRAINED) if compared.theirs == UNTRAINED else ("ours", "theirs")
    verdicts = [d.verdict for d in compared.differences]
    return Table(compared.title, ["score", *sides, *PAIRED], rows, verdicts=verdicts)


def _sides(d: Difference) -> list[str]:
    return [d.key, decimals(d.ours), decimals(d.theirs), decimals(d.difference, "+")]


def untested_table(compared: Sequence[Comparison]) -> Table:
    """All comparisons by means alone."""
    rows = [
        ["" if number else one.title, *_sides(d)]
        for one in compared
        if not one.is_tested
        for number, d in enumerate(one.differences)
    ]
    return Table(
        "Compared by their means alone", ["groups", "score", "ours", "theirs", "difference"], rows, 2
    )


def detail_tables(compared: Comparison) -> list[Table]:
    """What each fold of a cross-validation, then each idiom, gains in the headline scores.

    The greatest gain is first; gains of correlations, which are in ranks, have a table of their own.
    """
    tables = []
    headline = [d for d in compared.differences if is_headline(d.key)]
    for label, heading, found in (
        ("fold", "fold by fold, difference", {d.key: d.folds for d in headline if len(d.folds)}),
        (
            *("idiom", "idiom by idiom, mean difference"),
            {d.key: d.clusters for d in headline if len(d.changes) and not d.in_ranks},
        ),
        (
            *("idiom", "idiom by idiom, gain in rank, share of all"),
            {d.key: d.clusters for d in headline if len(d.changes) and d.in_ranks},
        ),
    ):
        if found:
            names = dict.fromkeys(name for gains in found.values() for name in gains.index)
            rows = [
                [str(name), *(decimals(gains.get(name), "+") for gains in found.values())] for name in names
            ]
            tables.append(Table(f"{compared.title}, {heading}", [label, *found], rows))
    return tables


# ---------------------------------------------------------------------------------------------- files


def as_markdown(
    groups: Sequence[Group], tables: Sequence[Table], compared: Sequence[Comparison], notes: Sequence[str]
) -> str:
    """What is compared, the papers' tables, the comparisons, every score."""
    lines = ["# Report", "", READING, ""]
    lines += [f"- **{cell(group.name)}**: {group.summary}" for group in groups]
    lines += ["", "Notes:", "", *(f"- {cell(note)}" for note in notes)] if notes else []
    tables = [*tables, *(table for one in compared for table in (paired_table(one), *detail_tables(one)))]
    for table in [*tables, *map(group_table, groups)]:
        lines += ["", f"## {cell(table.title)}", "", markdown(table)]
    return "\n".join(lines) + "\n"


def as_csv(groups: Sequence[Group], compared: Sequence[Comparison] = ()) -> str:
    """Every score of every group, a line each, as fractions under its flat key."""
    frame = score_frame(groups, compared)
    texts = {name: frame[name].map(spreadsheet_text) for name in ("group", "runs", "score")}
    return str(frame.assign(**texts).to_csv(index=False, lineterminator="\n"))


def spreadsheet_text(text: str) -> str:
    """A text, rather than a number, for a cell of a CSV file: no spreadsheet takes it for a formula.

    Names of runs come from folders and options; in some programs, `=` or `@` at their start runs commands.
    """
    return f"'{text}" if text.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text
