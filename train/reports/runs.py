"""What a run folder holds, read with care: anything may be unfinished, old or damaged."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from train.errors import UserError
from train.io.paths import expanded
from train.io.text import text_lines
from train.io.yaml_text import parse_yaml

SAMPLE_NOTE = "on the project's small SAMPLE data: says nothing about a model's quality"
EXTERNAL_NOTE = "trained with EXTERNAL idiom data ({extra}): not the published protocol"

_DEPTH = 3  # folders of folders of runs
_WITHOUT_FOLDER = "left no folder: it failed before it started, or was not reached"


@dataclass(frozen=True)
class Run:
    """A run, or a scorecard of `train.evaluate`.

    Attributes:
        name: short, unique in a report.
        status: as in `run.json`; `scored` for a scorecard alone; `damaged` where nothing can be read.
        config: dotted option → value.
        record: `run.json`.
        scores, baseline, meta: of `scores.json`; empty where the run has none.
        notes: what is odd about it, a sentence each.
    """

    path: Path
    name: str
    status: str
    config: Mapping[str, Any] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    baseline: Mapping[str, float] = field(default_factory=dict)
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
        seed = self.config.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def fold(self) -> int | None:
        """The fold of a cross-validation that it is, if any."""
        fold = self.config.get("data.fold")
        return fold if isinstance(fold, int) else None

    @property
    def monitor(self) -> list[str]:
        """The scores whose mean picked the best checkpoint."""
        monitor = self.meta.get("monitor")
        return list(map(str, monitor)) if isinstance(monitor, list) else [str(monitor)] if monitor else []

    def per_query_file(self, benchmark: str, *, untrained: bool = False, part: str = "") -> Path:
        """Where the results of each query are, if they were written; with `part`, what stands beside them.

        Those of a scorecard are where `per_query=` said, or beside it, where both were moved together.
        """
        named = self.config.get("per_query")
        if self.status == "scored" and isinstance(named, str) and not untrained and not part:
            beside, written = self.path.parent / Path(named).name, expanded(named, "per_query")
            return written if written.is_file() and not beside.is_file() else beside
        folder = "per_query_baseline" if untrained else "per_query"
        return self.path / folder / (f"{benchmark}.{part}.jsonl" if part else f"{benchmark}.jsonl")


def find_runs(folders: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """The runs in these folders, and notes on jobs of sweeps that left none.

    Args:
        folders: runs, sweeps or any folders of them, or scorecards (JSON files of `train.evaluate`).

    Raises:
        UserError: for one that is not there, or holds no run.
    """
    paths: list[Path] = []
    notes: list[str] = []
    for folder in folders:
        if folder.is_file():
            paths.append(folder)
            continue
        if not folder.is_dir():
            raise UserError(f"{folder}: there is no such folder (or scorecard file)")
        found = list(_walk(folder, _DEPTH))
        if not found:
            above = folder.resolve().parent
            hint = f"; the run is {above}" if _is_run(above) else ""
            raise UserError(f"{folder}: no run in it (a run has config.yaml and run.json){hint}")
        paths += found
        for sweep in {path.parent for path in found} | {folder}:
            notes += _missing_jobs(sweep)
    return list(dict.fromkeys(path.resolve() for path in paths)), list(dict.fromkeys(notes))


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    if _is_run(folder):
        yield folder
    elif depth:
        below = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
        for path in sorted(below, key=_natural):
            yield from _walk(path, depth - 1)


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("run.json", "config.yaml", "train.log"))


def _natural(path: Path) -> list[tuple[int, str]]:
    """Job 10 after job 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def _missing_jobs(sweep: Path) -> list[str]:
    """Jobs of a sweep without a folder, by its numbers and by what was asked for."""
    if not (sweep / "multirun.yaml").is_file():
        return []
    there = {int(path.name) for path in sweep.iterdir() if path.is_dir() and path.name.isdigit()}
    try:
        hydra = parse_yaml((sweep / "multirun.yaml").read_text(encoding="utf-8"))["hydra"]
        number = _num_jobs(hydra)
    except (yaml.YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError):
        number = None
    number = number if number is not None else max(there, default=-1) + 1
    missing = [job for job in range(number) if job not in there]
    return [f"{sweep.name}: job {job} of {number} {_WITHOUT_FOLDER}" for job in missing]


def _num_jobs(hydra: Mapping[str, Any]) -> int | None:
    """How many jobs the plain sweeper makes of the overrides; None where another one chose them."""
    if not str(hydra["sweeper"]["_target_"]).endswith("BasicSweeper") or hydra["sweeper"].get("params"):
        return None
    number = 1
    for override in hydra["overrides"]["task"]:
        value = override.partition("=")[2]
        if re.match(r"(range|choice|glob|interval|tag|shuffle|sort)\(", value):
            return None
        bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", value)
        while bare != (bare := re.sub(r"\[[^\[\]]*\]|\{[^{}]*\}|\([^()]*\)", "", bare)):
            pass
        number *= bare.count(",") + 1
    return number


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Each of :func:`find_runs`, under a name of its own."""
    names = _names(paths)
    return [read_run(path, name) for path, name in zip(paths, names, strict=True)]


def _names(paths: Sequence[Path]) -> list[str]:
    """The folders' names, with as much of what is above them as tells them apart."""
    for parts in range(1, max((len(path.parts) for path in paths), default=1) + 1):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            break
    return names


def read_run(path: Path, name: str) -> Run:
    """A run folder, or a scorecard; what is wrong with it is in its notes."""
    notes: list[str] = []
    if path.is_file():
        return _scorecard(path, name)
    record = _mapping(path / "run.json", notes)
    config = flat(_mapping(path / "config.yaml", notes))
    status = str(record.get("status", "damaged"))
    if not config and status == "finished":
        notes.append("without config.yaml it cannot be told what it differs in")
    card: dict[str, Any] = {}
    if (path / "scores.json").is_file() or status == "finished":
        card = _mapping(path / "scores.json", notes)
    scores, baseline = (_numbers(card.get(key)) for key in ("scores", "baseline"))
    if status == "finished" and not scores:
        notes.append("it has no scores")
    if status == "running":
        notes.append("not finished: it is still going on, or was killed; its scores are not counted")
    elif status == "interrupted":
        notes.append("interrupted, not finished: its scores are not counted")
    elif status == "failed":
        notes.append(f"FAILED: {record.get('error') or 'the reason is in its train.log'}")
    elif status == "damaged":
        notes.append("there is no run.json that can be read: it failed at its start, or was damaged")
    meta = card.get("meta")
    if isinstance(meta, dict) and isinstance(meta.get("warnings"), list):
        notes += map(str, meta["warnings"])
    return Run(
        path, name, status, config, record, scores, baseline, meta if isinstance(meta, dict) else {}, notes
    )


def _scorecard(path: Path, name: str) -> Run:
    card = _mapping(path, [])
    scores, meta = _numbers(card.get("scores")), card.get("meta")
    if not scores:
        raise UserError(
            f"{path}: is no scorecard (JSON with 'scores', as train.evaluate output=<file> writes)"
        )
    meta = meta if isinstance(meta, dict) else {}
    config = meta.get("config")
    options = flat(config) if isinstance(config, dict) else {}
    return Run(path, name, "scored", options, {}, scores, _numbers(card.get("baseline")), meta)


def _mapping(path: Path, notes: list[str]) -> dict[str, Any]:
    """A JSON or YAML file's content; empty, with a note, where it is none."""
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else parse_yaml(text)
    except FileNotFoundError:
        notes.append(f"{path.name} is missing")
        return {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        content = None
    if not isinstance(content, dict):
        notes.append(f"{path.name} is damaged")
        return {}
    return content


def _numbers(scores: Any) -> dict[str, float]:
    if not isinstance(scores, dict):
        return {}
    return {
        str(key): float(value)
        for key, value in scores.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


def flat(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested options as dotted ones; lists are values."""
    options: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{above}{key}"
        options |= flat(value, f"{name}.") if isinstance(value, dict) and value else {name: value}
    return options


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The objects of a file of JSON lines, and how many lines are damaged; of a missing file none.

    A file that cannot be read, or is no UTF-8, is one damaged line.
    """
    if not path.exists():
        return [], 0
    try:
        lines = text_lines(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return [], 1
    records, damaged = [], 0
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            records.append(record)
        else:
            damaged += 1
    return records, damaged


def read_records(path: Path, benchmark: str) -> tuple[list[dict[str, Any]], int]:
    """A benchmark's records of a file of results, as :func:`read_lines` gives them.

    `train.evaluate` writes those of all benchmarks into one file; each then names its own.
    """
    records, damaged = read_lines(path)
    return [record for record in records if record.get("benchmark", benchmark) == benchmark], damaged


def sample_note(runs: Sequence[Run]) -> list[str]:
    """What is to be said where a run was scored on the sample, else nothing."""
    is_sample = any(run.record.get("sample") or "SAMPLE" in str(run.meta.get("data")) for run in runs)
    return [f"Scored {SAMPLE_NOTE}."] if is_sample else []
