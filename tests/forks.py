"""Processes forked from that of the tests, which has imported torch and all the rest."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
# Read where a library is imported: a program for which they differ starts in a Python of its own.
_READ_AT_IMPORT = (
    *("HF_", "HUGGINGFACE_", "TRANSFORMERS_", "TORCH_", "OMP_", "MKL_", "ATEN_", "ONEDNN_"),
    *("XDG_", "HOME", "LANG", "LC_", "PYTHON"),
)
# But these the Hub's client reads again in a fork for which they differ.
_READ_AGAIN = {"HF_ENDPOINT", "HF_HOME", "HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_XET"}
_execv = os.execv
in_child: list[Callable[[], object]] = []  # what a child does first, to leave out what takes long
in_whole_child: list[Callable[[], object]] = []  # the same of one that leaves nothing out


class Child:
    """A fork that does some work and ends; the exit status is 0, the work's own (SystemExit), or 1."""

    def __init__(self, work: Callable[[], object]) -> None:
        _import_all()
        pipes = [os.pipe(), os.pipe()]  # files would have no room where the disk is made full
        self.returncode: int | None = None
        self._said = [b"", b""]
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _do(work, [writing for _, writing in pipes])
        self._outputs = [reading for reading, _ in pipes]
        for reading, writing in pipes:
            os.close(writing)
            os.set_blocking(reading, False)

    def poll(self) -> int | None:
        """The exit status if it has ended, which is minus the number of a signal that ended it."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            for number, output in enumerate(self._outputs):
                with contextlib.suppress(BlockingIOError):
                    while part := os.read(output, 1 << 16):
                        self._said[number] += part
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
                for output in self._outputs:
                    os.close(output)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """The exit status; a child that runs on after so many seconds is killed.

        Raises:
            subprocess.TimeoutExpired: if it was.
        """
        end, pause, is_killed = time.monotonic() + timeout, 0.001, False
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                self.send_signal(signal.SIGKILL)
                is_killed = True
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        if is_killed:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return status

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def said(self) -> tuple[str, str]:
        """Its output and errors so far."""
        out, errors = (said.decode(errors="backslashreplace") for said in self._said)
        return out, errors


@cache
def _import_all() -> None:
    """What a program imports, and what is slow the first time that it is done in a process."""
    import accelerate
    import optuna
    import sentence_transformers
    from tqdm import tqdm
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    import idiomtune.programs.evaluate
    import idiomtune.programs.report
    import idiomtune.programs.train
    import idiomtune.training.sweeper  # noqa: F401
    from idiomtune.hub.model_card import write_card
    from idiomtune.reports.page import page
    from idiomtune.reports.plots import Curves, learning_curve

    del accelerate, optuna, sentence_transformers
    tqdm.set_lock(
        threading.RLock()
    )  # its own is shared with children, and held for ever by one that is killed
    get_checkpoint_conversion_mapping("bert")
    with tempfile.TemporaryDirectory() as folder:
        learning_curve([Curves("", [], "")], 1, "", Path(folder, "curve.png"))
    write_card("learned", {}, model="", into="tokens", glossary={"expressions": 0}, about="", rows=[])
    page([], [], [], [], [], [])


def program(arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Child:
    """`python -m <module> …` or `python <script> …`, in a folder and an environment."""
    return Child(lambda: run_program(arguments, str(cwd), env))


def is_same_world(env: Mapping[str, str]) -> bool:
    """Whether a program with this environment imports what it would import here."""
    names = {name for name in (*env, *os.environ) if name.startswith(_READ_AT_IMPORT)}
    names -= {"PYTHONPATH"} | _READ_AGAIN
    return all(env.get(name) == os.environ.get(name) for name in names)


def _do(work: Callable[[], object], outputs: Sequence[int]) -> NoReturn:
    """In the child: what the tests have put in place of what a Python starts with is put back."""
    status = 1
    try:
        os.setsid()
        atexit._clear()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, descriptor in enumerate((nothing, *outputs)):
            os.dup2(descriptor, number)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            mode = "w" if number else "r"
            stream = open(number, mode, closefd=False, errors="backslashreplace")  # noqa: SIM115
            vars(sys).update({name: stream, f"__{name}__": stream})
        logging.root.handlers.clear()
        logging.root.setLevel(logging.WARNING)
        warnings.resetwarnings()
        for signal_, handler in (
            (signal.SIGINT, signal.default_int_handler),
            (signal.SIGTERM, signal.SIG_DFL),
        ):
            signal.signal(signal_, handler)
        for first in in_child:
            first()
        work()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1 if end.code else 0
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status & 0xFF)


def _go_on(executable: str, arguments: Sequence[str]) -> NoReturn:
    """`os.execv`, but of a Python with `-c` in this process: what it would import for seconds is there."""
    if executable != sys.executable or arguments[1] != "-c":
        _execv(executable, [*arguments])
    status: object = 0
    sys.argv = ["-c", *arguments[3:]]
    try:
        exec(arguments[2], {"__name__": "__main__"})
    except SystemExit as end:
        status = end.code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else bool(status))


def run_program(arguments: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
    """The same in this process, which it ends as a program."""
    is_read_again = any(env.get(name) != os.environ.get(name) for name in _READ_AGAIN)
    os.environ.clear()
    os.environ.update(env)
    if is_read_again:  # as the Hub's client does where it is imported
        from huggingface_hub import constants, hf_api

        importlib.reload(constants)
        hf_api.api.endpoint = constants.ENDPOINT
    os.chdir(cwd)
    os.execv = _go_on  # type: ignore[assignment]
    added = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    if cwd != str(ROOT):  # a folder may have `tests` of its own
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
    if arguments[0] == "-m":
        sys.path[:0] = [cwd, *added]
        sys.argv = [*arguments[1:]]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[:0] = [str(Path(arguments[0]).resolve().parent), *added]
        sys.argv = [*arguments]
        runpy.run_path(arguments[0], run_name="__main__")
