"""Rows of the tables that a user trains on, and the hard negatives that were mined for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from train.data.own.forms import CORPUS, SENTENCE_PAIRS, TRAINED, UNREAD, normalised
from train.data.own.table import Record, Source, Span, Table, as_number, find_sources
from train.errors import UserError
from train.io.tables import Row, read_rows
from train.io.text import first_of

_MAX_WEIGHT = 1e9  # a greater one overflows in a sum of products in float32
_OPTION = "data.columns"

Mined = Mapping[str, Sequence[str]]  # anchor → its negatives


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text, and what is known of it.

    Attributes:
        span: character offsets [start, end) in it.
        group: what it is about, such as its expression.
        meaning: which meaning of the group it has.
    """

    text: str
    span: Span | None = None
    group: str | None = None
    meaning: str | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A row.

    Attributes:
        number: of the row in its file; a header is row 1.
        sentences: the anchor, its positives, its negatives; the two of a scored pair; or one sentence.
        num_positives: how many of the sentences are positives.
        label: of a labelled sentence.
        usage: the kind of a sentence, of which each batch gets its share.
        score: of a scored pair.
    """

    number: int
    sentences: tuple[Sentence, ...]
    num_positives: int = 0
    label: str | None = None
    usage: str | None = None
    score: float | None = None
    weight: float = 1.0
    instruction: str | None = None


class OwnTable(Table):
    """A table to train on.

    Args:
        mapping: role → column, as the user says.
        form: the name of the form, as the user says; None = by the columns.
    """

    def __init__(
        self, source: Source, mapping: Mapping[str, str] | None = None, form: str | None = None
    ) -> None:
        super().__init__(source, [f for f in TRAINED if form in (None, f.name)], mapping, _OPTION)
        self._may_be_scored = form is None
        self._echoes: list[str] = []  # rows with negatives that equal their anchor

    def examples(self, rows: Iterator[Row] | None = None) -> Iterator[Example]:
        """As :meth:`read`."""
        return self.read(self._example, rows)

    def about(self) -> str:
        """The roles of its columns, what is ignored, and which negatives were left out; once it was read."""
        roles: dict[str, dict[str, None]] = {}
        for kind in self.kinds.values():
            for role, columns in kind.items():
                roles.setdefault(role, {}).update(dict.fromkeys(columns))
        about = ", ".join(
            role if list(columns) == [role] else f"{' and '.join(columns)} as {role}"
            for role, columns in roles.items()
        )
        if ignored := self._ignored():
            about += f"; left out: {', '.join(ignored)}"
        if self._echoes:
            about += f"; negatives that equal their anchor: {first_of(self._echoes)}"
        form = {"scored": "scored pairs"}.get(self.form.name, self.form.name)
        return f"{self.source.name}: {form} ({about})"

    def _ignored(self) -> list[str]:
        used = {column for kind in self.kinds.values() for columns in kind.values() for column in columns}
        every = dict.fromkeys(column for kind in self.kinds for column in kind)
        return [column for column in every if column not in used and normalised(column) not in UNREAD]

    def _example(self, record: Record) -> Example:
        """A row. Raises FieldError."""
        form = self.form.name
        if self.form is SENTENCE_PAIRS and self._may_be_scored:
            self._may_be_scored = False
            if numbers := [c for c in self._ignored() if as_number(record.values[c]) is not None]:
                raise UserError(
                    f"the column {numbers[0]!r} has numbers. If they are the pairs' scores: "
                    f"'{_OPTION}={{score: {numbers[0]}}}'. If every pair is a positive: data.form=pairs",
                    file=self.source.name,
                )
        group, meaning = _name(record, "group"), _name(record, "meaning")

        def single(role: str, span: str) -> Sentence:
            return _sentence(record.entries(role, span, several=False)[0], group, meaning)

        num_positives = 0
        if form == "pairs":
            anchor = single("anchor", "span")
            positives = [_sentence(e, group, meaning) for e in record.entries("positive", "positive_span")]
            if not positives:
                raise record.error("positive", "is empty")
            given = [_sentence(e, group) for e in record.entries("negative", "negative_span")]
            negatives = [s for s in given if (s.text, s.span) != (anchor.text, anchor.span)]
            self._echoes += [f"row {record.number}"] * (len(negatives) < len(given))
            texts = {sentence.text for sentence in positives}
            if same := [s.text for s in negatives if s.text in texts]:
                raise record.error("negative", f"{same[0]!r} is a positive of the row too")
            sentences, num_positives = [anchor, *positives, *negatives], len(positives)
        elif form == "scored":
            sentences, num_positives = [single("sentence1", "span1"), single("sentence2", "span2")], 1
        else:
            # The first row has the column of the form; in JSON lines others may have labels that it lacks.
            record.cell("label" if "label" in record.names else self.form.required[-1])
            sentences = [single("text", "span")]
        weight = record.number_in("weight") if record.has("weight") else 1.0
        if not 0 <= weight <= _MAX_WEIGHT:
            raise record.error("weight", f"must be from 0 to {_MAX_WEIGHT:g}, got {weight:g}")
        return Example(
            record.number,
            tuple(sentences),
            num_positives,
            label=_name(record, "label"),
            usage=_name(record, "usage"),
            score=record.number_in("score") if form == "scored" else None,
            weight=weight,
            instruction=record.optional_text("instruction"),
        )


def _sentence(entry: Record, group: str | None, meaning: str | None = None) -> Sentence:
    """A text of a row; an object's own labels take precedence over those of its row."""
    return Sentence(*entry.marked(), _name(entry, "group") or group, _name(entry, "meaning") or meaning)


def _name(record: Record, role: str) -> str | None:
    name = record.optional_name(role)
    return None if name is None else name.strip()


def read_corpus(names: Sequence[str], option: str = "data.negatives.corpus") -> tuple[list[str], list[Path]]:
    """The distinct texts of a corpus, and its files: tables with a column `text` (and `title`, before it).

    Raises:
        UserError: naming file, row and field of a problem, or the option.
    """
    sources = find_sources(names, option)
    texts = (text for source in sources for text in Table(source, [CORPUS]).read(lambda row: row.marked()[0]))
    return list(dict.fromkeys(texts)), [source.path for source in sources if source.path is not None]


def read_mined(path: Path) -> Mined:
    """The mined negatives, from a file of pairs with negatives that :mod:`train.factory` wrote."""
    rows = read_rows(path) if path.stat().st_size else ()  # none were mined
    return {row.values["query"]: row.values["neg"] for row in rows}


def with_negatives(example: Example, mined: Mined) -> Example:
    """A pair with the negatives that were mined for its anchor, after its own."""
    own = {sentence.text for sentence in example.sentences}
    more = [Sentence(text) for text in mined.get(example.sentences[0].text, ()) if text not in own]
    return replace(example, sentences=(*example.sentences, *more))
