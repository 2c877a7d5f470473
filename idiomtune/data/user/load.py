"""A user's tables: read, checked, and split into the training data and the held-out data."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from idiomtune.data.user.examples import ExampleTable, Sentence, UserExample
from idiomtune.data.user.forms import CORPUS
from idiomtune.data.user.source import Source, find_sources
from idiomtune.data.user.table import UserTable
from idiomtune.data.user.text_table import TextTable, UserExamples
from idiomtune.errors import UserError
from idiomtune.io.files import list_names
from idiomtune.io.tables import read_rows
from idiomtune.plugins.dataset import MISSING_TRAIN_MESSAGE, UserData

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

_MAX_NAMED = 3
_HASH = np.int64(31)  # of two ids: the product wraps around, as hashes may

Mined = Mapping[str, list[str]]  # anchor → its negatives


def read_corpus(names: Sequence[str]) -> list[str]:
    """The distinct texts of tables with a column `text` (and `title`, before it), to mine negatives from.

    Raises:
        UserError: naming file, row and field of a problem, or the option.
    """
    tables = [UserTable(source, [CORPUS]) for source in find_sources(names, "data.negatives.corpus")]
    return list(dict.fromkeys(text for t in tables for text in t.read(lambda row: row.marked_text()[0])))


@dataclass(frozen=True)
class UserSplits:
    """The training data, and the held-out data.

    Attributes:
        train: without rows whose anchor is held out.
        files: that were read, for the run's record.
        revisions: data set of the Hub → commit.
        notes: what a user should know of the data, a line each.
    """

    train: UserExamples
    val: UserExamples
    files: Sequence[Path]
    revisions: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


@dataclass
class _Facts:
    """What is kept over all tables of a run.

    Attributes:
        spellings: key of a name → the name as it is first spelled.
    """

    tables: list[ExampleTable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    spellings: dict[str, str] = field(default_factory=dict)


def check_heads(data: UserData) -> None:
    """Check that each file exists, its columns and its first row; if a first row is wrong, all rows.

    Data sets of the Hub are not checked.

    Raises:
        UserError: as :func:`load_user_data`.
    """
    named = {"train": data.train, "val": data.val, "negatives.corpus": data.negatives.corpus}
    for option, names in named.items():
        files = [name for name in names or [] if not name.startswith("hf:")]
        for source in find_sources(files, f"data.{option}"):
            if option != "negatives.corpus":
                table = ExampleTable(source, data.columns, data.form)
                try:  # problems are raised after the last row, which is here the first
                    next(table.examples(islice(source.rows(), 1)), None)
                except UserError:
                    list(table.examples())  # names all of them; or a later row has what the first one lacks


def user_splits(data: UserData) -> UserSplits:
    """As :func:`load_user_data`, read once per program."""
    return _read_once(data.model_dump_json(), data.negatives.file)


def forget_user_data() -> None:
    """Forget the tables that an earlier job of this process has read: files may have changed since."""
    _read_once.cache_clear()


@lru_cache(maxsize=32)
def _read_once(data: str, mined: Path | None) -> UserSplits:
    options = UserData.model_validate_json(data)
    if mined is not None:
        rows = read_rows(mined) if mined.stat().st_size else ()  # none were mined
        splits = load_user_data(options, {row.values["anchor"]: row.values["negatives"] for row in rows})
        return replace(splits, files=[*splits.files, mined])
    splits = load_user_data(options)
    for note in splits.notes:
        log.info("%s", note)
    return splits


def load_user_data(data: UserData, mined: Mined = MappingProxyType({})) -> UserSplits:
    """The tables of `train` and `val`.

    Args:
        mined: negatives for the pairs of `train`.

    Raises:
        UserError: naming file, row and field of a problem, or the option.
    """
    if data.train is None:
        raise UserError(MISSING_TRAIN_MESSAGE)
    train_sources = find_sources(data.train, "data.train")
    val_sources = find_sources(data.val or [], "data.val")
    facts = _Facts()
    notes = facts.notes
    train = _read(train_sources, data, facts, mined)
    if train.store.has_labels and len(np.unique(train.store.label_ids)) == 1:
        label = train.store.names[int(train.store.label_ids[0])]
        problem = f"there is only one label, {label!r}: add sentences with another one to tell it from"
        raise UserError(problem, file=train_sources[0].name)
    if val_sources:
        val = _read(val_sources, data, facts)
        if val.form != train.form:
            problem = f"has {val.form}, but {train_sources[0].name} has {train.form}"
            raise UserError(problem, file=val_sources[0].name)
    else:
        train, val = _split(train, data.val_share, notes)
    columns = {column for table in facts.tables for column in table.columns}
    if missing := sorted(facts.tables[0].named - columns):
        near = list_names(difflib.get_close_matches(missing[0], columns) or sorted(columns))
        raise UserError(f"data.columns: no table has the column {missing[0]!r} (is it one of {near}?)")
    train = _without_held_out(train, val, notes)
    if not len(train):
        raise UserError("data.train: no row is left to train on: all of them are in data.val too")
    train = _without_unused(train, notes)
    sources = [*train_sources, *val_sources]
    files = [s.path for s in sources if s.path is not None]
    return UserSplits(train, val, files, {s.name: s.revision for s in sources if s.revision}, notes)


def _read(
    sources: Sequence[Source], data: UserData, facts: _Facts, mined: Mined = MappingProxyType({})
) -> UserExamples:
    """All rows of some tables, which must be of one form; of equal rows, as of annotators, the first."""
    first: dict[UserExample, tuple[str, UserExample]] = {}
    copies, form = list[str](), ""
    for source in sources:
        table = ExampleTable(source, data.columns, data.form, facts.spellings)
        read = list(table.examples())
        form = form or table.form.name
        if table.form.name != form:
            problem = f"has {table.form.name}, but {sources[0].name} has {form}: leave one out, "
            problem += "or train on both as parts of a mixture (+experiment=mixture)"
            raise UserError(problem, file=source.name)
        for example in read:
            anchor = example.sentences[0].text
            own = {sentence.text for sentence in example.sentences}
            others = (*mined.get(anchor, ()), *table.negatives.get(anchor, ()))
            negatives = [Sentence(text) for text in others if text not in own]
            row = replace(example, sentences=(*example.sentences, *negatives))
            if first.setdefault(replace(row, number=0), (source.name, row))[1] is not row:
                copies.append(f"{source.name} row {row.number}")
        facts.tables.append(table)
        facts.notes.append(table.about())
        if wrong := [*table.negatives.keys() - {example.sentences[0].text for example in read}]:
            facts.notes.append(
                f"left out, since no row of them is right: {list_names(sorted(wrong), _MAX_NAMED)}"
            )
    store = TextTable(form, [*first.values()])
    unlabelled = np.flatnonzero(store.label_ids == 0)
    if store.has_labels and len(unlabelled):
        raise UserError(f"{store.name(unlabelled[0])}: has a group but no label, while others have labels")
    if copies:
        facts.notes.append(f"exact copies of earlier rows, which count once: {_count(copies)}")
    examples = _with_meanings(UserExamples(store, np.arange(len(store.rows))))
    _warn_of_contradictions(examples)
    return examples


def _warn_of_contradictions(examples: UserExamples) -> None:
    """Log a warning of texts that different rows label differently."""
    are_sentences = examples.form == "sentences"
    read_as: dict[Any, dict[Any, list[int]]] = {}  # text → label → rows
    for row, key in enumerate(_keys(examples).tolist()):
        example = examples.store.rows[int(examples.rows[row])]
        anchor = example.sentences[0]
        label = (example.label or anchor.meaning) if are_sentences else example.score
        group = anchor.group if example.label is None else None
        use = (key, anchor.span, group) if are_sentences else key
        read_as.setdefault(use, {}).setdefault(label, []).append(row)
    several = [labels for labels in read_as.values() if len(labels) > 1]
    if several:
        rows = sorted(row for labels in several for of_label in labels.values() for row in of_label)
        kind = "texts have several labels or meanings" if are_sentences else "pairs have several scores"
        advice = "are read as each: correct them, or leave rows out"
        log.warning("%d %s, and %s: %s", len(several), kind, advice, _count(examples.names(rows)))


def _with_meanings(examples: UserExamples) -> UserExamples:
    """Without sentences that have no meaning if others have one; rows without a group or span are named."""
    store, rows = examples.store, examples.rows.tolist()
    groups, anchors = map(store.group, rows), [store.rows[row].sentences[0] for row in rows]
    has_group = np.array([group is not None for group in groups])
    lacks = {
        "group": store.has_groups & ~has_group,
        "span": store.has_spans & np.array([anchor.span is None for anchor in anchors]),
        "meaning": store.has_meanings & has_group & np.array([anchor.meaning is None for anchor in anchors]),
    }
    for role, is_without in lacks.items():
        if is_without.any():
            log.warning("without a %s, while others have one: %s", role, _rows(examples, is_without))
    if store.form == "sentences" and not store.has_labels:
        return UserExamples(store, examples.rows[~lacks["meaning"]])
    return examples


def _split(examples: UserExamples, share: float, notes: list[str]) -> tuple[UserExamples, UserExamples]:
    """Hold out whole groups, the same in every run: those of the smallest numbers, which are hashes."""
    store, rows = examples.store, examples.rows
    unit = "groups" if store.has_groups else "labels" if store.has_labels else "anchors"
    distinct, counts = np.unique(store.groups[rows], return_counts=True)
    # A single label can neither be learned nor found; for anything else two tell more than one.
    is_by_label = store.form == "sentences" and (unit == "labels" or not store.has_meanings)
    if len(distinct) < (4 if is_by_label else 2):
        problem = f"whole {unit} are held out, and {len(distinct)} are too few to hold out some"
        raise UserError(f"data.val: {problem}: give a file with data.val=")
    # A group that is larger than all that is to be held out stays in training.
    wanted = share * len(rows)
    fitting = np.flatnonzero(counts <= wanted)
    enough = int(np.searchsorted(np.cumsum(counts[fitting]), wanted)) + 1
    fitting = fitting[: min(enough, len(distinct) - 1)]
    least = 2 if len(distinct) >= 4 else 1
    if len(fitting) < least:
        fitting = np.argsort(counts, kind="stable")[:least]
    is_held_out = np.isin(store.groups[rows], distinct[fitting])
    more = f": whole {unit} are held out, and at least {least}" * bool(is_held_out.mean() > 1.25 * share)
    num_rows = f"{int(is_held_out.sum())} of {len(is_held_out)} rows"
    num_groups = f"{len(fitting)} of {len(distinct)} {unit} (data.val_share={share:g}{more})"
    notes.append(f"held out: {num_rows}, {num_groups}{_name_rows(store, distinct[fitting])}")
    return UserExamples(store, rows[~is_held_out]), UserExamples(store, rows[is_held_out])


def _without_held_out(train: UserExamples, val: UserExamples, notes: list[str]) -> UserExamples:
    """The training rows without a held-out anchor (of scored pairs: without two held-out sentences)."""
    is_in_both = np.isin(_keys(train), _keys(val))
    if is_in_both.any():
        notes.append(f"left out of training, since they are held out too: {_rows(train, is_in_both)}")
    if train.store.has_groups and val.store.has_groups:
        groups = np.unique(val.store.groups[val.rows])
        new = np.setdiff1d(groups, train.store.groups[train.rows])
        if len(new) < len(groups):
            overlap = f"{len(groups) - len(new)} of {len(groups)} held-out groups are trained on too"
            others = _name_rows(val.store, new, "; not trained on: ")
            notes.append(f"{overlap}, so the scores are of new rows of known groups{others}")
    train = UserExamples(train.store, train.rows[~is_in_both])
    if train.form == "pairs":
        trained = train.store.text_ids[[text for row in range(len(train)) for text in train.texts(row)]]
        is_trained = np.isin(val.store.text_ids[val.anchors + 1], trained)
        if is_trained.any():
            notes.append(f"held-out answers that are trained on too: {_rows(val, is_trained)}")
    return train


def _name_rows(store: TextTable, groups: NDArray[np.int64], before: str = ": ") -> str:
    """The names of groups or labels, in the order of the alphabet; "" if they have none."""
    names = sorted(store.names[number] for number in groups.tolist() if number in store.names)
    return f"{before}{list_names(names)}" if names else ""


def _keys(examples: UserExamples) -> Any:
    """int64 (R,), equal for rows that are the same: by the anchor, or the two sentences of a scored pair."""
    ids = examples.store.text_ids
    anchors = ids[examples.anchors]
    if examples.form != "scored":
        return anchors
    others = ids[examples.anchors + 1]
    return np.minimum(anchors, others) * _HASH + np.maximum(anchors, others)


def _without_unused(train: UserExamples, notes: list[str]) -> UserExamples:
    """Without sentences that are neither positive nor hard negative of another; both kinds are noted."""
    store, first = train.store, train.anchors
    if train.form != "sentences":
        return train
    kind = "label" if store.has_labels else "group and meaning" if store.has_meanings else "group"
    labels = store.label_ids[train.rows] if store.has_labels else store.labels[first]
    _, label_of, counts = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
    is_single = counts[label_of.ravel()] == 1
    groups = store.labels[first, 0]
    is_unused = is_single & ~np.isin(groups, groups[~is_single])
    if store.has_labels or is_single.all():  # labels are compared across groups
        is_unused[:] = False
    for rows, role in ((is_single & ~is_unused, "only negatives"), (is_unused, "not used, so add one")):
        if rows.any():
            notes.append(f"no other sentence of the same {kind}, and {role}: {_rows(train, rows)}")
    return UserExamples(store, train.rows[~is_unused])


def _rows(examples: UserExamples, chosen: NDArray[np.bool_]) -> str:
    return _count(examples.names(np.flatnonzero(chosen).tolist()))


def _count(names: Sequence[str]) -> str:
    """`12 rows (pairs.csv row 3, pairs.csv row 9, …)`."""
    shown = ", ".join(names[:_MAX_NAMED]) + ", …" * (len(names) > _MAX_NAMED)
    return f"{len(names)} row{'s' if len(names) > 1 else ''} ({shown})"
