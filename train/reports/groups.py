"""Runs that differ in nothing but their seed (and fold) are one group, with mean and standard deviation."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from train.declarations.registry import is_place
from train.io.text import first_of
from train.reports.named_models import with_named_model
from train.reports.runs import Run

# Where a run ran, where its data lay and what it wrote make it no other run; nor does its seed or fold.
_REPETITION = ("seed", "data.fold")
_PLACE = ("run_dir", "name", "resume", "device")
_WRITTEN = (
    "scores",
    "eval.cache",
    "eval.per_query",
    "eval.predictions",
    "output",
    "per_query",
    "predictions",
    "plots",
)
_KEPT = ("trainer.log_every", "trainer.memory_check", "trainer.keep_checkpoints", "eval.benchmarks")
_NO_DIFFERENCE = {*_REPETITION, *_PLACE, *_WRITTEN, *_KEPT}
_NO_SECTION = "tracking."
_NAMED_DIFFERENCES = 3


@dataclass(frozen=True)
class Value:
    """A score of a group.

    Attributes:
        mean: over seeds; of a cross-validation each seed's value is the mean over its folds.
        std: sample standard deviation over seeds (n − 1); None for one seed.
        num_seeds: n.
    """

    mean: float
    std: float | None
    num_seeds: int


@dataclass(frozen=True)
class Group:
    """Runs with one configuration.

    Attributes:
        name: what it differs in from the other groups, briefly.
        options: of the options in which groups differ, its values.
    """

    name: str
    runs: Sequence[Run]
    options: Mapping[str, str]

    def value(self, key: str, *, untrained: bool = False) -> Value | None:
        """A score, None where no run has it."""
        by_seed: dict[object, dict[int | None, float]] = defaultdict(dict)
        for number, run in enumerate(self.runs):
            scores = run.baseline if untrained else run.scores
            if key in scores:
                by_seed[number if run.seed is None else run.seed][run.fold] = scores[key]
        folds = {fold for by_fold in by_seed.values() for fold in by_fold}
        whole = [list(by_fold.values()) for by_fold in by_seed.values() if by_fold.keys() == folds]
        if not whole:
            return None
        means = [math.fsum(values) / len(values) for values in whole]
        std = float(np.std(means, ddof=1)) if len(means) > 1 else None
        return Value(math.fsum(means) / len(means), std, len(means))

    def by_fold(self, key: str, *, untrained: bool = False) -> dict[int, float]:
        """Fold → a score's mean over seeds; empty where the group is no cross-validation."""
        values: dict[int, list[float]] = defaultdict(list)
        for run in self.runs:
            scores = run.baseline if untrained else run.scores
            if run.fold is not None and key in scores:
                values[run.fold].append(scores[key])
        return {fold: math.fsum(found) / len(found) for fold, found in sorted(values.items())}

    @property
    def keys(self) -> list[str]:
        """Every score that a run of it has."""
        return list(dict.fromkeys(key for run in self.runs for key in run.scores))

    @property
    def summary(self) -> str:
        """`3 seeds (42, 43, 44), 4 folds`."""
        seeds = list(dict.fromkeys(run.seed for run in self.runs if run.seed is not None))
        folds = sorted({run.fold for run in self.runs if run.fold is not None})
        parts = []
        if seeds:
            parts.append(f"{_count(len(seeds), 'seed')} ({', '.join(map(str, seeds))})")
        if folds:
            parts.append(f"{_count(len(folds), 'fold')} ({', '.join(map(str, folds))})")
        return ", ".join(parts) or "a scorecard"

    def notes(self) -> list[str]:
        """Glossaries that its models read or learnt; seeds that lack folds, and runs that are there twice."""
        folds = {run.fold for run in self.runs}
        by_seed: dict[int | None, set[int | None]] = defaultdict(set)
        for run in self.runs:
            by_seed[run.seed].add(run.fold)
        files = dict.fromkeys(name for run in self.runs for name in _glossary_files(run))
        notes = [f"{self.name}: with a glossary ({', '.join(files)})"] * bool(files)
        notes += [
            f"{self.name}: seed {seed} lacks fold {', '.join(map(str, sorted(map(str, folds - has))))}, and "
            "is left out of the mean"
            for seed, has in by_seed.items()
            if folds - has
        ]
        twice = Counter((run.seed, run.fold) for run in self.runs if run.seed is not None)
        return notes + [
            f"{self.name}: seed {seed}{'' if fold is None else f', fold {fold}'} is there {times} times, and "
            "counts once: the last one given"
            for (seed, fold), times in twice.items()
            if times > 1
        ]


def _glossary_files(run: Run) -> list[str]:
    """Of the glossaries that a run's model reads or has learnt."""
    facts = [run.meta.get("glossary"), *(run.meta.get("glossary_learnt") or [])]
    return [name for one in facts if one for name in one.get("files", ["its own"])]


def group_runs(runs: Iterable[Run], *, by_seed: bool = True) -> list[Group]:
    """Groups in the order of their first runs.

    Args:
        runs: scored ones.
        by_seed: False makes every run a group of its own.
    """
    runs = list(runs)
    same: dict[str, list[Run]] = defaultdict(list)
    for number, run in enumerate(runs):
        # Without a configuration it cannot be said what a run is the same as.
        alone = not by_seed or not run.config or run.status == "scored"
        same[json.dumps([_identity(run), number if alone else None], sort_keys=True, default=str)].append(run)
    members = list(same.values())
    first = [group[0] for group in members]
    options = _options(first)
    differing = _differing(options, every=not by_seed)
    names = _names(options, differing)
    return [
        Group(
            name if names.count(name) == 1 else f"{name} [{group[0].name}]",
            group,
            {key: _shown(group[0], given, key) for key in differing},
        )
        for name, group, given in zip(names, members, options, strict=True)
    ]


def differing_options(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """The options in which runs differ, seeds and folds too, and their values of each run."""
    options = _options(runs)
    keys = _differing(options, every=True)
    rows = zip(runs, options, strict=True)
    return keys, [[_shown(run, given, key) for key in keys] for run, given in rows]


def _options(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The options of each run; models that would have one short name have their paths."""
    options = [{"experiment": run.experiment, **with_named_model(run.config)} for run in runs]
    paths: dict[str, set[str]] = defaultdict(set)
    for run, given in zip(runs, options, strict=True):
        paths[str(given.get("model"))].add(str(run.config.get("model.path")))
    return [
        given | ({"model": run.config["model.path"]} if len(paths[str(given.get("model"))]) > 1 else {})
        for run, given in zip(runs, options, strict=True)
    ]


def _shown(run: Run, options: Mapping[str, Any], key: str) -> str:
    """An option's value, also where the short name of the model stands for it."""
    return show(options.get(key, run.config.get(key)))


def _identity(run: Run) -> dict[str, Any]:
    """Its configuration, as far as it makes another run; an option that is not set may not be there."""
    return {"experiment": run.experiment} | {
        key: value for key, value in run.config.items() if value is not None and not _makes_no_difference(key)
    }


def _makes_no_difference(key: str) -> bool:
    return key in _NO_DIFFERENCE or is_place(key) or key.startswith(_NO_SECTION)


def _differing(options: Sequence[Mapping[str, Any]], *, every: bool = False) -> list[str]:
    """Options in which runs differ, the experiment first.

    Args:
        options: of each run.
        every: also seeds and folds.
    """
    apart = _REPETITION if every else ()
    keys = dict.fromkeys(key for given in options for key in given)
    return [
        key
        for key in keys
        if (not _makes_no_difference(key) or key in apart) and _num_values(options, key) > 1
    ]


def _num_values(options: Iterable[Mapping[str, Any]], key: str) -> int:
    return len({json.dumps(given.get(key), default=str) for given in options})


def _names(options: Sequence[Mapping[str, Any]], differing: Sequence[str]) -> list[str]:
    """The experiment where it differs, and options that do within an experiment."""
    by_experiment = "experiment" in differing
    names = []
    for given in options:
        alike = [o for o in options if not by_experiment or o["experiment"] == given["experiment"]]
        keys = [key for key in differing if key != "experiment" and _num_values(alike, key) > 1]
        keys = [key for key in keys if key in given or not key.startswith("model.")]  # as its name says
        parts = [f"{short_key(key, keys)}={show(given.get(key))}" for key in keys[:_NAMED_DIFFERENCES]]
        if len(keys) > _NAMED_DIFFERENCES:
            parts.append(f"… ({len(keys) - _NAMED_DIFFERENCES} more)")
        if by_experiment or not parts:
            parts.insert(0, given["experiment"])
        names.append(", ".join(parts))
    return names


def short_key(key: str, keys: Sequence[str]) -> str:
    """The last part of an option's name, or as many as tell it apart from the others."""
    parts = key.split(".")
    for number in range(1, len(parts) + 1):
        end = parts[-number:]
        if sum(other.split(".")[-number:] == end for other in keys) <= 1:
            return ".".join(end)
    return key


def show(value: Any) -> str:
    """An option's value as one would write it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return "[" + ",".join(map(show, value)) + "]"
    return str(value)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def data_notes(runs: Sequence[Run]) -> list[str]:
    """Data files of one name that were not the same in all runs, by their recorded checksums."""
    sums: dict[str, dict[str, str]] = defaultdict(dict)
    for run in runs:
        for path, sum_ in data_files(run).items():
            sums["/".join(path.replace("\\", "/").split("/")[-2:])][run.name] = sum_
    changed = sorted(name for name, by_run in sums.items() if len(set(by_run.values())) > 1)
    notes = [f"not all runs had the same data: {first_of(changed, 5)} differ"] if changed else []
    samples = {bool(run.record.get("sample") or "SAMPLE" in str(run.meta.get("data"))) for run in runs}
    if samples == {True, False}:
        notes.append("some runs were scored on the project's sample data, others not: do not compare them")
    return notes


def data_files(run: Run) -> dict[str, str]:
    """Path → SHA-256 of the data that a run read."""
    files = run.record.get("data") or run.meta.get("files") or {}
    return {str(path): str(sum_) for path, sum_ in files.items()} if isinstance(files, dict) else {}
