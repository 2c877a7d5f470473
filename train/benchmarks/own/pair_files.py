"""Reading pairs of sentences, each with a score or a label, from a table of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from train.benchmarks.own import Mode
from train.benchmarks.own.fields import OwnText
from train.data.own.forms import LABELLED_PAIRS, SPAN_PARTS, STS, Form
from train.data.own.sources import Source
from train.data.own.table import Record, Table, as_number, unique
from train.errors import UserError

_WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}


@dataclass(frozen=True, slots=True)
class OwnPair:
    """Two sentences.

    Attributes:
        gold: their score; of labelled pairs 1 or 0.
        group: what it belongs to in a resample; None if it is by itself.
    """

    id: str
    first: OwnText
    second: OwnText
    gold: float
    group: str | None


@dataclass(frozen=True)
class PairFile:
    """A file's pairs, checked.

    Attributes:
        name: in score keys.
    """

    name: str
    path: Path
    pairs: list[OwnPair]

    @property
    def modes(self) -> list[Mode]:
        """Also by spans, if there is one."""
        has_spans = any(text.span for pair in self.pairs for text in (pair.first, pair.second))
        return ["sentence", "span"] if has_spans else ["sentence"]


def read_scored_pairs(
    name: str, path: Path, columns: Mapping[str, str] | None = None, instruction: str | None = None
) -> PairFile:
    """Pairs with scores of any range: the greater, the more alike.

    Args:
        name: in score keys.
        columns: role → column, where the names of the file's columns are not understood as they are.
        instruction: before sentences whose row has none.

    Raises:
        UserError: naming file, row and field of all problems.
    """
    option = "benchmark.own_sts.columns"
    pairs = _read(path, STS, columns, option, lambda record: record.number_in("score"), instruction)
    if len({pair.gold for pair in pairs}) < 2:
        raise UserError(f"{path}: all scores are {pairs[0].gold:g}: there is nothing to correlate with")
    return PairFile(name, path, pairs)


def read_labelled_pairs(
    name: str, path: Path, columns: Mapping[str, str] | None = None, instruction: str | None = None
) -> PairFile:
    """Pairs with a label: 1 (or true, yes) for alike; 0 or -1 (or false, no) for different.

    Args, Raises: as :func:`read_scored_pairs`.
    """
    pairs = _read(path, LABELLED_PAIRS, columns, "benchmark.own_pairs.columns", _label, instruction)
    labels = sorted({pair.gold for pair in pairs})
    if len(labels) != 2:
        shown = ", ".join(f"{label:g}" for label in labels)
        raise UserError(f"{path}: there must be two labels, found {shown}")
    return PairFile(name, path, [replace(pair, gold=float(pair.gold == 1)) for pair in pairs])


def _read(
    path: Path,
    form: Form,
    columns: Mapping[str, str] | None,
    option: str,
    gold_of: Callable[[Record], float],
    instruction: str | None,
) -> list[OwnPair]:
    check = unique()

    def pair(record: Record) -> OwnPair:
        for role in SPAN_PARTS:
            if record.has(role):
                raise record.error(role, "of which sentence? Name the column as span1 or span2")
        id_ = check(record, record.name("id") if "id" in record.names else str(record.number))
        first, second = (OwnText.of(record, f"sentence{n}", f"span{n}", instruction) for n in "12")
        return OwnPair(id_, first, second, gold_of(record), record.optional_name("group"))

    return list(Table(Source(str(path), path), [form], columns, option).read(pair))


def _label(record: Record) -> float:
    value = record.cell("label")
    number = as_number(int(value) if isinstance(value, bool) else value)
    if number in (0, -1, 1):
        return float(number)
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in _WORDS:
        raise record.error(
            "label", f"{value!r} is not a label; labels are 1 and 0, true and false, or yes and no"
        )
    return _WORDS[word]
