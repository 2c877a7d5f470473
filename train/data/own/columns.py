"""Which column of a user's table is what: by its name, or as the user maps it.

Understood as they are: the names that sentence-transformers' examples use, and the JSONL of FlagEmbedding
(`query`, `pos`, `neg`) and Tevatron (`query`, `positive_passages`, `negative_passages`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from train.data.own.cells import SPAN_PARTS, normalised
from train.declarations.own_data import Form
from train.errors import UserError

# Role → names of columns that have it, in any case, with - or a blank for _.
ALIASES = {
    "anchor": ("anchor", "query", "question", "query_text"),
    "positive": ("positive", "positives", "pos", "answer", "passage", "document", "positive_passages"),
    "negative": ("negative", "negatives", "neg", "hard_negative", "negative_passages"),
    "sentence1": ("sentence1", "sentence_1", "sentence_a", "text1", "text_1", "text_a", "question1"),
    "sentence2": ("sentence2", "sentence_2", "sentence_b", "text2", "text_2", "text_b", "question2"),
    "score": ("score", "scores", "similarity", "similarity_score", "relatedness_score"),
    "text": ("text", "sentence"),
    "label": ("label", "labels", "class"),
    "group": ("group", "expression", "idiom"),
    "meaning": ("meaning", "sense"),
    "usage": ("usage", "kind"),
    "weight": ("weight",),
    "instruction": ("instruction", "prompt"),
}
SEVERAL = ("positive", "negative")  # also as positive_1, positive_2, …
_IGNORED = {
    "",
    "id",
    "_id",
    "idx",
    "index",
    "query_id",
    "type",
    "language",
    "source",
    "licence",
    "split",
}  # never a slip
# The texts of a row, and what else a row of that form may say.
_TEXTS: Mapping[Form, Sequence[str]] = {
    "pairs": ("anchor", *SEVERAL),
    "scored": ("sentence1", "sentence2"),
    "sentences": ("text",),
}
_FACTS: Mapping[Form, Sequence[str]] = {
    "pairs": ("group", "meaning", "weight", "instruction"),
    "scored": ("score", "group", "weight", "instruction"),
    "sentences": ("label", "group", "meaning", "usage", "weight", "instruction"),
}
# The roles that make a form, the most telling first.
_FORMS: Sequence[tuple[Form, set[str]]] = (
    ("pairs", {"anchor", "positive"}),
    ("scored", {"sentence1", "sentence2", "score"}),
    ("pairs", {"sentence1", "sentence2"}),
    ("sentences", {"text", "label"}),
    ("sentences", {"text", "group"}),
)
# What stands before `span`, `span_start`, `span_end` in the column with the span of a text.
_SPAN_PREFIXES = {
    "anchor": ("", "anchor_", "query_"),
    "positive": ("positive_", "pos_"),
    "negative": ("negative_", "neg_"),
    "sentence1": ("sentence1_",),  # also as span1, span1_start, …
    "sentence2": ("sentence2_",),
    "text": ("", "text_", "sentence_"),
}
ROLES = (*ALIASES, *SPAN_PARTS, *(f"{text}_{part}" for text in _SPAN_PREFIXES for part in SPAN_PARTS))
_ROLE_OF = {alias: role for role, aliases in ALIASES.items() for alias in aliases}


def _span_columns() -> dict[str, list[tuple[str, str]]]:
    """Name of a column → the texts and parts of a span that it may be."""
    found: dict[str, list[tuple[str, str]]] = {}
    for part in SPAN_PARTS:
        for text, prefixes in _SPAN_PREFIXES.items():
            for prefix in prefixes:
                found.setdefault(f"{prefix}{part}", []).append((text, part))
        for number in "12":
            found[part.replace("span", f"span{number}")] = [(f"sentence{number}", part)]
    return found


_SPAN_COLUMNS = _span_columns()


@dataclass(frozen=True)
class Columns:
    """What is in which column.

    Attributes:
        form: of the table.
        by_role: role → its columns, one, or several of `positive` and `negative`.
        spans: role of a text → part of its span (`span`, `span_start`, `span_end`) → column.
        ignored: columns that say nothing to training.
        may_be_scored: pairs that are named as scored pairs are (sentence1, sentence2), without a score.
    """

    form: Form
    by_role: Mapping[str, Sequence[str]]
    spans: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    ignored: Sequence[str] = ()
    may_be_scored: bool = False

    def one(self, role: str) -> str | None:
        """The column of a role; None if there is none."""
        found = self.by_role.get(role)
        return found[0] if found else None


def check_mapping(mapping: Mapping[str, str]) -> None:
    """Raises UserError for what is no role, and for a column that is named twice."""
    for role, column in mapping.items():
        if role not in ROLES and _numbered(role) not in SEVERAL:
            raise UserError(f"data.columns: {role!r} is not one of {', '.join(ROLES)}")
        if list(mapping.values()).count(column) > 1:
            both = " and ".join(role for role, other in mapping.items() if other == column)
            raise UserError(f"data.columns: the column {column!r} is named as {both}")


def recognise(header: Sequence[str], mapping: Mapping[str, str], form: Form | None, source: str) -> Columns:
    """The roles of a table's columns.

    Args:
        header: names of the columns; in JSON lines those of one row.
        mapping: role → column, as the user says; it comes before the names.
        form: as the user says; None = by the columns.
        source: the table, or its row, for messages.

    Raises:
        UserError: if the columns make no form, or two of them are the same thing.
    """
    roles = _roles(header, {column: role for role, column in mapping.items()}, source)
    spans = _spans(header, mapping, source)
    if form != "sentences" and "score" not in roles and {"sentence1", "sentence2", "label"} <= roles.keys():
        roles["score"] = roles.pop("label")  # as sentence-transformers names a pair's score
    found = next((name for name, needed in _FORMS if form in (None, name) and roles.keys() >= needed), None)
    if found is None:
        missing = [column for column in mapping.values() if column not in header]
        raise UserError(no_column(missing[0], header, source) if missing else _no_form(header, form, source))
    if may_be_scored := found == "pairs" and not roles.keys() >= {"anchor", "positive"}:
        for new, old in (("anchor", "sentence1"), ("positive", "sentence2")):
            roles[new] = roles.pop(old)
            spans[new] = spans.get(old, spans.get(new, {}))
    by_role = {role: found_ for role, found_ in roles.items() if role in (*_TEXTS[found], *_FACTS[found])}
    spans = {role: parts for role, parts in spans.items() if role in _TEXTS[found] and parts}
    used = {
        column for columns in (*by_role.values(), *(s.values() for s in spans.values())) for column in columns
    }
    ignored = [c for c in header if c not in used and normalised(c) not in _IGNORED]
    return Columns(found, by_role, spans, ignored, may_be_scored)


def no_column(column: str, header: Sequence[str], source: str) -> str:
    """The message for a column that the user's mapping names, and that is not there."""
    match = difflib.get_close_matches(column, header, 1)
    near = f"(is it {match[0]!r}?)" if match else f"(it has {', '.join(header)})"
    return f"{source}: there is no column {column!r}, which data.columns names {near}"


def _numbered(name: str) -> str | None:
    """The role of `negative_3` or `neg3`; None if it is no such name."""
    match = re.fullmatch(r"([a-z_]+?)_?\d+", name)
    return _ROLE_OF.get(match[1]) if match else None


def _roles(header: Sequence[str], mapped: Mapping[str, str], source: str) -> dict[str, list[str]]:
    """Role → its columns; of a role that is mapped, the mapped ones alone."""
    taken = {_numbered(role) or role for role in mapped.values()}
    found: dict[str, list[str]] = {}
    for column in header:
        name = mapped.get(column, normalised(column))
        role = _ROLE_OF.get(name)
        if role is None and _numbered(name) in SEVERAL:
            role = _numbered(name)
        if role is None or (role in taken and column not in mapped):
            continue
        if role in found and role not in SEVERAL:
            raise UserError(
                f"{source}: the columns {found[role][0]!r} and {column!r} are both the {role}: leave one "
                "out, or say with data.columns what each is"
            )
        found.setdefault(role, []).append(column)
    return found


def _spans(header: Sequence[str], mapping: Mapping[str, str], source: str) -> dict[str, dict[str, str]]:
    """Role of a text → part of its span → column."""
    mapped = {column: role for role, column in mapping.items()}
    found: dict[str, dict[str, str]] = {}
    for column in header:
        for text, part in _SPAN_COLUMNS.get(mapped.get(column, normalised(column)), ()):
            found.setdefault(text, {})[part] = column
    for text, parts in found.items():
        ends = [column for part, column in parts.items() if part != "span"]
        if len(ends) == 1:
            raise UserError(f"{source}: of the {text}'s span there is {ends[0]!r} alone; it needs both ends")
    return found


def _no_form(header: Sequence[str], form: Form | None, source: str) -> str:
    near = [
        f"{column!r} (is it {match[0]!r}?)"
        for column in header
        if normalised(column) not in _ROLE_OF
        and (match := difflib.get_close_matches(normalised(column), _ROLE_OF, 1, 0.8))
    ]
    wanted = {
        "pairs": "pairs: anchor, positive (and negative)",
        "scored": "scored pairs: sentence1, sentence2, score",
        "sentences": "sentences: text, and label or group",
    }
    expected = wanted[form] if form else "; ".join(wanted.values())
    return (
        f"{source}: its columns ({', '.join(header) or 'none'}) are not those of {expected}. "
        + (f"Look at {', '.join(near)}. " if near else "")
        + "Rename them, or say what they are: 'data.columns={anchor: <column>, positive: <column>}'"
    )
