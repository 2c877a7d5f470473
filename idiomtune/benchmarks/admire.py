"""AdMIRe: which of five images shows what a compound means?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field

from idiomtune.benchmarks import Benchmark, Embed, Result, scores_of, table_text
from idiomtune.data.admire import Item, ItemSplit
from idiomtune.data.locations import admire_split
from idiomtune.data.names import ADMIRE_CV_SPLIT, ADMIRE_SENSES, AdmireSplit, AStitchSplit, ExpertsMode
from idiomtune.plugins.benchmark import BenchmarkOptions, QueryResult, results_of
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.options import as_list
from idiomtune.plugins.registry import benchmark
from idiomtune.plugins.score import Metric, Score
from idiomtune.requests import EmbeddingRequest

if TYPE_CHECKING:
    from torch import Tensor

AdmireMode = Literal["caption", "caption_span"]
MAJORITY = "majority"  # the mode of a classifier that always gives the split's most frequent sense
GOLD_SENSE = "gold_sense"  # appended to an experts mode: items go to their expert by the gold sense
_RANK_METRICS = ("top1_accuracy", "rank_difference", "ndcg@5")
_METRICS = [
    Metric("top1_accuracy", title="top-1", is_drawn=True),
    Metric("rank_difference", "lower", title="rank difference"),
    Metric("ndcg@5", title="nDCG@5"),
    Metric("sense_accuracy", title="sense accuracy"),
    Metric("sense_macro_f1", role="compared", title="sense macro-F1", statistic="macro_f1"),
]


def admire_scores(splits: Iterable[str], modes: Sequence[str]) -> list[Score]:
    """Every score that the benchmark `admire` can give for these splits and modes."""
    return _scores(splits, modes, _RANK_METRICS, ("", *ADMIRE_SENSES))


def _scores(
    splits: Iterable[str], modes: Iterable[str], metrics: Iterable[str], slices: Iterable[str] = ("",)
) -> list[Score]:
    parts = product(splits, modes, metrics, slices)
    return [Score("admire", split, mode, metric, slice_) for split, mode, metric, slice_ in parts]


def experts_scores(splits: Iterable[str], mode: ExpertsMode) -> list[Score]:
    """Every score that AdMIRe's experts can give for these splits, of either dataset."""
    scores: list[Score] = []
    for split in splits:
        if split in get_args(AStitchSplit):
            scores += _scores([split], (mode, MAJORITY), ["sense_macro_f1"])
        else:
            scores += admire_scores([split], [mode, f"{mode}_{GOLD_SENSE}"])
        scores += _scores([split], (mode, MAJORITY), ["sense_accuracy"], ("", *ADMIRE_SENSES))
    return scores


def _refine(score: Score) -> Score:
    """Experts are also compared by sense: each sense has an expert of its own."""
    if score.mode == MAJORITY:
        return replace(score, role="constant")
    is_experts = score.slice and score.mode in get_args(ExpertsMode)
    return replace(score, role="compared") if is_experts else score


def _read_record(record: Mapping[str, Any]) -> Iterator[QueryResult]:
    """The value of each score in a record."""
    row = {name: record[name] for name in ("split", "mode", "id", "compound")}
    row |= {metric: record[metric] for metric in _RANK_METRICS if metric in record}  # without gold: none
    if record.get("sense") in ADMIRE_SENSES:
        row["sense"] = record["sense"]
        if "predicted_sense" in record:
            predicted, gold = (float(record[name] == "literal") for name in ("predicted_sense", "sense"))
            row["sense_accuracy"] = float(predicted == gold)
            if record["split"] in get_args(AStitchSplit):
                row |= {"predicted": predicted, "gold": gold}
    return results_of(row, "admire", _METRICS, cluster="compound", slices="sense")


@benchmark(
    "admire",
    title="AdMIRe",
    metrics=_METRICS,
    refine=_refine,
    cluster="compound",
    read_record=_read_record,
    report="idiomtune.benchmarks.admire_report",
    hub_dataset="admire",
    hub_task="sentence-ranking",
)
class AdmireBenchmarkOptions(BenchmarkOptions):
    known_splits: ClassVar[tuple[str, ...]] = get_args(AdmireSplit)
    fold_split: ClassVar[str] = ADMIRE_CV_SPLIT

    name: Literal["admire"]
    split: Annotated[list[AdmireSplit], BeforeValidator(as_list), Field(min_length=1)]
    modes: Annotated[list[AdmireMode], BeforeValidator(as_list), Field(min_length=1)]

    def possible_scores(self, splits: Sequence[str]) -> list[Score]:
        return admire_scores(splits, self.modes)

    def build(self, inputs: RunInputs) -> AdmireBenchmark:
        wanted = inputs.splits("admire")
        splits = [admire_split(inputs, name) for name in get_args(AdmireSplit) if name in wanted]
        return AdmireBenchmark(splits, self.modes)


class AdmireBenchmark(Benchmark):
    """Ranks an item's five images by the cosine of their captions with its sentence.

    This is what a text encoder can do without seeing an image. Scores are means over items, all and by sense.
    Among equal cosines the first image of the table ranks first.

    Args:
        splits: from :func:`idiomtune.data.admire.read_items`; one without gold gives predictions only.
        modes: what is compared with the captions: `caption` = the item's sentence, `caption_span` = its
            compound in the sentence (or the sentence, if the compound was not found there).

    References:
        Pickard et al. 2025, arXiv 2503.15358 (the task).
    """

    name = "admire"

    def __init__(self, splits: Sequence[ItemSplit], modes: Sequence[AdmireMode]) -> None:
        self.splits, self.modes = splits, modes
        self.files = [path for split in splits for path in split.files]
        self.without_gold = [split.name for split in splits if not split.has_gold]

    @property
    def requests(self) -> list[EmbeddingRequest]:
        """Of each item its modes and captions."""
        return [r for split in self.splits for item in split.items for r in self.item_requests(item)]

    def item_requests(self, item: Item) -> list[EmbeddingRequest]:
        """Equally many for each item."""
        modes = [_item_request(item, mode) for mode in self.modes]
        return modes + [EmbeddingRequest(candidate.caption) for candidate in item.candidates]

    def score(self, embed: Embed) -> Result:
        """The scores of all splits and modes, and predictions for them."""
        result = Result()
        self.add_records(embed, result)
        result.scores.extend(scores_of(result.per_query, "admire"))
        return result

    def add_records(self, embed: Embed, result: Result) -> None:
        """Add the records of all splits, and predictions for them."""
        for split in self.splits:
            requests = [request for item in split.items for request in self.item_requests(item)]
            num = len(split.items)
            self.add_items(split, embed(requests).view(num, len(requests) // num, -1), result)

    def add_items(self, split: ItemSplit, embeddings: Tensor, result: Result) -> None:
        """Add the records of a split's items, from the embeddings (Q, R, D) of their R requests each."""
        from torch.nn import functional

        modes, captions = embeddings.double().tensor_split([len(self.modes)], 1)
        for number, mode in enumerate(self.modes):
            cosine = functional.cosine_similarity(modes[:, number, None], captions, dim=2)
            add_order(split, mode, cosine, result)


def _item_request(item: Item, mode: AdmireMode) -> EmbeddingRequest:
    if mode == "caption_span" and item.span is not None:
        return EmbeddingRequest(item.sentence, item.span, role="query", pooling="span")
    return EmbeddingRequest(item.sentence, role="query")


def add_order(split: ItemSplit, mode: str, scores: Tensor, result: Result) -> list[dict[str, Any]]:
    """Add to the result the order of each item's images by `scores` (Q, 5); returns its records."""
    import torch

    from idiomtune.benchmarks.retrieval import rank

    order, metrics = rank(scores), {}
    if split.has_gold:
        metrics = order_metrics(order, torch.tensor([item.gold_ranks for item in split.items]))
    rows, records = [], []
    for number, (item, best_first) in enumerate(zip(split.items, order.tolist(), strict=True)):
        names = [item.candidates[candidate].name for candidate in best_first]
        rows.append((item.compound, str(names)))
        about = {"split": split.name, "mode": mode, "id": item.id, "compound": item.compound}
        values = {metric: column[number].item() for metric, column in metrics.items()}
        order_and_gold = {"order": names, "gold": item.gold_order}
        records.append({**about, "sentence": item.sentence, "sense": item.sense, **values, **order_and_gold})
    result.per_query.extend(records)
    # In the form in which the task's tables have the gold order.
    table = table_text(("compound", "expected_order"), rows, delimiter="\t", lineterminator="\n")
    result.predictions[f"admire_{split.name}_{mode}.tsv"] = table
    return records


def order_metrics(order: Tensor, gold: Tensor) -> dict[str, Tensor]:
    """Metrics of the order of N candidates: (Q,), float64, each.

    Top-1 accuracy; the sum over candidates of |predicted rank − gold rank|; nDCG of the whole order, with the
    gain N − 1 − gold rank.

    Args:
        order: int (Q, N), candidates, best first.
        gold: int (Q, N), the rank of each candidate, from 0.
    """
    from idiomtune.benchmarks.retrieval import ndcg_of_gains

    size = gold.shape[1]
    gains = (size - 1 - gold).gather(1, order)
    return {
        "top1_accuracy": (gains[:, 0] == size - 1).double(),
        "rank_difference": (order.argsort(1) - gold).abs().sum(1).double(),
        "ndcg@5": ndcg_of_gains(gains, gains.sort(1, descending=True).values, size),
    }
