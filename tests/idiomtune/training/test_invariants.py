"""What a run checks of its data and its disk.

That numbers are finite is in test_loop.py, that the best model scores as it did in test_scored_again.py.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from idiomtune.errors import Interrupted, UserError
from idiomtune.objectives import Batch
from idiomtune.objectives.contrastive import ContrastiveObjective
from idiomtune.requests import EmbeddingRequest
from idiomtune.training import step
from idiomtune.training.invariants import check_labels, check_plan, plan_digest
from tests.tiny_runs import at_loss, resume, terminate, train

Patch = pytest.MonkeyPatch


# Of three texts: their meanings, the positives, the negatives → the texts that are named, if any.
LABELS: dict[str, tuple[Any, Any, Any, tuple[str, ...]]] = {
    "right": ([[1, 0], [1, 0], [2, 0]], [(0, 1)], [[0, 2]], ()),
    "a positive of another meaning": ([[1, 0], [1, 0], [2, 0]], [(0, 1), (0, 2)], None, ("'a'", "'c'")),
    "a negative of the same meaning": ([[1, 0], [2, 0], [1, 0]], [], [[0, 1], [0, 2]], ("'a'", "'c'")),
    "no meanings": (None, [(0, 1)], [[0, 1]], ()),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_agree_with_pairs(kind: str) -> None:
    meanings, pairs, negatives, named = LABELS[kind]
    meanings, negatives = (None if rows is None else torch.tensor(rows) for rows in (meanings, negatives))
    batch = Batch(
        [EmbeddingRequest(text) for text in "abc"],
        [],
        None,
        pairs=pairs,
        negatives=negatives,
        meanings=meanings,
    )
    if not named:
        check_labels(batch)
        return
    with pytest.raises(UserError, match="labels") as caught:
        check_labels(batch)
    assert all(text in str(caught.value) for text in named)


def test_a_run_on_other_labels_than_it_pairs_ends_before_its_step(
    tmp_path: Path, options: list[str], monkeypatch: Patch
) -> None:
    real = ContrastiveObjective.batch

    def batch(self: ContrastiveObjective, epoch: int, anchors: Any) -> Batch:
        whole = real(self, epoch, anchors)
        assert whole.meanings is not None
        return replace(whole, meanings=whole.meanings.roll(1, 0))

    monkeypatch.setattr(ContrastiveObjective, "batch", batch)
    with pytest.raises(UserError, match="pairs other rows than it labels"):
        train(tmp_path / "run", options)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_an_epochs_plan_has_each_anchor_once_in_all_processes() -> None:
    plan, other, twice = [[[0, 1], [2]], [[3]]], [[[0], [1, 2]], [[3]]], [[[0, 1], [2]], [[1]]]
    once: Any = SimpleNamespace(repeats_anchors=False)
    check_plan(once, plan, plan_digest(plan))
    several: Any = SimpleNamespace(repeats_anchors=True)
    check_plan(several, twice, plan_digest(twice))
    with pytest.raises(UserError, match="number 1"):
        check_plan(once, twice, plan_digest(twice))
    with pytest.raises(UserError, match=r"data\.\*"):
        check_plan(once, other, plan_digest(plan))


def test_a_resumed_run_with_another_state_than_was_saved_ends(
    tmp_path: Path, options: list[str], monkeypatch: Patch
) -> None:
    """Weights, moments and steps: it was stopped after the second of its first epoch's three."""
    with pytest.MonkeyPatch.context() as patch:
        at_loss(patch, 2, terminate)
        with pytest.raises(Interrupted):
            train(tmp_path, options)

    class Spoiled(step.Trainer):
        def sums(self) -> tuple[float, ...]:
            plan = self.objective.epoch_steps
            self.objective.epoch_steps = lambda *given: plan(*given)[::-1]  # type: ignore[method-assign]
            for state in self.optimizer.state.values():
                state["exp_avg"].mul_(0.5)
            with torch.no_grad():
                for p in self.encoder.parameters():
                    p.mul_(1.001)
            return super().sums()

    monkeypatch.setattr("idiomtune.programs.train.Trainer", Spoiled)
    with pytest.raises(
        UserError, match=r"other weights and optimizer's moments and steps .* at step 2[^0-9]"
    ):
        resume(tmp_path)
