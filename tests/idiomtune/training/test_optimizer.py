"""The learning rate by step and which parameters decay, against transformers; what is drawn."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import Trainer, get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from idiomtune import Encoder
from idiomtune.training.embedder import seed_everything
from idiomtune.training.optimizer import num_warmup_steps, parameter_groups, schedule
from tests.tiny_runs import trainer


@pytest.mark.parametrize(
    ("name", "reference"),
    [("linear", get_linear_schedule_with_warmup), ("cosine", get_cosine_schedule_with_warmup)],
)
def test_schedule_equals_transformers(name: str, reference: Any) -> None:
    settings = trainer(f"trainer.schedule={name}", "trainer.warmup_ratio=0.25")
    warmup = num_warmup_steps(settings, 40)
    assert warmup == 10
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = reference(optimizer, warmup, 40)
    for step in range(40):
        assert schedule(settings, step, 40) == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()


def test_what_is_drawn_is_what_torch_draws_with_that_seed() -> None:
    seed_everything(3, 1, 4)
    ours = torch.rand(5)
    torch.manual_seed(int(np.random.SeedSequence([3, 1, 4]).generate_state(1)[0]))
    assert torch.equal(ours, torch.rand(5))


def undecayed(encoder: nn.Module, modules: nn.Module, no_decay: str) -> set[str]:
    groups = parameter_groups(encoder, modules, trainer(f"trainer.no_decay={no_decay}"))
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


def test_biases_and_norms_do_not_decay_as_those_of_transformers(tiny: Encoder) -> None:
    head = nn.Sequential(nn.Linear(3, 3), nn.RMSNorm(3), nn.LayerNorm(3))
    both: Any = nn.ModuleList([tiny, head])
    names = {name for name, _ in both.named_parameters()}
    decayed = Trainer.get_decay_parameter_names(Trainer.__new__(Trainer), both)
    # Of an RMSNorm transformers knows only those of its own models.
    assert undecayed(tiny, head, "[bias,norm]") - {"1.1.weight"} == names - set(decayed)
    ends = {kind: {n for n in undecayed(tiny, head, f"[{kind}]") if n[0] == "1"} for kind in ("bias", "norm")}
    assert ends["bias"] == {"1.0.bias", "1.2.bias"}
    assert ends["norm"] == {"1.1.weight", "1.2.weight", "1.2.bias"}


def test_by_default_all_decay_in_one_group(tiny: Encoder) -> None:
    (group,) = parameter_groups(tiny, nn.Module(), trainer())
    assert [id(p) for p in group["params"]] == [id(p) for p in tiny.parameters()]
    assert set(group) == {"params", "lr", "initial_lr"}
