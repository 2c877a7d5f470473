"""The adaptive triplet objective: whole groups, every sentence once, the same number of steps every epoch."""

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from idiomloss import label_groups
from idiomtune.config import TrainSettings, validate
from idiomtune.data.semeval2022 import ONE_SHOT_FILE, TRAIN_FILE, SentenceGroup, read_groups
from idiomtune.data.sources import DataFiles
from idiomtune.errors import UserError
from idiomtune.objectives.triplets import TripletObjective
from idiomtune.training.objective import build_objective
from tests.tiny_objectives import triplets as build
from tests.tiny_runs import composed


@pytest.fixture(scope="module")
def groups(semeval_sample: DataFiles) -> list[SentenceGroup]:
    return read_groups(semeval_sample(TRAIN_FILE))


def flat(steps: list[list[list[int]]]) -> list[int]:
    return [anchor for step in steps for shard in step for anchor in shard]


def texts_of(built: TripletObjective, anchors: list[int]) -> list[str]:
    return [request.text for request in built.batch(0, anchors).requests]


@pytest.mark.parametrize(("order", "shards"), [("shuffled", 3), ("file", 1)])
def test_groups_are_never_cut_and_every_sentence_comes_once(
    groups: list[SentenceGroup], order: str, shards: int
) -> None:
    built = build(groups, order=order)
    usable = [group for group in groups if group.correct and group.incorrect]
    assert f"{len(groups) - len(usable)} groups without a triplet left out" in built.describe()
    steps = built.epoch_steps(0, shards)
    in_order = list(range(sum(len(group.texts) for group in usable)))
    assert sorted(flat(steps)) == in_order
    assert (flat(steps) == in_order) == (order == "file")
    assert all(sum(map(len, step)) <= 16 for step in steps)
    whole = {group.texts for group in usable}
    for shard in (shard for step in steps for shard in step):
        texts = texts_of(built, shard)
        while texts:  # group by group
            (found,) = [group for group in whole if tuple(texts[: len(group)]) == group]
            whole.remove(found)
            texts = texts[len(found) :]
    assert not whole


def test_cut_groups_give_full_steps_in_the_files_order(groups: list[SentenceGroup]) -> None:
    """And of a group in two steps, each has what the whole group's labels say of its part."""
    built = build(groups, order="file", groups_="all", whole_groups=False, batch_size=7)
    all_texts = [text for group in groups for text in group.texts]
    steps = built.epoch_steps(0, 3)
    assert flat(steps) == list(range(len(all_texts)))
    assert [sum(map(len, step)) for step in steps[:-1]] == [7] * (len(all_texts) // 7)
    whole = label_groups([(len(group.correct), len(group.incorrect)) for group in groups])
    for shard in (shard for step in steps for shard in step):
        batch = built.batch(0, shard)
        found, labels, of = batch.targets, whole.labels[shard], whole.groups[shard]
        assert texts_of(built, shard) == [all_texts[n] for n in shard]
        assert torch.equal(found.is_sentence, whole.is_sentence[shard])
        for ours, theirs in ((found.labels, labels), (found.groups, of)):
            assert torch.equal(ours[:, None] == ours, theirs[:, None] == theirs)
        triples = itertools.permutations(range(len(shard)), 3)
        num = sum(bool(labels[a] == labels[p] != labels[n] and of[a] == of[n]) for a, p, n in triples)
        result = built.loss(torch.randn(len(shard), 8), batch)
        assert result.counts["triplets_possible"] == num >= result.counts["triplets_within"]


def test_groups_that_cannot_be_trained_on_are_refused(groups: list[SentenceGroup]) -> None:
    with pytest.raises(UserError, match=r"trainer\.batch_size=3 "):
        build(groups, batch_size=3)
    with pytest.raises(UserError, match="training groups"):
        build([group for group in groups if not group.incorrect])


def test_plain_rows_are_the_paraphrases(groups: list[SentenceGroup]) -> None:
    built = build(groups)
    anchors = built.epoch_steps(0, 1)[0][0]
    batch = built.batch(0, anchors)
    plain = {batch.requests[row] for row in batch.plain_rows}
    sentences = {group.sentence for group in groups}
    assert plain <= set(built.plain_requests)
    assert plain == {request for request in batch.requests if request.text not in sentences}


@pytest.mark.parametrize(("batch_size", "limit"), [(16, 2), (6, 1), (64, 3)])
def test_frequent_expressions_give_no_more_groups_than_rare_ones(
    groups: list[SentenceGroup], batch_size: int, limit: int
) -> None:
    """In every epoch equally many steps, whichever groups it has."""
    usable = [group for group in groups if group.num_triplets]
    extra = [replace(g, id=f"{g.id}{n}", sentence=f"{g.sentence} {n}") for g in usable[:3] for n in range(5)]
    built = build([*groups, *extra], batch_size=batch_size, groups_per_expression=limit)
    group_by_sentence = {group.sentence: group for group in (*usable, *extra)}
    seen: set[str] = set()
    for epoch in range(8):
        steps = built.epoch_steps(epoch, 1)
        assert len(steps) == len(built.epoch_steps(0, 1))
        drawn = [
            group_by_sentence[text] for text in texts_of(built, flat(steps)) if text in group_by_sentence
        ]
        assert sum(len(group.texts) for group in drawn) == len(flat(steps))
        assert all(0 < len(anchors) <= batch_size for step in steps for anchors in step)
        assert batch_size < 64 or len(steps) < len(drawn), "several groups a step"
        counts = Counter(group.expression.casefold() for group in drawn)
        group_counts = Counter(group.expression.casefold() for group in group_by_sentence.values())
        assert counts == {name: min(limit, count) for name, count in group_counts.items()}
        seen |= {group.sentence for group in drawn}
        if (epoch + 1) * limit >= max(group_counts.values()):
            assert seen == set(group_by_sentence), "none comes again before all have come"


def test_the_one_shot_groups_join_if_asked() -> None:
    for one_shot, names in ((False, [TRAIN_FILE]), (True, [TRAIN_FILE, ONE_SHOT_FILE])):
        options = ("+experiment=adaptive_triplet", "data=sample", f"objective.one_shot={one_shot}")
        built = build_objective(validate(TrainSettings, composed("train", *options)))
        assert [path.name for path in built.files] == [Path(name).name for name in names]
