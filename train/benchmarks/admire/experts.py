"""AdMIRe by trained experts: the whole system, each expert alone, and the sense classifier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from train.benchmarks import BenchmarkResult
from train.benchmarks.admire.keys import GOLD_SENSE, MAJORITY, admire_key
from train.benchmarks.admire.scoring import add_order
from train.data.admire import ItemSplit
from train.data.astitch import UsageCorpus
from train.data.names import AStitchSplit
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
            self.requests += [experts.sense_request(u.phrase, u.sentence) for u in corpus.usages]

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
            names = ["idiomatic" if p == 0 else "literal" for p in predicted.tolist()]
            for record, name in zip(result.per_query[before:], names, strict=True):
                record["predicted_sense"] = name
            if any(item.sense is None for item in split.items):
                continue
            gold = torch.tensor([int(item.sense == "literal") for item in split.items])
            by_gold_sense = scores.routed(gold.to(predicted.device)).double().cpu()
            add_order(split, f"{mode}_{GOLD_SENSE}", by_gold_sense, result)
            accuracy = (predicted.cpu() == gold).double().mean().item()
            result.scores[admire_key(split.name, mode, "sense_accuracy")] = accuracy
            majority = (gold == gold.mode().values).double().mean().item()
            result.scores[admire_key(split.name, MAJORITY, "sense_accuracy")] = majority
        for name, corpus in self.usages:
            end = at + len(corpus.usages)
            predicted = self.experts.sense(embeddings[at:end])[1].argmax(1).cpu()
            at = end
            gold = torch.tensor([int(not usage.is_idiomatic) for usage in corpus.usages])
            majority_sense = gold.mode().values.expand(len(gold))
            for given_by, senses in ((mode, predicted), (MAJORITY, majority_sense)):
                for metric, value in sense_metrics(senses, gold).items():
                    result.scores[admire_key(name, given_by, metric)] = value
        return result


def sense_metrics(
    predicted: Tensor, gold: Tensor
) -> dict[Literal["sense_accuracy", "sense_macro_f1"], float]:
    """Accuracy, and the mean of both classes' F1, from int (N,) and (N,), 0 or 1.

    A class that is neither predicted nor there has F1 0.
    """
    f1 = []
    for sense in (0, 1):
        both = ((predicted == sense) & (gold == sense)).sum().item()
        either = (predicted == sense).sum().item() + (gold == sense).sum().item()
        f1.append(2 * both / either if either else 0.0)
    accuracy = (predicted == gold).double().mean().item()
    return {"sense_accuracy": accuracy, "sense_macro_f1": sum(f1) / 2}
