"""The run folder: its lock, and the files that a run writes next to its checkpoints."""

from __future__ import annotations

import json
import logging
import platform
import re
import shutil
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import yaml

from idiomtune.errors import UserError, resume_command
from idiomtune.io.files import (
    changed_files,
    code_version,
    find_links,
    fingerprint,
    free_name,
    list_names,
    naming_errors,
    package_versions,
    write_json,
    write_jsonl,
    write_text,
)
from idiomtune.io.hub import without_secrets
from idiomtune.io.outputs import LOCK, TakenError, lock
from idiomtune.io.records import readable_record
from idiomtune.io.run_files import checkpoints
from idiomtune.io.secrets import hide_secrets
from idiomtune.io.terminal import logged_to
from idiomtune.plugins.score import ScoreTable

log = logging.getLogger(__name__)

LOG, START, _METRICS = "train.log", ".hydra", "metrics.jsonl"
BASELINE = ("baseline.json", "per_query_baseline")
_RECORD = frozenset({LOCK, LOG, START, "run.json", "config.yaml"})  # of a run without any result
_KEEPS_LINKS = "wandb"  # makes links in its own folder
# What a run writes, of which the last ones may be there before it is on record.
_WRITTEN = re.compile(
    r"best|plots|predictions|per_query(_baseline)?|wandb|tensorboard|step_\d+|\.(step_\d+|best)(_old)?"
    r"|(run|scores|baseline|nonfinite_batch|wandb)\.json|(metrics|negatives(_.+)?)\.jsonl|config\.yaml"
    r"|(error|train)\.log|\.hydra|(report|explore)\.html|table\.(md|csv|tex)|published\.md"
)
_EARLY = frozenset({LOG, START})


def contains_run(folder: Path) -> bool:
    """Whether there is a run that a new one must not overwrite.

    A run that failed before its first checkpoint (for a wrong path, say) may be overwritten.
    """
    status = readable_record(folder / "run.json").get("status")
    return status not in (None, "failed") or bool(checkpoints(folder))


def is_unfinished(folder: Path) -> bool:
    """Whether there is something to resume; a run that failed before its first checkpoint has nothing."""
    status = readable_record(folder / "run.json").get("status")
    return status != "finished" and (status != "failed" or bool(checkpoints(folder)))


# ------------------------------------------------------------------ the folder


class Tracker(Protocol):
    """A receiver of a run's logs.

    A step may be logged in several parts, and again after a resume. `summarise` gets the scorecard of the
    best checkpoint, and its step; `keep_model` the folder of its model, which is complete by then.
    """

    name: str

    def log(self, record: Mapping[str, Any]) -> None: ...

    def summarise(self, scores: ScoreTable, step: int) -> None: ...

    def keep_model(self, folder: Path, scores: ScoreTable) -> None: ...

    def close(self, *, succeeded: bool) -> None: ...


class RunFolder:
    """`config.yaml`, `run.json` and `metrics.jsonl` of one run.

    Only the process that holds the folder's lock writes to it: see :meth:`reserve`.

    Args:
        path: the folder.
        experiment: the `+experiment=`, or `default`.
        start: file → text, of how a new run was started.
        writes: whether this process writes; in others, methods that write do nothing.
        chosen: whether the program chose the name; if the folder is taken, the run takes the next name.
        is_new: whether this start made the folder; it is removed if the run does not start.

    Attributes:
        record: the content of `run.json`, in the process that writes.
        trackers: also get what is logged.
    """

    def __init__(
        self,
        path: Path,
        *,
        experiment: str = "default",
        start: Mapping[str, str] | None = None,
        writes: bool = True,
        chosen: bool = False,
        is_new: bool = False,
    ) -> None:
        self.path = path
        self.experiment = experiment
        self._start = start or {}
        self.writes = writes
        self._chosen = chosen
        self._is_new = is_new or chosen
        self.record: dict[str, Any] = {}
        self._config: dict[str, Any] = {}
        self.trackers: list[Tracker] = []

    # -------------------------------------------------------------- whose it is

    @contextmanager
    def reserve(self, *, resume: bool, overwrite: bool = False) -> Iterator[None]:
        """Hold the folder until the block ends; no other process writes to it meanwhile.

        A new run that fails before its record is written leaves nothing: what it wrote is removed, what was
        there before stays, and the folder is removed if it is empty then. The same goes for a run in a folder
        of a chosen name that a mistake of the user's ends before it has any result.

        Args:
            resume: whether the folder's run is resumed; otherwise the folder must not hold a run.
            overwrite: a run that it holds is removed, with what was made of it.

        Raises:
            UserError: if another process holds the folder, or it holds a run, a symbolic link, or a file of
                the user's that would be lost.
        """
        with self._locked_somewhere(resume=resume, overwrite=overwrite):
            if links := find_links(self.path, excluding=[_KEEPS_LINKS]):
                raise UserError(
                    f"{links[0]} is a symbolic link, and a run writes no file through one: remove it, or "
                    "name another folder with run_dir="
                )
            before = {name for name in _RECORD - {LOCK} if (self.path / name).exists()}
            is_mistake = False
            try:
                for name, text in {} if resume else self._start.items():
                    write_text(self.path / START / name, text)
                with logged_to(self.path / LOG):
                    yield
            except UserError:
                is_mistake = self._chosen and {path.name for path in self.path.iterdir()} <= _RECORD
                raise
            finally:
                if not resume and (is_mistake or not (self.path / "run.json").exists()):
                    for name in _RECORD - before:
                        shutil.rmtree(self.path / name, ignore_errors=True)
                        with suppress(OSError):  # it was a folder, or was not there
                            (self.path / name).unlink()
                    if self._is_new:
                        remove_if_empty(self.path, with_parents=self._chosen)

    @contextmanager
    def _locked_somewhere(self, *, resume: bool, overwrite: bool) -> Iterator[None]:
        """Lock the folder or, if its name was chosen and it is taken, the next free one."""
        with ExitStack() as held:
            for path in free_name(self.path):
                self.path = path
                try:
                    held.enter_context(self.lock())
                    if not resume:
                        self._make_room(overwrite=overwrite)
                        self.refuse_a_run()
                    break
                except TakenError:
                    held.close()
                    if not self._chosen:
                        raise
            yield

    def _make_room(self, *, overwrite: bool) -> None:
        """Remove the run that is there, if that is asked for; other files in the folder stay.

        Raises:
            UserError: if there is no run, and a file that a run would replace.
        """
        written = [path for path in self.path.iterdir() if _WRITTEN.fullmatch(path.name)]
        if "status" not in readable_record(self.path / "run.json") and not (self.path / START).is_dir():
            if others := [path.name for path in written if path.name not in _EARLY]:
                raise UserError(
                    f"the run folder {self.path} contains {list_names(sorted(others))}, which no run has "
                    "written and a new one would replace: move it, or name another folder with run_dir="
                )
        elif overwrite:
            for path in written:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def refuse_a_run(self) -> None:
        """Check that the folder holds no run that a new one must not overwrite.

        Raises:
            TakenError: if it does.
        """
        if contains_run(self.path):
            raise TakenError(
                f"the run folder {self.path} already contains a run: resume it with "
                f"{resume_command(self.path)}, replace it with overwrite=true, or name another with run_dir= "
                "(in a sweep, hydra.sweep.dir=)"
            )

    def lock(self) -> AbstractContextManager[None]:
        """Keep other processes from working in this folder; the lock ends with the process.

        Raises:
            TakenError: if another process holds it.
            UserError: if the folder cannot be written.
        """
        return lock(self.path, f"the run folder {self.path}")

    # -------------------------------------------------------------- its record

    def start(self, config: dict[str, Any], **facts: object) -> None:
        """Write the resolved configuration and everything needed to repeat the run.

        Removes what an earlier start left that ended before its first checkpoint.
        """
        for name in (_METRICS, BASELINE[0], "error.log", "report.html"):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / BASELINE[1], ignore_errors=True)
        self._open(
            config, {"status": "running", "started": _now(), "ended": None, **_surroundings(), **facts}
        )

    def resume(self, config: dict[str, Any], step: int, saved: Mapping[str, Any], **facts: object) -> None:
        """Resume a run from its checkpoint at `step`: what was logged after that is dropped.

        Args:
            config: the run's configuration; its length may have changed.
            saved: the run as of then, see :meth:`snapshot`, from which the folder's files are made again.
            facts: what may differ from the first start (the device).
        """
        record = {**saved["run"], "status": "running", "ended": None}
        record.setdefault("resumed", []).append({"step": step, "at": _now(), **_surroundings(), **facts})
        self._open(config, record)
        write_jsonl(self.path / _METRICS, [line for line in saved["metrics"] if line["step"] <= step])

    def _open(self, config: dict[str, Any], record: dict[str, Any]) -> None:
        path = self.path / "config.yaml"
        self._config = config
        write_text(path, yaml.safe_dump(config, sort_keys=False))
        self.record = record
        self.update(config_sum=fingerprint(path))

    def snapshot(self) -> dict[str, Any]:
        """The run's records so far, for a copy in a checkpoint."""
        return {"config": self._config, "run": self.record, "metrics": self.metrics()}

    def update(self, **facts: object) -> None:
        """Add to `run.json`."""
        self.record |= facts
        if self.writes:
            write_json(self.path / "run.json", self.record)

    def seal(self, *names: str) -> None:
        """Record checksums of files, or of all files of folders, to detect damage."""
        under = (p for name in names for p in (self.path / name, *sorted((self.path / name).rglob("*"))))
        sums = {p.relative_to(self.path).as_posix(): fingerprint(p) for p in under if p.is_file()}
        self.update(sums=self.record.get("sums", {}) | sums)

    def baseline(self) -> dict[str, Any]:
        """The untrained model's scores; {} if there are none, or if they or its results are damaged.

        While a run has not ended, its record has no other sums, as the one in a checkpoint.
        """
        if changed := changed_files(self.path, self.record.get("sums", {})):
            log.warning("the untrained model is scored again: %s is missing or damaged", list_names(changed))
            return {}
        return readable_record(self.path / BASELINE[0])

    def write_traceback(self, error: Exception) -> None:
        """Write `error.log`, without secrets, and note in the error where it is."""
        if self.writes:
            path = self.path / "error.log"
            write_text(path, hide_secrets("".join(traceback.format_exception(error))))
            error.add_note(f"traceback: {path}")

    def end(self, status: str, **facts: object) -> None:
        """Close `run.json`: `finished`, `interrupted`, `pruned` or `failed`."""
        self.update(status=status, ended=_now(), **facts)

    def log_metrics(self, record: dict[str, Any]) -> None:
        """Append one line to `metrics.jsonl`, and pass it to the trackers."""
        if not self.writes:
            return
        path = self.path / _METRICS
        with naming_errors(path), path.open("a", encoding="utf-8", newline="") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")
        self.track(lambda tracker: tracker.log(record))

    def track(self, action: Callable[[Tracker], None]) -> None:
        """Do something with each tracker."""
        for tracker in list(self.trackers):
            with self.unharmed_by(tracker.name):
                action(tracker)

    @contextmanager
    def unharmed_by(self, name: str) -> Iterator[None]:
        """A tracker that fails in this context is switched off, with a warning."""
        try:
            yield
        except (Exception, SystemExit) as error:
            self.trackers = [tracker for tracker in self.trackers if tracker.name != name]
            consequence = "is switched off for the rest of this run, which continues"
            reason = f"{type(error).__name__}: {without_secrets(str(error))}"
            log.warning("tracking by %s %s: %s", name, consequence, reason)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, without a last one that a kill cut short, and damaged ones."""
        path = self.path / _METRICS
        if not path.is_file():
            return []
        lines = path.read_text("utf-8", errors="replace").split("\n")[:-1]
        records = []
        for line in lines:
            with suppress(ValueError, RecursionError):
                record = json.loads(line)
                if isinstance(record, dict) and isinstance(record.get("step"), int):
                    records.append(record)
        if len(records) < len(lines):
            log.warning("%s: damaged lines left out: %d", path, len(lines) - len(records))
        return records


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


# ------------------------------------------------------------------ what a record says of the surroundings


def _surroundings() -> dict[str, Any]:
    return {
        "code": code_version(),
        "packages": package_versions(),
        "machine": {"python": platform.python_version(), "system": platform.platform()},
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
