"""Whether a run can learn anything, asked before it starts; and whether its model has changed, at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from train.config import TrainerSettings, TrainSettings
from train.errors import UserError
from train.objectives import Objective
from train.objectives.mixture import MixtureObjective
from train.objectives.mixture_options import of_part
from train.training.checkpoint import TrainerState
from train.training.schedule import num_warmup_steps

_STRIDE, _SAMPLE, _PROJECTIONS = 97, 256, 8
_TOLERANCE = 1e-6


def check_can_learn(objective: Objective, trainer: TrainerSettings) -> None:
    """Check that some batch of the first epoch has anything to learn from, in a mixture of each part.

    Looks no further than the first such step, or than the steps after which a run would end with an error
    (`trainer.max_empty_steps`). An objective that says nothing of its batches can learn.

    Raises:
        UserError: with the reason, and the option that cures it.
    """
    if isinstance(objective, MixtureObjective):
        for name, part in objective.parts.items():
            try:
                check_can_learn(part, trainer)
            except UserError as error:
                raise UserError(of_part(str(error), name)) from error
        return
    why = ""
    for step in objective.epoch_steps(0, trainer.accumulation)[: trainer.max_empty_steps]:
        whys = [objective.batch(0, anchors).empty_because for anchors in step]
        if not all(whys):
            return
        why = why or whys[0]
    if why:
        raise UserError(f"no batch of the first epoch has anything to learn from: {why}")


def sample_weights(model: nn.Module) -> list[float]:
    """The norm of a sample of a model's weights, and its projections, by which it is known again.

    Rows that are added at the end of a matrix (idiom tokens) do not change it.
    """
    end = _STRIDE * _SAMPLE
    sampled = [p.detach().flatten()[:end:_STRIDE].double().cpu() for p in model.parameters()]
    sample = torch.cat([torch.zeros(1, dtype=torch.double), *sampled])
    directions = torch.empty(_PROJECTIONS, len(sample), dtype=torch.double)
    directions.normal_(generator=torch.Generator().manual_seed(0))
    return [sample.norm().item(), *(directions @ sample).tolist()]


def not_learnt(
    settings: TrainSettings,
    state: TrainerState,
    weights: Sequence[tuple[Sequence[float], Sequence[float]]],
    baseline: Mapping[str, float],
    scores: Mapping[str, float],
) -> list[str]:
    """A warning where training has changed nothing, with the option that is likely why.

    Args:
        state: at the run's end.
        weights: samples of the untrained and of the trained weights, of encoder and modules.
        baseline, scores: of the untrained and of the trained model.
    """
    trainer = settings.trainer
    is_same = all(
        abs(x - y) <= _TOLERANCE * before[0]
        for before, after in weights
        for x, y in zip(before, after, strict=True)
    )
    compared = baseline.keys() & scores.keys()
    if is_same and not trainer.only_idiom_tokens:
        what = "the weights of the best checkpoint are the untrained ones"
    elif compared and not trainer.freeze_encoder and all(baseline[key] == scores[key] for key in compared):
        what = "every score is the untrained model's, in all digits"
    else:
        return []
    causes = {
        "retain.interpolation=0 saves the base model's weights": not settings.retain.interpolation,
        "most steps had nothing to learn from": 2 * sum(state.empty_steps.values()) > state.step,
        "the learning rate was still rising: lower trainer.warmup_steps or trainer.warmup_ratio": (
            num_warmup_steps(trainer, state.step) >= (state.best_step or 0)
        ),
        f"trainer.clip_norm={trainer.clip_norm} is very small": (trainer.clip_norm or 1.0) < 1e-3,
        f"trainer.learning_rate={trainer.learning_rate:g} is very small": trainer.learning_rate < 1e-7,
    }
    cause = next((cause for cause, holds in causes.items() if holds), "")
    return [f"{what}: {cause or 'raise trainer.learning_rate, or train for more steps'}"]
