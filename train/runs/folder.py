"""The run folder: what a run writes beside its checkpoints. Files appear whole or not at all."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import platform
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import yaml
from filelock import FileLock, Timeout

import train
from train.errors import UserError
from train.io.files import copy_aside, find_links, named_in_errors, sync, write_json, write_jsonl, write_text
from train.io.logs import logged_to
from train.runs.names import numbered
from train.runs.resume import damage, holds_a_run, read_run

log = logging.getLogger(__name__)

LOCK, LOG, START = ".lock", "train.log", ".hydra"
_KEEPS_LINKS = "wandb"  # of its own making, in its own folder
_MAX_VANISHED = 10  # times that the folder may vanish between being made and locked
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
    """Who is told what is logged (a tracker); it raises nothing."""

    def log(self, record: Mapping[str, Any]) -> None: ...

    def summarise(self, scores: Mapping[str, float]) -> None: ...


class RunFolder:
    """`config.yaml`, `run.json`, `metrics.jsonl` and `scores.json` of one run.

    The folder is the run's that holds its lock, and nothing is written into it without: see
    :meth:`claimed`.

    Args:
        path: of the folder.
        writes: whether this is the process that writes; in others, all that would write does nothing.
        chosen: whether the program chose the name: where the folder is taken, the run takes the next name.
        made: whether this start made the folder: it goes again where nothing comes of the run.

    Attributes:
        trackers: get what is logged, too.
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
        """Hold the folder until the block ends, as the only one who writes into it.

        A new run that fails before its record is written leaves nothing: what it wrote is removed, what was
        there before stays, and the folder goes where nothing else is in it.

        Args:
            resume: whether the folder's run goes on; else it must not hold one.
            record_start: writes how the run was started, for a new one.

        Raises:
            UserError: if another process holds the folder, if it holds a run, or a link that would lead
                writing out of it.
        """
        with self._locked_somewhere(resume=resume):
            if links := find_links(self.path, apart=[_KEEPS_LINKS]):
                raise UserError(
                    f"{links[0]} is a symbolic link, and a run writes no file through one: remove it, or "
                    "name another folder with run_dir="
                )
            before = {name for name in (START, LOG) if (self.path / name).exists()}
            try:
                if record_start is not None and not resume:
                    record_start(self.path)
                with logged_to(self.path / LOG):
                    yield
            finally:
                if not resume and not (self.path / "run.json").exists():
                    self._leave_nothing(but=before)

    def _leave_nothing(self, *, but: Collection[str]) -> None:
        if START not in but:
            shutil.rmtree(self.path / START, ignore_errors=True)
        for name in {LOG, LOCK}.difference(but):
            with suppress(OSError):
                (self.path / name).unlink(missing_ok=True)
        if self._made:
            remove_if_empty(self.path, of_experiment=self._chosen)

    @contextmanager
    def _locked_somewhere(self, *, resume: bool) -> Iterator[None]:
        """The folder, or where its name was chosen and it is taken, the next one that is free."""
        with ExitStack() as held:
            for path in numbered(self.path):
                self.path = path
                try:
                    with ExitStack() as trying:
                        trying.enter_context(self.locked())
                        if not resume and holds_a_run(path):
                            raise FolderTakenError(
                                f"the run folder {path} already holds a run: go on with it by resume={path}, "
                                "or name another with run_dir= (in a sweep, hydra.sweep.dir=)"
                            )
                        held.push(trying.pop_all())
                        break
                except FolderTakenError:
                    if not self._chosen:
                        raise
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from working in this folder; the lock ends with the process.

        Raises:
            FolderTakenError: if one does already.
            UserError: if the folder cannot be written.
        """
        lock = FileLock(self.path / LOCK, timeout=0)
        for attempt in range(_MAX_VANISHED):
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                lock.acquire()
                break
            except Timeout:
                raise FolderTakenError(f"another process is working in the run folder {self.path}") from None
            except FileNotFoundError:  # another start, which failed, has just removed its folder
                if attempt == _MAX_VANISHED - 1:
                    raise
            except OSError as error:
                raise UserError(
                    f"the run folder {self.path} cannot be written: {error.strerror or error}"
                ) from None
        try:
            yield
        finally:
            lock.release()

    def start(self, config: dict[str, Any], **facts: Any) -> None:
        """Write the resolved configuration, and what else is needed to repeat the run.

        What an earlier start left that never came to a checkpoint is removed.
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

    def go_on(self, config: dict[str, Any], step: int, kept: Mapping[str, Any] | None, **facts: Any) -> None:
        """Continue a run from its checkpoint at `step`: what was logged after that is dropped.

        Damaged files are set aside under another name, and made again of what is left.

        Args:
            config: the run's configuration; its length may have changed.
            kept: what the checkpoint keeps of the run's record, see :meth:`snapshot`.
            facts: what may be another than at the first start (the device).
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
                *(path, f"{len(bad)} lines are" if len(bad) > 1 else f"line {bad[0]} is", copy_aside(path)),
            )
        lines = [line for line in lines if line["step"] <= step]
        if num_expected is not None and len(lines) < num_expected:
            log.warning(
                "%s has %d of the %d lines that the run logged up to step %d: its curves will have a gap",
                *(path, len(lines), num_expected, step),
            )
        write_jsonl(path, lines)
        self._num_metrics = len(lines)

    def recorded(self) -> dict[str, Any] | None:
        """The record of the run in this folder, if there is one."""
        if not (self.path / "run.json").is_file() and not holds_a_run(self.path):
            return None
        return read_run(self.path)

    def snapshot(self) -> dict[str, Any]:
        """What a checkpoint keeps of the run's record; what was logged until now is on the disk then."""
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
        """Append one line to `metrics.jsonl`, and tell the trackers."""
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


class FolderTakenError(UserError):
    """A run folder holds a run, or another process is working in it."""


def remove_if_empty(folder: Path, *, of_experiment: bool) -> None:
    """Remove a run folder in which there is nothing.

    Args:
        of_experiment: the folder above too, where it holds no other run.
    """
    with suppress(OSError):  # it holds something
        folder.rmdir()
        if of_experiment:
            folder.parent.rmdir()


def read_metrics(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """The lines of a `metrics.jsonl`, and the numbers of those that are damaged.

    A last line without its end was cut short when the process was killed: it is left out, and is no damage.
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
