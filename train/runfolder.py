"""The run folder: what a run writes beside its checkpoints. Files appear whole or not at all."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import yaml

import train
from train.data.sources import fingerprint
from train.errors import UserError
from train.resume import read_record

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

    Args:
        path: created if need be.
        writes: whether this is the process that writes; in others, all that would write does nothing.

    Attributes:
        trackers: get what is logged, too.
    """

    trackers: Sequence[Follower] = ()

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self.path = path
        self.writes = writes
        if writes:
            path.mkdir(parents=True, exist_ok=True)
        self._run: dict[str, Any] = {}

    def start(self, config: dict[str, Any], **facts: Any) -> None:
        """Write the resolved configuration, and what else is needed to repeat the run.

        What an earlier start left that never came to a checkpoint is removed.
        """
        for name in ("metrics.jsonl", "baseline.json", "error.log", "report.html"):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / "per_query_baseline", ignore_errors=True)
        write_text(self.path / "config.yaml", yaml.safe_dump(config, sort_keys=False))
        self._run = {
            "status": "running",
            "started": _now(),
            "ended": None,
            **_surroundings(),
            **facts,
        }
        self._write_run()

    def go_on(self, config: dict[str, Any], step: int, **facts: Any) -> None:
        """Continue a run from its checkpoint at `step`: what was logged after that is dropped.

        Args:
            config: the run's configuration; its length may have changed.
            facts: what may be another than at the first start (the device).
        """
        write_text(self.path / "config.yaml", yaml.safe_dump(config, sort_keys=False))
        self._run = self.recorded() or {}
        self._run.setdefault("resumed", []).append({"step": step, "at": _now(), **_surroundings(), **facts})
        self.update(status="running", ended=None)
        kept = [record for record in self.metrics() if record["step"] <= step]
        write_jsonl(self.path / "metrics.jsonl", kept)

    def recorded(self) -> dict[str, Any] | None:
        """`run.json`, if there is a run in this folder."""
        path = self.path / "run.json"
        if not path.is_file():
            return None
        return read_record(path)

    def update(self, **facts: Any) -> None:
        """Add to `run.json`."""
        self._run |= facts
        self._write_run()

    def end(self, status: str, **facts: Any) -> None:
        """Close `run.json`: `finished`, `interrupted`, `pruned` or `failed`."""
        self.update(status=status, ended=_now(), **facts)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from working in this folder; the lock ends with the process.

        Raises:
            UserError: if one does already.
        """
        try:
            import fcntl
        except ImportError:  # Windows
            yield
            return
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"another process is working in the run folder {self.path}") from None
            yield

    def _write_run(self) -> None:
        if self.writes:
            write_json(self.path / "run.json", self._run)

    def log_metrics(self, record: dict[str, Any]) -> None:
        """Append one line to `metrics.jsonl`, and tell the trackers."""
        if not self.writes:
            return
        path = self.path / "metrics.jsonl"
        with _named_in_errors(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")
        for tracker in self.trackers:
            tracker.log(record)

    def metrics(self) -> list[dict[str, Any]]:
        """All lines of `metrics.jsonl`."""
        path = self.path / "metrics.jsonl"
        if not path.is_file():
            return []
        # The last is empty, or was cut short when the process was killed.
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in lines]


def _surroundings() -> dict[str, Any]:
    return {
        "code": code_version(),
        "packages": package_versions(),
        "machine": {"python": platform.python_version(), "system": platform.platform()},
    }


@contextmanager
def _named_in_errors(path: Path) -> Iterator[None]:
    """A full disk is reported without the file that was being written."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_text(path: Path, text: str) -> None:
    """Write a file whole: under another name first, then renamed."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with _named_in_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(text, encoding="utf-8", newline="")  # line ends as they are
            partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Any) -> None:
    """Write JSON, whole."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_jsonl(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object a line, whole."""
    write_text(path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))


def fingerprints(files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of each file, by its path."""
    return {str(path): fingerprint(path) for path in dict.fromkeys(files)}


def package_versions() -> dict[str, str]:
    """Versions of the packages that decide the numbers."""
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def code_version() -> dict[str, Any]:
    """Version of this code, and in a clone its commit and whether the work tree differs from it."""
    root = Path(__file__).resolve().parent.parent
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
