"""One program at a time in a process, whatever ended the one before, and whatever it left."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import idiomtune as it
from idiomtune.api import run_alone
from idiomtune.config import TrainSettings, validate
from idiomtune.training.objective import build_objective
from tests.tiny_runs import composed

pytestmark = pytest.mark.usefixtures("in_folder", "undrawn")

TEXTS = ["He broke the ice.", "She went home."]
ROWS = [{"anchor": f"He broke the ice {n}.", "positive": f"All {n} relaxed."} for n in range(4)]
MEANINGS = {"broke the ice": "made people relax"}
STEP = {"max_steps": 1, "batch_size": 2}
CALLS: dict[str, Callable[[], Any]] = {
    "train": lambda: it.train(data=ROWS, model="tiny", trainer=STEP),
    "resume": lambda: it.resume("run"),
    "check": lambda: it.check("idiolink_ft", data="sample", model="tiny"),
    "evaluate": lambda: it.evaluate("tiny", "idiolink", data="sample"),
    "learn": lambda: it.learn("tiny", MEANINGS, corpus=TEXTS, output="mine"),
    "glossary": lambda: it.glossary(["table.tsv"], "new.tsv", texts=TEXTS),
    "push": lambda: it.push("run", "me/x", dry_run=True),
    "report": lambda: it.report("run"),
    "explore": lambda: it.explore("tiny", corpus=TEXTS),
    "find": lambda: it.find(TEXTS[:1], MEANINGS, "tiny"),
    "write": lambda: it.write(MEANINGS, "new", "none", dry_run=True),
    "usage": lambda: it.usage("tiny", TEXTS[:1], "break the ice"),
}


def test_every_function_is_tried() -> None:
    functions = {name for name in it.__all__ if callable(getattr(it, name)) and name.islower()}
    assert functions == CALLS.keys()


def test_a_second_program_is_refused_at_once() -> None:
    """In another thread, and in the same one: what an objective of a user's calls would mix up the run."""
    entered, leave = threading.Event(), threading.Event()

    def first() -> str:
        entered.set()
        assert leave.wait(500)
        with pytest.raises(it.UserError, match="in progress"):
            it.check()
        return "done"

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_alone(first))
        assert entered.wait(500)
        for call in CALLS.values():
            with pytest.raises(it.UserError, match="in progress"):
                call()
        leave.set()
        assert running.result() == "done"
    with pytest.raises(it.UserError, match="models"):
        it.explore()


@pytest.mark.parametrize(("device", "end"), [("tpu", it.UserError), ("cpu", KeyboardInterrupt)])
def test_after_an_error_or_interrupt_the_next_program_runs(
    device: str, end: type[BaseException], tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("idiomtune.encoder.encoder.Encoder._run", interrupted)
    for _ in range(2):
        with pytest.raises(end):
            it.evaluate(tiny_path, "idiolink", data="sample", device=device)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def weights_of(run: it.Run) -> bytes:
    return (run.path / "best" / "model.safetensors").read_bytes()


def test_a_run_is_the_same_whatever_ran_before(tiny_path: Path) -> None:
    """Each seeds what it draws: an earlier call, or the caller, has left other random states."""
    options: dict[str, Any] = {"model": tiny_path, "device": "cpu", "trainer": STEP}
    first = it.train(data=ROWS, run_dir="first", **options)
    torch.manual_seed(99)
    np.random.seed(99)
    it.check("idiolink_ft", data="sample", model=tiny_path)
    assert weights_of(it.train(data=ROWS, run_dir="second", **options)) == weights_of(first)


def test_what_an_objective_trains_itself_begins_with_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idiomtune.training.objective.build_declared", lambda *_: nn.Linear(2, 2))
    layers: list[Any] = []
    for seed in (42, 42, 43):
        torch.rand(3)
        options = ("+experiment=idiolink_ft", "data=sample", f"seed={seed}")
        layers.append(build_objective(validate(TrainSettings, composed("train", *options))))
    assert torch.equal(layers[0].weight, layers[1].weight)
    assert not torch.equal(layers[0].weight, layers[2].weight)
