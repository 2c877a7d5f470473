"""Compositions that tests keep are those that Hydra makes anew."""

from __future__ import annotations

import pytest
from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import OmegaConf

from idiomtune.config.compose import compose_config

CASES = [
    *(("train", "seed=1"), ("train", "trainer.batch_size=8", "+sweep=idiolink_ft")),
    ("train", "+experiment=mixture", "+objective.parts={a: {experiment: idiolink_ft}, b: {weight: 2.0}}"),
    ("train", "model=e5_base", "model.glossary=a.tsv", "tracking=[wandb]", "~forgetting.lora.dropout"),
    ("evaluate", "benchmark=[own_retrieval,own_sts]", "split=test"),
]


@pytest.mark.slow
def test_kept_compositions_are_those_of_hydra(monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = ([compose_config(*case) for case in CASES] for _ in range(2))
    for owner, name in (
        (OmegaConf, "load"),
        (config_loader_impl, "create_defaults_list"),
        (ConfigLoaderImpl, "_compose_config_from_defaults_list"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name).__wrapped__)
    assert first == again == [compose_config(*case) for case in CASES]
