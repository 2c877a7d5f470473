"""AdMIRe: does the image that shows what the sentence means have the caption nearest to it?"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from train.benchmarks import Embed, Result, Score
from train.benchmarks.admire import read_record
from train.benchmarks.admire.keys import AdmireMode
from train.benchmarks.candidate_ranking import graded_ndcg, predicted_ranks, rank_difference, top1_accuracy
from train.data.admire import NUM_IMAGES, Item, ItemSplit
from train.declarations.benchmark import QueryResult
from train.requests import Request


class AdmireBenchmark:
    """Ranks an item's five images by the cosine of their captions with its sentence.

    This is what a text encoder can do without seeing an image. Scores are means over items, all and by sense,
    under the keys in `keys`. Among equal cosines the first image of the table ranks first.

    Args:
        splits: from :func:`train.data.admire.read_items`; one without gold gives predictions only.
        modes: what is compared with the captions: `caption` = the item's sentence, `caption_span` = its
            compound in the sentence (or the sentence, if the compound was not found there).

    References:
        Pickard et al. 2025, arXiv 2503.15358 (the task).
    """

    name = "admire"

    def __init__(self, splits: Sequence[ItemSplit], modes: Sequence[AdmireMode]) -> None:
        self.splits = list(splits)
        self.modes = list(modes)
        self.files: list[Path] = [path for split in splits for path in split.files]
        self.without_gold = [split.name for split in splits if not split.has_gold]

    @property
    def announced(self) -> list[Request]:
        """Of each item its modes and captions."""
        return [request for split in self.splits for request in self._asked(split)]

    def _asked(self, split: ItemSplit) -> list[Request]:
        return [
            request
            for item in split.items
            for request in (
                *(_item_request(item, mode) for mode in self.modes),
                *(Request(candidate.caption) for candidate in item.candidates),
            )
        ]

    def score(self, embed: Embed) -> Result:
        """The scores of all splits and modes, and predictions for them."""
        result = Result()
        for split in self.splits:
            rows = embed(self._asked(split)).double()
            vectors = rows.view(len(split.items), len(self.modes) + NUM_IMAGES, -1)  # (Q, modes + 5, D)
            captions = vectors[:, len(self.modes) :]  # (Q, 5, D)
            for number, mode in enumerate(self.modes):
                cosine = functional.cosine_similarity(vectors[:, number, None], captions, dim=2)
                add_order(split, mode, cosine, result)
        add_scores(result)
        return result


def add_order(split: ItemSplit, mode: str, scores: Tensor, result: Result) -> list[dict[str, Any]]:
    """Add to the result the order of each item's images by `scores` (Q, 5); returns its records."""
    predicted = predicted_ranks(scores)
    metrics: dict[str, list[float]] = {}
    if split.has_gold:
        gold = torch.tensor([item.gold_ranks for item in split.items])
        metrics = {
            "top1_accuracy": top1_accuracy(predicted, gold).tolist(),
            "rank_difference": rank_difference(predicted, gold).tolist(),
            "ndcg@5": graded_ndcg(predicted, gold).tolist(),
        }
    orders = [_names(item, ranks) for item, ranks in zip(split.items, predicted.tolist(), strict=True)]
    records = [
        {
            "split": split.name,
            "mode": mode,
            "id": item.id,
            "compound": item.compound,
            "sentence": item.sentence,
            "sense": item.sense,
            **{metric: values[i] for metric, values in metrics.items()},
            "order": order,
            "gold": None if item.gold_ranks is None else _names(item, item.gold_ranks),
        }
        for i, (item, order) in enumerate(zip(split.items, orders, strict=True))
    ]
    result.per_query.extend(records)
    result.predictions[f"admire_{split.name}_{mode}.tsv"] = _table(split, orders)
    return records


def add_scores(result: Result) -> None:
    """Add the scores: of what the records add to each, the mean, or the macro-F1 of predicted and gold."""
    results: dict[str, list[QueryResult]] = {}
    for record in result.per_query:
        for one in read_record(record):
            results.setdefault(one.key, []).append(one)
    for key, of_key in results.items():
        pairs = [one.pair for one in of_key if one.pair is not None]
        values = [one.value for one in of_key if one.value is not None]
        name, split, mode, metric, *slices = key.split("/")
        value = macro_f1(pairs) if pairs else sum(values) / len(values)
        result.scores.append(Score(name, split, mode, metric, "".join(slices), value))


def macro_f1(pairs: Sequence[tuple[float, float]]) -> float:
    """The mean of both classes' F1, from (predicted, gold), 0 or 1 each.

    A class that is neither predicted nor there has F1 0.
    """
    counts = Counter(pairs)
    wrong = counts[0.0, 1.0] + counts[1.0, 0.0]
    right = (counts[sense, sense] for sense in (0.0, 1.0))
    return sum(2 * both / (2 * both + wrong) if both else 0.0 for both in right) / 2


def _item_request(item: Item, mode: AdmireMode) -> Request:
    if mode == "caption_span" and item.span is not None:
        return Request(item.sentence, item.span, role="query", pooling="span")
    return Request(item.sentence, role="query")


def _names(item: Item, ranks: Sequence[int]) -> list[str]:
    """The item's images in the order of their ranks."""
    return [item.candidates[i].name for i in sorted(range(len(ranks)), key=ranks.__getitem__)]


def _table(split: ItemSplit, orders: Sequence[list[str]]) -> str:
    """Each item's order, in the form in which the task's tables have the gold order."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter="\t", lineterminator="\n")
    writer.writerow(["compound", "expected_order"])
    writer.writerows([item.compound, str(order)] for item, order in zip(split.items, orders, strict=True))
    return file.getvalue()
