"""What a row of a user's table may be: a form is a set of roles, each with the names of columns that have it.

Names that sentence-transformers' examples use, and the JSONL of FlagEmbedding (`query`, `pos`, `neg`) and
Tevatron (`query`, `positive_passages`, `negative_passages`), are understood without a mapping.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

SPAN_PARTS = ("span", "span_start", "span_end")
# Role of a text → that of a span in it.
SPAN_OF = {
    **{"text": "span", "anchor": "span", "query": "span", "positive": "positive_span"},
    **{"negative": "negative_span", "sentence1": "span1", "sentence2": "span2"},
}


def normalised(column: str) -> str:
    """A column's name as names are compared: in lower case, with _ between words."""
    return column.strip().lower().replace("-", "_").replace(" ", "_")


@dataclass(frozen=True, eq=False)
class Form:
    """What a row of a table is.

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

    @property
    def title(self) -> str:
        """Its required columns, for messages."""
        return f"{self.name}: {', '.join(self.roles[role][0] for role in self.required)}"

    @cached_property
    def _by_name(self) -> dict[str, str]:
        return {alias: role for role, aliases in self.roles.items() for alias in aliases}

    def role_of(self, column: str) -> str | None:
        """The role of a column of this name."""
        name = normalised(column)
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
        columns: dict[str, list[str]] = {}
        for column in header:
            name = mapped.get(column, column)
            role = name if column in mapped and name in self.roles else self.role_of(name)
            if role is not None:
                columns.setdefault(role, []).append(column)
        return {role: [c for c in found if c in mapped] or found for role, found in columns.items()}


def _roles(**names: str) -> dict[str, tuple[str, ...]]:
    """Role → the names of its columns; a role with `span` in its name also has two ends."""
    return {
        f"{role}{end}": tuple(f"{name}{end}" for name in aliases.split())
        for role, aliases in names.items()
        for end in (("", "_start", "_end") if "span" in role else ("",))
    }


_ID = "id _id"
_SENTENCE1 = "sentence1 sentence_1 sentence_a text1 text_1 text_a question1"
_SENTENCE2 = "sentence2 sentence_2 sentence_b text2 text_2 text_b question2"
_SPAN1, _SPAN2 = "span1 span_1 span_a sentence1_span", "span2 span_2 span_b sentence2_span"
_TWO = {"sentence1": _SENTENCE1, "sentence2": _SENTENCE2, "span1": _SPAN1, "span2": _SPAN2}
_SCORE = "score scores similarity similarity_score relatedness_score"
_LABEL = "label labels class"
_GROUP = "group expression idiom mwe pie multiword_expression potentially_idiomatic_expression"
_USAGE = "usage kind"

# What is trained on.
_ROW = {"group": _GROUP, "weight": "weight", "instruction": "instruction"}
_PAIR = {
    **{"negative": "negative negatives neg hard_negative negative_passages", "meaning": "meaning sense"},
    **{"negative_span": "negative_span neg_span", **_ROW},
}
PAIRS = Form(
    "pairs",
    _roles(
        anchor="anchor query question query_text",
        positive="positive positives pos answer passage document positive_passages",
        span="span anchor_span query_span",
        positive_span="positive_span pos_span",
        **_PAIR,
    ),
    ("anchor", "positive"),
    ("positive", "negative"),
)
_AS_PAIRS = {"sentence1": PAIRS.roles["anchor"], "sentence2": PAIRS.roles["positive"]}
SENTENCE_PAIRS = Form(  # with the columns of scored pairs, without a score
    "pairs",
    _roles(
        anchor=_SENTENCE1,
        positive=_SENTENCE2,
        span=f"span anchor_span {_SPAN1}",
        positive_span=f"positive_span pos_span {_SPAN2}",
        **_PAIR,
    ),
    ("anchor", "positive"),
    ("negative",),
)
_SCORED = ("sentence1", "sentence2", "score")
_SENTENCE = _roles(
    text="text sentence",
    label=_LABEL,
    usage=_USAGE,
    span="span text_span sentence_span",
    meaning="meaning sense",
    **_ROW,
)
TRAINED = (  # the first that fits counts
    PAIRS,
    Form("scored", _roles(**_TWO, score=_SCORE, **_ROW), _SCORED),
    Form("scored", _roles(**_TWO, score=_LABEL, **_ROW), _SCORED),
    SENTENCE_PAIRS,
    # With the columns of pairs, if the user says which column has their score.
    Form("scored", {**_roles(score=_SCORE, **_TWO, **_ROW), **_AS_PAIRS}, _SCORED),
    Form("sentences", _SENTENCE, ("text", "label")),
    Form("sentences", _SENTENCE, ("text", "group")),
)
# Columns that are no typing error although training does not read them.
UNREAD = {"", "id", "_id", "idx", "index", "query_id"}

# What is scored on.
_SCORED_ON = {"group": "group cluster", "instruction": "instruction", "span": "span"}
_TWO_SCORED = {**_TWO, "id": f"{_ID} pair_id", **_SCORED_ON}  # span is refused: of which sentence?
STS = Form("scored pairs", _roles(**_TWO_SCORED, score=f"{_SCORE} label gold"), _SCORED)
LABELLED_PAIRS = Form(
    "labelled pairs",
    _roles(**_TWO_SCORED, label="label labels is_duplicate score gold"),
    ("sentence1", "sentence2", "label"),
)
_RANKING = _roles(
    query="query question anchor",
    candidate="candidate document passage text",
    grade="grade score relevance label",
    candidates="candidates documents passages",
    grades="grades scores relevances labels",
    positives="positives positive pos",
    negatives="negatives negative neg",
    id="query_id qid",
    row_id=_ID,  # the query's, where it has a row of its own
    **_SCORED_ON,
)
RANKINGS = (  # the first that fits counts
    Form("graded", _RANKING, ("query", "candidates", "grades")),
    Form("ordered", _RANKING, ("query", "candidates")),
    Form("relevant", _RANKING, ("query", "positives")),
    Form("by pair", _RANKING, ("query", "candidate", "grade")),
)
_DOCUMENT = {
    "id": "_id id corpus_id document_id doc_id docid docno pid",
    "text": "text contents content passage document sentence body",
    "title": "title",
    "span": "span",
}
DOCUMENTS = Form("documents", _roles(**_DOCUMENT), ("id", "text"))
QUERIES = Form(
    "queries",
    _roles(id="_id id query_id qid", text="text query question sentence", **_SCORED_ON),
    ("id", "text"),
)
JUDGEMENTS = Form(
    "judgements",
    _roles(
        query="query_id qid query",
        document="corpus_id document_id doc_id docid docno pid document",
        relevance="score relevance rel label grade",
    ),
    ("query", "document"),
)
# What is explored, and what negatives are mined from.
TEXTS = Form("texts", _roles(**_DOCUMENT, usage=f"{_USAGE} {_LABEL}", group=_GROUP), ("text",))
CORPUS = Form("corpus", _roles(text="text", title="title"), ("text",))
# Glossaries: users' own, and two published tables that can be read as they are.
GLOSSARY = Form(
    "glossary",
    {
        role: (role,)
        for role in (
            *("expression", "meaning", "literal", "part_of_speech", "forms", "language", "example"),
            *("source", "licence"),
        )
    },
    ("expression", "meaning"),
)
PIE_SENSES = Form(
    "PIE",
    _roles(expression="idiom", meaning="sense", sentence="idiomatic_sent"),
    ("expression", "meaning", "sentence"),
)
ASTITCH_SENSES = Form(
    "AStitchInLanguageModels",
    _roles(expression="multiword_expression", meaning="non_literal_meaning"),
    ("expression", "meaning"),
    ("meaning",),
)
