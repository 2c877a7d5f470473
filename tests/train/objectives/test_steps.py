"""Cutting an epoch into steps: every anchor once, idioms even, usages in proportion."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from train.data.idiolink import load_split
from train.objectives.steps import balanced_steps, shuffled_steps


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_shuffled_steps_hold_every_anchor_once() -> None:
    steps = shuffled_steps([3, 5, 7, 9, 11], 2, rng())
    assert [len(step) for step in steps] == [2, 2, 1]
    assert sorted(chain(*steps)) == [3, 5, 7, 9, 11]
    assert steps != shuffled_steps([3, 5, 7, 9, 11], 2, rng(1))


def test_balanced_steps_on_uneven_idioms() -> None:
    """Three idioms of 8, 4 and 3 anchors, 4 anchors of 2 idioms a step."""
    classes = {i: ("long", "literal" if i % 2 else "sense") for i in range(8)}
    classes |= dict.fromkeys(range(8, 12), ("short", "idiomatic"))
    classes |= dict.fromkeys(range(12, 15), ("odd", "idiomatic"))
    for seed in range(20):
        steps = balanced_steps(list(classes), 4, 2, classes, rng(seed))
        assert sorted(chain(*steps)) == list(range(15))
        for step in steps:
            counts = Counter(classes[anchor][0] for anchor in step)
            assert len(counts) == 2, "the fullest first: every step finds two idioms"
            assert set(counts.values()) <= {2, 1}
            usages = Counter(classes[anchor] for anchor in step)
            if counts["long"]:
                assert usages["long", "literal"] == usages["long", "sense"] == 1


def test_balanced_steps_are_a_function_of_the_generator() -> None:
    classes = {i: (str(i % 5), "literal") for i in range(50)}
    first = balanced_steps(list(classes), 6, 3, classes, rng(4))
    assert first == balanced_steps(list(classes), 6, 3, classes, rng(4))
    assert first != balanced_steps(list(classes), 6, 3, classes, rng(5))


def test_real_steps_hold_eight_idioms_with_five_idiomatic_of_eight(real_data: Path) -> None:
    split = load_split(real_data / "idiolink", "train")
    records = [*split.queries, *split.documents]
    classes = {i: (r.idiom, r.usage) for i, r in enumerate(records)}
    steps = balanced_steps(range(len(records)), 64, 8, classes, rng())
    assert len(steps) == 42  # 2,640 anchors: 41 full steps and a quarter
    full = [step for step in steps if len(step) == 64]
    assert len(full) == 41
    for step in full:
        assert set(Counter(classes[a][0] for a in step).values()) == {8}
        literal = sum(classes[a][1] == "literal" for a in step)
        assert literal / 64 == pytest.approx(50 / 120, abs=0.14)
