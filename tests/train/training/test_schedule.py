"""The learning rate by step, against transformers' schedules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from tests.tiny_runs import composed
from train.config import TrainSettings, check
from train.training.embedder import seed_everything
from train.training.step import num_warmup_steps, schedule


def test_schedule_equals_transformers() -> None:
    settings = check(TrainSettings, composed("config"))
    for name, reference in (
        ("linear", get_linear_schedule_with_warmup),
        ("cosine", get_cosine_schedule_with_warmup),
    ):
        trainer = settings.trainer.model_copy(update={"schedule": name, "warmup_ratio": 0.25})
        warmup = num_warmup_steps(trainer, 40)
        assert warmup == 10
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        theirs = reference(optimizer, warmup, 40)
        for step in range(40):
            assert schedule(trainer, step, 40) == pytest.approx(theirs.get_last_lr()[0])
            optimizer.step()
            theirs.step()


def test_what_is_drawn_is_what_torch_draws_with_that_seed() -> None:
    seed_everything(3, 1, 4)
    ours = torch.rand(5)
    torch.manual_seed(int(np.random.SeedSequence([3, 1, 4]).generate_state(1)[0]))
    assert torch.equal(ours, torch.rand(5))
