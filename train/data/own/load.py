"""A user's tables in one form, checked, and split into what is trained on and what is held out."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np

from train.data.own.columns import Columns, recognise
from train.data.own.negatives import Mined, with_negatives
from train.data.own.rows import RowReader
from train.data.own.sources import Source, find_sources
from train.data.own.store import Examples, Store, StoreWriter
from train.declarations.own_data import Form, OwnData
from train.errors import UserError
from train.io.records import describe

_MAX_IN_MEMORY = 2**28  # bytes of tables; texts of larger ones are memory-mapped
_MAX_NAMED = 3
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


def load_own(data: OwnData, section: str = "data", *, negatives: Mined | None = None) -> OwnSplits:
    """The tables of `train` and `val`.

    Args:
        section: where these options stand, for messages.
        negatives: that were mined for the pairs of `train`.

    Raises:
        UserError: naming file, row and field of what is wrong, or the option.
    """
    if data.train is None:
        raise UserError(
            f"{section}.train names your training data: a file (CSV, TSV, JSONL, Parquet), a folder of them, "
            "or hf:<owner>/<name>:<split>"
        )
    train_sources = find_sources(data.train, f"{section}.train")
    val_sources = find_sources(data.val or [], f"{section}.val")
    both = {s.name for s in train_sources} & {s.name for s in val_sources}
    if both:
        raise UserError(f"{section}.train and {section}.val both name {min(both)}")
    notes: list[str] = []
    store = _read(train_sources, data.columns, data.form, notes, negatives or _NOTHING)
    everything = Examples(store, np.arange(len(store.numbers), dtype=np.int64))
    if val_sources:
        held_out = _read(val_sources, data.columns, store.form, notes)
        train, val = everything, Examples(held_out, np.arange(len(held_out.numbers), dtype=np.int64))
    else:
        train, val = _split(everything, data.val_share, notes, section)
    train = _without_held_out(train, val, notes)
    if not len(train):
        raise UserError(f"{section}.train: no row is left to train on: all of them are in {section}.val too")
    _note_duplicates(train, notes)
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
    size = sum(source.path.stat().st_size for source in sources if source.path is not None)
    is_mapped = size > _MAX_IN_MEMORY or any(source.path is None for source in sources)
    # It lives as long as the store, which maps it.
    file: IO[bytes] = tempfile.TemporaryFile() if is_mapped else BytesIO()  # noqa: SIM115
    writer: StoreWriter | None = None
    first: tuple[str, Form] | None = None
    for source in sources:
        rows = source.rows()
        head = next(rows, None)
        if head is None:
            raise UserError(f"{source.name}: there is no row")
        columns = recognise(list(head.values), mapping, form, source.name)
        if first is None:
            first = source.name, columns.form
            writer = StoreWriter(columns.form, file)
        elif columns.form != first[1]:
            raise UserError(
                f"{source.name} holds {columns.form}, but {first[0]} holds {first[1]}: train on them as "
                "parts of a mixture (+experiment=mixture), or leave one out"
            )
        assert writer is not None
        writer.begin(source.name)
        reader = RowReader(columns)
        for example in reader.read(chain([head], rows)):
            writer.add(with_negatives(example, mined) if mined else example)
        if reader.problems:
            raise describe(reader.problems, source.name)
        notes += _about(source.name, columns)
    assert writer is not None
    store = writer.finish(_text(file, is_mapped=is_mapped))
    if store.form == "sentences" and store.has_labels and (store.label_ids == 0).any():
        raise UserError(f"{sources[0].name}: some tables have labels, and others none")
    return store


def _text(file: IO[bytes], *, is_mapped: bool) -> Any:
    if not is_mapped:
        assert isinstance(file, BytesIO)
        return file.getvalue()
    file.flush()
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b""


def _about(source: str, columns: Columns) -> list[str]:
    roles = ", ".join(
        f"{' and '.join(found)} as {role}" if list(found) != [role] else role
        for role, found in columns.by_role.items()
    )
    ignored = f"; left out: {', '.join(columns.ignored)}" if columns.ignored else ""
    return [f"{source}: {_FORM_NAMES[columns.form]} ({roles}{ignored})"]


_FORM_NAMES = {"pairs": "pairs", "scored": "scored pairs", "sentences": "sentences"}


def _split(everything: Examples, share: float, notes: list[str], section: str) -> tuple[Examples, Examples]:
    """Hold out whole groups, the same in every run: those of the smallest numbers, which are hashes."""
    groups = everything.store.groups
    distinct, counts = np.unique(groups, return_counts=True)
    if len(distinct) < 2:
        raise UserError(
            f"{section}.val: all rows are of one group, and none can be held out: name a file, {section}.val="
        )
    num_held_out = int(np.searchsorted(np.cumsum(counts), share * len(groups))) + 1
    num_held_out = min(num_held_out, len(distinct) - 1)
    is_held_out = np.isin(groups, distinct[:num_held_out])
    what = _group_name(everything.store)
    notes.append(
        f"held out: {int(is_held_out.sum())} of {len(groups)} rows, {num_held_out} of {len(distinct)} {what} "
        f"({section}.val_share={share:g})"
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
    return train.without(is_in_both)


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
    ids = train.store.text_ids
    first = train.anchors
    keys = ids[first] if train.form == "sentences" else ids[first] * np.int64(31) + ids[first + 1]
    order = np.argsort(keys, kind="stable")
    is_again = np.zeros(len(keys), dtype=bool)
    is_again[order[1:]] = keys[order[1:]] == keys[order[:-1]]
    if is_again.any():
        rows = np.flatnonzero(is_again)
        places = ", ".join(train.names(rows[:_MAX_NAMED].tolist())) + (
            ", …" if len(rows) > _MAX_NAMED else ""
        )
        notes.append(f"said twice in the training data: {len(rows)} rows ({places}); they count twice")
