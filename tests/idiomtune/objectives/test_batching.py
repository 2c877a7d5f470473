"""The plan of an epoch, of every objective; idioms even in a step, usages in proportion."""

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from idiomtune.config import TrainSettings, validate
from idiomtune.objectives.batching import balanced_steps
from idiomtune.training.objective import build_objective
from tests.own_data import write_lines
from tests.tiny_runs import composed


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


EVERY_ANCHOR: dict[str, list[str]] = {
    "shuffled": [
        "+experiment=idiolink_ft",
        "objective.candidates=sampled",
        "objective.single_positive_every=0",
        "objective.idioms_per_batch=null",
    ],
    "by idiom": [
        "+experiment=idiolink_ft",
        "objective.single_positive_every=0",
        "objective.idioms_per_batch=4",
        "trainer.batch_size=24",
    ],
    "whole groups": ["+experiment=adaptive_triplet", "objective.groups_per_expression=null"],
    "labelled": ["+experiment=own", "data.train={folder}/labelled.jsonl", "trainer.batch_size=8"],
}


@pytest.mark.parametrize("kind", EVERY_ANCHOR)
def test_every_epoch_has_every_anchor(kind: str, tmp_path: Path) -> None:
    """What else a plan must keep, tests/test_testing.py checks."""
    rows = [{"text": f"sentence {i}", "label": f"label {i % 5}"} for i in range(60)]
    write_lines(tmp_path / "labelled.jsonl", rows)
    options = [option.format(folder=tmp_path) for option in EVERY_ANCHOR[kind]]
    objective = build_objective(validate(TrainSettings, composed("train", "data=sample", *options)))
    first, second = (sorted(chain(*chain(*objective.epoch_steps(epoch, 1)))) for epoch in (0, 1))
    assert first == second == sorted(set(first))


@pytest.mark.parametrize(
    "options",
    ["objective.candidates=sampled objective.single_positive_every=0", "objective.single_positive_every=2"],
)
def test_whole_idioms_are_in_a_batch_but_in_epochs_of_pairs(options: str) -> None:
    """All epochs have as many steps as those of whole idioms: a run counts on it."""
    words = (*options.split(), "objective.idioms_per_batch=4", "trainer.batch_size=36")
    config = composed("train", "data=sample", "+experiment=idiolink_ft", *words)
    objective: Any = build_objective(validate(TrainSettings, config))
    idiom_of = objective._labels[objective._anchors, 0]
    lengths, most = set(), []
    for epoch in range(4):
        steps = objective.epoch_steps(epoch, 1)
        lengths.add(len(steps))
        most.append(max(len(idiom_of[step[0]].unique()) for step in steps))
    assert lengths == {5}
    pairs = [True, False, True, False] if options.endswith("=2") else [False] * 4
    assert [number > 4 for number in most] == pairs


def test_balanced_steps_on_uneven_idioms() -> None:
    """Three idioms of 8, 4 and 3 anchors, 4 anchors of 2 idioms a step."""
    classes = {i: ("long", "literal" if i % 2 else "sense") for i in range(8)}
    classes |= dict.fromkeys(range(8, 12), ("short", "idiomatic"))
    classes |= dict.fromkeys(range(12, 15), ("odd", "idiomatic"))
    for seed in range(10):
        steps = balanced_steps(list(classes), 4, 2, classes, rng(seed))
        assert sorted(chain(*steps)) == list(range(15))
        for step in steps:
            counts = Counter(classes[anchor][0] for anchor in step)
            assert len(counts) == 2, "the fullest first: every step finds two idioms"
            assert set(counts.values()) <= {2, 1}
            usages = Counter(classes[anchor] for anchor in step)
            if counts["long"]:
                assert usages["long", "literal"] == usages["long", "sense"] == 1


def test_a_rare_usage_stands_anywhere_in_its_step() -> None:
    """One literal anchor of eight, four a step: within its step it is equally often at each place."""
    classes = {i: ("idiom", "sense" if i else "literal") for i in range(8)}
    places = Counter(
        step.index(0)
        for seed in range(400)
        for step in balanced_steps(list(classes), 4, 1, classes, rng(seed))
        if 0 in step
    )
    # 100 of each are expected, a deviation of 9.
    assert all(60 < places[place] < 140 for place in range(4)), places
