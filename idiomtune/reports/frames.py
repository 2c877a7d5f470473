"""Finished runs as frames: differing options, groups of runs, scores, per-query results."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from idiomtune.config import EvaluateSettings, TrainSettings
from idiomtune.errors import UserError
from idiomtune.io.files import flat, list_names
from idiomtune.plugins.models import model_names, model_values
from idiomtune.plugins.registry import benchmark_type, is_data_path
from idiomtune.plugins.score import Score
from idiomtune.reports.runs import SAMPLE_NOTE, RunResults, read_records

# Options that do not distinguish runs, besides folders.
_REPETITION = ("seed", "data.fold")
_NO_DIFFERENCE = {
    *(*_REPETITION, "eval.benchmarks"),
    *TrainSettings.without_effect(),
    *EvaluateSettings.without_effect(),
}
_NUM_IN_NAME = 3  # options
NUM_NAMED = 5  # runs or groups in a sentence


@dataclass(frozen=True)
class ScoreMean:
    """A score of a group.

    Attributes:
        mean: over seeds; of a cross-validation each seed's value is the mean over its folds.
        std: sample standard deviation over seeds (n − 1); None for one seed.
        seeds: n.
    """

    mean: float
    std: float | None = None
    seeds: int = 1


@dataclass(frozen=True)
class Group:
    """Runs with one configuration, which differ in nothing but seed and fold.

    Attributes:
        name: what it differs in from the other groups, briefly.
        options: its values of the options in which groups differ.
    """

    name: str
    runs: Sequence[RunResults]
    options: Mapping[str, str]

    @cached_property
    def scores(self) -> pd.DataFrame:
        """A row for each score of each run: seed, fold (-1 for none), untrained, key, value.

        A seed (and fold) that is there twice counts once, the last one given.
        """
        rows = [
            (f"run {n}" if run.seed is None else run.seed, -1 if run.fold is None else run.fold, side, *score)
            for n, run in enumerate(self.runs)
            for side, scores in ((False, run.scores), (True, run.baseline))
            for score in scores.items()
        ]
        frame = pd.DataFrame(rows, columns=["seed", "fold", "untrained", "key", "value"])
        return frame.drop_duplicates(["seed", "fold", "untrained", "key"], keep="last")

    @cached_property
    def means(self) -> dict[tuple[bool, str], ScoreMean]:
        """(untrained, key) → the score; a seed that lacks a fold is left out."""
        score = ["untrained", "key"]
        by_seed = self.scores.groupby([*score, "seed"], sort=False)["value"].agg(["mean", "size"])
        folds = self.scores.groupby(score)["fold"].nunique()
        complete = by_seed[by_seed["size"] == folds.reindex(by_seed.index.droplevel("seed")).to_numpy()]
        table = complete.groupby(score, sort=False)["mean"].agg(["mean", "std", "size"])
        return {
            key: ScoreMean(mean, std if num > 1 else None, int(num))
            for key, mean, std, num in table.itertuples(name=None)
        }

    def mean(self, key: str, *, untrained: bool = False) -> ScoreMean | None:
        """A score; None if no run has it."""
        return self.means.get((untrained, key))

    def by_fold(self, key: str, *, untrained: bool = False) -> pd.Series:
        """Fold → a score's mean over seeds; empty if the group is not a cross-validation."""
        table = self.scores
        in_folds = table[(table.fold >= 0) & (table.key == key) & (table.untrained == untrained)]
        return in_folds.groupby("fold")["value"].mean()

    @cached_property
    def parts(self) -> dict[str, Score]:
        """Every score of the group's runs, by key."""
        return {key: score for run in reversed(self.runs) for key, score in run.scores.parts.items()}

    @property
    def keys(self) -> list[str]:
        """Their keys."""
        return list(dict.fromkeys(key for run in self.runs for key in run.scores))

    @cached_property
    def items(self) -> pd.DataFrame:
        """The results of each query of each score that a run has: untrained, run, and :data:`ITEMS`."""
        frames = []
        for run in self.runs:
            for untrained, scores in ((False, run.scores), (True, run.baseline)):
                for name in dict.fromkeys(score.benchmark for score in scores.parts.values()):
                    items, _ = read_items(run.per_query_file(name, untrained=untrained), name)
                    scored = [items[key] for key in items if key in scores]
                    frames += [of_score.assign(untrained=untrained, run=run.name) for of_score in scored]
        return pd.concat(frames) if frames else _NO_ITEMS.assign(untrained=False, run="")

    @cached_property
    def queries(self) -> dict[tuple[bool, str], pd.DataFrame]:
        """(untrained, key) → query → `value`, its mean over runs, `cluster`, `statistic` and `text`."""
        by_query = self.items.groupby(["untrained", "key", "query"], sort=False)
        columns = {"value": "mean", "cluster": "first", "statistic": "first", "text": "first"}
        table = by_query.agg(columns)
        scores = table.groupby(level=["untrained", "key"], sort=False)
        return {score: of_score.droplevel([0, 1]) for score, of_score in scores}

    @property
    def summary(self) -> str:
        """`3 seeds (42, 43, 44), 4 folds (0, 1, 2, 3)`."""
        seeds = dict.fromkeys(run.seed for run in self.runs if run.seed is not None)
        folds = sorted({run.fold for run in self.runs if run.fold is not None})
        parts = []
        for name, values in (("seed", seeds), ("fold", folds)):
            if values:
                parts.append(f"{len(values)} {name}{'s' * (len(values) > 1)} ({', '.join(map(str, values))})")
        return ", ".join(parts) or "a scorecard"

    def notes(self) -> list[str]:
        """Notes: glossaries, seeds without all folds, runs given twice, other oddities."""
        odd = [f"{run.name} ({run.status}): {note}" for run in self.runs for note in run.notes]
        metas = [run.meta for run in self.runs]
        facts = [fact for m in metas for fact in (m.get("glossary"), *(m.get("glossary_learned") or []))]
        files = dict.fromkeys(file for fact in facts if fact for file in fact.get("files", ["its own"]))
        notes = [f"with a glossary ({', '.join(files)})"] if files else []
        num_runs = Counter((run.seed, run.fold) for run in self.runs)
        folds = {fold for _, fold in num_runs}
        for seed in dict.fromkeys(seed for seed, _ in num_runs):
            if lacks := sorted(str(fold) for fold in folds if (seed, fold) not in num_runs):
                notes.append(f"seed {seed} lacks fold {', '.join(lacks)}, and is left out of the mean")
        for (seed, fold), times in num_runs.items():
            if times > 1 and seed is not None:
                run_name = f"seed {seed}" if fold is None else f"seed {seed}, fold {fold}"
                notes.append(f"{run_name} is given {times} times, and counts once: the last one given")
        return odd + [f"{self.name}: {note}" for note in notes]


ITEMS = ("key", "query", "cluster", "text", "statistic", "value", "gold")
_TYPES = {"value": float, "gold": float, "cluster": object, "text": object}
_NO_ITEMS = pd.DataFrame(columns=ITEMS).astype(_TYPES)


@lru_cache(maxsize=256)
def read_items(path: Path, benchmark: str) -> tuple[dict[str, pd.DataFrame], str]:
    """Score key → its part of :func:`items_of` a file, and a note if some records are damaged."""
    records, damaged = read_records(path, benchmark)
    items, others = items_of(records, benchmark)
    number = damaged + others
    note = f"{path.parent.name}/{path.name}: {number} records are damaged" if number else ""
    return dict(iter(items.groupby("key", sort=False))), note


def items_of(records: Iterable[Mapping[str, Any]], benchmark: str) -> tuple[pd.DataFrame, int]:
    """The per-query values of each score in a benchmark's records, and the number of damaged records.

    Returns:
        A row for each score and query: its cluster (idiom, compound or expression; None if it is by
        itself), its text, and the statistic of `value` (and `gold`) that the score is.
    """
    rows: list[tuple[Any, ...]] = []
    damaged = 0
    declared = benchmark_type(benchmark)
    for record in records:
        try:
            rows += [
                (*(r.key, r.query, r.cluster, r.text), r.statistic if r.pair else "mean", *values)
                for r in declared.results(record)
                for values in [r.pair or (r.value, None)]
                if values[0] is not None
            ]
        except (KeyError, TypeError, ValueError, AttributeError):
            damaged += 1
    items = pd.DataFrame(rows, columns=ITEMS).astype(_TYPES)
    return items.drop_duplicates(["key", "query"], keep="last"), damaged


def group_runs(runs: Sequence[RunResults], *, separate: Collection[Path] = ()) -> list[Group]:
    """Groups in the order of their first runs.

    Args:
        runs: those without scores are left out.
        separate: runs that are in no group with the others, even if they differ only in the seed.
    """
    read_items.cache_clear()  # a run may have been resumed since, in the same notebook
    members: dict[Any, list[RunResults]] = defaultdict(list)
    for number, run in enumerate(run for run in runs if run.is_scored):
        config = {key: v for key, v in run.config.items() if v is not None and _is_other_recipe(key)}
        # What a run without a configuration is equal to is unknown.
        is_single = not run.config or run.status == "scored"
        identity = json.dumps([run.experiment, config], sort_keys=True, default=str)
        members[identity, number if is_single else None, run.path in separate].append(run)
    options, names = options_of([group[0] for group in members.values()], repetitions=False)
    rows = options.to_dict("records") or [{}] * len(names)  # pandas 2 has no rows where there are no columns
    return [
        Group(name if names.count(name) == 1 else f"{name} [{group[0].name}]", group, row)
        for name, group, row in zip(names, members.values(), rows, strict=True)
    ]


def single_recipe(runs: Sequence[RunResults]) -> Group:
    """Runs of one recipe, under a name for people.

    Raises:
        UserError: if none has scores, or they are not of one recipe.
    """
    groups = group_runs(runs)
    if not groups:
        raise UserError("there are no scores to check:\n  " + "\n  ".join(uncounted_runs(runs)))
    if len(groups) > 1:
        names = "; ".join(group.name for group in groups)
        raise UserError(f"give runs of one recipe; these differ in more than the seed: {names}")
    (group,) = groups
    name = group.runs[0].name if len(group.runs) == 1 else f"{group.name}, {group.summary}"
    return replace(group, name=name)


def _is_other_recipe(key: str) -> bool:
    return not (key in _NO_DIFFERENCE or is_data_path(key) or key.startswith("tracking."))


def options_of(runs: Sequence[RunResults], *, repetitions: bool) -> tuple[pd.DataFrame, list[str]]:
    """The options in which runs differ, as text (a row a run), and a name for each run by them.

    The options of `conf/model/` are one, `model=<name>`, and those that were changed of it.

    Args:
        repetitions: also seeds and folds.
    """
    rows = [{"experiment": run.experiment, **_with_model_name(run.config)} for run in runs]
    paths: dict[str, set[str]] = defaultdict(set)  # as texts: a damaged file may have a list there
    for row, run in zip(rows, runs, strict=True):
        paths[str(row.get("model"))].add(str(run.config.get("model.path")))
    for row, run in zip(rows, runs, strict=True):
        if len(paths[str(row.get("model"))]) > 1:  # folders of one name
            row["model"] = run.config.get("model.path")
    keys = [
        key
        for key in dict.fromkeys(key for row in rows for key in row)
        if _is_other_recipe(key) or (repetitions and key in _REPETITION)
    ]
    texts = pd.DataFrame([[show(row.get(key)) for key in keys] for row in rows], columns=keys)
    differ = [key for key in keys if texts[key].nunique() > 1]
    names = []
    for row, experiment in zip(rows, texts.get("experiment", ()), strict=True):
        alike = texts[texts["experiment"] == experiment]
        own = [
            key
            for key in differ
            if key != "experiment" and alike[key].nunique() > 1 and (key in row or key[:6] != "model.")
        ]
        parts = [f"{short_key(key, own)}={show(row.get(key))}" for key in own[:_NUM_IN_NAME]]
        parts += [f"… ({len(own) - _NUM_IN_NAME} more)"] if len(own) > _NUM_IN_NAME else []
        names.append(", ".join([experiment, *parts] if "experiment" in differ or not parts else parts))
    values = [
        [show(row.get(key, run.config.get(key))) for key in differ]
        for row, run in zip(rows, runs, strict=True)
    ]
    return pd.DataFrame(values, columns=differ), names


def _with_model_name(config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's options, those of its model by a name of `conf/model/`, else by its path."""
    path = config.get("model.path")
    if not isinstance(path, str):
        return dict(config)
    others = {key: value for key, value in config.items() if not key.startswith("model.")}
    matches = {name: values for name, values in _known_models().items() if values["model.path"] == path}
    changed = {
        name: {
            key: value
            for key, value in config.items()
            if key.startswith("model.")
            and not key.startswith(("model.path", "model.about"))
            and value != values.get(key)
        }
        for name, values in (matches or {"": _known_models()["pretrained"]}).items()
    }
    name = min(changed, key=lambda name: len(changed[name]))
    parts = PurePosixPath(path.replace("\\", "/")).parts
    return {"model": name or ("/".join(parts[-2:]) if len(parts) > 2 else path), **changed[name], **others}


@cache
def _known_models() -> dict[str, dict[str, Any]]:
    return {name: flat(model_values(name), "model.") for name in [*model_names(), "pretrained"]}


def short_key(key: str, keys: Sequence[str]) -> str:
    """The last part of an option's name, or as many as distinguish it from the others."""
    parts = key.split(".")
    ends = (".".join(parts[-number:]) for number in range(1, len(parts) + 1))
    return next((end for end in ends if sum(f".{other}".endswith(f".{end}") for other in keys) <= 1), key)


def show(value: Any) -> str:
    """An option's value as on the command line."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return f"[{','.join(map(show, value))}]"
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def uncounted_runs(runs: Sequence[RunResults]) -> list[str]:
    """The runs whose scores are not counted, a sentence for each reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        if not run.is_scored:
            by_reason[f"({run.status}): {'; '.join(run.notes) or 'it has no scores'}"].append(run.name)
    return [f"{list_names(names, NUM_NAMED)} {reason}" for reason, names in by_reason.items()]


def notes_of(groups: Sequence[Group], runs: Sequence[RunResults]) -> list[str]:
    """Notes on groups for their readers: data, oddities, uncounted runs.

    Args:
        runs: all, also those without scores.
    """
    scored = [run for group in groups for run in group.runs]
    sums: dict[str, set[str]] = defaultdict(set)
    for run in scored:
        for path, sum_ in run.files.items():
            sums["/".join(path.replace("\\", "/").split("/")[-2:])].add(sum_)
    changed = sorted(file for file, different in sums.items() if len(different) > 1)
    samples = {run.is_sample for run in scored}
    notes = [f"Scored {SAMPLE_NOTE}."] if True in samples else []
    notes += [f"not all runs had the same data: {list_names(changed, 5)} differ"] if changed else []
    if len(samples) > 1:
        notes.append("some runs were scored on the project's sample data, others not: do not compare them")
    notes += [*(note for group in groups for note in group.notes()), *uncounted_runs(runs)]
    return list(dict.fromkeys(notes))
