"""Which parameters weight decay leaves as they are (`trainer.no_decay`)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import Trainer

from tests.tiny_runs import composed
from train.config import TrainerSettings, TrainSettings, check
from train.encoder.encoder import Encoder
from train.errors import UserError
from train.training.step import parameter_groups


def trainer(*overrides: str) -> TrainerSettings:
    settings: TrainSettings = check(TrainSettings, composed("config", *overrides))
    return settings.trainer


def undecayed(encoder: nn.Module, modules: nn.Module, no_decay: str) -> set[str]:
    """The names of what one step without a gradient leaves as it was."""
    settings = trainer(f"trainer.no_decay={no_decay}")
    groups = parameter_groups(encoder, modules, settings)
    both = nn.ModuleList([encoder, modules])
    with torch.no_grad():
        for p in both.parameters():
            p.fill_(1.0)
            p.grad = torch.zeros_like(p)
    assert sum(len(group["params"]) for group in groups) == len(list(both.parameters()))
    torch.optim.AdamW(groups, lr=0.1, weight_decay=0.5).step()
    left = {name for name, p in both.named_parameters() if torch.equal(p, torch.ones_like(p))}
    assert all(torch.all(p < 1) for name, p in both.named_parameters() if name not in left)
    return left


def test_biases_and_norms_are_those_of_transformers(tiny: Encoder) -> None:
    head = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    found = undecayed(tiny, head, "[bias,norm]")
    both: Any = nn.ModuleList([tiny, head])
    names = {name for name, _ in both.named_parameters()}
    decayed = Trainer.get_decay_parameter_names(Trainer.__new__(Trainer), both)
    assert found == names - set(decayed)
    assert {"1.0.bias", "1.1.weight", "1.1.bias"} < found


def test_each_alone(tiny: Encoder) -> None:
    head = nn.Sequential(nn.Linear(3, 3), nn.RMSNorm(3), nn.LayerNorm(3))
    ends = {kind: {n for n in undecayed(tiny, head, f"[{kind}]") if n[0] == "1"} for kind in ("bias", "norm")}
    assert ends["bias"] == {"1.0.bias", "1.2.bias"}
    assert ends["norm"] == {"1.1.weight", "1.2.weight", "1.2.bias"}


def test_by_default_all_decay_in_one_group(tiny: Encoder) -> None:
    (group,) = parameter_groups(tiny, nn.Module(), trainer())
    assert [id(p) for p in group["params"]] == [id(p) for p in tiny.parameters()]
    assert set(group) == {"params", "lr_scale"}


def test_other_kinds_are_refused() -> None:
    with pytest.raises(UserError, match=r"trainer\.no_decay"):
        trainer("trainer.no_decay=[embeddings]")
