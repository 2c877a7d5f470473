"""Whether a run has changed its model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from train.config import TrainSettings
from train.training.checkpoint import TrainerState
from train.training.schedule import num_warmup_steps

Scores = Mapping[str, float]


def sample_weights(model: nn.Module) -> list[float]:
    """Projections of a sample of a model's weights, by which they are known again.

    Rows that are added at the end of a matrix (idiom tokens) do not change it.
    """
    sampled = [p.detach().flatten()[: 256 * 97 : 97].double().cpu() for p in model.parameters()]
    sample = torch.cat([torch.zeros(1, dtype=torch.double), *sampled])
    directions = torch.empty(8, len(sample), dtype=torch.double)
    return (directions.normal_(generator=torch.Generator().manual_seed(0)) @ sample).tolist()


def not_learnt(
    settings: TrainSettings, state: TrainerState, *, is_same: bool, untrained: Scores, trained: Scores
) -> list[str]:
    """A warning where training has changed nothing, with the option that is likely why.

    Args:
        state: at the run's end.
        is_same: whether the weights are the untrained ones.
        untrained, trained: scores of the models.
    """
    trainer = settings.trainer
    compared = untrained.keys() & trained.keys()
    if is_same and not trainer.only_idiom_tokens:
        what = "the weights of the best checkpoint are the untrained ones"
    elif compared and not trainer.freeze_encoder and all(untrained[k] == trained[k] for k in compared):
        what = "every score is the untrained model's, in all digits"
    else:
        return []
    causes = {
        "retain.interpolation=0 saves the base model's weights": not settings.retain.interpolation,
        "that was still in the warm-up: lower trainer.warmup_steps or trainer.warmup_ratio": (
            num_warmup_steps(trainer, state.step) >= (state.best_step or 0)
        ),
        f"trainer.clip_norm={trainer.clip_norm} is very small": (trainer.clip_norm or 1.0) < 1e-3,
        f"trainer.learning_rate={trainer.learning_rate:g} is very small": trainer.learning_rate < 1e-7,
    }
    causes["raise trainer.learning_rate, train for more steps, or score what is harder"] = True
    return [f"{what}: {next(cause for cause, holds in causes.items() if holds)}"]
