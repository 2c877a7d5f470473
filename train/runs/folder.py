"""The run folder: the lock by which it is one start's alone, and what a run writes beside its checkpoints."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import platform
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import yaml

import train
from train.errors import UserError
from train.io.claims import LOCK, TakenError, locked
from train.io.files import copy_aside, find_links, named_in_errors, sync, write_json, write_jsonl, write_text
from train.io.logs import logged_to
from train.io.paths import numbered
from train.runs.resume import damage, holds_a_run, read_run

log = logging.getLogger(__name__)

LOG, START = "train.log", ".hydra"
_RECORD = frozenset({LOCK, LOG, START, "run.json", "config.yaml"})  # of a run without any result
_KEEPS_LINKS = "wandb"  # makes links in its own folder
_PACKAGES = (
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "accelerate",
    "pytorch-metric-learning",
    "hydra-core",
    "numpy",
)


class Follower(Protocol):
    """Gets what is logged (a tracker); raises nothing."""

    def log(self, record: Mapping[str, Any]) -> None: ...

    def summarise(self, scores: Mapping[str, float], step: int) -> None: ...

    def keep_model(self, folder: Path, scores: Mapping[str, float]) -> None: ...


class RunFolder:
    """`config.yaml`, `run.json`, `metrics.jsonl` and `scores.json` of one run.

    Only the process that holds the folder's lock writes to it: see :meth:`claimed`.

    Args:
        path: the folder.
        writes: whether this process writes; in others, methods that write do nothing.
        chosen: whether the program chose the name; if the folder is taken, the run takes the next name.
        made: whether this start made the folder; it is removed if the run does not start.

    Attributes:
        trackers: also get what is logged.
    """

    trackers: Sequence[Follower] = ()

    def __init__(self, path: Path, *, writes: bool = True, chosen: bool = False, made: bool = False) -> None:
        self.path = path
        self.writes = writes
        self._chosen = chosen
        self._made = made or chosen
        self._run: dict[str, Any] = {}
        self._config: dict[str, Any] = {}
        self._num_metrics = 0

    @contextmanager
    def claimed(self, *, resume: bool, record_start: Callable[[Path], None] | None = None) -> Iterator[None]:
        """Hold the folder until the block ends; no other process writes to it meanwhile.

        A new run that fails before its record is written leaves nothing: what it wrote is removed, what was
        there before stays, and the folder is removed if it is empty then. Likewise a run in a folder of a
        chosen name that a mistake of the user's ends before it has any result.

        Args:
            resume: whether the folder's run is resumed; otherwise the folder must not hold a run.
            record_start: for a new run, writes how it was started.

        Raises:
            UserError: if another process holds the folder, or it holds a run or a symbolic link.
        """
        with self._locked_somewhere(resume=resume):
            if links := find_links(self.path, apart=[_KEEPS_LINKS]):
                raise UserError(
                    f"{links[0]} is a symbolic link, and a run writes no file through one: remove it, or "
                    "name another folder with run_dir="
                )
            before = {name for name in (START, LOG) if (self.path / name).exists()}
            is_mistake = False
            try:
                if record_start is not None and not resume:
                    record_start(self.path)
                with logged_to(self.path / LOG):
                    yield
            except UserError:
                is_mistake = self._chosen and {path.name for path in self.path.iterdir()} <= _RECORD
                raise
            finally:
                if not resume and (is_mistake or not (self.path / "run.json").exists()):
                    self._remove_leftovers(_RECORD if is_mistake else {LOG, LOCK, START}, keep=before)

    def _remove_leftovers(self, names: Collection[str], *, keep: Collection[str]) -> None:
        if START not in keep:
            shutil.rmtree(self.path / START, ignore_errors=True)
        for name in set(names).difference(keep, [START]):
            with suppress(OSError):
                (self.path / name).unlink(missing_ok=True)
        if self._made:
            remove_if_empty(self.path, with_parents=self._chosen)

    @contextmanager
    def _locked_somewhere(self, *, resume: bool) -> Iterator[None]:
        """Lock the folder or, if its name was chosen and it is taken, the next free one."""
        with ExitStack() as held:
            for path in numbered(self.path):
                self.path = path
                try:
                    held.enter_context(self.locked())
                    if not resume and holds_a_run(path):
                        raise TakenError(
                            f"the run folder {path} already holds a run: resume it with resume={path}, "
                            "or name another with run_dir= (in a sweep, hydra.sweep.dir=)"
                        )
                    break
                except TakenError:
                    held.close()
                    if not self._chosen:
                        raise
            yield

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes from working in this folder; the lock ends with the process.

        Raises:
            TakenError: if another process holds it.
            UserError: if the folder cannot be written.
        """
        return locked(self.path, f"the run folder {self.path}")

    def start(self, config: dict[str, Any], **facts: Any) -> None:
        """Write the resolved configuration, and what else is needed to repeat the run.

        Removes what an earlier start left that ended before its first checkpoint.
        """
        for name in ("metrics.jsonl", "baseline.json", "error.log", "report.html"):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / "per_query_baseline", ignore_errors=True)
        self._write_config(config)
        self._num_metrics = 0
        self._run = {
            "status": "running",
            "started": _now(),
            "ended": None,
            **_surroundings(),
            **facts,
        }
        self._write_run()

    def resume(self, config: dict[str, Any], step: int, kept: Mapping[str, Any] | None, **facts: Any) -> None:
        """Resume a run from its checkpoint at `step`: what was logged after that is dropped.

        Damaged files are kept under another name, and restored from the checkpoint.

        Args:
            config: the run's configuration; its length may have changed.
            kept: what the checkpoint keeps of the run's record, see :meth:`snapshot`.
            facts: what may differ from the first start (the device).
        """
        recorded = read_run(self.path)
        for name in ("config.yaml", "run.json"):
            if (self.path / name).exists() and damage(self.path, name):
                log.warning("the damaged %s is kept as %s", name, copy_aside(self.path / name))
        self._write_config(config)
        self._run = recorded
        self._run.setdefault("resumed", []).append({"step": step, "at": _now(), **_surroundings(), **facts})
        self.update(status="running", ended=None)
        self._restore_metrics(step, (kept or {}).get("num_metrics"))

    def _restore_metrics(self, step: int, num_expected: int | None) -> None:
        path = self.path / "metrics.jsonl"
        lines, bad = read_metrics(path)
        if bad:
            log.warning(
                "%s: %s damaged and left out; the whole file is kept as %s",
                path,
                f"{len(bad)} lines are" if len(bad) > 1 else f"line {bad[0]} is",
                copy_aside(path),
            )
        lines = [line for line in lines if line["step"] <= step]
        if num_expected is not None and len(lines) < num_expected:
            log.warning(
                "%s has %d of the %d lines that the run logged up to step %d: its curves will have a gap",
                path,
                len(lines),
                num_expected,
                step,
            )
        write_jsonl(path, lines)
        self._num_metrics = len(lines)

    def recorded(self) -> dict[str, Any] | None:
        """The record of the run in this folder, if there is one."""
        if not (self.path / "run.json").is_file() and not holds_a_run(self.path):
            return None
        return read_run(self.path)

    def snapshot(self) -> dict[str, Any]:
        """What a checkpoint keeps of the run's record. Also puts what was logged until now on the disk."""
        path = self.path / "metrics.jsonl"
        if path.is_file():
            sync(path)
        return {"config": self._config, "run": self._run, "num_metrics": self._num_metrics}

    def update(self, **facts: Any) -> None:
        """Add to `run.json`."""
        self._run |= facts
        self._write_run()

    def end(self, status: str, **facts: Any) -> None:
        """Close `run.json`: `finished`, `interrupted`, `pruned` or `failed`."""
        self.update(status=status, ended=_now(), **facts)

    def _write_config(self, config: dict[str, Any]) -> None:
        self._config = config
        write_text(self.path / "config.yaml", yaml.safe_dump(config, sort_keys=False))

    def _write_run(self) -> None:
        if self.writes:
            write_json(self.path / "run.json", self._run)

    def log_metrics(self, record: dict[str, Any]) -> None:
        """Append one line to `metrics.jsonl`, and pass it to the trackers."""
        if not self.writes:
            return
        path = self.path / "metrics.jsonl"
        with named_in_errors(path), path.open("a", encoding="utf-8", newline="") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")
        self._num_metrics += 1
        for tracker in self.trackers:
            tracker.log(record)

    def metrics(self) -> list[dict[str, Any]]:
        """All lines of `metrics.jsonl`."""
        return read_metrics(self.path / "metrics.jsonl")[0]


def remove_if_empty(folder: Path, *, with_parents: bool) -> None:
    """Remove a run folder if it is empty.

    Args:
        with_parents: also remove the folder above, and `checkpoints` above that, if they hold nothing else.
    """
    with suppress(OSError):  # it holds something
        folder.rmdir()
        if with_parents:
            folder.parent.rmdir()
            if folder.parent.parent.name == "checkpoints":
                folder.parent.parent.rmdir()


def read_metrics(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """The lines of a `metrics.jsonl`, and the numbers of those that are damaged.

    A last line without a line end was cut short by a kill: it is left out, and does not count as damaged.
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return [], []
    good, bad = [], []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            good.append(record)
        else:
            bad.append(number)
    return good, bad


def _surroundings() -> dict[str, Any]:
    return {
        "code": code_version(),
        "packages": package_versions(),
        "machine": {"python": platform.python_version(), "system": platform.platform()},
    }


def package_versions() -> dict[str, str]:
    """Versions of the packages that decide the numbers."""
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def code_version() -> dict[str, Any]:
    """Version of this code, and in a clone its commit and whether the work tree differs from it."""
    root = Path(__file__).resolve().parents[2]
    version: dict[str, Any] = {"version": train.__version__}
    if (root / ".git").exists():
        try:
            version["commit"] = _git(root, "rev-parse", "HEAD")
            version["modified"] = bool(_git(root, "status", "--porcelain", "--untracked-files=no"))
        except (OSError, subprocess.SubprocessError):
            pass
    return version


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
