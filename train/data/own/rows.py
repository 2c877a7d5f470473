"""Rows of the tables that a user trains on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from train.data.own.forms import SENTENCE_PAIRS, TRAINED, UNREAD, normalised
from train.data.own.sources import Source
from train.data.own.table import Record, Span, Table, as_number
from train.declarations.own_data import Form
from train.errors import UserError
from train.io.tables import Row
from train.io.text import first_of

_MAX_WEIGHT = 1e9  # more than that overflows in a sum of products in float32
_TITLES = {"pairs": "pairs", "scored": "scored pairs", "sentences": "sentences"}
_OPTION = "data.columns"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text, and what is known of it.

    Attributes:
        span: character offsets [start, end) in it.
        group: what it is about, as its expression.
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
        num_echoes: negatives left out because they are the row's own anchor.
    """

    number: int
    sentences: tuple[Sentence, ...]
    num_positives: int = 0
    label: str | None = None
    usage: str | None = None
    score: float | None = None
    weight: float = 1.0
    instruction: str | None = None
    num_echoes: int = 0


def check_mapping(mapping: Mapping[str, str]) -> None:
    """Raises UserError for an unknown role, and for a column that has two."""
    roles = list(dict.fromkeys(role for form in TRAINED for role in form.roles))
    for role, column in mapping.items():
        if role not in roles and not any(form.role_of(role) for form in TRAINED):
            raise UserError(f"{_OPTION}: {role!r} is not one of {', '.join(roles)}")
        if list(mapping.values()).count(column) > 1:
            both = " and ".join(role for role, other in mapping.items() if other == column)
            raise UserError(f"{_OPTION}: the column {column!r} is given for {both}")


class OwnTable:
    """The rows of a table to train on.

    Args:
        mapping: role → column, as the user says.
        form: what a row is, as the user says; None = by the columns.
    """

    def __init__(
        self, source: Source, mapping: Mapping[str, str] | None = None, form: Form | None = None
    ) -> None:
        forms = [known for known in TRAINED if form in (None, known.name)]
        self._table = Table(source, forms, mapping, _OPTION)
        self._may_be_scored = form is None
        self._echoes: list[str] = []

    @property
    def form(self) -> Form:
        """What its rows are, once one was read."""
        name: Form = self._table.form.name  # type: ignore[assignment]
        return name

    def examples(self, rows: Iterator[Row] | None = None) -> Iterator[Example]:
        """Raises UserError, naming row and field of all that is wrong, or columns that make no form.

        Args:
            rows: in place of all.
        """
        for example in self._table.read(self._example, rows):
            if example.num_echoes:
                self._echoes.append(f"row {example.number}")
            yield example

    def _example(self, record: Record) -> Example:
        if self._table.form is SENTENCE_PAIRS and self._may_be_scored:
            self._refuse_scores(record)
            self._may_be_scored = False
        return example_of(record, self._table.form.name, self._table.form.required)

    def _refuse_scores(self, record: Record) -> None:
        """Raises UserError for columns of numbers next to two sentences, which would be ignored."""
        numbers = [c for c in self._ignored() if as_number(record.values[c]) is not None]
        if numbers:
            raise UserError(
                f"{self._table.source.name}: the column {numbers[0]!r} has numbers. If they are the pairs' "
                f"scores: '{_OPTION}={{score: {numbers[0]}}}'. If every pair is a positive: data.form=pairs"
            )

    def _ignored(self) -> list[str]:
        used = {c for found in self._table.kinds.values() for columns in found.values() for c in columns}
        every = dict.fromkeys(column for kind in self._table.kinds for column in kind)
        return [column for column in every if column not in used and normalised(column) not in UNREAD]

    def about(self) -> str:
        """A line that says what each column was taken as."""
        roles: dict[str, dict[str, None]] = {}  # role → its columns, each once
        for found in self._table.kinds.values():
            for role, columns in found.items():
                name = role.removesuffix("_start").removesuffix("_end")
                roles.setdefault(name, {}).update(dict.fromkeys(columns))
        parts = [
            role if list(columns) == [role] else f"{' and '.join(columns)} as {role}"
            for role, columns in roles.items()
        ]
        about = ", ".join(parts)
        if ignored := self._ignored():
            about += f"; left out: {', '.join(ignored)}"
        if self._echoes:
            about += f"; negatives that equal their anchor: {first_of(self._echoes)}"
        return f"{self._table.source.name}: {_TITLES[self.form]} ({about})"


def example_of(record: Record, form: str, required: Sequence[str]) -> Example:
    """A row as an example. Raises FieldError for what is wrong."""
    labels = _name(record, "group"), _name(record, "meaning")
    num_echoes = 0
    if form == "pairs":
        anchor = _single(record, "anchor", "span", labels)
        positives = [_entry(entry, *labels) for entry in record.entries("positive", "positive_span")]
        if not positives:
            raise record.error("positive", "is empty")
        given = [_entry(entry, labels[0]) for entry in record.entries("negative", "negative_span")]
        negatives = [s for s in given if (s.text, s.span) != (anchor.text, anchor.span)]
        num_echoes = len(given) - len(negatives)
        texts = {sentence.text for sentence in positives}
        if same := [s.text for s in negatives if s.text in texts]:
            raise record.error("negative", f"{same[0]!r} is a positive of the row too")
        sentences, num_positives = [anchor, *positives, *negatives], len(positives)
    elif form == "scored":
        sentences = [_single(record, f"sentence{n}", f"span{n}", labels) for n in "12"]
        num_positives = 1
    else:
        # The first row has the column of the form; in JSON lines others may have labels that it lacks.
        record.cell("label" if "label" in record.names else required[-1])
        sentences, num_positives = [_single(record, "text", "span", labels)], 0
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
        num_echoes=num_echoes,
    )


def _single(record: Record, role: str, span: str, labels: tuple[str | None, str | None]) -> Sentence:
    """The text of a role that has one, which may be an object, too."""
    if record.is_object(role):
        return _entry(record.entry(role, span), *labels)
    return Sentence(*record.marked(role, span), *labels)


def _entry(record: Record, group: str | None, meaning: str | None = None) -> Sentence:
    """A text of a row; what an object says of itself comes before what its row says."""
    own = _name(record, "group"), _name(record, "meaning")
    return Sentence(*record.marked("text"), own[0] or group, own[1] or meaning)


def _name(record: Record, role: str) -> str | None:
    name = record.optional_name(role)
    return None if name is None else name.strip()
