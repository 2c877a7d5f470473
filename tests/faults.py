"""Programs that are cut short, or fail, at one of their file operations: forks of the tests' process.

What the child makes, opens, renames and removes in a folder, and each forward pass of a run, is a numbered
point; the same start passes the same points in the same order.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from tests import forks
from tests.programs import ROOT, program_env

POINT = "\x01"  # before a line that names a point; all other lines are the program's own
_WHAT = {  # the first part of a path in a run folder, without its dots → what is being done there
    "best": "best",
    "best_old": "best",
    "run.json": "record",
    "config.yaml": "record",
    "metrics.jsonl": "metrics",
    "baseline.json": "report",
    "scores.json": "report",
    "plots": "report",
}

How = Literal["kill", "torn", "full", "EIO", "ENOSPC", "MemoryError"]
ERRORS: tuple[How, ...] = ("EIO", "ENOSPC", "MemoryError")


@dataclass(frozen=True)
class Fault:
    """What happens to a program, and when.

    Attributes:
        at: the point, counted from 1; of those named `what`, if that is given; 0 = none.
        how: `kill` is SIGKILL at the point; `torn` ends the process a few bytes into what it writes next;
            `full` fills the disk: no file can grow and no folder be made from then on; by `ERRORS` the
            operation fails (opening a file for reading is a point then, too).
    """

    at: int = 0
    what: str = ""
    how: How = "kill"


NO_FAULT = Fault()


@dataclass(frozen=True)
class Outcome:
    """How it ended: the points that were passed (the last is where it was killed), and what it said."""

    killed: bool
    status: int
    points: list[str]
    output: str


def started(words: Sequence[str], folder: Path, fault: Fault = NO_FAULT) -> Outcome:
    """`python -m <words>`, in a folder whose operations are points."""
    env = program_env({"PYTHONPATH": str(ROOT)})
    return _ended(folder, fault, lambda: forks.run_program(["-m", *words], str(folder), env))


def attempted(folder: Path, options: list[str] | None, fault: Fault = NO_FAULT) -> Outcome:
    """A new run in a folder, or, without options, one that goes on; with its last screen and figures."""
    from tests.tiny_runs import composed

    composed("train", *(options or []))  # kept here, so that it is there in the children
    with patch.object(forks, "in_child", forks.in_whole_child):
        return _ended(folder, fault, lambda: sys.exit(_train(folder, options, fault)))


def _ended(folder: Path, fault: Fault, work: Callable[[], object]) -> Outcome:
    def watched() -> None:
        Points(folder, fault).watch()
        work()

    child = forks.Child(watched)
    status = child.wait(500)
    lines = "".join(child.said()).splitlines()
    return Outcome(
        killed=status in (-signal.SIGKILL, -signal.SIGXFSZ),
        status=status,
        points=[line.removeprefix(POINT) for line in lines if line.startswith(POINT)],
        output="\n".join(line for line in lines if not line.startswith(POINT)),
    )


# -------------------------------------------------------------------- in the child


def _train(folder: Path, options: list[str] | None, fault: Fault) -> int:
    import logging

    from idiomtune.errors import UserError
    from tests.tiny_runs import resume, train

    patch("idiomtune.reports.screens.show_finished_run").start()
    if fault.what != "report":
        patch("idiomtune.reports.plots.learning_curve", _sketch).start()
        patch("idiomtune.reports.plots.benchmark_report", lambda *_: (None, [])).start()
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    try:
        if options is None:
            resume(folder, draws=True)
        else:
            train(folder, options, draws=True)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _sketch(*arguments: Any) -> None:
    """A file in place of a figure, which takes longer to draw than the run to train."""
    path: Path = arguments[-1]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(10_000))


class Points:
    """Numbers what the process passes, says so among its errors, and lets happen there what should."""

    def __init__(self, folder: Path, fault: Fault) -> None:
        self._folder, self._fault = folder, fault
        self._passed, self._is_full = 0, False
        self._removing = Path()
        self._scoring = "scoring"

    def watch(self) -> None:
        from idiomtune import Encoder
        from idiomtune.glossaries.build import build_encoder

        forward = Encoder.embed

        def watched_forward(encoder: Encoder, *arguments: Any) -> Any:
            untrained = not (self._folder / "baseline.json").exists()
            what = "training" if encoder.training else "baseline" if untrained else self._scoring
            self._reach(what)
            return forward(encoder, *arguments)

        def watched_build(*arguments: Any, **options: Any) -> Encoder:
            if self._folder / "best" in arguments:
                self._scoring = "re-scoring"
            return build_encoder(*arguments, **options)

        patch.object(Encoder, "embed", watched_forward).start()
        patch("idiomtune.training.finish.build_encoder", watched_build).start()
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "shutil.rmtree":
            self._removing = Path(os.fsdecode(arguments[0]))
        elif event == "open" and isinstance(arguments[0], str | bytes):
            is_read = not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if not is_read or self._fault.how in ERRORS:
                self._touch(arguments[0], "read" if is_read else "saving")
        elif event in ("os.mkdir", "os.link"):
            self._touch(arguments[event == "os.link"], makes=True)
        elif event in ("os.rename", "os.truncate"):
            self._touch(arguments[0])
        elif event in ("os.remove", "os.rmdir"):
            inside = arguments[1] != -1  # a name relative to a folder that shutil.rmtree has open
            self._touch(self._removing if inside else arguments[0], "pruning")

    def _touch(self, name: Any, does: str = "saving", *, makes: bool = False) -> None:
        path = Path(os.fsdecode(name)).absolute()
        if not path.is_relative_to(self._folder) or path == self._folder:
            return
        top = path.relative_to(self._folder).parts[0].removesuffix(".partial").lstrip(".")
        self._reach(does if "step_" in top or does == "read" else _WHAT.get(top, "record"), path)
        if self._is_full and makes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def _reach(self, what: str, path: Path | None = None) -> None:
        os.write(2, f"{POINT}{what}\n".encode())
        is_asked_for = self._fault.what in ("", what)
        self._passed += is_asked_for
        if self._passed != self._fault.at or not is_asked_for:
            return
        how = self._fault.how
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how in ERRORS:
            number = getattr(errno, how, 0)
            raise OSError(number, os.strerror(number), str(path)) if number else MemoryError
        # Where a file would pass this size, the part up to it is written. What happens then Python has set
        # to an error; without that the signal ends the process.
        grows = path is not None and path.name == "metrics.jsonl" and path.exists()
        size = 10 + (path.stat().st_size if path is not None and grows else 0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        if how == "torn":
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        self._is_full = how == "full"
