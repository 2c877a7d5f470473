"""What a row of a user's table may be: a form is a set of roles, each with the names of columns that have it.

Names that sentence-transformers' examples use, and the JSONL of FlagEmbedding (`query`, `pos`, `neg`) and
Tevatron (`query`, `positive_passages`, `negative_passages`), are understood without a mapping.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from train.errors import UserError
from train.io.text import printable

SPAN_PARTS = ("span", "span_start", "span_end")

Roles = Mapping[str, Sequence[str]]


def normalised(column: str) -> str:
    """A column's name as names are compared: in lower case, with _ between words."""
    return column.strip().lower().replace("-", "_").replace(" ", "_")


@dataclass(frozen=True, eq=False)
class Form:
    """What a row of a table is.

    Attributes:
        name: `pairs`, `scored`, …
        title: its columns, for messages.
        roles: role → names of columns that have it, in any case, with - or a blank for _.
        required: roles that a table must have.
        several: roles that several columns may have, also as `positive_1`, `positive_2`, …
    """

    name: str
    title: str
    roles: Roles
    required: Sequence[str]
    several: Sequence[str] = ()

    @cached_property
    def _by_name(self) -> dict[str, str]:
        return {alias: role for role, aliases in self.roles.items() for alias in aliases}

    def role_of(self, name: str) -> str | None:
        """The role of a column of this name."""
        if role := self._by_name.get(name):
            return role
        numbered = re.fullmatch(r"([a-z_]+?)_?\d+", name)
        role = self._by_name.get(numbered[1]) if numbered else None
        return role if role in self.several else None

    def recognise(self, header: Sequence[str], chosen: Mapping[str, str]) -> dict[str, list[str]]:
        """The columns of each role that a table, or a row of JSON lines, has.

        Args:
            header: names of all columns.
            chosen: role → the column that the user says has it, whatever the names of others.
        """
        mapped = {column: role for role, column in chosen.items()}
        found: dict[str, list[str]] = {}
        for column in header:
            name = mapped.get(column, normalised(column))
            role = name if column in mapped and name in self.roles else self.role_of(name)
            if role is not None:
                found.setdefault(role, []).append(column)
        return {role: [c for c in columns if c in mapped] or columns for role, columns in found.items()}

    def check_single(self, found: dict[str, list[str]], option: str, where: str) -> None:
        """Where several columns have a role that one may have: the user is to choose.

        Args:
            found: columns by role; without an option, those whose name comes first in the role are put first.
            option: with which users choose.
            where: the table or row, for messages.

        Raises:
            UserError: naming the columns, and the option.
        """
        for role, columns in found.items():
            if len(columns) == 1 or role in self.several:
                continue
            if option:
                both = " and ".join(map(repr, columns))
                choose = f"leave one out, or choose with {option}={{{role}: <column>}}"
                raise UserError(printable(f"{where}: the columns {both} could each be the {role}: {choose}"))
            columns.sort(key=lambda column: self.roles[role].index(normalised(column)))


def unrecognised(
    header: Sequence[str], forms: Sequence[Form], chosen: Mapping[str, str], option: str, where: str
) -> UserError:
    """The error for columns that make none of the forms."""
    if missing := [column for column in chosen.values() if column not in header]:
        return no_column(missing[0], header, option, where)
    known = {alias for form in forms for aliases in form.roles.values() for alias in aliases}
    near = [
        f"{column!r} (is it {match[0]!r}?)"
        for column in header
        if normalised(column) not in known
        and (match := difflib.get_close_matches(normalised(column), known, 1, 0.8))
    ]
    titles = "; ".join(dict.fromkeys(form.title for form in forms))
    message = f"{where}: its columns ({', '.join(header) or 'none'}) are not those of {titles}. "
    if near:
        message += f"Look at {', '.join(near)}. "
    if len(forms) == 1:
        names = "; ".join(f"{role}: {', '.join(forms[0].roles[role])}" for role in forms[0].required)
        message += f"Names that are understood: {names}"
    else:
        message += "Rename them"
    example = ", ".join(f"{role}: <column>" for role in forms[0].required)
    return UserError(printable(message + (f", or map them with '{option}={{{example}}}'" if option else "")))


def no_column(column: str, header: Sequence[str], option: str, where: str) -> UserError:
    """The error for a column that the user's mapping names and the table does not have."""
    match = difflib.get_close_matches(column, header, 1)
    near = f"(is it {match[0]!r}?)" if match else f"(it has {', '.join(header)})"
    return UserError(printable(f"{where}: there is no column {column!r}, which {option} names {near}"))


def _span(role: str, *names: str) -> Roles:
    """The words of a span, and its two ends."""
    return {
        f"{role}{end}": tuple(f"{name}{end}" for name in (role, *names)) for end in ("", "_start", "_end")
    }


_SPAN = _span("span")
_ID = ("id", "_id")
_SENTENCE1 = ("sentence1", "sentence_1", "sentence_a", "text1", "text_1", "text_a", "question1")
_SENTENCE2 = ("sentence2", "sentence_2", "sentence_b", "text2", "text_2", "text_b", "question2")
_SPAN1 = _span("span1", "span_1", "span_a", "sentence1_span")
_SPAN2 = _span("span2", "span_2", "span_b", "sentence2_span")
_SCORE = ("score", "scores", "similarity", "similarity_score", "relatedness_score")
_LABEL = ("label", "labels", "class")
_GROUP = ("group", "expression", "idiom")
_USAGE = ("usage", "kind")
_TRAINED: Roles = {"group": _GROUP, "weight": ("weight",), "instruction": ("instruction", "prompt")}
_MEANING = {"meaning": ("meaning", "sense")}

# What is trained on.
_PAIRS = "pairs: anchor, positive (and negative)"
_NEGATIVE = {
    "negative": ("negative", "negatives", "neg", "hard_negative", "negative_passages"),
    **_span("negative_span", "neg_span"),
}
PAIRS = Form(
    "pairs",
    _PAIRS,
    {
        "anchor": ("anchor", "query", "question", "query_text"),
        "positive": ("positive", "positives", "pos", "answer", "passage", "document", "positive_passages"),
        **_NEGATIVE,
        **_span("span", "anchor_span", "query_span"),
        **_span("positive_span", "pos_span"),
        **_MEANING,
        **_TRAINED,
    },
    ("anchor", "positive"),
    ("positive", "negative"),
)
SENTENCE_PAIRS = Form(  # named as scored pairs are, without a score
    "pairs",
    _PAIRS,
    {
        "anchor": _SENTENCE1,
        "positive": _SENTENCE2,
        **_NEGATIVE,
        **_span("span", "anchor_span", *_SPAN1["span1"]),
        **_span("positive_span", *_SPAN2["span2"]),
        **_MEANING,
        **_TRAINED,
    },
    ("anchor", "positive"),
    ("negative",),
)
_TWO = {"sentence1": _SENTENCE1, "sentence2": _SENTENCE2, **_SPAN1, **_SPAN2}
_SCORED = "scored pairs: sentence1, sentence2, score"
_SENTENCE: Roles = {
    "text": ("text", "sentence"),
    "label": _LABEL,
    "usage": _USAGE,
    **_span("span", "text_span", "sentence_span"),
    **_MEANING,
    **_TRAINED,
}
_SENTENCES = "sentences: text, and label or group"
TRAINED = (  # the most telling first
    PAIRS,
    Form("scored", _SCORED, {**_TWO, "score": _SCORE, **_TRAINED}, ("sentence1", "sentence2", "score")),
    Form("scored", _SCORED, {**_TWO, "score": _LABEL, **_TRAINED}, ("sentence1", "sentence2", "score")),
    SENTENCE_PAIRS,
    Form("sentences", _SENTENCES, _SENTENCE, ("text", "label")),
    Form("sentences", _SENTENCES, _SENTENCE, ("text", "group")),
)
# Columns that are no slip where they say nothing to training.
UNREAD = {"", "id", "_id", "idx", "index", "query_id", "type", "language", "source", "licence", "split"}

# What is scored on.
_SCORED_ON: Roles = {"group": ("group", "cluster"), "instruction": ("instruction",)}
_TWO_SCORED = {**_TWO, "id": (*_ID, "pair_id"), **_SCORED_ON, **_SPAN}  # span is refused: of which sentence?
STS = Form(
    "sts",
    _SCORED,
    {**_TWO_SCORED, "score": (*_SCORE, "label", "gold")},
    ("sentence1", "sentence2", "score"),
)
LABELLED_PAIRS = Form(
    "labelled pairs",
    "labelled pairs: sentence1, sentence2, label",
    {**_TWO_SCORED, "label": ("label", "labels", "is_duplicate", "score", "gold")},
    ("sentence1", "sentence2", "label"),
)
_RANKING: Roles = {
    "query": ("query", "question", "anchor"),
    "candidate": ("candidate", "document", "passage", "text"),
    "grade": ("grade", "score", "relevance", "label"),
    "candidates": ("candidates", "documents", "passages"),
    "grades": ("grades", "scores", "relevances", "labels"),
    "positives": ("positives", "positive", "pos"),
    "negatives": ("negatives", "negative", "neg"),
    "id": ("query_id", "qid"),
    "row_id": _ID,  # the query's, where it has a row of its own
    **_SCORED_ON,
    **_SPAN,
}
RANKINGS = tuple(  # the most telling first
    Form(name, f"rankings: query, {', '.join(required)}", _RANKING, ("query", *required))
    for name, required in (
        ("graded", ("candidates", "grades")),
        ("ordered", ("candidates",)),
        ("relevant", ("positives",)),
        ("by pair", ("candidate", "grade")),
    )
)
DOCUMENTS = Form(
    "documents",
    "documents: id, text",
    {
        "id": ("_id", "id", "corpus_id", "document_id", "doc_id", "docid", "docno", "pid"),
        "text": ("text", "contents", "content", "passage", "document", "sentence", "body"),
        "title": ("title",),
        **_SPAN,
    },
    ("id", "text"),
)
QUERIES = Form(
    "queries",
    "queries: id, text",
    {
        "id": (*reversed(_ID), "query_id", "qid"),
        "text": ("text", "query", "question", "sentence"),
        **_SCORED_ON,
        **_SPAN,
    },
    ("id", "text"),
)
JUDGEMENTS = Form(
    "judgements",
    "judgements: query, document (and relevance)",
    {
        "query": ("query_id", "qid", "query"),
        "document": ("corpus_id", "document_id", "doc_id", "docid", "docno", "pid", "document"),
        "relevance": ("score", "relevance", "rel", "label", "grade"),
    },
    ("query", "document"),
)
# What is explored, and what negatives are mined from.
TEXTS = Form(
    "texts",
    "texts: text",
    {**DOCUMENTS.roles, "usage": (*_USAGE, *_LABEL), "group": _GROUP},
    ("text",),
)
# Glossaries: users' own, and two published tables that serve without being rewritten.
GLOSSARY = Form(
    "glossary",
    "a glossary: expression, meaning",
    {
        role: (role,)
        for role in ("expression", "meaning", "literal", "language", "example", "source", "licence")
    },
    ("expression", "meaning"),
)
PIE_SENSES = Form(
    "PIE",
    "PIE: Idiom, Sense",
    {"expression": ("idiom",), "meaning": ("sense",), "sentence": ("idiomatic_sent",)},
    ("expression", "meaning", "sentence"),
)
ASTITCH_SENSES = Form(
    "AStitchInLanguageModels",
    "AStitchInLanguageModels: Multiword Expression, Non-Literal Meaning 1",
    {"expression": ("multiword_expression",), "meaning": ("non_literal_meaning",)},
    ("expression", "meaning"),
    ("meaning",),
)
CORPUS = Form("corpus", "a corpus: text", {"text": ("text",), "title": ("title",)}, ("text",))
