"""Forms of a user's table: a form is a set of roles, each with its names of columns.

Names that sentence-transformers' examples use, and the JSONL of FlagEmbedding (`query`, `pos`, `neg`) and
Tevatron (`query`, `positive_passages`, `negative_passages`), are understood without a mapping.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path

from idiomtune.io.tables import normalise

SPAN_PARTS = ("span", "span_start", "span_end")
# Role of a text → that of a span in it.
SPAN_OF = {
    **{"text": "span", "anchor": "span", "positive": "positive_span"},
    **{"negative": "negative_span", "sentence1": "span1", "sentence2": "span2"},
}


@dataclass(frozen=True, eq=False)
class Form:
    """The roles of a row of a table.

    Attributes:
        name: `pairs`, `scored`, …
        roles: role → names of columns that have it, in any case, with - or a blank for _.
        required: roles that a table must have.
        several: roles that several columns may have, also as `positive_1`, `positive_2`, …
    """

    name: str
    roles: Mapping[str, Sequence[str]]
    required: Sequence[str]
    several: Sequence[str] = ()

    @cached_property
    def _by_name(self) -> dict[str, str]:
        return {alias: role for role, aliases in self.roles.items() for alias in aliases}

    def role_of(self, column: str) -> str | None:
        """The role of a column of this name."""
        name = normalise(column)
        if role := self._by_name.get(name):
            return role
        numbered = re.fullmatch(r"([a-z_]+?)_?\d+", name)
        role = self._by_name.get(numbered[1]) if numbered else None
        return role if role in self.several else None

    def recognise(self, header: Sequence[str], chosen: Mapping[str, str]) -> dict[str, list[str]]:
        """The columns of each role that a table, or a row of JSON lines, has; of synonyms the first alone.

        Args:
            header: names of all columns.
            chosen: role → the column that the user says has it, whatever the names of others.
        """
        mapped = {column: role for role, column in chosen.items()}
        columns: dict[str, list[str]] = {}
        for column in header:
            if role := self.role_of(mapped.get(column, column)):
                columns.setdefault(role, []).append(column)
        for role, names in columns.items():
            synonyms = [c for alias in self.roles[role] for c in names if normalise(c) == alias]
            others = [c for c in names if c not in synonyms[1:]]
            columns[role] = [c for c in names if c in mapped] or others
        return columns


# Each row: a section, a role, the names of its columns.
_TABLE = [line.split("\t") for line in Path(__file__).with_name("roles.tsv").read_text("utf-8").splitlines()]


def _roles(*sections: str) -> dict[str, tuple[str, ...]]:
    """Role → the names of its columns, of some sections of the table.

    A role with `span` in its name also has two ends.
    """
    return {
        f"{role}{end}": tuple(f"{name}{end}" for name in names.split())
        for wanted in sections
        for section, role, names in _TABLE
        if section == wanted
        for end in (("", "_start", "_end") if "span" in role else ("",))
    }


# What is trained on: the first that fits counts. Beside a group, a label is read only if the user says so.
_SCORED = ("sentence1", "sentence2", "score")
TRAINED = (
    Form("scored", _roles("two sentences", "score", "row"), _SCORED),
    *(
        Form(
            "pairs",
            _roles(texts, "negatives", "meaning", "row"),
            ("anchor", "positive"),
            ("positive", "negative"),
        )
        for texts in ("pair", "paraphrase")
    ),
    Form("scored", _roles("pair with score", "score", "row"), _SCORED),
    Form("sentences", _roles("sentence", "meaning", "row"), ("text", "group")),
    Form("sentences", _roles("sentence", "label", "meaning", "row"), ("text", "label")),
)
# Columns that are asked about where training does not read them, and those that never are.
NAMES = {name for form in TRAINED for names in form.roles.values() for name in names}
_ANNOTATIONS = [name for names in _roles("annotation").values() for name in names]


def is_annotation(column: str) -> bool:
    """Whether a column of this name says where a row is from, and never which rows are right."""
    return not column or any(fnmatch(normalise(column), name) for name in _ANNOTATIONS)


# What is scored on. A pair's `span` is refused: of which sentence?
STS = Form("scored pairs", _roles("two sentences", "scored on", "scored pair"), _SCORED)
DOCUMENTS = Form("documents", _roles("document"), ("id", "text"))
QUERIES = Form("queries", _roles("query", "scored on"), ("id", "text"))
JUDGEMENTS = Form("judgements", _roles("judgement"), ("query", "document"))
# What is explored, and what negatives are mined from.
TEXTS = Form("texts", _roles("document", "explored"), ("text",))
CORPUS = Form("corpus", _roles("corpus"), ("text",))
# Glossaries: users' own, and two published tables that can be read as they are.
GLOSSARY = Form("glossary", _roles("glossary"), ("expression", "meaning"))
EXPRESSIONS = Form("expressions", _roles("glossary"), ("expression",))
PIE_SENSES = Form("PIE", _roles("PIE"), ("expression", "meaning", "sentence"))
ASTITCH_SENSES = Form("AStitchInLanguageModels", _roles("AStitch"), ("expression", "meaning"), ("meaning",))
PUBLISHED_GLOSSARIES = {PIE_SENSES: None, ASTITCH_SENSES: "gpl-3.0"}  # and their licences
