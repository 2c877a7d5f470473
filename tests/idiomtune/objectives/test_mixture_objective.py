"""The mixture of objectives: whose turn it is, that no data is left out, and that it can be resumed."""

import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from idiomtune.objectives import Batch, Objective, ObjectiveLoss, Part
from idiomtune.objectives.mixture import MixtureObjective
from idiomtune.requests import EmbeddingRequest


class Counted(Objective):
    """An objective of so many anchors, shuffled each epoch."""

    def __init__(self, name: str, num: int, size: int) -> None:
        self.name, self.num, self.size = name, num, size
        self.files = [Path(name)]
        self.head = nn.Linear(1, 1)
        self.plain_requests = [EmbeddingRequest(f"{name} plain")]
        self.idiom_sentences = [("an idiom", f"{name} with an idiom")]

    def describe(self) -> str:
        return f"{self.num} anchors"

    def epoch_steps(self, epoch: int, num_parts: int) -> list[list[list[int]]]:
        order = np.random.default_rng([self.num, epoch]).permutation(self.num).tolist()
        steps = [order[i : i + self.size] for i in range(0, self.num, self.size)]
        return [[part.tolist() for part in np.array_split(step, num_parts)] for step in steps]

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:
        return Batch(
            [EmbeddingRequest(f"{self.name} {a}") for a in anchors], [str(a) for a in anchors], epoch
        )

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        assert all(request.text.startswith(self.name) for request in batch.requests)
        return ObjectiveLoss(embeddings.sum(), {"count": float(batch.targets)}, is_empty=True)


def build(seed: int = 0, a: float = 1.0, b: float = 1.0, weight: float = 1.0) -> MixtureObjective:
    parts = {"a": (Counted("a", 40, 4), a, 1.0), "b": (Counted("b", 12, 4), b, weight)}
    return MixtureObjective(
        {name: Part(*part, section=f"objective.{name}") for name, part in parts.items()}, seed
    )


@pytest.mark.parametrize(
    ("shares", "expected"),
    [((1.0, 1.0), (10, 10)), ((2.0, 1.0), (10, 5)), ((10.0, 1.0), (30, 3)), ((1.0, 3.0), (10, 30))],
)
def test_proportions(shares: tuple[float, float], expected: tuple[int, int]) -> None:
    """Part a has 10 steps, part b 3: whoever needs longest gives all its steps once."""
    parts = Counter(step[0][0] % 2 for step in build(0, *shares).epoch_steps(0, 2))
    assert (parts[0], parts[1]) == expected


@pytest.mark.parametrize("num_parts", [1, 2])
def test_a_parts_steps_are_those_of_its_own_epochs_in_turn(num_parts: int) -> None:
    """Against all its epochs in one list, asked for as by a check, a run and a resumed run."""
    mixture, part = build(0, 1.0, 3.0), Counted("b", 12, 4)
    counted = [step for epoch in range(80) for step in part.epoch_steps(epoch, num_parts)]
    sizes = []
    for epoch in (0, 0, 1, 2, 5, 4, 0, 7):
        steps = [step for step in mixture.epoch_steps(epoch, num_parts) if step[0][0] % 2]
        ours = [[[a // 2 for a in shard] for shard in step] for step in steps]
        assert sorted(ours) == sorted(counted[epoch * 30 : (epoch + 1) * 30])
        sizes.append(len(pickle.dumps(vars(mixture))))
    assert sizes[-1] < sizes[0] + 100, "epochs are not kept"


def test_the_loss_and_its_logs_are_the_parts() -> None:
    mixture = build(weight=0.25)
    for step in mixture.epoch_steps(1, 1)[:4]:
        batch = mixture.batch(1, step[0])
        result = mixture.loss(torch.ones(4, 2), batch)
        name = batch.targets[0]
        loss = {"a": 8.0, "b": 2.0}[name]
        assert (result.loss.item(), result.part, result.counts) == (loss, name, {f"{name}/count": 1.0})
        assert result.is_empty


def test_special_tokens_are_those_of_the_parts_that_have_some() -> None:
    """By the option that names them; and a part may have the name of a method."""
    assert build().special_tokens == {}
    part = Counted("b", 12, 4)
    part.special_tokens = {"mask": "[MASK]"}
    masked = Part(part, 1.0, 1.0, "objective.parts.train.options")
    mixture = MixtureObjective({"train": masked}, 0)
    assert mixture.special_tokens == {"parts.train.options.mask": "[MASK]"}
    assert len(list(mixture.head.parameters())) == 2


def test_what_the_parts_bring_is_brought() -> None:
    mixture = build()
    assert mixture.files == [Path("a"), Path("b")]
    assert len(mixture.plain_requests) == len(mixture.idiom_sentences) == 2
    assert mixture.describe() == "50% a: 40 anchors; 50% b: 12 anchors"
    assert "25% b (loss times 0.5): 12 anchors" in build(a=3.0, weight=0.5).describe()
