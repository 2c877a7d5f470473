"""A user's tables in one form, checked, and split into what is trained on and what is held out."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from train.data.own.cells import CellError, as_number
from train.data.own.columns import check_mapping, no_column, recognise
from train.data.own.mined import Mined, with_negatives
from train.data.own.rows import Example, RowReader
from train.data.own.sources import Source, find_sources
from train.data.own.store import Examples, Store, StoreWriter
from train.declarations.own_data import NO_DATA, Form, OwnData
from train.errors import UserError
from train.io.records import Problems
from train.io.tables import has_header
from train.io.text import first_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_IN_MEMORY = 2**28  # bytes of texts; more of them are memory-mapped
_MAX_NAMED = 3
_LOOKED_AT = 1000  # rows, of which it is seen whether they are numbered
_NOTHING: Mined = MappingProxyType({})


@dataclass(frozen=True)
class OwnSplits:
    """What is trained on, and what is held out.

    Attributes:
        train: rows whose anchor is held out are left out.
        files: that were read, for the run's record.
        revisions: data set of the Hub → commit.
        notes: what a user should know of the data, a line each.
    """

    train: Examples
    val: Examples
    files: Sequence[Path]
    revisions: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


def check_heads(data: OwnData) -> None:
    """Check what takes no time: that each file is there, its columns and its first row.

    Data sets of the Hub are passed over.

    Raises:
        UserError: as :func:`load_own`.
    """
    named = {"train": data.train, "val": data.val, "negatives.corpus": data.negatives.corpus}
    check_mapping(data.columns)
    for option, names in named.items():
        files = [name for name in names or [] if not name.startswith("hf:")]
        for source in find_sources(files, f"data.{option}"):
            if option != "negatives.corpus":
                next(OwnTable(source, data.columns, data.form).examples(), None)


def load_own(data: OwnData, *, negatives: Mined | None = None) -> OwnSplits:
    """The tables of `train` and `val`.

    Args:
        negatives: that were mined for the pairs of `train`.

    Raises:
        UserError: naming file, row and field of what is wrong, or the option.
    """
    if data.train is None:
        raise UserError(NO_DATA)
    train_sources = find_sources(data.train, "data.train")
    val_sources = find_sources(data.val or [], "data.val")
    both = {s.name for s in train_sources} & {s.name for s in val_sources}
    if both:
        raise UserError(f"data.train and data.val both name {min(both)}")
    check_mapping(data.columns)
    notes: list[str] = []
    store = _read(train_sources, data.columns, data.form, notes, negatives or _NOTHING)
    _check_text_columns(store, train_sources[0].name)
    everything = Examples(store, np.arange(len(store.numbers), dtype=np.int64))
    if val_sources:
        held_out = _read(val_sources, data.columns, data.form, notes)
        if held_out.form != store.form:
            raise UserError(
                f"data.val: {val_sources[0].name} holds {held_out.form}, but {train_sources[0].name} "
                f"holds {store.form}"
            )
        train, val = everything, Examples(held_out, np.arange(len(held_out.numbers), dtype=np.int64))
    else:
        train, val = _split(everything, data.val_share, notes)
    train = _without_held_out(train, val, notes)
    if not len(train):
        raise UserError("data.train: no row is left to train on: all of them are in data.val too")
    _note_duplicates(train, notes)
    _note_lonely(train, notes)
    _note_one_sided(train, notes)
    sources = [*train_sources, *val_sources]
    return OwnSplits(
        train,
        val,
        [s.path for s in sources if s.path is not None],
        {s.name: s.revision for s in sources if s.revision is not None},
        notes,
    )


def _read(
    sources: Sequence[Source],
    mapping: Mapping[str, str],
    form: Form | None,
    notes: list[str],
    mined: Mined = _NOTHING,
) -> Store:
    """All rows of some tables, which are to be of one form."""
    writer: StoreWriter | None = None
    first = ""
    with tempfile.SpooledTemporaryFile(_MAX_IN_MEMORY) as file:
        for source in sources:
            table = OwnTable(source, mapping, form)
            for example in table.examples():
                if writer is None:
                    writer, first = StoreWriter(table.form, file), source.name
                elif table.form != writer.form:
                    raise UserError(
                        f"{source.name} holds {table.form}, but {first} holds {writer.form}: train on them "
                        "as parts of a mixture (+experiment=mixture), or leave one out"
                    )
                writer.begin(source.name)
                writer.add(with_negatives(example, mined) if mined else example)
            notes.append(table.about())
        assert writer is not None
        store = writer.finish(_text(file))
    if store.form == "sentences" and store.has_labels and (store.label_ids == 0).any():
        row = int(np.flatnonzero(store.label_ids == 0)[0])
        raise UserError(f"{store.name(row)}: has a group and no label, where other rows have labels")
    return store


def _check_text_columns(store: Store, source: str) -> None:
    """Raises UserError where a column of texts has one value in all rows, or numbers the rows."""
    for place, role in enumerate(_TEXT_ROLES[store.form]):
        texts = [store.read_text(text) for text in (store.first[:-1] + place)[:_LOOKED_AT].tolist()]
        numbers = [int(text) for text in texts if text.isdecimal() and len(text) < 10]
        are_equal = len(texts) > 1 and np.ptp(store.text_ids[store.first[:-1] + place]) == 0
        if are_equal or (len(numbers) == len(texts) > 2 and (np.diff(numbers) == 1).all()):
            raise UserError(
                f"{source}: the {role} is {'one text in all rows' if are_equal else 'the number of the row'} "
                f"({texts[0]!r}, {texts[1]!r}, …): name another, 'data.columns={{{role}: <column>}}'"
            )


class OwnTable:
    """The rows of one source.

    Args:
        form: what the user says that a row is.
    """

    def __init__(self, source: Source, mapping: Mapping[str, str], form: Form | None) -> None:
        self._source, self._mapping, self._given = source, mapping, form
        # By the row's columns: in JSON lines each row may have others.
        self._readers: dict[tuple[str, ...], RowReader] = {}

    @property
    def form(self) -> Form:
        """What its rows are, once one was read."""
        return next(iter(self._readers.values())).columns.form

    def examples(self) -> Iterator[Example]:
        """Its rows as examples.

        Raises:
            UserError: after the last row, naming row and field of all problems; at once, if the columns make
                no form.
        """
        problems = Problems(self._source.name)
        num_rows = 0
        for num_rows, (number, values) in enumerate(self._source.rows(), 1):  # noqa: B007
            try:
                example = self._reader(number, values).read(number, values)
            except CellError as error:
                problems.add(str(error))
            else:
                if not problems:
                    yield example
        if not num_rows:
            raise UserError(f"{self._source.name}: there is no row")
        problems.raise_if_any()
        self._check_mapped(list(dict.fromkeys(chain.from_iterable(self._readers))))

    def _check_mapped(self, seen: Sequence[str]) -> None:
        """Raises UserError for a column that the user maps, and that is not there."""
        if missing := [column for column in self._mapping.values() if column not in seen]:
            raise UserError(no_column(missing[0], seen, self._source.name))

    def _reader(self, number: int, values: Mapping[str, Any]) -> RowReader:
        header = tuple(values)
        if header not in self._readers:
            is_first = not self._readers
            where = self._source.name if is_first else f"{self._source.name} row {number}"
            if is_first and (self._source.path is None or has_header(self._source.path)):
                self._check_mapped(header)
            columns = recognise(header, self._mapping, self._given if is_first else self.form, where)
            if self._given is None and is_first and columns.may_be_scored:
                self._refuse_scores([c for c in columns.ignored if as_number(values[c]) is not None])
            self._readers[header] = RowReader(columns)
        return self._readers[header]

    def _refuse_scores(self, numbers: Sequence[str]) -> None:
        """Raises UserError for columns of numbers next to two sentences, which would be ignored."""
        if numbers:
            raise UserError(
                f"{self._source.name}: the column {numbers[0]!r} has numbers. If they are the pairs' scores: "
                f"'data.columns={{score: {numbers[0]}}}'. If every pair is a positive: data.form=pairs"
            )

    def about(self) -> str:
        """A line that says what each column was taken as."""
        kinds = [reader.columns for reader in self._readers.values()]
        roles: dict[str, dict[str, None]] = {}  # role → its columns, each once
        for columns in kinds:
            for role, found in columns.by_role.items():
                roles.setdefault(role, {}).update(dict.fromkeys(found))
            for text, parts in columns.spans.items():
                name = "span" if text in ("anchor", "text") else f"{text}'s span"
                roles.setdefault(name, {}).update(dict.fromkeys(parts.values()))
        ignored = list(dict.fromkeys(column for columns in kinds for column in columns.ignored))
        said = ", ".join(
            role if list(found) == [role] else f"{' and '.join(found)} as {role}"
            for role, found in roles.items()
        )
        left_out = f"; left out: {', '.join(ignored)}" if ignored else ""
        if echoes := [f"row {row}" for reader in self._readers.values() for row in reader.echoes]:
            left_out += f"; negatives that equal their anchor: {first_of(echoes)}"
        return f"{self._source.name}: {_FORM_NAMES[self.form]} ({said}{left_out})"


def _text(file: tempfile.SpooledTemporaryFile[bytes]) -> Any:
    """What was written: in memory, or mapped, which outlives the file."""
    if file.tell() > _MAX_IN_MEMORY:
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    file.seek(0)
    return file.read()


_TEXT_ROLES = {"pairs": ("anchor", "positive"), "scored": ("sentence1", "sentence2"), "sentences": ("text",)}
_FORM_NAMES = {"pairs": "pairs", "scored": "scored pairs", "sentences": "sentences"}


def _split(everything: Examples, share: float, notes: list[str]) -> tuple[Examples, Examples]:
    """Hold out whole groups, the same in every run: those of the smallest numbers, which are hashes."""
    store = everything.store
    groups, what = store.groups, _group_name(store)
    distinct, counts = np.unique(groups, return_counts=True)
    # One label alone is neither learnt nor found; of anything else two are more telling than one.
    is_by_label = store.form == "sentences" and (what == "labels" or not store.has_meanings)
    if len(distinct) < (4 if is_by_label else 2):
        raise UserError(
            f"data.val: whole {what} are held out, and {len(distinct)} are too few to hold out some: "
            f"name a file, data.val="
        )
    # A group that is larger than all that is to be held out stays in training.
    wanted = share * len(groups)
    fitting = np.flatnonzero(counts <= wanted)
    enough = int(np.searchsorted(np.cumsum(counts[fitting]), wanted)) + 1
    fitting = fitting[: min(enough, len(distinct) - 1)]
    least = 2 if len(distinct) >= 4 else 1
    if len(fitting) < least:
        fitting = np.argsort(counts, kind="stable")[:least]
    is_held_out = np.isin(groups, distinct[fitting])
    notes.append(
        f"held out: {int(is_held_out.sum())} of {len(groups)} rows, {len(fitting)} of {len(distinct)} {what} "
        f"(data.val_share={share:g})"
    )
    return everything.without(is_held_out), everything.without(~is_held_out)


def _group_name(store: Store) -> str:
    if store.has_groups:
        return "groups"
    return "labels" if store.has_labels else "anchors"


def _without_held_out(train: Examples, val: Examples, notes: list[str]) -> Examples:
    """Rows of which the anchor (of scored pairs: both sentences) is not held out."""
    keys, held_out = _keys(train), _keys(val)
    is_in_both = np.isin(keys, held_out)
    if is_in_both.any():
        rows = np.flatnonzero(is_in_both)
        places = []
        for row in rows[:_MAX_NAMED].tolist():
            other = int(np.flatnonzero(held_out == keys[row])[0])
            places.append(f"{train.names([row])[0]} = {val.names([other])[0]}")
        more = ", …" if len(rows) > _MAX_NAMED else ""
        notes.append(
            f"left out of training, since they are held out too: {len(rows)} rows ({', '.join(places)}{more})"
        )
    if train.store.has_groups and val.store.has_groups:
        shared = len(np.intersect1d(train.store.groups[train.rows], val.store.groups[val.rows]))
        if shared:
            notes.append(
                f"{shared} groups are both trained on and held out: the scores are of groups seen in training"
            )
    train = train.without(is_in_both)
    if train.form == "pairs":
        trained = train.store.text_ids[[text for row in range(len(train)) for text in train.texts(row)]]
        answers = val.store.text_ids[[val.texts(row)[1] for row in range(len(val))]]
        is_trained = np.isin(answers, trained)
        if is_trained.any():
            notes.append(f"held-out answers that are trained on too: {_rows(val, is_trained)}")
    return train


def _keys(examples: Examples) -> Any:
    """int64 (R,): what makes two rows the same one: the anchor, or the two sentences of a scored pair."""
    ids = examples.store.text_ids
    anchors = ids[examples.anchors]
    if examples.form != "scored":
        return anchors
    others = ids[examples.anchors + 1]
    return np.minimum(anchors, others) * np.int64(31) + np.maximum(
        anchors, others
    )  # wraps around, as hashes may


def _note_duplicates(train: Examples, notes: list[str]) -> None:
    """Rows that say the same twice."""
    ids, first = train.store.text_ids, train.anchors
    keys = ids[first] if train.form == "sentences" else ids[first] * np.int64(31) + ids[first + 1]
    order = np.argsort(keys, kind="stable")
    is_again = np.zeros(len(keys), dtype=bool)
    is_again[order[1:]] = keys[order[1:]] == keys[order[:-1]]
    if is_again.any():
        notes.append(f"said twice in the training data: {_rows(train, is_again)}; they count twice")


def _note_lonely(train: Examples, notes: list[str]) -> None:
    """Labels, or meanings of groups, with one sentence, which has no positive."""
    store = train.store
    if train.form != "sentences":
        return
    what = "label" if store.has_labels else "group and meaning" if store.has_meanings else "group"
    labels = store.label_ids[train.rows][:, None] if store.has_labels else store.labels[train.anchors]
    _, which, counts = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
    is_alone = counts[which.ravel()] == 1
    if is_alone.any():
        notes.append(f"no other sentence of the same {what}: {_rows(train, is_alone)}")


def _note_one_sided(train: Examples, notes: list[str]) -> None:
    """Groups in which no text can be a hard negative: all are of one meaning."""
    store = train.store
    if train.form == "scored" or not (store.has_groups and store.has_meanings):
        return
    is_trained = np.isin(np.arange(len(store.numbers)), train.rows)
    pairs = np.unique(store.labels[np.repeat(is_trained, np.diff(store.first))], axis=0)
    groups, counts = np.unique(pairs[:, 0], return_counts=True)
    is_one_sided = np.isin(store.labels[train.anchors, 0], groups[counts == 1])
    if is_one_sided.any():
        notes.append(
            f"{int((counts == 1).sum())} of {len(groups)} groups have one meaning, and no hard negative: "
            f"{_rows(train, is_one_sided)}"
        )


def _rows(examples: Examples, chosen: NDArray[np.bool_]) -> str:
    """`12 rows (pairs.csv row 3, pairs.csv row 9, …)`."""
    rows = np.flatnonzero(chosen)
    names = ", ".join(examples.names(rows[:_MAX_NAMED].tolist())) + (", …" if len(rows) > _MAX_NAMED else "")
    return f"{len(rows)} row{'s' if len(rows) > 1 else ''} ({names})"
