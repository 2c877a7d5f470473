"""Run folders and scorecards, read with care: anything may be unfinished, old or damaged."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from idiomtune.errors import UserError
from idiomtune.io.files import UNREADABLE, changed_files, flat, is_file
from idiomtune.io.records import readable_record, score_records
from idiomtune.plugins.registry import score_declaration
from idiomtune.plugins.score import ScoreTable, read_scores

SAMPLE_NOTE = (
    "on the project's small SAMPLE data: shows that training works, not how good a model is elsewhere"
)

_DEPTH = 3  # folders of folders of runs
_MAX_DIGITS = 100  # a float has 308
_OF_STATUS = {
    "running": "not finished: it is still running or was killed; its scores are not counted",
    "interrupted": "interrupted, not finished: its scores are not counted",
    "damaged": "there is no readable run.json: it failed at its start or was damaged",
}


@dataclass(frozen=True)
class RunResults:
    """A run, or a scorecard of `idiomtune evaluate`.

    Attributes:
        name: short, unique in a report.
        status: as in `run.json`; `scored` for a scorecard alone; `damaged` if nothing can be read.
        config: dotted option → value.
        record: `run.json`.
        scores, baseline, meta: of `scores.json`; empty if the run has none.
        notes: what is odd about it, a sentence each.
    """

    path: Path
    name: str
    status: str
    config: Mapping[str, Any] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    scores: ScoreTable = field(default_factory=ScoreTable)
    baseline: ScoreTable = field(default_factory=ScoreTable)
    meta: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def is_scored(self) -> bool:
        """Whether it finished and its scores can be read."""
        return self.status in ("finished", "scored") and bool(self.scores)

    @property
    def experiment(self) -> str:
        """Its experiment, or for a scorecard the model."""
        return str(self.record.get("experiment") or self.meta.get("model") or "run")

    @property
    def seed(self) -> int | None:
        """None for a scorecard."""
        return self._number("seed")

    @property
    def fold(self) -> int | None:
        """Its fold of a cross-validation, if it is one."""
        return self._number("data.fold")

    def _number(self, option: str) -> int | None:
        number = self.config.get(option)
        return number if isinstance(number, int) else None

    @property
    def monitor(self) -> list[str]:
        """The scores whose mean picked the best checkpoint."""
        monitor = self.meta.get("monitor") or []
        return list(map(str, monitor if isinstance(monitor, list) else [monitor]))

    @property
    def is_sample(self) -> bool:
        """Whether it was scored on the project's sample data."""
        return bool(self.record.get("sample") or "SAMPLE" in str(self.meta.get("data")))

    @property
    def files(self) -> dict[str, str]:
        """Path → SHA-256 of the data that it read."""
        files = _dict(self.record.get("data") or self.meta.get("files"))
        return {path: str(sum_) for path, sum_ in files.items()}

    @cached_property
    def metrics(self) -> tuple[list[dict[str, Any]], int]:
        """The lines of `metrics.jsonl`, and how many are damaged."""
        return read_lines(self.path / "metrics.jsonl") if self.path.is_dir() else ([], 0)

    def per_query_file(self, benchmark: str, *, untrained: bool = False) -> Path:
        """Where the results of each query are, if they were written.

        Those of a scorecard are beside it, by the name that `per_query=` had: whoever made it may have named
        any other file.
        """
        written = self.config.get("per_query")
        if self.status == "scored" and isinstance(written, str) and not untrained:
            return self.path.parent / Path(written).name
        folder = "per_query_baseline" if untrained else "per_query"
        return self.path / folder / f"{benchmark}.jsonl"


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """The runs in these folders.

    Args:
        folders: runs, sweeps or any folders of them, or scorecards (JSON files of `idiomtune evaluate`).

    Raises:
        UserError: if one does not exist, or contains no run.
    """
    paths: list[Path] = []
    for folder in folders:
        runs = [folder] if folder.is_file() else list(_walk(folder, _DEPTH))
        if not runs:
            if not folder.is_dir():
                raise UserError(f"{folder}: no such folder (or scorecard file)")
            above = folder.resolve().parent
            hint = f"; the run is {above}" if _is_run(above) else ""
            raise UserError(f"{folder}: no run in it (a run has config.yaml and run.json){hint}")
        paths += runs
    return list(dict.fromkeys(path.resolve() for path in paths))


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    if _is_run(folder):
        yield folder
    elif depth and folder.is_dir():
        below = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
        # Job 10 after job 9.
        for path in sorted(below, key=lambda path: re.sub(r"\d+", lambda n: n[0].zfill(20), path.name)):
            yield from _walk(path, depth - 1)


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("run.json", "config.yaml", "train.log"))


def read_runs(paths: Sequence[Path]) -> list[RunResults]:
    """Each of :func:`find_runs`, named by its folder and as much of the path as is unambiguous."""
    for parts in range(1, max((len(path.parts) for path in paths), default=1) + 1):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            break
    return [read_run(path, name) for path, name in zip(paths, names, strict=True)]


def read_run(path: Path, name: str) -> RunResults:
    """A run folder, or a scorecard; what is wrong with it is in its notes.

    Raises:
        UserError: for a file that is not a scorecard.
    """
    notes: list[str] = []
    if path.is_file():
        card = _mapping(path, notes)
        status, record, config = "scored", {}, _dict(_dict(card.get("meta")).get("config"))
    else:
        record, config = (_mapping(path / file, notes) for file in ("run.json", "config.yaml"))
        status = str(record.get("status", "damaged"))
        has_scores = status == "finished" or (path / "scores.json").is_file()
        card = _mapping(path / "scores.json", notes) if has_scores else {}
    records = score_records(card)
    notes += ["the parts of its scores are damaged: shown by their keys"] * bool(
        card.get("records") and not records
    )
    scores, baseline = (
        score_declaration(read_scores(_numbers(card.get(k)), records)) for k in ("scores", "baseline")
    )
    meta = _dict(card.get("meta"))
    if status == "scored" and not scores:
        raise UserError(
            f"{path}: is not a scorecard (JSON with 'scores', as idiomtune evaluate output=<file> writes)"
        )
    if status == "finished":
        notes += ["without config.yaml its options are unknown"] * (not config)
        notes += ["it has no scores"] * (not scores)
    elif status == "failed":
        notes.append(f"FAILED: {record.get('error') or 'the reason is in its train.log'}")
    elif status in _OF_STATUS:
        notes.append(_OF_STATUS[status])
    sums = {n: s for n, s in _dict(record.get("sums")).items() if not n.startswith("best/")}
    notes += [f"{n} is missing, or not as the run left it" for n in changed_files(path, sums)]
    if status != "scored" and isinstance(meta.get("warnings"), list):
        notes += map(str, meta["warnings"])
    return RunResults(path, name, status, flat(config), record, scores, baseline, meta, notes)


def _mapping(path: Path, notes: list[str]) -> dict[str, Any]:
    """A JSON or YAML file's content; a note if it has none."""
    content = readable_record(path)
    if not content:
        notes.append(f"{path.name} is {'damaged' if path.exists() else 'missing'}")
    return content


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _numbers(scores: object) -> dict[str, float]:
    numbers = {str(k): float(v) for k, v in _dict(scores).items() if isinstance(v, int | float)}
    return {key: value for key, value in numbers.items() if math.isfinite(value)}


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The objects of a file of JSON lines, and how many lines are damaged; of a missing file none.

    A file that may not be read is one damaged line. A disk that fails is an OSError.
    """
    try:
        lines = path.read_bytes().splitlines() if is_file(path) or not path.exists() else []
    except (FileNotFoundError, NotADirectoryError):  # `idiomtune evaluate` writes a file, not a folder
        return [], 0
    except UNREADABLE:
        return [], 1
    objects: list[dict[str, Any]] = []
    for line in lines:
        with suppress(ValueError, RecursionError):
            content = json.loads(line, parse_int=_number)
            objects += [content] if isinstance(content, dict) else []
    return objects, len(lines) - len(objects)


def _number(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("is more than any number of queries")
    return int(digits)


def read_records(path: Path, benchmark: str) -> tuple[list[dict[str, Any]], int]:
    """A benchmark's records of a file of results, as :func:`read_lines` gives them.

    `idiomtune evaluate` writes those of all benchmarks into one file; each then names its own.
    """
    records, damaged = read_lines(path)
    return [record for record in records if record.get("benchmark", benchmark) == benchmark], damaged
