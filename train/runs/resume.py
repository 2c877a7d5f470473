"""`resume=`: which run to resume, and whether the command line contradicts it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from train.declarations.registry import is_place
from train.errors import UserError
from train.io.files import fingerprint
from train.io.paths import expanded, is_file
from train.io.yaml_text import parse_yaml

CHECKSUMS = "checksums.json"  # in a checkpoint: file → SHA-256
RECORD = "record.json"  # in a checkpoint: the run's `config.yaml`, `run.json` and `metrics.jsonl` as of then

# The run's length, device, data folders (the files' checksums must be the same) and logging may change;
# any other change would make it another run. A glossary may also be in another folder.
_MAY_CHANGE = (
    "device",
    "name",
    "scores",
    "eval.cache",
    "trainer.max_epochs",
    "trainer.max_steps",
    "trainer.max_empty_steps",
    "trainer.log_every",
    "trainer.memory_check",
)
_GLOSSARY = "model.glossary"
_GROUPS = ("model", "data", "objective", "trainer", "benchmark")
# Options that are newer than some runs, with what these were trained with.
_ADDED: dict[str, dict[str, Any]] = {
    "trainer": {"dropout_masks": "torch", "memory_check": "stop"},
    "model": {"glossary_gate": None},
    "eval": {"cache": True},
}
_ADDED_TO_SEARCHES = {"store": None, "shard_size": 50_000, "index": "exact"}  # to own_retrieval's


def holds_a_run(folder: Path) -> bool:
    """Whether there is a run that a new one must not overwrite.

    A run that failed before its first checkpoint (for a wrong path, say) may be overwritten.
    """
    status = _status(folder / "run.json")
    return status not in (None, "failed") or bool(checkpoints(folder))


def checkpoints(run: Path) -> list[Path]:
    """`step_<n>/` of a run, oldest first."""
    found = [path for path in run.glob("step_*") if re.fullmatch("step_[0-9]+", path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step_")))


def find_run(arguments: Sequence[str]) -> str | None:
    """The run folder that `resume=` names, or None to start a new run.

    `resume=auto` resumes the run in `run_dir=` if there is one, else the newest unfinished run of the
    experiment under `checkpoints/`; if there is none, a new run starts.

    Raises:
        UserError: if `resume=` names a folder without a run.
    """
    given = {key.lstrip("+"): value.strip("'\"") for key, _, value in (a.partition("=") for a in arguments)}
    named = given.get("resume", "null")
    if named in ("null", ""):
        return None
    named = str(expanded(named, "resume"))
    if named != "auto":
        if not _is_resumable(Path(named)):
            above = Path(named).resolve().parent
            hint = f"; the run is {above}" if is_file(above / "run.json") else ""
            raise UserError(
                f"resume={named}: there is no run (config.yaml and run.json) in that folder{hint}"
            )
        return named
    if "run_dir" in given:
        folder = expanded(given["run_dir"], "run_dir")
        return str(folder) if _is_resumable(folder) else None
    folder = Path("checkpoints") / given.get("experiment", "default")
    unfinished = [run for run in folder.glob("*") if _is_resumable(run) and is_unfinished(run)]
    newest = max(unfinished, key=_last_written, default=None)
    return None if newest is None else str(newest)


def is_unfinished(run: Path) -> bool:
    """Whether there is something to resume; a run that failed before its first checkpoint has nothing."""
    status = _status(run / "run.json")
    return status != "finished" and (status != "failed" or bool(checkpoints(run)))


def _last_written(run: Path) -> float:
    files = [run / "run.json", *checkpoints(run)]
    return max((path.stat().st_mtime for path in files if path.exists()), default=0.0)


def saved_config(
    folder: Path, composed: dict[str, Any], experiment: str, overrides: Sequence[str]
) -> dict[str, Any]:
    """The run's recorded configuration, with those of the overrides that may change.

    Args:
        folder: the run folder.
        composed: the configuration of this command line.
        experiment: the `+experiment=` of this command line (`default` if none was given).
        overrides: this command line's overrides.

    Raises:
        UserError: naming each override that differs from the run's.
    """
    record = saved_record(folder)
    saved: dict[str, Any] = record["config"]
    recorded = record["run"]["experiment"]
    if "hub" in composed:
        saved.setdefault("hub", composed["hub"])  # the run was started before there was this section
    for section, options in _ADDED.items():  # or these options
        for option, value in options.items():
            saved.setdefault(section, {}).setdefault(option, value)
    if searched := (saved.get("benchmark") or {}).get("own_retrieval"):
        saved["benchmark"]["own_retrieval"] = _ADDED_TO_SEARCHES | searched
    differences = []
    if experiment not in ("default", recorded):
        differences.append(f"experiment: {experiment}, but the run has {recorded}")
    named = {_key(override) for override in overrides}
    for override in overrides:
        differences += _differences(override, named, folder, composed, saved)
    if differences:
        lines = "\n".join(f"  {difference}" for difference in differences)
        raise UserError(
            f"the run in {folder} was started with other settings:\n{lines}\n"
            "Leave these out to resume it (run length, device and logging may change), or start a new run "
            "without resume="
        )
    for key in map(_key, overrides):
        if key.partition(".")[0] == "tracking":
            saved["tracking"] = composed.get("tracking", {})
        elif key == _GLOSSARY or may_change(key):
            _set(saved, key, _get(composed, key))
    return saved | {"resume": str(folder)}


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def _differences(
    override: str, named: Collection[str], folder: Path, composed: dict[str, Any], saved: dict[str, Any]
) -> list[str]:
    """Where an override differs from `saved`, the configuration of the run in `folder`.

    Of a group (`model=…`), the options in `named` have overrides of their own.
    """
    key = _key(override)
    if key in ("experiment", "resume") or key.startswith("hydra.") or may_change(key):
        return []
    if key in ("debug", "protocol"):
        return [f"{override}: it changes what the run was started with"]
    if key == "run_dir":
        other = expanded(composed["run_dir"], "run_dir")
        is_same = other.resolve() == folder.resolve()
        return [] if is_same else [f"run_dir: {other}, but the run is in {folder}"]
    now, then = _get(composed, key), _get(saved, key)
    if key not in _GROUPS:
        return [] if _is_same(key, now, then) else [f"{key}: {now}, but the run has {then}"]
    return [
        f"{key}.{name}: {value}, but the run has {then.get(name)}"
        for name, value in now.items()
        if value != then.get(name) and f"{key}.{name}" not in named
    ]


def _is_same(key: str, now: Any, then: Any) -> bool:
    """Whether two values of an option are the same; of a glossary, whether its files have the same names."""
    if key == _GLOSSARY and now and then:
        now, then = ([Path(p).name for p in ([v] if isinstance(v, str) else v)] for v in (now, then))
    return bool(now == then)


def may_change(key: str) -> bool:
    """Whether an option may have another value when a run or a search is resumed."""
    return key in _MAY_CHANGE or is_place(key) or key.partition(".")[0] in ("tracking", "hub")


def check_same_data(recorded: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Check that the data files, which may have moved since the start of the run, are the same.

    Args:
        recorded: path → SHA-256, from `run.json`.
        now: the same, of the files as they are now.

    Raises:
        UserError: naming the files that differ.
    """
    before, after = _by_name(recorded), _by_name(now)
    if differing := [path for name, path in (before | after).items() if (name in before) != (name in after)]:
        changed = ", ".join(sorted({"/".join(Path(path).parts[-2:]) for path in differing}))
        raise UserError(
            f"the data is not what the run was started with: {changed} changed. Restore "
            "it (data.root, data.train, IDIOM_DATA), or start a new run without resume="
        )


def _by_name(sums: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Name and sum of each file → its path, which may change."""
    return {(Path(path).name, sum_): path for path, sum_ in sums.items()}


def check_same_weights(recorded: str | None, now: str, model: str) -> None:
    """Check that a model which remedies against forgetting load again has the same weights.

    Args:
        recorded: digest of its weights, from `run.json`; None if the run did not get that far.
        now: the same, of the weights that were just loaded.
        model: which one, and the option that names it.

    Raises:
        UserError: if they differ.
    """
    if recorded not in (None, now):
        raise UserError(
            f"{model} has other weights than when the run was started, and retain.* "
            "depends on them: restore it (on the Hub, a revision names a commit), or start a new run "
            "without resume="
        )


def _is_resumable(folder: Path) -> bool:
    return is_file(folder / "run.json") or bool(checkpoints(folder))


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a run, its `config.yaml`.

    Raises:
        UserError: if it is damaged.
    """
    return _read(folder / "config.yaml", needed="trainer")


def read_run(folder: Path) -> dict[str, Any]:
    """The record of a run, its `run.json`.

    Raises:
        UserError: if it is damaged.
    """
    return _read(folder / "run.json", needed="experiment")


def _read(path: Path, needed: str) -> dict[str, Any]:
    content = read_mapping(path)
    if needed not in content:
        raise UserError(
            f"{path} is damaged or missing. If there is a whole checkpoint, python -m train "
            f"resume={path.parent} makes it again. A checkpoint, step_*, can be evaluated too: "
            "python -m train.evaluate model=<checkpoint>"
        )
    return content


def saved_record(run: Path, checkpoint: Path | None = None) -> dict[str, Any]:
    """What a run is resumed as: `config`, `run` and `metrics` as of a checkpoint, without damage.

    Of a run without a checkpoint, and of those of early versions, which had no such record, `config` and
    `run` are in the run folder alone.

    Args:
        checkpoint: None for the newest one with a whole record.

    Raises:
        UserError: if no whole record is left.
    """
    for each in [checkpoint] if checkpoint else reversed(checkpoints(run)):
        sums = read_mapping(each / CHECKSUMS)
        if RECORD in sums and is_file(each / RECORD) and fingerprint(each / RECORD) == sums[RECORD]:
            return read_mapping(each / RECORD)
    return {"config": read_config(run), "run": read_run(run)}


def read_mapping(path: Path) -> dict[str, Any]:
    """A JSON or YAML file; {} if it is missing or damaged."""
    try:
        text = path.read_text(encoding="utf-8")
        content = parse_yaml(text) if path.suffix == ".yaml" else json.loads(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def _status(path: Path) -> str | None:
    status = read_mapping(path).get("status")
    return status if isinstance(status, str) else None


def _get(config: dict[str, Any], key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _set(config: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for part in parents:
        config = config.setdefault(part, {})
    config[last] = value
