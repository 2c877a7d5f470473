"""Whole runs of a tiny model on the sample, in this process, and what they leave."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file

from idiomtune.config import TrainerSettings, TrainSettings, validate
from idiomtune.config.compose import compose_config
from idiomtune.data.user.load import forget_user_data
from idiomtune.errors import Interrupted
from idiomtune.io.run_files import checkpoints
from idiomtune.programs.train import train as run
from idiomtune.training import step
from idiomtune.training.checkpoint import read_state
from idiomtune.training.resume import saved_config
from idiomtune.training.run_folder import RunFolder

WholeRun = Callable[[list[str]], Path]  # see the fixture `whole_run`
KEY = "idiolink/val/sentence/ndcg@10"
# Tuples drawn anew each epoch, sentence queries: what is quick, and works for a batch of any size.
DRAWN = [
    *(
        "+experiment=idiolink_ft",
        "objective.candidates=sampled",
        "objective.single_positive_every=0",
        "objective.redraw=true",
    ),
    *("objective.idioms_per_batch=null", "objective.query_mode=sentence", "objective.query_weights=null"),
]
# A forward batch a step: what a tiny model's run costs is the number of its passes. Several of them are for
# the tests of processes, gradient caching and mixtures.
WIDE = "model.tokens_per_forward=8192"
VOLATILE = {"texts_per_second"}


def composed(name: str, *overrides: str) -> dict[str, Any]:
    """`conf/<name>.yaml` with overrides, as the programs get it."""
    return deepcopy(_composed(name, overrides))


@cache
def _composed(name: str, overrides: tuple[str, ...]) -> dict[str, Any]:
    return compose_config(name, *overrides)


def trainer(*overrides: str) -> TrainerSettings:
    """The section of a run with these options."""
    settings: TrainSettings = validate(TrainSettings, composed("train", *overrides))
    return settings.trainer


def train(folder: Path, options: list[str], *, draws: bool = False) -> float:
    """A new run; its figures, a quarter of its time, are drawn only where that is asked for."""
    config = composed("train", *options)
    return _run(validate(TrainSettings, config), "idiolink_ft", folder, draws)


def resume(folder: Path, *options: str, draws: bool = False) -> float:
    config = saved_config(folder, composed("train", *options), "default", options)
    return _run(validate(TrainSettings, config), "default", folder, draws)


def _run(settings: TrainSettings, experiment: str, folder: Path, draws: bool) -> float:
    forget_user_data()  # as the command does
    with ExitStack() as held:
        if not draws:
            held.enter_context(patch("idiomtune.reports.plots.draw_figures"))
        return run(settings, RunFolder(folder, experiment=experiment))


def metrics(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in VOLATILE} for line in lines]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def assert_same_run(a: Path, b: Path) -> None:
    """Bit-identical weights, optimizer, scores and metrics."""
    assert metrics(a) == metrics(b)
    last = checkpoints(a)[-1].name
    assert last == checkpoints(b)[-1].name
    for name in (f"{last}/model.safetensors", f"{last}/optimizer.safetensors", "best/model.safetensors"):
        ours, theirs = load_file(a / name), load_file(b / name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours), name
    assert read_state(a / last) == read_state(b / last)
    ours, theirs = (json.loads((folder / "scores.json").read_text()) for folder in (a, b))
    for card in (ours, theirs):
        del card["meta"]["seconds"], card["meta"]["encoder_seconds"]
    assert ours == theirs


def at_loss(
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    happens: Callable[[], None],
    objective: type[Any] | None = None,
) -> None:
    """Let something happen when a loss is computed for the `number`-th time, or this objective's."""
    place, name = (step, "matryoshka_loss") if objective is None else (objective, "loss")
    real, calls = getattr(place, name), 0

    def loss(*arguments: Any) -> Any:
        nonlocal calls
        calls += torch.is_grad_enabled()
        if calls == number and torch.is_grad_enabled():
            happens()
        return real(*arguments)

    monkeypatch.setattr(place, name, loss)


def terminate() -> None:
    """As a scheduler ends a run: the step is finished and saved."""
    os.kill(os.getpid(), signal.SIGTERM)


def die() -> NoReturn:
    """As a crash ends a run: nothing more is saved."""
    raise SystemExit("killed")


def assert_resumed_equals_whole(whole: Path, cut: Path, options: list[str]) -> None:
    """A run that is stopped in the middle of its first epoch ends as the whole one."""
    with pytest.MonkeyPatch.context() as patch:
        at_loss(patch, 2, terminate)
        with pytest.raises(Interrupted):
            train(cut, options)
    resume(cut)
    assert_same_run(whole, cut)
    assert files_of(whole) == files_of(cut)
    for path in whole.rglob("*.safetensors"):
        ours, theirs = load_file(path), load_file(cut / path.relative_to(whole))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours), path


def files_of(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))
