"""AdMIRe by trained experts: the whole system, each expert alone, and the sense classifier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from train.benchmarks import BenchmarkResult
from train.benchmarks.admire.keys import GOLD_SENSE, MAJORITY, admire_key
from train.benchmarks.admire.scoring import add_order
from train.data.admire import ItemSplit
from train.data.astitch import UsageCorpus
from train.data.names import ADMIRE_SENSES, AStitchSplit
from train.experts.aima import AimaSystem
from train.experts.heads import Experts
from train.requests import Request


class ExpertsBenchmark:
    """Ranks items' images by the expert of the predicted sense, and scores the prediction of senses.

    `experts_text` or `experts_image` is the whole system. With the suffix `_gold_sense`, items go to their
    expert by the gold sense: the slice `/idiomatic` is the idiomatic expert alone, `/literal` the literal
    one. `majority` is the sense accuracy of always predicting the split's most frequent sense.

    It holds the module that is trained, so it always scores the experts as they are.

    Args:
        experts: put into evaluation mode while they score, then back.
        splits: of items, as :class:`train.benchmarks.admire.scoring.AdmireBenchmark` takes them.
        usages: sentences of AStitchInLanguageModels whose sense is predicted, by split.

    References:
        Rasouli et al. 2025, AIMA at SemEval-2025 Task 1: tables 1 and 2.
    """

    name = "admire"
    takes_whole_embeddings = True  # the experts are of their width

    def __init__(
        self,
        experts: Experts | AimaSystem,
        splits: Sequence[ItemSplit],
        usages: Sequence[tuple[AStitchSplit, UsageCorpus]] = (),
    ) -> None:
        self.experts = experts
        self.splits = list(splits)
        self.usages = list(usages)
        self.files: list[Path] = [path for split in splits for path in split.files]
        self.files += [path for _, corpus in usages for path in corpus.files]
        self.without_gold = [split.name for split in splits if not split.has_gold]
        self.requests: list[Request] = []
        for split in splits:
            self.requests += [r for item in split.items for r in experts.item_requests(item)]
        for _, corpus in usages:
            self.requests += [
                r for u in corpus.usages for r in experts.sense_requests(u.phrase, u.sentence, u.span)
            ]

    def score(self, embeddings: Tensor) -> BenchmarkResult:
        """Scores from embeddings (N, D), row i for `requests[i]`."""
        was_training = self.experts.training
        self.experts.eval()
        try:
            with torch.no_grad():
                return self._score(embeddings)
        finally:
            self.experts.train(was_training)

    def _score(self, embeddings: Tensor) -> BenchmarkResult:
        result = BenchmarkResult({})
        if self.usages and self.experts.options.astitch is None:
            result.notes.append(
                f"{', '.join(name for name, _ in self.usages)}: an earlier version saved these experts "
                "without the names of AStitch's files that taught them, which may hold compounds that are "
                "scored here."
            )
        mode, at = self.experts.mode, 0
        for split in self.splits:
            width = len(self.experts.item_requests(split.items[0]))
            end = at + width * len(split.items)
            item_embeddings = embeddings[at:end].view(len(split.items), width, -1)  # (Q, R, D)
            at = end
            scores = self.experts(split.items, item_embeddings)
            predicted = scores.sense.argmax(1)
            before = len(result.per_query)
            add_order(split, mode, scores.routed(predicted).double().cpu(), result)
            for record, said in zip(result.per_query[before:], predicted.tolist(), strict=True):
                record["predicted_sense"] = ADMIRE_SENSES[said]
            if any(item.sense is None for item in split.items):
                continue
            gold = torch.tensor([int(item.sense == "literal") for item in split.items])
            by_gold_sense = scores.routed(gold.to(predicted.device)).double().cpu()
            add_order(split, f"{mode}_{GOLD_SENSE}", by_gold_sense, result)
            majority = gold.mode().values.expand(len(gold))
            _add_accuracy(split.name, mode, predicted.cpu(), gold, result)
            _add_accuracy(split.name, MAJORITY, majority, gold, result)
            named = [(item.id, item.compound) for item in split.items]
            result.per_query.extend(_sense_records(split.name, MAJORITY, named, majority, gold))
        for name, corpus in self.usages:
            num = self.experts.num_sense_requests
            end = at + num * len(corpus.usages)
            rows = embeddings[at:end].view(len(corpus.usages), num, -1)  # (U, S, D)
            at = end
            predicted = self.experts.sense(rows)[1].argmax(1).cpu()
            gold = torch.tensor([int(not usage.is_idiomatic) for usage in corpus.usages])
            majority = gold.mode().values.expand(len(gold))
            named = [(f"astitch_{usage.id}", usage.phrase) for usage in corpus.usages]
            for given_by, senses in ((mode, predicted), (MAJORITY, majority)):
                _add_accuracy(name, given_by, senses, gold, result)
                result.scores[admire_key(name, given_by, "sense_macro_f1")] = macro_f1(senses, gold)
                result.per_query.extend(_sense_records(name, given_by, named, senses, gold))
        return result


def _add_accuracy(split: str, mode: str, predicted: Tensor, gold: Tensor, result: BenchmarkResult) -> None:
    """Of all, and by the gold sense, from int (N,) and (N,), 0 = idiomatic."""
    is_right = (predicted == gold).double()
    for number, sense in ((None, None), *enumerate(ADMIRE_SENSES)):
        members = is_right if number is None else is_right[gold == number]
        if len(members):
            result.scores[admire_key(split, mode, "sense_accuracy", sense)] = members.mean().item()


def _sense_records(
    split: str, mode: str, named: Sequence[tuple[str, str]], predicted: Tensor, gold: Tensor
) -> list[dict[str, Any]]:
    """A record for each predicted sense; `named` are ids and compounds."""
    return [
        {
            "split": split,
            "mode": mode,
            "id": id_,
            "compound": compound,
            "sense": ADMIRE_SENSES[is_literal],
            "predicted_sense": ADMIRE_SENSES[said],
        }
        for (id_, compound), said, is_literal in zip(named, predicted.tolist(), gold.tolist(), strict=True)
    ]


def macro_f1(predicted: Tensor, gold: Tensor) -> float:
    """The mean of both classes' F1, from int (N,) and (N,), 0 or 1.

    A class that is neither predicted nor there has F1 0.
    """
    f1 = []
    for sense in (0, 1):
        both = ((predicted == sense) & (gold == sense)).sum().item()
        either = (predicted == sense).sum().item() + (gold == sense).sum().item()
        f1.append(2 * both / either if either else 0.0)
    return sum(f1) / 2
