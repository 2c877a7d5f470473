"""The losses as the trainer of sentence-transformers calls them, against the plain ones; whole groups in
batches."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from accelerate.data_loader import prepare_data_loader, skip_first_batches
from torch import Tensor, nn
from torch.utils.data import DataLoader

from idiomloss import (
    AdaptiveTripletLoss,
    InfoNCELoss,
    ListwiseSoftmaxLoss,
    candidate_masks,
    cosine_similarity,
    distillation_loss,
    flatten_tuples,
    label_groups,
    listwise_softmax,
)
from idiomloss.sentence_transformers import (
    AdaptiveTripletTrainerLoss,
    DistillationTrainerLoss,
    GroupBatchSampler,
    InfoNCETrainerLoss,
    RankingTrainerLoss,
    group_columns,
)
from idiomloss.trainer_data import check_dataset, meaning_numbers
from tests.idiomloss.harness import assert_same


class Table(nn.Module):
    """A model whose texts are numbers, and whose embeddings are a table."""

    def __init__(self, num_texts: int = 40) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(num_texts, 8, dtype=torch.float64, generator=generator))

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": self.weight[features["input_ids"]]}


def columns(*texts: list[int]) -> list[dict[str, Tensor]]:
    return [{"input_ids": torch.tensor(column)} for column in texts]


LABELS = torch.tensor([[0, 0], [0, 0], [0, 1], [2, 1]])


@pytest.mark.parametrize("false_negatives", ["keep", "positive"])
def test_infonce_masks_by_idiom_and_meaning(false_negatives: Any) -> None:
    model, plain = Table(), InfoNCELoss(temperature=0.5)
    ours = InfoNCETrainerLoss(model, plain, false_negatives=false_negatives)(
        columns([0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]), LABELS
    )
    masks = candidate_masks(
        4,
        torch.tensor([0, 1, 2, 3, 0, 1, 2, 3]),
        torch.arange(8) < 4,
        anchor_labels=LABELS,
        candidate_labels=torch.cat([LABELS, torch.full((4, 2), -1)]),
        false_negatives=false_negatives,
    )
    assert masks.num_false_negatives == 2
    assert_same(ours, plain(model.weight[:4], model.weight[4:12], masks), model.weight)


def test_infonce_without_labels_and_without_negatives() -> None:
    model, plain = Table(), InfoNCELoss()
    masks = candidate_masks(3, torch.arange(3), torch.ones(3, dtype=torch.bool))
    ours = InfoNCETrainerLoss(model)(columns([0, 1, 2], [3, 4, 5]))
    assert_same(ours, plain(model.weight[:3], model.weight[3:6], masks), model.weight)


def test_negatives_labels_say_which_are_hard_and_which_are_not_there() -> None:
    model, plain = Table(), InfoNCELoss(temperature=0.5, hard_weight=3.0)
    absent = [-1, -1]
    labels = torch.tensor([[[0, 0], [0, 1], [5, 0]], [[1, 1], [1, 0], absent]])
    ours = InfoNCETrainerLoss(model, plain)(columns([0, 1], [2, 3], [4, 5], [6, 7]), labels)
    present = torch.tensor([[True, True], [True, False]])
    negatives = model.weight[torch.tensor([[4, 6], [5, 7]])]
    candidates, owner, is_positive = flatten_tuples(model.weight[2:4], negatives, present)
    masks = candidate_masks(
        2,
        owner,
        is_positive,
        anchor_labels=labels[:, 0],
        candidate_labels=torch.tensor([[0, 0], [1, 1], [0, 1], [5, 0], [1, 0]]),
    )
    assert masks.hard.sum() == 2
    assert_same(ours, plain(model.weight[:2], candidates, masks), model.weight)


GROUPS = [("a", ["b"], ["c", "d"]), ("e", ["f", "g"], ["h"]), ("i", [], ["j"])]


def test_triplets_are_those_of_the_groups() -> None:
    model, plain = Table(), AdaptiveTripletLoss(property_weight=0.5)
    made = group_columns(GROUPS)
    assert made["sentence"] == list("abcdefghij")
    ours = AdaptiveTripletTrainerLoss(model, plain)
    value = ours(columns(list(range(10))), torch.tensor(made["label"]))
    result = plain(model.weight[:10], label_groups([(1, 2), (2, 1), (0, 1)]))
    assert_same(value, result.loss, model.weight)
    assert (ours.num_within, ours.num_across) == (result.num_within, result.num_across)
    assert ours.num_within > 0


def test_batches_without_triplets_do_not_go_unnoticed() -> None:
    loss = AdaptiveTripletTrainerLoss(Table(), max_empty=3)
    batch = columns([0]), torch.tensor([[0, 0, 1]])
    for _ in range(2):
        assert loss(*batch) == 0
    with torch.no_grad():  # an evaluation
        loss(*batch)
    with pytest.raises(RuntimeError, match="3 batches"):
        loss(*batch)
    # A correct paraphrase and no negative: no triplet, but a loss.
    learns = AdaptiveTripletTrainerLoss(Table(), AdaptiveTripletLoss(correct_weight=1.0), max_empty=1)
    for _ in range(3):
        assert learns(columns([0, 1]), torch.tensor([[0, 0, 1], [0, 0, 0]])) > 0
        assert not learns.num_within + learns.num_across


def test_ranking_scores_are_cosines_by_temperature_and_distillation_is_the_plain_one() -> None:
    model = Table()
    ranks = torch.tensor([[0, 2, 1], [1, 0, 2]])
    ours = RankingTrainerLoss(model, ListwiseSoftmaxLoss(), temperature=0.1)(
        columns([0, 1], [2, 3], [4, 5], [6, 7]), ranks
    )
    w = model.weight
    scores = torch.cat([cosine_similarity(w[:1], w[[2, 4, 6]]), cosine_similarity(w[1:2], w[[3, 5, 7]])])
    assert_same(ours, listwise_softmax(scores / 0.1, ranks).mean(), model.weight)

    teacher = torch.randn(3, 8, dtype=torch.float64)
    ours = DistillationTrainerLoss(model)(columns([0, 1, 2]), teacher)
    assert_same(ours, distillation_loss(model.weight[:3], teacher), model.weight)


class Rows:
    """As much of a dataset as the sampler and a data loader look at."""

    def __init__(self, label: list[Any]) -> None:
        self.label = label
        self.column_names = ["sentence", "label"]

    def __getitem__(self, key: Any) -> Any:
        return self.label if key == "label" else key

    def __len__(self) -> int:
        return len(self.label)


SIZES = [3, 4, 5, 7, 2] * 8


@pytest.fixture
def rows() -> Rows:
    """Groups of several sizes, their rows mixed."""
    label = [[10 * g + i, g, int(i == 0)] for g, size in enumerate(SIZES) for i in range(size)]
    order = torch.randperm(len(label), generator=torch.Generator().manual_seed(0)).tolist()
    return Rows([label[i] for i in order])


def groups_of(rows: Rows, batch: list[int]) -> list[int]:
    return [rows.label[i][1] for i in batch]


def whole(rows: Rows, batch: list[int]) -> bool:
    groups = groups_of(rows, batch)
    return all(groups.count(g) == SIZES[g] for g in groups)


@pytest.mark.parametrize("size", [7, 64])
def test_no_group_is_cut_and_the_length_is_right(rows: Rows, size: int) -> None:
    sampler = GroupBatchSampler(rows, size, seed=1)
    epochs = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert len(batches) == len(sampler)
        assert sorted(i for batch in batches for i in batch) == list(range(len(rows)))
        assert all(whole(rows, batch) and len(batch) <= size for batch in batches)
        epochs.append(batches)
    assert epochs[0] != epochs[1]
    again = GroupBatchSampler(rows, size, seed=1)
    again.set_epoch(2)
    assert list(again) == epochs[2]
    assert list(GroupBatchSampler(rows, size, seed=2)) != epochs[0]


def loader(rows: Rows, rank: int, world_size: int) -> Any:
    sampler = GroupBatchSampler(rows, 13)
    dataset: Any = rows
    plain: DataLoader[Any] = DataLoader(dataset, batch_sampler=sampler, collate_fn=list)
    return prepare_data_loader(plain, num_processes=world_size, process_index=rank, put_on_device=False)


@pytest.mark.parametrize("world_size", [1, 3])
def test_processes_take_turns_with_whole_groups(rows: Rows, world_size: int) -> None:
    """accelerate takes a shorter batch for an incomplete one, and would fill it up or leave it out."""
    ranks = [loader(rows, rank, world_size) for rank in range(world_size)]
    for one in ranks:
        one.set_epoch(3)
    batches: list[list[list[int]]] = [list(one.batch_sampler) for one in ranks]
    assert {len(rank_batches) for rank_batches in batches} == {len(ranks[0])}
    assert all(whole(rows, batch) for rank_batches in batches for batch in rank_batches)
    alone = GroupBatchSampler(rows, 13)
    alone.set_epoch(3)  # every rank must have got the epoch
    in_turn = [batch for turn in zip(*batches, strict=True) for batch in turn]
    assert in_turn[: len(alone)] == list(alone)


def test_a_resumed_epoch_goes_on_with_its_own_batches(rows: Rows) -> None:
    one = loader(rows, 0, 1)
    one.set_epoch(3)
    rest: Iterator[Any] = iter(skip_first_batches(one, 2))
    alone = GroupBatchSampler(rows, 13)
    alone.set_epoch(3)
    assert list(rest) == list(alone)[2:]


class TextRows(list[dict[str, Any]]):
    """What the check and the sampler use of a dataset."""

    @property
    def column_names(self) -> list[str]:
        return list(self[0])

    def __getitem__(self, key: Any) -> Any:
        return [row[key] for row in self] if isinstance(key, str) else super().__getitem__(key)


def test_names_become_labels() -> None:
    meanings = ["idiomatic", "literal", "idiomatic"]
    assert meaning_numbers(["ice", "ice", "beans"], meanings) == [[0, 0], [0, 1], [1, 0]]
    with pytest.raises(ValueError, match="zip"):
        meaning_numbers(["ice"], meanings)


INFONCE, TRIPLET = InfoNCETrainerLoss(Table()), AdaptiveTripletTrainerLoss(Table())
RANKING = RankingTrainerLoss(Table())
PAIR = {"anchor": "a", "positive": "b"}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda _: INFONCE(columns([0], [1], [2], [3]), torch.zeros(4)), "label"),
        (lambda _: RankingTrainerLoss(Table(), temperature=0.0), "temperature"),
        (lambda _: INFONCE(columns([0, 1]), None), "positive"),
        (lambda _: TRIPLET(columns([0], [1]), torch.tensor([[0, 0, 1]])), "column"),
        (lambda rows: GroupBatchSampler(rows, 6), r"per_device_train_batch_size=6 .* group \d+"),
        (lambda rows: GroupBatchSampler(rows, 64, drop_last=True), "dataloader_drop_last"),
        (lambda rows: GroupBatchSampler(rows, 64, valid_label_columns=["score"]), "column label"),
        (lambda _: GroupBatchSampler(TextRows([{"s": "a", "label": [1, 2]}]), 64), "column label"),
        # Columns that a loss would misread.
        (lambda _: check_dataset(TextRows([PAIR | {"idiom": "ice"}]), INFONCE), "column idiom"),
        (lambda _: check_dataset(TextRows([PAIR | {"label": "ice"}]), INFONCE), "column label"),
        (lambda _: check_dataset(TextRows([PAIR | {"id": 7}]), INFONCE), "column id"),
        (lambda _: check_dataset(TextRows([{"anchor": "a", "label": [0, 1]}]), INFONCE), "positive"),
        (lambda _: check_dataset(TextRows([PAIR | {"label": [0, 1]}]), RANKING), "2 candidates"),
        (lambda _: check_dataset(TextRows([PAIR | {"label": [0, 0, 1]}]), TRIPLET), "positive"),
    ],
)
def test_wrong_use_is_named(rows: Rows, wrong: Callable[[Rows], object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        wrong(rows)


def test_right_columns_pass() -> None:
    check_dataset(TextRows([PAIR | {"negative_1": "c", "label": [[0, 1], [0, 0]]}]), INFONCE)
    check_dataset(TextRows([PAIR | {"label": [0, 1]}]), INFONCE)
    check_dataset(TextRows([PAIR | {"label": [0]}]), RANKING)
    check_dataset(TextRows([{"sentence": "a", "label": [0, 0, 1]}]), TRIPLET)
