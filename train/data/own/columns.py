"""Which column of a user's table is what: by its name, or as the user maps it.

Understood as they are: the names that sentence-transformers' examples use, and the JSONL of FlagEmbedding
(`query`, `pos`, `neg`) and Tevatron (`query`, `positive_passages`, `negative_passages`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from train.declarations.own_data import Form
from train.errors import UserError

_ALIASES = {
    "anchor": ("anchor", "query", "question", "query_text"),
    "positive": ("positive", "positives", "pos", "answer", "passage", "document", "positive_passages"),
    "negative": ("negative", "negatives", "neg", "hard_negative", "negative_passages"),
    "sentence1": ("sentence1", "sentence_1", "sentence_a", "text1", "text_1", "text_a"),
    "sentence2": ("sentence2", "sentence_2", "sentence_b", "text2", "text_2", "text_b"),
    "score": ("score", "scores", "similarity", "similarity_score"),
    "text": ("text", "sentence"),
    "label": ("label", "labels", "class"),
    "group": ("group", "expression", "idiom"),
    "meaning": ("meaning", "sense"),
    "usage": ("usage", "kind"),
    "weight": ("weight",),
    "instruction": ("instruction", "prompt"),
}
# Prefixes of the columns with the span of a text: `span`, `anchor_span`, `positive_span_start`, …
_SPANS = {
    "anchor": ("", "anchor_", "query_"),
    "positive": ("positive_", "pos_"),
    "negative": ("negative_", "neg_"),
    "sentence1": ("sentence1_",),
    "sentence2": ("sentence2_",),
    "text": ("", "text_", "sentence_"),
}
_PARTS = ("span", "span_start", "span_end")
_SEVERAL = ("positive", "negative")  # also as positive_1, positive_2, …
_IGNORED = ("id", "_id", "query_id", "type", "language", "source", "licence", "split")  # never a slip
# The roles that make a form, the most telling first.
_FORMS: Sequence[tuple[Form, Sequence[str]]] = (
    ("pairs", ("anchor", "positive")),
    ("scored", ("sentence1", "sentence2", "score")),
    ("pairs", ("sentence1", "sentence2")),
    ("sentences", ("text", "label")),
    ("sentences", ("text", "group")),
)
_SPAN_COLUMNS: dict[str, list[tuple[str, str]]] = {}  # name → (text, part) that it may be
for _text, _prefixes in _SPANS.items():
    for _part in _PARTS:
        for _prefix in _prefixes:
            _SPAN_COLUMNS.setdefault(f"{_prefix}{_part}", []).append((_text, _part))
for _number in "12":  # span1, span1_start, …
    for _part in _PARTS:
        _SPAN_COLUMNS[_part.replace("span", f"span{_number}")] = [(f"sentence{_number}", _part)]
ROLES = (*_ALIASES, *(f"{role}_{part}" for role in _SPANS for part in _PARTS))


@dataclass(frozen=True)
class Columns:
    """What is in which column.

    Attributes:
        form: of the table.
        by_role: role → its columns, one, or several of `positive` and `negative`.
        spans: role of a text → columns (span, span_start, span_end), "" for one that is not there.
        ignored: columns that say nothing to training.
    """

    form: Form
    by_role: Mapping[str, Sequence[str]]
    spans: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    ignored: Sequence[str] = ()

    def one(self, role: str) -> str | None:
        """The column of a role; None if there is none."""
        found = self.by_role.get(role)
        return found[0] if found else None


def recognise(header: Sequence[str], mapping: Mapping[str, str], form: Form | None, source: str) -> Columns:
    """The roles of a table's columns.

    Args:
        header: names of the columns, of JSONL those of its first row.
        mapping: role → column, as the user says; it comes before the names.
        form: as the user says; None = by the columns.
        source: the table's name, for messages.

    Raises:
        UserError: if the columns make no form, or two of them are the same thing.
    """
    for role, column in mapping.items():
        if role not in ROLES:
            raise UserError(f"data.columns: {role!r} is not one of {', '.join(ROLES)}")
        if column not in header:
            raise UserError(
                f"{source}: there is no column {column!r}, which data.columns names {_near(column, header)}"
            )
    mapping = {column: role for role, column in mapping.items()}
    by_role, spans = _by_role(header, mapping, source)
    if form == "scored" and "score" not in by_role and "label" in by_role:
        by_role["score"] = by_role.pop("label")
    if form is None and {"sentence1", "sentence2", "label"} <= by_role.keys() and "score" not in by_role:
        by_role["score"] = by_role.pop("label")  # as sentence-transformers names a pair's score
    found = next((f for f, needed in _FORMS if form in (None, f) and by_role.keys() >= set(needed)), None)
    if found is None:
        raise UserError(_no_form(header, form, source))
    if found == "pairs" and "anchor" not in by_role:
        by_role["anchor"], by_role["positive"] = by_role.pop("sentence1"), by_role.pop("sentence2")
        spans = {{"sentence1": "anchor", "sentence2": "positive"}.get(r, r): c for r, c in spans.items()}
    texts = {"pairs": ("anchor", *_SEVERAL), "scored": ("sentence1", "sentence2"), "sentences": ("text",)}[
        found
    ]
    spans = {role: columns for role, columns in spans.items() if role in texts}
    others = {
        "pairs": ("group", "meaning"),
        "scored": ("score", "group"),
        "sentences": ("label", "group", "meaning", "usage"),
    }
    kept = {*texts, *others[found], "weight", "instruction"}
    by_role = {role: columns for role, columns in by_role.items() if role in kept}
    used = {c for columns in by_role.values() for c in columns} | {
        c for three in spans.values() for c in three
    }
    return Columns(
        found, by_role, spans, tuple(c for c in header if c not in used and c.casefold() not in _IGNORED)
    )


def _by_role(
    header: Sequence[str], mapping: Mapping[str, str], source: str
) -> tuple[dict[str, list[str]], dict[str, tuple[str, str, str]]]:
    names = {alias: role for role, aliases in _ALIASES.items() for alias in aliases}
    roles: dict[str, list[str]] = {}
    spans: dict[str, dict[str, str]] = {}
    for column in header:
        name = mapping.get(column, column).casefold().strip()
        numbered = re.fullmatch(r"(\w+?)_?\d+", name)
        role = names.get(name) or (names.get(numbered[1]) if numbered else None)
        if role in _SEVERAL or (role and name in names):
            if role in roles and role not in _SEVERAL:
                raise UserError(
                    f"{source}: the columns {roles[role][0]!r} and {column!r} are both the {role}: leave one "
                    "out, or say with data.columns what each is"
                )
            roles.setdefault(role, []).append(column)
            continue
        for text, part in _SPAN_COLUMNS.get(name, ()):
            spans.setdefault(text, {})[part] = column
    triples = {
        text: (parts.get("span", ""), parts.get("span_start", ""), parts.get("span_end", ""))
        for text, parts in spans.items()
    }
    for text, (_, start, end) in triples.items():
        if bool(start) != bool(end):
            raise UserError(
                f"{source}: of the {text}'s span there is {start or end!r} alone; it needs both ends"
            )
    return roles, triples


def _no_form(header: Sequence[str], form: Form | None, source: str) -> str:
    known = [alias for aliases in _ALIASES.values() for alias in aliases]
    near = [
        f"{column!r} (is it {match[0]!r}?)"
        for column in header
        if column.casefold() not in known
        and (match := difflib.get_close_matches(column.casefold(), known, 1, 0.8))
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


def _near(column: str, header: Sequence[str]) -> str:
    match = difflib.get_close_matches(column, header, 1)
    return f"(is it {match[0]!r}?)" if match else f"(it has {', '.join(header)})"
