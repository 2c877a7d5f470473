"""The run folder: the lock by which it is one start's alone, and what a run writes around its checkpoints."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import yaml

import train
from train.errors import UserError
from train.io.claims import LOCK, TakenError, locked
from train.io.files import find_links, named_in_errors, write_json, write_jsonl, write_text
from train.io.logs import logged_to
from train.io.paths import numbered
from train.runs.resume import holds_a_run

log = logging.getLogger(__name__)

LOG, START, _METRICS = "train.log", ".hydra", "metrics.jsonl"
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


class Tracker(Protocol):
    """Where what a run logs is sent.

    A step may be logged in several parts, and again after a resume. `summarise` gets the scorecard of the
    best checkpoint, and its step; `keep_model` the folder of its model, which is complete by then.
    """

    def log(self, record: Mapping[str, Any]) -> None: ...

    def summarise(self, scores: Mapping[str, float], step: int) -> None: ...

    def keep_model(self, folder: Path, scores: Mapping[str, float]) -> None: ...

    def close(self, *, succeeded: bool) -> None: ...


class RunFolder:
    """`config.yaml`, `run.json`, `metrics.jsonl` and `scores.json` of one run.

    Only the process that holds the folder's lock writes to it: see :meth:`claimed`.

    Args:
        path: the folder.
        writes: whether this process writes; in others, methods that write do nothing.
        chosen: whether the program chose the name; if the folder is taken, the run takes the next name.
        made: whether this start made the folder; it is removed if the run does not start.

    Attributes:
        record: the content of `run.json`, in the process that writes.
        trackers: also get what is logged.
    """

    trackers: Sequence[Tracker] = ()

    def __init__(self, path: Path, *, writes: bool = True, chosen: bool = False, made: bool = False) -> None:
        self.path = path
        self.writes = writes
        self._chosen = chosen
        self._made = made or chosen
        self.record: dict[str, Any] = {}
        self._config: dict[str, Any] = {}

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
            before = {name for name in _RECORD - {LOCK} if (self.path / name).exists()}
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
                    for name in _RECORD - before:
                        _remove(self.path / name)
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
        for name in (_METRICS, "baseline.json", "error.log", "report.html"):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / "per_query_baseline", ignore_errors=True)
        self._write_config(config)
        self.record = {
            "status": "running",
            "started": _now(),
            "ended": None,
            **_surroundings(),
            **facts,
        }
        self._write_run()

    def resume(self, config: dict[str, Any], step: int, saved: Mapping[str, Any], **facts: Any) -> None:
        """Resume a run from its checkpoint at `step`: what was logged after that is dropped.

        Args:
            config: the run's configuration; its length may have changed.
            saved: the run as of then, see :meth:`snapshot`, from which the folder's files are made again.
            facts: what may differ from the first start (the device).
        """
        self.record = dict(saved["run"])
        self.record.setdefault("resumed", []).append({"step": step, "at": _now(), **_surroundings(), **facts})
        self._write_config(config)
        self.update(status="running", ended=None)
        # Earlier versions left the lines in the run folder alone.
        lines = saved["metrics"] if "metrics" in saved else self.metrics()
        write_jsonl(self.path / _METRICS, [line for line in lines if line["step"] <= step])

    def snapshot(self) -> dict[str, Any]:
        """The run so far, which a checkpoint has a copy of."""
        return {"config": self._config, "run": self.record, "metrics": self.metrics()}

    def update(self, **facts: Any) -> None:
        """Add to `run.json`."""
        self.record |= facts
        self._write_run()

    def end(self, status: str, **facts: Any) -> None:
        """Close `run.json`: `finished`, `interrupted`, `pruned` or `failed`."""
        self.update(status=status, ended=_now(), **facts)

    def _write_config(self, config: dict[str, Any]) -> None:
        self._config = config
        write_text(self.path / "config.yaml", yaml.safe_dump(config, sort_keys=False))

    def _write_run(self) -> None:
        if self.writes:
            write_json(self.path / "run.json", self.record)

    def log_metrics(self, record: dict[str, Any]) -> None:
        """Append one line to `metrics.jsonl`, and pass it to the trackers."""
        if not self.writes:
            return
        path = self.path / _METRICS
        with named_in_errors(path), path.open("a", encoding="utf-8", newline="") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")
        for tracker in self.trackers:
            tracker.log(record)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, without a last one that a kill cut short, and damaged ones."""
        path = self.path / _METRICS
        if not path.is_file():
            return []
        lines = [_logged(line) for line in path.read_text("utf-8", errors="replace").split("\n")[:-1]]
        if damaged := lines.count(None):
            log.warning("%s: damaged lines left out: %d", path, damaged)
        return [line for line in lines if line is not None]


def _logged(line: str) -> dict[str, Any] | None:
    """A line of `metrics.jsonl`; None if it is damaged."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


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
