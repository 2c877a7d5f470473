"""Two groups of runs, or a group and its untrained model, compared query by query."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from train.declarations.benchmark import QueryResult
from train.declarations.registry import benchmark_type, is_compared
from train.io.text import first_of
from train.reports.groups import Group
from train.reports.runs import Run, read_records
from train.reports.statistics import (
    STATISTICS,
    Array,
    interval,
    mean_interval,
    permutation_p,
    resampled_counts,
)

_PAIR_RESAMPLES = 1_000
_TOLERANCE = 1e-6
_NAMED = 4  # runs that share a problem
_BY_SEEDS = "by seeds alone"


@dataclass(frozen=True)
class PerQuery:
    """Results of each query of a run.

    Attributes:
        values: score key → query → value; the score is their mean.
        pairs: score key → pair → (predicted, gold); the score is a statistic of them.
        statistics: score key → its name, as in :data:`train.reports.statistics.STATISTICS`.
        cluster: query → what it belongs to: its idiom, compound or expression; None if it is by itself.
        notes: what is odd about the file.
    """

    values: dict[str, dict[str, float]] = field(default_factory=dict)
    pairs: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    statistics: dict[str, str] = field(default_factory=dict)
    cluster: dict[str, str | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def score(self, key: str) -> float:
        """The score that these results give."""
        if key in self.values:
            return math.fsum(self.values[key].values()) / len(self.values[key])
        predicted, gold = zip(*self.pairs[key].values(), strict=True)
        statistic = STATISTICS[self.statistics[key]]
        return float(statistic(predicted, gold, np.ones((1, len(gold)), dtype=np.int64))[0])


@dataclass(frozen=True)
class Difference:
    """`ours` − `theirs` in one score.

    Attributes:
        ours, theirs: means over seeds; over all queries alike, where folds differ in size.
        num_queries: of them; num_clusters: idioms, compounds or expressions.
        by_query: 95% interval, resampling queries; None where there are no results of each query.
        by_cluster: likewise, resampling idioms and so on, which says more about unseen ones.
        p_query, p_cluster: of the permutation test; None for statistics of pairs, as correlations.
        why_not: why there is no interval, or no p.
        changes: idiom, compound or expression → the difference of each of its queries; none of a correlation.
        nearer: of a correlation: expression → by how much the rank of each of its pairs came nearer to
            the gold rank, as a share of all ranks.
        folds: fold of a cross-validation → the difference there; none where `data.folds` differ.
    """

    key: str
    ours: float
    theirs: float
    num_queries: int = 0
    num_clusters: int = 0
    by_query: tuple[float, float] | None = None
    by_cluster: tuple[float, float] | None = None
    p_query: float | None = None
    p_cluster: float | None = None
    why_not: str = ""
    changes: Mapping[str, Sequence[float]] = field(default_factory=dict)
    nearer: Mapping[str, Sequence[float]] = field(default_factory=dict)
    folds: Mapping[int, float] = field(default_factory=dict)

    @property
    def difference(self) -> float:
        return self.ours - self.theirs

    @cached_property
    def clusters(self) -> Mapping[str, float]:
        """Idiom, compound or expression → mean difference of its queries, the greatest first."""
        return _means(self.changes)

    @cached_property
    def rank_gains(self) -> Mapping[str, float]:
        """Of a correlation: expression → mean gain in rank of its pairs, the greatest first."""
        return _means(self.nearer)


def _means(changes: Mapping[str, Sequence[float]]) -> dict[str, float]:
    means = {name: math.fsum(values) / len(values) for name, values in changes.items()}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class Paired:
    """All differences between two sides.

    Attributes:
        notes: what to know about them, a sentence each.
        problems: what is missing or wrong → (run, benchmark) where it is.
    """

    ours: str
    theirs: str
    differences: list[Difference]
    notes: list[str]
    problems: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)

    @property
    def is_tested(self) -> bool:
        """Whether anything is compared query by query, or fold by fold, and not by means alone."""
        return any(d.by_query is not None or d.folds or d.changes or d.nearer for d in self.differences)


def paired_notes(compared: Sequence[Paired]) -> list[str]:
    """The notes of all comparisons, a sentence for each problem whichever runs have it."""
    places: dict[str, dict[tuple[str, str], None]] = defaultdict(dict)
    for paired in compared:
        for problem, where in paired.problems.items():
            places[problem] |= dict.fromkeys(where)
    notes = []
    for problem, found in places.items():
        runs, benchmarks = (list(dict.fromkeys(place[i] for place in found)) for i in (0, 1))
        named = runs[:_NAMED] + ([f"{len(runs) - _NAMED} more"] if len(runs) > _NAMED else [])
        notes.append(f"{problem} ({', '.join(benchmarks)}; run {', '.join(named)})")
    return notes + _untested(compared)


def _untested(compared: Sequence[Paired]) -> list[str]:
    """A sentence for each reason why scores are not compared query by query, whatever its numbers."""
    reasons: dict[str, str] = {}
    places: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for paired in compared:
        for d in paired.differences:
            if d.by_query is None and d.why_not not in ("", _BY_SEEDS):
                kind = d.why_not.partition(" (")[0]
                reasons.setdefault(kind, d.why_not)
                places[kind].append((d.key, f"{paired.ours} − {paired.theirs}"))
    notes = []
    for kind, found in places.items():
        keys, pairs = (list(dict.fromkeys(place[i] for place in found)) for i in (0, 1))
        notes.append(
            f"{reasons[kind]}: compared by seeds alone: {first_of(keys, _NAMED)} of {first_of(pairs, _NAMED)}"
        )
    return notes


def compare_groups(ours: Group, theirs: Group, keys: Sequence[str] | None = None) -> Paired:
    """These scores, by default every main one, as far as both have them."""
    if keys is None:
        keys = [key for key in ours.keys if is_compared(key) and key in theirs.keys]
    return _compare(ours.name, theirs.name, _Side(ours), _Side(theirs), keys)


def compare_to_untrained(group: Group, keys: Sequence[str] | None = None) -> Paired:
    """A group against the models that its runs started from; `keys` as in :func:`compare_groups`."""
    if keys is None:
        has = {key for run in group.runs for key in run.baseline}
        keys = [key for key in group.keys if is_compared(key) and key in has]
    return _compare(group.name, "untrained", _Side(group), _Side(group, untrained=True), keys)


def count_queries(group: Group, key: str) -> tuple[int, int]:
    """Queries of a score, and clusters of them; 0 where there are no results of each query."""
    cluster = {
        query: results.cluster[query]
        for _, results in _Side(group).files(key)
        for query in results.values.get(key) or results.pairs.get(key) or ()
    }
    return len(cluster), len(set(cluster.values()))


class _Side:
    """What one side of a comparison has: scores, and results of each query where they were written."""

    def __init__(self, group: Group, *, untrained: bool = False) -> None:
        self._group = group
        self._untrained = untrained

    def score(self, key: str) -> float | None:
        value = self._group.value(key, untrained=self._untrained)
        return None if value is None else value.mean

    def by_fold(self, key: str) -> dict[int, float]:
        return self._group.by_fold(key, untrained=self._untrained)

    @property
    def num_folds(self) -> object:
        """`data.folds`, which the runs of a group have in common."""
        return self._group.runs[0].config.get("data.folds")

    def files(self, key: str) -> list[tuple[Run, PerQuery]]:
        """Of each run that has this score."""
        name = key.partition("/")[0]
        return [
            (run, read_per_query(run.per_query_file(name, untrained=self._untrained), name))
            for run in self._group.runs
            if key in (run.baseline if self._untrained else run.scores)
        ]

    def is_of_pairs(self, key: str) -> bool:
        """Whether the score is a statistic of pairs, as a correlation."""
        return any(key in results.pairs for _, results in self.files(key))

    def problems(self, key: str) -> list[tuple[str, str]]:
        """Of each run whose file is not there, or does not belong to the score: its name, and what it is."""
        found = []
        of = " of the untrained model" if self._untrained else ""
        for run, results in self.files(key):
            scores = run.baseline if self._untrained else run.scores
            if key in results.values or key in results.pairs:
                if not abs(results.score(key) - scores[key]) <= _TOLERANCE:
                    found.append((run.name, f"results of each query{of} are not those of scores.json"))
            else:
                found.append((run.name, f"no results of each query{of}: compared by seeds alone"))
            found += [(run.name, note) for note in results.notes]
        return found


def _compare(ours: str, theirs: str, a: _Side, b: _Side, keys: Sequence[str]) -> Paired:
    differences, notes = [], []
    places: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for key in keys:
        first, second = a.score(key), b.score(key)
        if first is None or second is None:
            continue
        problems = a.problems(key) + b.problems(key)
        for run, problem in problems:
            places[problem].append((run, key.partition("/")[0]))
        if problems:
            found = Difference(key, first, second, why_not=_BY_SEEDS)
        elif a.is_of_pairs(key):
            found = _compare_correlations(key, a, b, first, second)
        else:
            found = _compare_means(key, a, b, first, second)
        # Fold 0 of 4 holds other idioms than fold 0 of 8.
        theirs_by_fold = b.by_fold(key) if a.num_folds == b.num_folds else {}
        by_fold = {n: v - theirs_by_fold[n] for n, v in a.by_fold(key).items() if n in theirs_by_fold}
        differences.append(replace(found, folds=by_fold))
        if not problems and found.by_query is None and found.why_not:
            notes.append(f"{key}: {found.why_not}")
    return Paired(ours, theirs, differences, list(dict.fromkeys(notes)), places)


def _compare_means(key: str, a: _Side, b: _Side, first: float, second: float) -> Difference:
    sides: list[dict[str, float]] = []
    cluster: dict[str, str | None] = {}
    for side in (a, b):
        values: dict[str, list[float]] = defaultdict(list)
        for _, results in side.files(key):
            cluster |= results.cluster
            for query, value in results.values[key].items():
                values[query].append(value)
        sides.append({query: math.fsum(found) / len(found) for query, found in values.items()})
    ours, theirs = sides
    common = [query for query in ours if query in theirs]
    if len(common) < len(ours.keys() | theirs.keys()):
        reason = f"not the same queries ({len(ours)} and {len(theirs)}, {len(common)} in both)"
        return Difference(key, first, second, why_not=reason)
    change = np.array([ours[query] - theirs[query] for query in common])
    named = [cluster[query] for query in common]
    clusters = [query if name is None else name for query, name in zip(common, named, strict=True)]
    first, second = (math.fsum(side[query] for query in common) / len(common) for side in sides)
    return Difference(
        key,
        ours=first,
        theirs=second,
        num_queries=len(common),
        num_clusters=len(set(clusters)),
        by_query=mean_interval(change),
        by_cluster=mean_interval(change, clusters),
        p_query=permutation_p(change),
        p_cluster=permutation_p(change, clusters),
        changes=_by_cluster(change, named),
    )


def _by_cluster(change: Array, clusters: Sequence[str | None]) -> dict[str, list[float]]:
    """Of queries by themselves, none."""
    changes: dict[str, list[float]] = defaultdict(list)
    for value, name in zip(change.tolist(), clusters, strict=True):
        if name is not None:
            changes[name].append(value)
    return dict(changes)


def _compare_correlations(key: str, a: _Side, b: _Side, first: float, second: float) -> Difference:
    """Intervals alone: swapping two models' predictions would mix scales that differ between them."""
    cluster: dict[str, str | None] = {}
    sides: list[list[_Predictions]] = []
    statistic = ""
    for side in (a, b):
        files = [results for _, results in side.files(key)]
        sides.append([_predictions(results.pairs[key]) for results in files])
        for results in files:
            cluster |= results.cluster
            statistic = results.statistics[key]
    ids = sides[0][0].ids
    if any(run.ids != ids for runs in sides for run in runs):
        return Difference(key, first, second, why_not="not the same pairs")
    clusters = tuple(id_ if (name := cluster[id_]) is None else name for id_ in ids)

    def difference_interval(together: tuple[str, ...] | None) -> tuple[float, float] | None:
        drawn = [
            np.mean([_sample(statistic, run.predicted, run.gold, together) for run in runs], axis=0)
            for runs in sides
        ]
        return interval(drawn[0] - drawn[1])

    by_query = difference_interval(None)
    distances = [np.mean([_rank_distance(run) for run in runs], axis=0) for runs in sides]  # (N,) each
    return Difference(
        key,
        ours=first,
        theirs=second,
        num_queries=len(ids),
        num_clusters=len(set(clusters)),
        by_query=by_query,
        by_cluster=difference_interval(clusters),
        why_not="no p: this score is no mean over pairs" if by_query else "too few pairs for an interval",
        nearer=_by_cluster(distances[1] - distances[0], [cluster[id_] for id_ in ids]),
    )


class _Predictions(NamedTuple):
    """A run's pairs, by their ids."""

    ids: tuple[str, ...]
    predicted: tuple[float, ...]
    gold: tuple[float, ...]


def _rank_distance(run: _Predictions) -> Array:
    """(N,): how far each pair's predicted rank is from its gold rank, as a share of all ranks."""
    distance: Array = np.abs(rankdata(run.predicted) - rankdata(run.gold)) / len(run.ids)
    return distance


def _predictions(pairs: Mapping[str, tuple[float, float]]) -> _Predictions:
    ids = tuple(sorted(pairs))
    predicted, gold = zip(*(pairs[id_] for id_ in ids), strict=True)
    return _Predictions(ids, predicted, gold)


@lru_cache(maxsize=256)
def _sample(
    statistic: str, predicted: tuple[float, ...], gold: tuple[float, ...], clusters: tuple[str, ...] | None
) -> Array:
    counts = resampled_counts(len(set(clusters)) if clusters else len(gold), _PAIR_RESAMPLES)
    if clusters:
        number = {name: i for i, name in enumerate(dict.fromkeys(clusters))}
        counts = counts[:, [number[name] for name in clusters]]
    return STATISTICS[statistic](predicted, gold, counts)


@lru_cache(maxsize=256)
def read_per_query(path: Path, benchmark: str) -> PerQuery:
    """What comparisons need of a file of results; nothing, if it is not there.

    Records of another form (of an older version, say) are counted in the notes.
    """
    records, damaged = read_records(path, benchmark)
    results = PerQuery()
    read = benchmark_type(benchmark).read_record
    if read is None:
        return results
    for record in records:
        try:
            add_results(list(read(record)), results)
        except (KeyError, TypeError, ValueError, AttributeError):
            damaged += 1
    if damaged:
        results.notes.append(f"{path.parent.name}/{path.name}: {damaged} records are damaged")
    return results


def add_results(found: Sequence[QueryResult], results: PerQuery) -> None:
    """Add what one record says."""
    for result in found:
        results.cluster[result.query] = result.cluster
        if result.pair is not None:
            results.pairs.setdefault(result.key, {})[result.query] = result.pair
            results.statistics[result.key] = result.statistic
        elif result.value is not None:
            results.values.setdefault(result.key, {})[result.query] = result.value
