"""Scores of groups as tables, laid out as the benchmarks' papers do, in every form they are wanted in."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from train.declarations.benchmark import Layout
from train.declarations.dimensions import at_dimension, dimension_of, full_key
from train.declarations.registry import (
    Verdict,
    benchmark_of,
    benchmark_type,
    benchmark_types,
    is_compared,
    is_headline,
    judge,
    split_of,
)
from train.reports.compare import Difference, Paired
from train.reports.groups import Group, Value
from train.reports.scorecard import UNTRAINED, decimals, group_rows

_NARROW = 4  # columns of scores that fit into one of two columns of a paper

Row = tuple[Sequence[str], Sequence[Value | None]]  # labels, scores


@dataclass(frozen=True)
class Table:
    """Rows of labels and scores.

    Attributes:
        name: short, for LaTeX labels.
        title: what it shows, and in which unit.
        labels: names of the label columns.
        columns: (above, name) of each column of scores; equal names above are one heading.
        rows: labels, and a score or None for each column.
        factor, digits: how scores are shown: times `factor`, with so many digits.
    """

    name: str
    title: str
    labels: Sequence[str]
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Row]
    factor: float = 1.0
    digits: int = 3

    def text(self, value: Value | None, plus_minus: str = " ± ", nothing: str = "–") -> str:
        """A score as it stands in the table."""
        if value is None:
            return nothing
        text = f"{value.mean * self.factor:.{self.digits}f}"
        return text if value.std is None else f"{text}{plus_minus}{value.std * self.factor:.{self.digits}f}"

    @property
    def headings(self) -> list[tuple[str, int]]:
        """Headings above the columns, and how many each spans."""
        spans: list[tuple[str, int]] = []
        for above, _ in self.columns:
            if spans and spans[-1][0] == above:
                spans[-1] = above, spans[-1][1] + 1
            else:
                spans.append((above, 1))
        return spans


def paper_tables(groups: Sequence[Group]) -> list[Table]:
    """A table for each benchmark and split that any group was scored on, ours first; then by dimension."""
    every = list(dict.fromkeys(key for group in groups for key in group.keys))
    keys = [key for key in every if dimension_of(key) is None]
    there = dict.fromkeys((benchmark_of(key).name, split_of(key)) for key in keys)
    known = list(benchmark_types())
    ordered = sorted(there, key=lambda one: known.index(one[0]) if one[0] in known else len(known))
    tables = [_filled(benchmark_type(name).table(split, keys), groups) for name, split in ordered]
    cut = [_filled(layout, groups) for layout in _by_dimension(every)]
    return [table for table in [*tables, *cut] if table.columns and table.rows]


def _by_dimension(keys: Sequence[str]) -> list[Layout]:
    """One table of what models are compared by, at each size that embeddings were cut to; none if none."""
    found = {key: size for key in keys if (size := dimension_of(key)) is not None}
    sizes = sorted(set(found.values()), reverse=True)
    scores = [key for key in dict.fromkeys(map(full_key, found)) if is_compared(key)]
    if not scores:
        return []
    columns = [("", "full"), *(("dimensions", str(size)) for size in sizes)]
    rows = [([key], [key, *(at_dimension(key, size) for size in sizes)]) for key in scores]
    return [Layout("by-dimension", "By dimension", columns, rows, labels=["score"], digits=4)]


def _filled(layout: Layout, groups: Sequence[Group]) -> Table:
    rows: list[Row] = []
    for label, keys in layout.constant:
        values = [_constant(groups, key) for key in keys]
        if any(value is not None for value in values):
            rows.append(([label] + [""] * len(layout.labels), values))
    rows += _rows(groups, layout)
    labels = ["model", *layout.labels]
    return Table(layout.name, layout.title, labels, layout.columns, rows, layout.factor, layout.digits)


def _constant(groups: Sequence[Group], key: str) -> Value | None:
    """A score that is the same whatever was trained."""
    values = [value for group in groups if (value := group.value(key)) is not None]
    return Value(values[0].mean, None, 1) if values else None


def _rows(groups: Sequence[Group], layout: Layout) -> list[Row]:
    """The untrained models, then the groups; for each as many rows as the layout has."""
    rows: list[Row] = []
    for name, group, untrained in _baselines(groups) + [(group.name, group, False) for group in groups]:
        for labels, keys in layout.rows:
            values = [group.value(key, untrained=untrained) for key in keys]
            if untrained:  # it has no seed
                values = [None if v is None else Value(v.mean, None, v.num_seeds) for v in values]
            if any(value is not None for value in values):
                rows.append(([name, *labels], values))
    return rows


def _baselines(groups: Sequence[Group]) -> list[tuple[str, Group, bool]]:
    """An untrained model each, once where groups start from one (pooling is of the model, too)."""
    different: dict[str, tuple[str, Group]] = {}
    for group in groups:
        run = group.runs[0]
        if run.baseline:
            scores = {key: group.value(key, untrained=True) for key in sorted(run.baseline)}
            means = {key: round(value.mean, 6) for key, value in scores.items() if value is not None}
            different.setdefault(repr(means), (group.name, group))
    one = len(different) == 1
    return [(UNTRAINED if one else f"{UNTRAINED} ({name})", g, True) for name, g in different.values()]


def markdown(table: Table) -> str:
    """A table as Markdown."""
    figures = [f"{above} {name}".strip() for above, name in table.columns]
    return markdown_table(
        table.labels, figures, [[*labels, *map(table.text, values)] for labels, values in table.rows]
    )


def markdown_table(labels: Sequence[str], figures: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Labels to the left, figures to the right."""
    rule = ["---"] * len(labels) + ["---:"] * len(figures)
    return "\n".join("| " + " | ".join(map(cell, row)) + " |" for row in ([*labels, *figures], rule, *rows))


def cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def markdown_paired(paired: Paired) -> str:
    """A comparison as Markdown."""
    figures = [paired.ours, paired.theirs, *PAIRED_HEADS]
    return markdown_table(["score"], figures, map(paired_cells, paired.differences))


def idiom_tables(paired: Paired) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Heading → heads and rows: what each idiom gains in the headline scores, the greatest gain first.

    Gains of correlations, which are in ranks, have a table of their own.
    """
    headline = [d for d in paired.differences if is_headline(d.key)]
    tables = {}
    for heading, gains in (
        ("mean difference", [(d.key, d.clusters) for d in headline if d.clusters]),
        ("gain in rank, share of all", [(d.key, d.rank_gains) for d in headline if d.rank_gains]),
    ):
        names = dict.fromkeys(name for _, by_idiom in gains for name in by_idiom)
        rows = [[name, *(decimals(by_idiom.get(name), "+") for _, by_idiom in gains)] for name in names]
        if rows:
            tables[heading] = ["idiom", *(key for key, _ in gains)], rows
    return tables


def fold_table(paired: Paired) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: the difference in each fold of a cross-validation, in the headline scores."""
    differences = [d for d in paired.differences if d.folds and is_headline(d.key)]
    folds = sorted({fold for d in differences for fold in d.folds})
    rows = [[str(fold), *(decimals(d.folds.get(fold), "+") for d in differences)] for fold in folds]
    return ["fold", *(d.key for d in differences)], rows


PAIRED_HEADS = ("difference", "95% by query", "p by query", "95% by idiom", "p by idiom")


def paired_cells(d: Difference) -> list[str]:
    """A line of a comparison."""
    values = [decimals(d.ours), decimals(d.theirs), decimals(d.difference, "+")]
    by_query = [show_interval(d.by_query), show_p(d.p_query)]
    return [d.key, *values, *by_query, show_interval(d.by_cluster), show_p(d.p_cluster)]


def show_interval(ends: tuple[float, float] | None) -> str:
    """`[low, high]`."""
    return "–" if ends is None else f"[{ends[0]:+.4f}, {ends[1]:+.4f}]"


def show_p(p: float | None) -> str:
    """Three digits, and not 0."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def verdict(d: Difference) -> Verdict:
    """`better`, `worse`, or `` where the interval over queries holds 0 or there is none."""
    if d.by_query is None or d.by_query[0] <= 0 <= d.by_query[1]:
        return ""
    return judge(d.key, d.difference)


_STARTS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def spreadsheet_text(text: str) -> str:
    """A text, rather than a number, for a cell of a CSV file: no spreadsheet takes it for a formula.

    Names of runs come from folders and options; in some programs, `=` or `@` at their start runs commands.
    """
    return f"'{text}" if text.lstrip(" ").startswith(_STARTS_A_FORMULA) else text


_CSV_FIELDS = ("group", "runs", "score", "mean", "std", "seeds", "untrained", "difference")
_CSV_TESTS = ("low", "high", "p_by_query", "low_by_idiom", "high_by_idiom", "p_by_idiom")


def as_csv(groups: Sequence[Group], compared: Sequence[Paired] = ()) -> str:
    """Every score of every group, a line each, as fractions under its flat key."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*_CSV_FIELDS, *_CSV_TESTS])
    for group in groups:
        name = spreadsheet_text(group.name)
        runs = spreadsheet_text(" ".join(run.name for run in group.runs))
        for row in group_rows(group, compared):
            line = [name, runs, spreadsheet_text(row.key), row.value, row.std, row.num_seeds]
            line += [row.baseline, row.difference, *_csv_tests(row.paired)]
            writer.writerow(line)
    return file.getvalue()


def _csv_tests(d: Difference | None) -> list[float | None]:
    if d is None:
        return [None] * len(_CSV_TESTS)
    none = (None, None)
    return [*(d.by_query or none), d.p_query, *(d.by_cluster or none), d.p_cluster]


def latex(table: Table) -> str:
    """A table for `\\usepackage{booktabs}`."""
    heads = "l" * len(table.labels) + "r" * len(table.columns)
    first = len(table.labels) + 1
    above, rules = [""] * len(table.labels), []
    for name, span in table.headings:
        above.append(rf"\multicolumn{{{span}}}{{c}}{{{tex(name)}}}")
        if name:
            rules.append(rf"\cmidrule(lr){{{first}-{first + span - 1}}}")
        first += span
    width = "table*" if len(table.columns) > _NARROW else "table"
    lines = [rf"\begin{{{width}}}", r"\centering", r"\small", r"\setlength{\tabcolsep}{4pt}"]
    lines += [rf"\begin{{tabular}}{{{heads}}}", r"\toprule"]
    if rules:
        lines += [" & ".join(above) + r" \\", " ".join(rules)]
    lines.append(" & ".join(tex(name) for name in (*table.labels, *(n for _, n in table.columns))) + r" \\")
    lines.append(r"\midrule")
    before = None
    for labels, values in table.rows:
        if len(labels) > 1 and before not in (None, labels[0]):
            lines.append(r"\midrule")
        shown = ["" if labels[0] == before and len(labels) > 1 else labels[0], *labels[1:]]
        before = labels[0]
        cells = [tex(label) for label in shown] + [table.text(v, r" $\pm$ ", "--") for v in values]
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [
        rf"\caption{{{tex(table.title)}.}}",
        rf"\label{{tab:{_label(table.name)}}}",
        rf"\end{{{width}}}",
    ]
    return "\n".join(lines)


_TEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "ε": r"$\varepsilon$",
    "±": r"$\pm$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "…": r"\dots{}",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
}


def tex(text: str) -> str:
    """Text with every character that means something to LaTeX escaped."""
    return "".join(_TEX.get(character, character) for character in text)


def _label(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "-", name)


def latex_document(tables: Sequence[Table], notes: Sequence[str]) -> str:
    """All tables, to be `\\input` by a document that uses booktabs."""
    comments = [f"% {line}" for note in notes for line in note.splitlines()]
    start = [r"% \usepackage{booktabs} in the preamble; mean $\pm$ sample standard deviation over seeds"]
    return "\n".join([*start, *comments, "", "\n\n".join(latex(table) for table in tables), ""])
