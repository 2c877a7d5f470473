"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from train.reports.compare import Paired, paired_notes
from train.reports.groups import Group
from train.reports.scorecard import decimals, group_rows
from train.reports.tables import (
    Table,
    cell,
    fold_table,
    idiom_tables,
    markdown,
    markdown_paired,
    markdown_table,
)

READING = (
    "Means over seeds ± sample standard deviation (n − 1). Comparisons are query by query, each query's "
    "value the mean over seeds: 95% bootstrap intervals and two-sided paired permutation tests, over queries "
    "and over whole idioms (or compounds, expressions), which say more about unseen ones. p are not adjusted "
    "for their number."
)


def as_markdown(
    groups: Sequence[Group], tables: Sequence[Table], compared: Sequence[Paired], notes: Sequence[str]
) -> str:
    """What is compared, the papers' tables, the comparisons, every score."""
    lines = ["# Report", "", READING, ""]
    lines += [f"- **{cell(group.name)}**: {group.summary}" for group in groups]
    said = dict.fromkeys([*notes, *paired_notes(compared)])
    if said:
        lines += ["", "Notes:", "", *(f"- {cell(note)}" for note in said)]
    for table in tables:
        lines += ["", f"## {table.title}", "", markdown(table)]
    for paired in compared:
        lines += ["", f"## {cell(paired.ours)} − {cell(paired.theirs)}", "", markdown_paired(paired)]
        for what, (heads, rows) in (
            ("Fold by fold, difference", fold_table(paired)),
            *((f"Idiom by idiom, {what}", table) for what, table in idiom_tables(paired).items()),
        ):
            if rows:
                lines += ["", f"{what}:", "", markdown_table(heads[:1], heads[1:], rows)]
    for group in groups:
        lines += ["", f"## Every score: {cell(group.name)}", "", _scores(group)]
    return "\n".join(lines) + "\n"


def _scores(group: Group) -> str:
    rows = [[row.key, *row.cells[:2], decimals(row.std), str(row.num_seeds)] for row in group_rows(group)]
    return markdown_table(["score"], ["untrained", "mean", "± std", "seeds"], rows)
