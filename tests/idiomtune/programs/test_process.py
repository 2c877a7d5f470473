"""One program at a time, after which the process is as it was; Ctrl-C that leaves no halves."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.core.singleton import Singleton

import idiomtune as it
from idiomtune.programs.process import alone
from tests.programs import ROOT

TEXTS = ["He broke the ice.", "She went home."]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def state() -> dict[str, Any]:
    """What a program has to leave as it is."""
    names = (
        "transformers",
        "sentence_transformers",
        "huggingface_hub",
        "httpx",
        "mteb",
        "matplotlib",
        "hydra",
    )
    loggers = [logging.getLogger(), *map(logging.getLogger, names)]
    mask = os.umask(0)
    os.umask(mask)
    hydra = {kind.__name__ for kind in Singleton._instances if kind.__name__ != "Plugins"}
    return {
        "loggers": [(log.level, [*log.handlers], log.propagate, log.disabled) for log in loggers],
        "logging": (logging.root.manager.disable, logging.raiseExceptions),
        "random": random.getstate(),
        "numpy": str(np.random.get_state()),
        "torch": torch.get_rng_state().tolist(),
        "flags": (
            torch.get_num_threads(),
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
            torch.get_default_dtype(),
        ),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "environment": dict(os.environ),
        "folder": Path.cwd(),
        "threads": {thread.name for thread in threading.enumerate()},
        "warnings": [*warnings.filters],
        "python": (id(sys.argv), [*sys.argv], id(sys.path), [*sys.path], gc.isenabled(), mask),
        "hydra": (GlobalHydra.instance().is_initialized(), hydra | {"GlobalHydra"}),
    }


class Given(NamedTuple):
    """What a function is called with.

    Attributes:
        run, tiny: a finished run, the folder of a model.
        wrong: options that it refuses.
    """

    run: it.Run | Path
    tiny: str
    wrong: dict[str, Any]

    def but(self, **options: Any) -> dict[str, Any]:
        """These options, but for those that are wrong."""
        return options | self.wrong


ROWS = [{"anchor": f"He broke the ice {n}.", "positive": f"All {n} relaxed."} for n in range(4)]
MEANINGS = {"broke the ice": "made people relax"}
RUN = "idiomtune.encoder.encoder.Encoder._run"
# Each function: how it is called, an option that is wrong, and what an interrupt comes in.
CALLS: dict[str, tuple[Callable[[Given], Any], dict[str, Any], str]] = {
    "train": (
        lambda g: it.train(
            data=ROWS, **g.but(model=g.tiny, device="cpu", trainer={"max_steps": 1, "batch_size": 2})
        ),
        {"trainer": {"batch_size": 0}},
        RUN,
    ),
    "resume": (
        lambda g: it.resume(g.run, **g.but(trainer={"max_steps": 7})),
        {"trainer": {"batch_size": 0}},
        RUN,
    ),
    "check": (
        lambda g: it.check("idiolink_ft", data="sample", model=g.tiny, **g.wrong),
        {"trainer": {"batch_size": 0}},
        "idiomtune.programs.check.check",
    ),
    "evaluate": (
        lambda g: it.evaluate(g.tiny, "idiolink", **g.but(data="sample", device="cpu")),
        {"device": "tpu"},
        RUN,
    ),
    "learn": (
        lambda g: it.learn(
            g.tiny, MEANINGS, **g.but(corpus=TEXTS, output="mine", sentences=2, steps=2, device="cpu")
        ),
        {"steps": -1},
        RUN,
    ),
    "glossary": (
        lambda g: it.glossary(["table.tsv"], "new.tsv", texts=TEXTS, **g.wrong),
        {"language": 3.5},
        "idiomtune.programs.glossary.glossary",
    ),
    "push": (
        lambda g: it.push(g.run, **g.but(repo_id="me/x", dry_run=True, license="mit", allow_sample=True)),
        {"repo_id": "a/b/c"},
        "idiomtune.programs.push.push",
    ),
    "report": (
        lambda g: it.report(g.run, **g.wrong),
        {"against": "nowhere"},
        "idiomtune.reports.runs.read_runs",
    ),
    "gate": (
        lambda g: it.gate(g.run, **g.but(against="baseline", margin=0.5)),
        {"margin": -1},
        "idiomtune.reports.checks.run_checks",
    ),
    "explore": (lambda g: it.explore(g.tiny, corpus=TEXTS, **g.but(device="cpu")), {"device": "tpu"}, RUN),
    "usage": (
        lambda g: it.usage(g.tiny, TEXTS[:1], **g.but(expressions="break the ice")),
        {"expressions": "spill the beans"},
        "idiomtune.encoder.encoder.Encoder.from_pretrained",
    ),
}


def test_every_function_is_tried() -> None:
    functions = {name for name in it.__all__ if callable(getattr(it, name)) and name.islower()}
    assert functions == CALLS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["ok", "error", "interrupt"])
@pytest.mark.parametrize("name", CALLS)
def test_the_process_is_as_it_was(
    name: str,
    end: str,
    whole_run: Callable[[list[str]], Path],
    options: list[str],
    tiny_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call, wrong, place = CALLS[name]
    run = it.Run(shutil.copytree(whole_run(options), "run"))
    Path("table.tsv").write_text("expression\tmeaning\nbreak the ice\tmake people relax\n")
    monkeypatch.setattr("idiomtune.encoder.usage_gate.fit_gate", _no_gate)
    torch.manual_seed(5)
    np.random.seed(6)
    if end == "interrupt":
        module, _, attribute = place.rpartition(".")
        assert_there(module, attribute)
        monkeypatch.setattr(place, _interrupted)
    before = state()
    expected = {"ok": None, "error": it.UserError, "interrupt": KeyboardInterrupt}[end]
    if expected is None:
        call(Given(run, str(tiny_path), {}))
    else:
        with pytest.raises(expected):
            call(Given(run, str(tiny_path), wrong if end == "error" else {}))
    after = state()
    assert {part: value for part, value in after.items() if value != before[part]} == {}
    with pytest.raises(it.UserError, match="margin"):
        it.gate(run)  # no lock is held


def assert_there(module: str, attribute: str) -> None:
    owner: Any
    try:
        owner = importlib.import_module(module)
    except ModuleNotFoundError:
        package, _, name = module.rpartition(".")
        owner = getattr(importlib.import_module(package), name)
    assert hasattr(owner, attribute)


def _interrupted(*_: Any, **__: Any) -> None:
    signal.raise_signal(signal.SIGINT)


def _no_gate(*_: Any) -> Any:
    from idiomtune.encoder.glossary import UsageGate

    return UsageGate([0.5] * 3 * 32, 0.0, (1,), (0.5,) * 32)


def vandal(end: str) -> None:
    """Changes everything that a program or a library may change."""
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger().setLevel(logging.DEBUG)
    logging.getLogger("transformers").handlers.clear()
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
        alone(vandal)(end)
    assert state() == before


def test_a_second_program_is_refused_at_once() -> None:
    """In another thread, and in the same one: what an objective of a user's calls would mix up the run."""
    entered, leave = threading.Event(), threading.Event()

    def first() -> str:
        entered.set()
        assert leave.wait(30)
        with pytest.raises(it.UserError, match="in progress"):
            it.check()
        return "done"

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(alone(first))
        assert entered.wait(30)
        for call, _, _ in CALLS.values():
            with pytest.raises(it.UserError, match="in progress"):
                call(Given(Path("run"), "tiny", {}))
        leave.set()
        assert running.result() == "done"
    with pytest.raises(it.UserError, match="models"):
        it.explore()


@pytest.mark.slow
def test_of_programs_in_threads_only_one_runs(tiny_path: Path) -> None:
    """Whoever comes first ends as it would alone."""
    start = threading.Barrier(6)

    def call(number: int) -> str:
        start.wait()
        try:
            it.check("idiolink_ft", data="sample", model=str(tiny_path), run_dir=f"runs/{number}")
        except it.UserError as error:
            return str(error)
        return "done"

    with ThreadPoolExecutor(6) as pool:
        ends = sorted(pool.map(call, range(6)))
    assert "done" in ends
    assert all(end == "done" or "in progress" in end for end in ends)


def test_an_interrupt_that_becomes_an_error_is_an_interrupt() -> None:
    def careless() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise it.UserError("something else") from None

    with pytest.raises(KeyboardInterrupt):
        alone(careless)()


INTERRUPTED = """
import signal, sys
import idiomtune as it

def interrupt(*_):
    signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGALRM, interrupt)
ends = []
for delay in {delays}:
    signal.setitimer(signal.ITIMER_REAL, delay)
    try:
        {call}
        ends.append("done")
    except KeyboardInterrupt:
        ends.append("interrupted")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
{call}
print(ends.count("interrupted"), *ends)
"""


@pytest.mark.slow
@pytest.mark.parametrize("start", [0.01, 0.9, 1.8])
@pytest.mark.parametrize("what", ["check", "evaluate", "Encoder"])
def test_after_an_interrupt_anywhere_the_next_call_works(what: str, start: float, tiny_path: Path) -> None:
    """In the first import of torch and others, in composing, and later."""
    tiny = str(tiny_path)
    call = {
        "check": f"it.check('idiolink_ft', data='sample', model={tiny!r})",
        "evaluate": f"it.evaluate({tiny!r}, 'idiolink', data='sample', device='cpu')",
        "Encoder": "it.Encoder",
    }[what]
    delays = [start, *(0.02 * number for number in range(1, 25))] if what == "check" else [start, start / 2]
    program = INTERRUPTED.format(delays=delays, call=call)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if what == "check":
        assert int(done.stdout.splitlines()[-1].split()[0]) > 5


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.15, 0.3, 0.45, 0.8, 1.3])
@pytest.mark.parametrize("program", ["check", "report"])
def test_a_program_that_is_interrupted_says_so(program: str, delay: float, tiny_path: Path) -> None:
    arguments = {"check": ["idiolink_ft", "data=sample", f"model={tiny_path}"], "report": ["nowhere"]}[
        program
    ]
    code = (
        "import runpy, signal, sys\n"
        "signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))\n"
        f"import idiomtune\nsignal.setitimer(signal.ITIMER_REAL, {delay})\n"
        f"sys.argv = ['idiomtune', {program!r}, *{arguments!r}]\n"
        "try:\n    runpy.run_module('idiomtune', run_name='__main__')\n"
        "finally:\n    signal.setitimer(signal.ITIMER_REAL, 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    ended = {"check": 0, "report": 2}[program]  # before it was interrupted
    assert done.returncode in (130, ended), done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == ended or "interrupted" in done.stderr
