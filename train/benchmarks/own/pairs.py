"""The user's own pairs of sentences, scored or labelled: the cosine of each pair, and metrics of all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from train.benchmarks import Embed, Result
from train.benchmarks.own import Mode, OwnPairsOptions, OwnStsOptions, own_score
from train.benchmarks.own.texts import in_mode, modes_of, request_of, span_note
from train.benchmarks.pairs import (
    average_precision,
    best_accuracy,
    best_f1,
    cosines,
    pearson,
    roc_auc,
    spearman,
)
from train.data.own.forms import LABELLED_PAIRS, SPAN_PARTS, STS
from train.data.own.table import Record, Table, as_number, unique
from train.errors import UserError
from train.requests import Request

_WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}


class Pair(NamedTuple):
    """Two sentences.

    Attributes:
        gold: their score; of labelled pairs 1 or 0.
        group: what it belongs to in a resample; None if it is by itself.
    """

    id: str
    first: Request
    second: Request
    gold: float
    group: str | None


def build(_settings: Any, options: OwnStsOptions | OwnPairsOptions) -> OwnPairBenchmark:
    """`own_sts` or `own_pairs` on all its files."""
    paths, how = options.paths, (options.name, options.columns, options.instruction)
    data = {name: read_pairs(path, *how) for name, path in paths.items()}
    return OwnPairBenchmark(options.name, data, list(paths.values()))


def read_pairs(
    path: Path,
    benchmark: str = "own_sts",
    columns: Mapping[str, str] | None = None,
    instruction: str | None = None,
) -> list[Pair]:
    """Pairs with scores of any range (`own_sts`): the greater, the more alike; or with labels (`own_pairs`).

    A label is 1 (or true, yes) for alike; 0 or -1 (or false, no) for different.

    Args:
        columns: role → column, where the names of the file's columns are not understood as they are.
        instruction: before sentences whose row has none.

    Raises:
        UserError: naming file, row and field of all problems.
    """
    are_labelled, check = benchmark == "own_pairs", unique()

    def sentence(record: Record, number: int) -> Request:
        request = request_of(record, f"sentence{number}", f"span{number}", instruction)
        return request if request.instruction else Request(request.text, request.span)  # as a document

    def pair(record: Record) -> Pair:
        for role in SPAN_PARTS:
            if record.has(role):
                raise record.error(role, "of which sentence? Name the column as span1 or span2")
        id_ = check(record, record.name("id") if "id" in record.names else str(record.number))
        first, second = sentence(record, 1), sentence(record, 2)
        gold = _label(record) if are_labelled else record.number_in("score")
        return Pair(id_, first, second, gold, record.optional_name("group"))

    form = LABELLED_PAIRS if are_labelled else STS
    pairs = list(Table(path, [form], columns, f"benchmark.{benchmark}.columns").read(pair))
    golds = sorted({pair.gold for pair in pairs})
    if are_labelled and golds not in ([0, 1], [-1, 1]):
        raise UserError(
            f"needs the two labels 1 and 0, got {', '.join(f'{gold:g}' for gold in golds)}", file=path
        )
    if len(golds) < 2:
        raise UserError(f"all scores are {golds[0]:g}: there is nothing to correlate with", file=path)
    return [pair._replace(gold=float(pair.gold == 1)) for pair in pairs] if are_labelled else pairs


def _label(record: Record) -> float:
    value = record.cell("label")
    number = as_number(int(value) if isinstance(value, bool) else value)
    if number in (0, -1, 1):
        return float(number)
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in _WORDS:
        raise record.error("label", f"must be 1 or 0, true or false, yes or no, got {value!r}")
    return _WORDS[word]


def correlations(predicted: Sequence[float], gold: Sequence[float]) -> dict[str, float]:
    """Spearman's and Pearson's; NaN where all predictions are equal."""
    values = {"spearman": spearman(predicted, gold), "pearson": pearson(predicted, gold)}
    return {name: math.nan if value is None else value for name, value in values.items()}


def separation(predicted: Sequence[float], gold: Sequence[float]) -> dict[str, float]:
    """Metrics of binary labels. F1 and accuracy are those of their best threshold on these very pairs."""
    f1, accuracy = best_f1(predicted, gold), best_accuracy(predicted, gold)
    return {
        "average_precision": average_precision(predicted, gold),
        "roc_auc": roc_auc(predicted, gold),
        "f1": f1.value,
        "f1_threshold": f1.threshold,
        "accuracy": accuracy.value,
        "accuracy_threshold": accuracy.threshold,
    }


class OwnPairBenchmark:
    """Metrics of the cosines of pairs, by whole sentences, and by spans if there are any.

    Scored pairs: do cosines order them as their scores do? Labelled pairs (`own_pairs`): do cosines separate
    pairs that are alike from the others? The records then say which are right, by the best threshold.

    Args:
        name: first part of the score keys.
        data: name in score keys → pairs.
        files: that were read.
    """

    without_gold: Sequence[str] = ()

    def __init__(self, name: str, data: Mapping[str, Sequence[Pair]], files: Sequence[Path] = ()) -> None:
        self.name, self.data, self.files = name, data, files

    @property
    def announced(self) -> list[Request]:
        """First and second sentences, by each mode."""
        return [
            request
            for pairs in self.data.values()
            for mode in modes_of(_sentences(pairs))
            for request in in_mode(_sentences(pairs), mode)
        ]

    def score(self, embed: Embed) -> Result:
        """The scores of all data and modes."""
        result = Result()
        for name, pairs in self.data.items():
            sentences = _sentences(pairs)
            for mode in modes_of(sentences):
                requests = [*in_mode(sentences, mode)]
                predicted = cosines(embed(requests[: len(pairs)]), embed(requests[len(pairs) :]))
                self._score_mode(name, pairs, mode, predicted, result)
            result.notes.extend(span_note(sentences, "/".join(filter(None, (self.name, name, "span")))))
        return result

    def _score_mode(
        self, name: str, pairs: Sequence[Pair], mode: Mode, predicted: Sequence[float], result: Result
    ) -> None:
        gold = [pair.gold for pair in pairs]
        values = (separation if self.name == "own_pairs" else correlations)(predicted, gold)
        result.scores.extend(own_score(self.name, name, mode, metric, v) for metric, v in values.items())
        for pair, cosine in zip(pairs, predicted, strict=True):
            item = {
                **{"name": name, "mode": mode, "id": pair.id, "group": pair.group},
                **{"sentence1": pair.first.text, "sentence2": pair.second.text},
                **{"predicted": cosine, "gold": pair.gold},
            }
            if self.name == "own_pairs":
                item["is_right"] = (cosine > values["accuracy_threshold"]) == (pair.gold == 1)
            result.per_query.append(item)


def _sentences(pairs: Sequence[Pair]) -> list[Request]:
    """All first ones, then all second ones."""
    return [pair.first for pair in pairs] + [pair.second for pair in pairs]
