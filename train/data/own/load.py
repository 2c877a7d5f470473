"""A user's tables in one form, checked, and split into what is trained on and what is held out."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from train.data.own.mined import Mined, with_negatives
from train.data.own.rows import OwnTable, check_mapping
from train.data.own.sources import Source, find_sources
from train.data.own.store import Examples, Store, StoreWriter
from train.declarations.own_data import NO_DATA, OwnData
from train.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_IN_MEMORY = 2**28  # bytes of texts; more of them are memory-mapped
_MAX_NAMED = 3
_LOOKED_AT = 1000  # rows, of which it is seen whether they are numbered
_NOTHING: Mined = MappingProxyType({})
_TEXT_ROLES = {"pairs": ("anchor", "positive"), "scored": ("sentence1", "sentence2"), "sentences": ("text",)}


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
                # Problems are raised after the last row, which is here the first.
                next(OwnTable(source, data.columns, data.form).examples(islice(source.rows(), 1)), None)


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
    if both := {s.name for s in train_sources} & {s.name for s in val_sources}:
        raise UserError(f"data.train and data.val both name {min(both)}")
    check_mapping(data.columns)
    notes: list[str] = []
    everything = _read(train_sources, data, notes, negatives or _NOTHING)
    _check_text_columns(everything.store, train_sources[0].name)
    if val_sources:
        train, val = everything, _read(val_sources, data, notes)
        if val.form != train.form:
            raise UserError(
                f"data.val: {val_sources[0].name} holds {val.form}, but {train_sources[0].name} "
                f"holds {train.form}"
            )
    else:
        train, val = _split(everything, data.val_share, notes)
    train = _without_held_out(train, val, notes)
    if not len(train):
        raise UserError("data.train: no row is left to train on: all of them are in data.val too")
    notes += _oddities(train)
    sources = [*train_sources, *val_sources]
    return OwnSplits(
        train,
        val,
        [s.path for s in sources if s.path is not None],
        {s.name: s.revision for s in sources if s.revision is not None},
        notes,
    )


def _read(sources: Sequence[Source], data: OwnData, notes: list[str], mined: Mined = _NOTHING) -> Examples:
    """All rows of some tables, which must be of one form."""
    writer: StoreWriter | None = None
    with tempfile.SpooledTemporaryFile(_MAX_IN_MEMORY) as file:
        for source in sources:
            table = OwnTable(source, data.columns, data.form)
            for example in table.examples():
                writer = writer or StoreWriter(table.form, file)
                if table.form != writer.form:
                    raise UserError(
                        f"{source.name} holds {table.form}, but {sources[0].name} holds {writer.form}: train "
                        "on them as parts of a mixture (+experiment=mixture), or leave one out"
                    )
                writer.add(source.name, with_negatives(example, mined) if mined else example)
            notes.append(table.about())
        assert writer is not None
        store = writer.finish(_text(file))
    if store.has_labels and (store.label_ids == 0).any():
        row = int(np.flatnonzero(store.label_ids == 0)[0])
        raise UserError(f"{store.name(row)}: has a group but no label, while other rows have labels")
    return Examples(store, np.arange(len(store.numbers), dtype=np.int64))


def _text(file: tempfile.SpooledTemporaryFile[bytes]) -> Any:
    """What was written: in memory, or mapped, which outlives the file."""
    if file.tell() > _MAX_IN_MEMORY:
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    file.seek(0)
    return file.read()


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


def _split(everything: Examples, share: float, notes: list[str]) -> tuple[Examples, Examples]:
    """Hold out whole groups, the same in every run: those of the smallest numbers, which are hashes."""
    store = everything.store
    groups = store.groups
    what = "groups" if store.has_groups else "labels" if store.has_labels else "anchors"
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


def _without_held_out(train: Examples, val: Examples, notes: list[str]) -> Examples:
    """Rows of which the anchor (of scored pairs: both sentences) is not held out."""
    keys, held_out = _keys(train), _keys(val)
    is_in_both = np.isin(keys, held_out)
    if is_in_both.any():
        rows = np.flatnonzero(is_in_both)
        others = [int(np.flatnonzero(held_out == keys[row])[0]) for row in rows[:_MAX_NAMED]]
        pairs = zip(train.names(rows[:_MAX_NAMED].tolist()), val.names(others), strict=True)
        places = ", ".join(f"{one} = {other}" for one, other in pairs) + ", …" * (len(rows) > _MAX_NAMED)
        notes.append(f"left out of training, since they are held out too: {len(rows)} rows ({places})")
    if train.store.has_groups and val.store.has_groups:
        shared = len(np.intersect1d(train.store.groups[train.rows], val.store.groups[val.rows]))
        if shared:
            notes.append(
                f"{shared} groups are both trained on and held out: the scores are of groups seen in training"
            )
    train = train.without(is_in_both)
    if train.form == "pairs":
        trained = train.store.text_ids[[text for row in range(len(train)) for text in train.texts(row)]]
        is_trained = np.isin(val.store.text_ids[val.anchors + 1], trained)
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
    # It wraps around, as hashes may.
    return np.minimum(anchors, others) * np.int64(31) + np.maximum(anchors, others)


def _oddities(train: Examples) -> Iterator[str]:
    """What a user may not have meant, a line each: it is trained on nevertheless."""
    store, first = train.store, train.anchors
    keys = store.text_ids[first]
    if train.form != "sentences":
        keys = keys * np.int64(31) + store.text_ids[first + 1]
    order = np.argsort(keys, kind="stable")
    is_again = np.zeros(len(keys), dtype=bool)
    is_again[order[1:]] = keys[order[1:]] == keys[order[:-1]]
    if is_again.any():
        yield f"duplicated in the training data: {_rows(train, is_again)}; they count twice"
    if train.form == "sentences":
        what = "label" if store.has_labels else "group and meaning" if store.has_meanings else "group"
        labels = store.label_ids[train.rows][:, None] if store.has_labels else store.labels[first]
        _, which, counts = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
        is_alone = counts[which.ravel()] == 1
        if is_alone.any():
            yield f"no other sentence of the same {what}: {_rows(train, is_alone)}"
    if train.form != "scored" and store.has_groups and store.has_meanings:
        is_trained = np.isin(np.arange(len(store.numbers)), train.rows)
        pairs = np.unique(store.labels[np.repeat(is_trained, np.diff(store.first))], axis=0)
        groups, counts = np.unique(pairs[:, 0], return_counts=True)
        is_one_sided = np.isin(store.labels[first, 0], groups[counts == 1])
        if is_one_sided.any():
            yield (
                f"{int((counts == 1).sum())} of {len(groups)} groups have one meaning, and no hard negative: "
                f"{_rows(train, is_one_sided)}"
            )


def _rows(examples: Examples, chosen: NDArray[np.bool_]) -> str:
    """`12 rows (pairs.csv row 3, pairs.csv row 9, …)`."""
    rows = np.flatnonzero(chosen)
    names = ", ".join(examples.names(rows[:_MAX_NAMED].tolist())) + ", …" * (len(rows) > _MAX_NAMED)
    return f"{len(rows)} row{'s' if len(rows) > 1 else ''} ({names})"
