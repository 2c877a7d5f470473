"""What a run checks of its data and its disk.

Here: an anchor's positives have its meaning and its negatives do not, an epoch's steps are those of the data,
and a resumed run has the state that was saved. That the loss and the gradient are finite is checked in
:mod:`idiomtune.training.step`, that what was scored is what was saved by
:func:`idiomtune.training.finish.score_best`.

Whether the code is right is asked by tests, and by :mod:`idiomtune.testing` of an objective of your own.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from idiomtune.encoder.sharding import is_sharded
from idiomtune.errors import UserError
from idiomtune.objectives import Batch, Objective
from idiomtune.objectives.batching import repeated_anchors
from idiomtune.training.checkpoint import TrainerState

_NUM_ELEMENTS = 16  # of a parameter, in a checksum


def check_labels(batch: Batch) -> None:
    """Check that a batch's positives have their anchor's meaning, and its negatives do not.

    Raises:
        UserError: with two texts for which that is not so.
    """
    if batch.meanings is None:
        return
    pairs = torch.tensor(batch.pairs, dtype=torch.long).view(-1, 2)
    for kind, rows, is_wrong in (("negative", batch.negatives, True), ("positive", pairs, False)):
        if rows is None:
            continue
        is_same = (batch.meanings[rows[:, 0]] == batch.meanings[rows[:, 1]]).all(1)
        for anchor, other in rows[is_same == is_wrong].tolist()[:1]:
            raise UserError(
                f"{batch.requests[other].text!r} is a {kind} of {batch.requests[anchor].text!r}, and their "
                f"labels say that the two have {'the same meaning' if is_wrong else 'different meanings'}: "
                "the objective pairs other rows than it labels"
            )


def plan_digest(steps: Sequence[Sequence[Sequence[int]]]) -> str:
    """A digest of an epoch's steps."""
    return hashlib.sha256(repr(steps).encode()).hexdigest()[:16]


def check_plan(objective: Objective, steps: Sequence[Sequence[Sequence[int]]], digest: str) -> None:
    """Check that each anchor comes once in an epoch, and that all processes have the same steps.

    Args:
        steps: of the epoch.
        digest: of the main process's steps.

    Raises:
        UserError: naming what is otherwise.
    """
    if not objective.repeats_anchors and (repeats := repeated_anchors(steps)):
        raise UserError(
            f"{len(repeats)} anchors come several times in an epoch, the first of them number {repeats[0]}. "
            "An objective that means it says so: repeats_anchors = True"
        )
    if plan_digest(steps) != digest:
        raise UserError(
            "this process has other steps than the main process: on all machines the data files must be the "
            "same (data.*), and an objective's steps depend on seed and epoch alone"
        )


def state_sums(modules: Iterable[nn.Module], optimizer: torch.optim.Optimizer) -> tuple[float, ...]:
    """Checksums of the trained weights and of their moments; empty for shards."""
    modules = list(modules)
    if any(is_sharded(module) for module in modules):
        return ()
    trained = {p: None for module in modules for p in module.parameters() if p.requires_grad}
    states = [optimizer.state[p] for p in trained if optimizer.state.get(p)]
    moments = [state[name] for state in states for name in ("exp_avg", "exp_avg_sq")]
    return tuple(sum(map(_sum, tensors)) for tensors in (trained, moments))


def check_resumed(
    state: TrainerState, sums: Sequence[float], objective: Objective, accumulation: int
) -> None:
    """Check that a resumed run has the weights, the moments and the plan that were saved.

    Args:
        state: the saved one.
        sums: :func:`state_sums` of what was loaded.

    Raises:
        UserError: naming what is otherwise.
    """
    pairs = zip(("weights", "optimizer's moments"), state.sums, sums, strict=False)
    other = [name for name, saved, loaded in pairs if not math.isclose(saved, loaded, rel_tol=1e-6)]
    if state.plan is not None:
        epoch, digest = state.plan
        other += ["steps"] * (plan_digest(objective.epoch_steps(epoch, accumulation)) != digest)
    if other:
        raise UserError(
            f"the resumed run has other {' and '.join(other)} than were saved at step {state.step}: start a "
            "new run without resume="
        )


def _sum(tensor: Tensor) -> float:
    """Of the absolute values of a few elements, evenly spread."""
    flat = tensor.detach().reshape(-1)
    return float(flat[:: max(1, len(flat) // _NUM_ELEMENTS)][:_NUM_ELEMENTS].double().abs().sum())
