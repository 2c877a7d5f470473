"""One program at a time, after which the process is as it was; Ctrl-C that leaves no halves."""

from __future__ import annotations

import gc
import logging
import os
import random
import runpy
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.core.singleton import Singleton

import idiomtune as it
from idiomtune.encoder.glossary import UsageClassifier
from idiomtune.programs.process import run_alone
from tests.forks import Child
from tests.programs import ROOT, run

pytestmark = pytest.mark.usefixtures("in_folder", "undrawn")

TEXTS = ["He broke the ice.", "She went home."]
LIBRARIES = "transformers sentence_transformers huggingface_hub httpx mteb matplotlib hydra"


def state() -> dict[str, Any]:
    """What a program has to leave as it is."""
    loggers = [logging.getLogger(), *map(logging.getLogger, LIBRARIES.split())]
    mask = os.umask(0)
    os.umask(mask)
    registries = {"Plugins", "SourcesRegistry"}  # of Hydra's own classes, filled where it is first used
    hydra = {kind.__name__ for kind in Singleton._instances} - registries
    return {
        "loggers": [(log.level, [*log.handlers], log.propagate, log.disabled) for log in loggers],
        "logging": (logging.root.manager.disable, logging.raiseExceptions),
        "random": random.getstate(),
        "numpy": str(np.random.get_state()),
        "torch": torch.get_rng_state().tolist(),
        "flags": (torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype()),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "environment": dict(os.environ),
        "folder": Path.cwd(),
        "threads": {thread.name for thread in threading.enumerate()},
        "warnings": [*warnings.filters],
        "python": (id(sys.argv), [*sys.argv], id(sys.path), [*sys.path], gc.isenabled(), mask),
        "hydra": (GlobalHydra.instance().is_initialized(), hydra | {"GlobalHydra"}),
    }


ROWS = [{"anchor": f"He broke the ice {n}.", "positive": f"All {n} relaxed."} for n in range(4)]
MEANINGS = {"broke the ice": "made people relax"}


Call = Callable[[Any, str], Any]  # of a finished run and the folder of a model
STEP = {"max_steps": 1, "batch_size": 2}
CALLS: dict[str, Call] = {
    "train": lambda _, tiny: it.train(data=ROWS, model=tiny, device="cpu", trainer=STEP),
    "resume": lambda run, _: it.resume(run, trainer={"max_steps": 7}),
    "check": lambda _, tiny: it.check("idiolink_ft", data="sample", model=tiny),
    "evaluate": lambda _, tiny: it.evaluate(tiny, "idiolink", data="sample", device="cpu"),
    "learn": lambda _, tiny: it.learn(tiny, MEANINGS, corpus=TEXTS, output="mine", sentences=2, epochs=1),
    "glossary": lambda *_: it.glossary(["table.tsv"], "new.tsv", texts=TEXTS),
    "push": lambda run, _: it.push(run, "me/x", dry_run=True, license="mit", allow_sample=True),
    "report": lambda run, _: it.report(run),
    "gate": lambda run, _: it.gate(run, against="baseline", margin=0.5),
    "explore": lambda _, tiny: it.explore(tiny, corpus=TEXTS, device="cpu"),
    "find": lambda _, tiny: it.find(TEXTS[:1], MEANINGS, tiny),
    "write": lambda *_: it.write(MEANINGS, "new", "none", dry_run=True, domains=["Sport"]),
    "usage": lambda _, tiny: it.usage(tiny, TEXTS[:1], "break the ice"),
}


def test_every_function_is_tried() -> None:
    functions = {name for name in it.__all__ if callable(getattr(it, name)) and name.islower()}
    assert functions == CALLS.keys()


@contextmanager
def as_it_was() -> Iterator[None]:
    """The process, once a function has been called."""
    torch.manual_seed(5)
    np.random.seed(6)
    before = state()
    yield
    assert {part: value for part, value in state().items() if value != before[part]} == {}
    with pytest.raises(it.UserError, match="margin"):
        it.gate(Path.cwd())  # no lock is held


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_the_process_is_as_it_was(
    name: str,
    whole_run: Callable[[list[str]], Path],
    options: list[str],
    tiny_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = it.Run(shutil.copytree(whole_run(options), "run"))
    Path("table.tsv").write_text("expression\tmeaning\nbreak the ice\tmake people relax\n")
    gate = UsageClassifier([0.5] * 3 * 32, 0.0, (1,), (0.5,) * 32)
    monkeypatch.setattr("idiomtune.encoder.usage_gate.fit_gate", lambda *_: gate)
    with as_it_was():
        CALLS[name](run, str(tiny_path))


@pytest.mark.parametrize(("device", "end"), [("tpu", it.UserError), ("cpu", KeyboardInterrupt)])
def test_the_process_is_as_it_was_after_an_error_or_interrupt(
    device: str, end: type[BaseException], tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("idiomtune.encoder.encoder.Encoder._run", interrupted)
    with as_it_was(), pytest.raises(end):
        it.evaluate(tiny_path, "idiolink", data="sample", device=device)


def vandal(end: str) -> None:
    """Changes everything that a program or a library may change."""
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger().setLevel(logging.DEBUG)
    logging.getLogger("transformers").handlers.clear()
    logging.getLogger("mteb").setLevel(logging.CRITICAL)
    logging.getLogger("huggingface_hub").propagate = False
    logging.disable(logging.ERROR)
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("medium")
    torch.set_num_threads(3)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["NEW"] = "1"
    del os.environ["PATH"]
    os.chdir("/")
    os.umask(0o077)
    warnings.simplefilter("error")
    sys.argv = ["other"]
    sys.path.insert(0, "other")
    gc.disable()
    if end == "error":
        raise ValueError("x")
    if end == "interrupt":
        raise KeyboardInterrupt


@pytest.mark.parametrize("end", ["ok", "error", "interrupt"])
def test_whatever_a_program_changes_is_put_back(end: str) -> None:
    before = state()
    kinds: dict[str, type[BaseException]] = {"error": ValueError, "interrupt": KeyboardInterrupt}
    with pytest.raises(kinds[end]) if end in kinds else nullcontext():
        run_alone(vandal)(end)
    assert state() == before


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
                call("run", "tiny")
        leave.set()
        assert running.result() == "done"
    with pytest.raises(it.UserError, match="models"):
        it.explore()


def test_an_interrupt_that_becomes_an_error_is_an_interrupt() -> None:
    def careless() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise it.UserError("something else") from None

    with pytest.raises(KeyboardInterrupt):
        run_alone(careless)()


def calls_of(work: Callable[[], object], interrupt_at: int = 0) -> int:
    """How many functions of this project it calls; Ctrl-C comes at one of them."""
    number, package = 0, str(Path(it.__file__).parent)

    def on_event(frame: FrameType, event: str, _: object) -> None:
        nonlocal number
        if event == "call" and frame.f_code.co_filename.startswith(package):
            number += 1
            if number == interrupt_at:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)

    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(None)
    return number


@pytest.mark.slow
@pytest.mark.parametrize("name", ["check", "evaluate"])
def test_after_an_interrupt_anywhere_the_next_call_works(name: str, tiny_path: Path) -> None:
    """In composing, in reading, in a forward pass, and later."""

    def work() -> object:
        return CALLS[name](None, str(tiny_path))

    work()  # what is done once in a process
    number = calls_of(work)
    for part in range(1, 10):
        with pytest.raises(KeyboardInterrupt):
            calls_of(work, number * part // 10)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    work()


@pytest.mark.parametrize("command", [["train", "+experiment=own"], ["evaluate", "minilm"]])
def test_an_extension_that_hangs_as_it_is_imported_is_interrupted(command: list[str]) -> None:
    Path("hangs.py").write_text("import signal, time\nsignal.raise_signal(signal.SIGINT)\ntime.sleep(600)\n")
    done = run(
        "idiomtune",
        *command,
        "extensions=hangs",
        cwd=Path.cwd(),
        environment={"PYTHONPATH": str(ROOT)},
        cold=True,
    )
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.2, 0.5, 0.8])
def test_a_program_that_is_interrupted_says_so(part: float, tiny_path: Path) -> None:
    def start() -> None:
        sys.argv = ["idiomtune", "check", "idiolink_ft", "data=sample", f"model={tiny_path}"]
        runpy.run_module("idiomtune", run_name="__main__")

    def interrupted() -> None:
        start()
        calls_of(start, int(calls_of(start) * part))

    child = Child(interrupted)
    assert child.wait(500) == 130, child.said()
    assert "interrupted" in child.said()[1]
    assert "Traceback" not in child.said()[1]
