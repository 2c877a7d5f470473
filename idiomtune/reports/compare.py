"""Two groups of runs, or a group and its untrained model: compared query by query."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from idiomtune.io.files import list_names
from idiomtune.plugins.registry import benchmark_type
from idiomtune.plugins.score import Score, Verdict
from idiomtune.reports.frames import NUM_NAMED, Group, read_items
from idiomtune.reports.statistics import (
    MIN_ITEMS,
    interval,
    mean_interval,
    permutation_p,
    resample,
    statistic_of,
)

UNTRAINED = "untrained"
_TOLERANCE = 1e-6
_NUM_NAMED = 4  # runs that share a problem
_PERFECT = 1 - 1e-9
_NO_CHANGES = pd.Series(dtype=float)


@dataclass(frozen=True)
class Difference:
    """`candidate` − `reference` in one score.

    Attributes:
        candidate, reference: means over seeds; over all queries alike if folds differ in size.
        num_queries: compared; num_clusters: idioms, compounds or expressions of them.
        by_query: 95% interval, resampling queries; None without results of each query.
        by_cluster: the same, resampling idioms and so on, which says more about unseen ones; None if there
            are fewer than six.
        p_query, p_cluster: of the permutation test; None for statistics of pairs, as correlations, because
            swapping two models' predictions would mix scales that differ between them.
        problems: why it is not compared query by query: reasons, each with the run or comparison it is of.
        changes: of each query that has a cluster, under the cluster's name: its difference; for a
            correlation, by how much the rank of the pair came nearer to the gold rank, as a share of all.
        in_ranks: whether changes are these gains in rank.
        folds: fold of a cross-validation → the difference there; empty if `data.folds` differ.
    """

    score: Score
    candidate: float
    reference: float
    num_queries: int = 0
    num_clusters: int = 0
    by_query: tuple[float, float] | None = None
    by_cluster: tuple[float, float] | None = None
    p_query: float | None = None
    p_cluster: float | None = None
    problems: Sequence[tuple[str, str]] = ()
    changes: pd.Series = field(default_factory=lambda: _NO_CHANGES)
    in_ranks: bool = False
    folds: pd.Series = field(default_factory=lambda: _NO_CHANGES)

    @property
    def key(self) -> str:
        return str(self.score)

    @property
    def difference(self) -> float:
        return self.candidate - self.reference

    @cached_property
    def clusters(self) -> pd.Series:
        """Idiom, compound or expression → mean change of its queries, the greatest first."""
        means = self.changes.groupby(level=0, sort=False).mean()
        return means.sort_values(ascending=False, kind="stable")

    @property
    def verdict(self) -> Verdict:
        """`better`, `worse`, or "" if the interval over queries contains 0 or is unknown."""
        if self.by_query is None or self.by_query[0] <= 0 <= self.by_query[1]:
            return ""
        return self.score.verdict(self.difference)

    @property
    def verdict_text(self) -> str:
        """`better`, `worse`, or why neither."""
        return "not tested" if self.by_query is None else self.verdict or "no clear difference"


@dataclass(frozen=True)
class GroupComparison:
    """All differences between two sides."""

    candidate: str
    reference: str
    differences: Sequence[Difference]

    @property
    def is_tested(self) -> bool:
        """Whether anything is compared query by query, or fold by fold, and not by means alone."""
        return any(d.by_query is not None or len(d.folds) or len(d.changes) for d in self.differences)

    @property
    def title(self) -> str:
        return f"{self.candidate} − {self.reference}"


def compare(
    candidate: Group, reference: Group | None = None, keys: Sequence[str] | None = None
) -> GroupComparison:
    """Two groups, or a group and the models that its runs started from.

    Args:
        reference: None for the untrained models of `candidate`.
        keys: the scores, as far as both sides have them; by default those that models are compared by.
    """
    other, untrained = reference or candidate, reference is None
    differences = []
    for key in candidate.keys if keys is None else keys:
        score = candidate.parts.get(key)
        if score is None or (keys is None and not score.is_compared):
            continue
        a, b = candidate.mean(key), other.mean(key, untrained=untrained)
        if a is None or b is None:
            continue
        facts: dict[str, Any] = {"candidate": a.mean, "reference": b.mean}
        # Fold 0 of 4 has other idioms than fold 0 of 8.
        if candidate.runs[0].config.get("data.folds") == other.runs[0].config.get("data.folds"):
            facts["folds"] = (candidate.by_fold(key) - other.by_fold(key, untrained=untrained)).dropna()
        problems = [*_problems(score, candidate), *_problems(score, other, untrained=untrained)]
        facts |= {"problems": problems} if problems else _by_query(key, candidate, other, untrained)
        differences.append(Difference(score, **facts))
    return GroupComparison(candidate.name, UNTRAINED if reference is None else reference.name, differences)


def _problems(score: Score, group: Group, *, untrained: bool = False) -> list[tuple[str, str]]:
    """Problems of the per-query results, with the run."""
    problems = []
    whose, benchmark, key = " of the untrained model" if untrained else "", score.benchmark, str(score)
    for run in group.runs:
        scores, origin = run.baseline if untrained else run.scores, f"run {run.name}"
        if key not in scores:
            continue
        items, damaged = read_items(run.per_query_file(benchmark, untrained=untrained), benchmark)
        if (own := items.get(key)) is None:
            problems.append((f"no results of each query{whose}: compared only by seeds", origin))
        # Not "greater than": the statistic may be NaN.
        elif not abs(statistic_of(own.statistic.iloc[0], own.value, own.gold) - scores[key]) <= _TOLERANCE:
            problems.append((f"results of each query{whose} are not those of scores.json", origin))
        problems += [(damaged, origin)] if damaged else []
    return problems


def _by_query(key: str, candidate: Group, reference: Group, untrained: bool) -> dict[str, Any]:
    """The comparison of per-query results, or its problem.

    Args:
        untrained: of `reference`.
    """
    a, b = candidate.queries[False, key], reference.queries[untrained, key]
    num_shared = int(a.index.isin(b.index).sum())
    if num_shared < max(len(a), len(b)):
        counts = f"{len(a)} and {len(b)}, {num_shared} in both"
        return {"problems": [(f"not the same queries ({counts}): compared only by seeds", "")]}
    b = b.reindex(a.index)
    has_cluster = a.cluster.notna()
    clusters = a.cluster.where(has_cluster, a.index)
    statistic = a.statistic.iloc[0]
    facts: dict[str, Any] = {"num_queries": len(a), "num_clusters": clusters.nunique()}
    if statistic == "mean":
        changes = a.value - b.value
        facts |= {"candidate": a.value.mean(), "reference": b.value.mean()}
        facts |= {"by_query": mean_interval(changes), "by_cluster": mean_interval(changes, clusters)}
        facts |= {"p_query": permutation_p(changes), "p_cluster": permutation_p(changes, clusters)}
    else:
        items = (
            group.items[(group.items.key == key) & (group.items.untrained == side)]
            for group, side in ((candidate, False), (reference, untrained))
        )
        runs = [
            [run.set_index("query").reindex(a.index) for _, run in side.groupby("run", sort=False)]
            for side in items
        ]
        if any(run.value.isna().any() for side in runs for run in side):
            return {"problems": [("not the same pairs in all runs: compared only by seeds", "")]}
        pairs = [[(tuple(run.value), tuple(run.gold)) for run in side] for side in runs]
        for name, together in (("by_query", None), ("by_cluster", tuple(clusters))):
            drawn = [[resample(statistic, *run, together) for run in side] for side in pairs]
            facts[name] = interval(np.mean(drawn[0], axis=0) - np.mean(drawn[1], axis=0))
        if facts["by_query"] is None:
            facts["problems"] = [("too few pairs for an interval", "")]
        # How far each pair's predicted rank is from its gold rank, as a share of all ranks.
        near, far = (
            sum((run.value.rank() - run.gold.rank()).abs() for run in side) / len(side) / len(a)
            for side in runs
        )
        changes = far - near
    if facts["num_clusters"] < MIN_ITEMS:  # however narrow, it would say nothing of other idioms
        facts |= {"by_cluster": None, "p_cluster": None}
    facts["changes"] = pd.Series(changes[has_cluster].to_numpy(), a.cluster[has_cluster])
    return facts | {"in_ranks": statistic != "mean"}


# -------------------------------------------------------------------------------------------- in words


def compare_monitored(group: Group, compared: Sequence[GroupComparison]) -> list[Difference]:
    """The monitored scores against the untrained models', as far as both have them.

    Args:
        compared: what is compared already.
    """
    pair, keys = (group.name, UNTRAINED), group.runs[0].monitor
    tested = {d.key: d for c in compared if (c.candidate, c.reference) == pair for d in c.differences}
    tested |= {d.key: d for d in compare(group, keys=[k for k in keys if k not in tested]).differences}
    return [tested[key] for key in keys if key in tested]


def beats_untrained(differences: Sequence[Difference]) -> str:
    """Whether training helped, by the mean of the monitored scores; "" if an untrained model has none.

    The verdict is "beats" only if some score is better, query by query, and no score is worse.
    """
    if not differences:
        return ""
    number, verdicts = len(differences), {d.verdict for d in differences}
    after = statistics.fmean(d.candidate for d in differences)
    before = statistics.fmean(d.reference for d in differences)
    name = differences[0].key if number == 1 else f"the mean of the {number} monitored scores"
    is_clear = "better" in verdicts and "worse" not in verdicts
    beats = "does NOT beat" if after <= before else "beats" if is_clear else "is not clearly better than"
    cannot_choose = before >= _PERFECT or max(d.num_queries for d in differences) == 1
    no_choice = "; this score cannot choose a checkpoint" if cannot_choose else ""
    change = _describe_mean_change(differences)
    return f"{beats} the untrained model: {name} {after:.4f}, was {before:.4f}{change}{no_choice}"


def _describe_mean_change(differences: Sequence[Difference]) -> str:
    """` (+0.06, 95% by whole idioms [+0.03, +0.09], 12 idioms)`: of a mean of scores; "" without an interval.

    Whole idioms are resampled, and all scores of an idiom's queries with it.
    """
    first = differences[0]
    clusters = first.changes.index
    for d in differences:
        is_whole = d.by_cluster is not None and not d.in_ranks and len(d.changes) == d.num_queries
        if not is_whole or not d.changes.index.equals(clusters):
            return ""
    changes = np.mean([d.changes.to_numpy() for d in differences], axis=0)
    low, high = mean_interval(changes, clusters)
    unit = unit_of([first.score])
    units = f"{clusters.nunique()} {unit}s"
    return f" ({changes.mean():+.4f}, 95% by whole {unit}s [{low:+.4f}, {high:+.4f}], {units})"


def unit_of(scores: Iterable[Score]) -> str:
    """The word for what is resampled as a whole, such as idiom; of benchmarks that differ in it, group."""
    units = {benchmark_type(score.benchmark).cluster for score in scores} - {"cluster"}
    return units.pop() if len(units) == 1 else "group"


def head_verdicts(groups: Sequence[Group], compared: Sequence[GroupComparison]) -> list[str]:
    """A sentence for each group, the best first if all monitor the same scores; of many groups a few."""
    verdicts = []
    for group in groups:
        differences = compare_monitored(group, compared)
        if verdict := beats_untrained(differences):
            subject = "the best checkpoint" if len(groups) == 1 else group.name
            verdicts.append((statistics.fmean(d.candidate for d in differences), f"{subject} {verdict}"))
    if len({tuple(group.runs[0].monitor) for group in groups}) == 1:  # else these are means of other scores
        verdicts.sort(key=lambda entry: -entry[0])
    sentences = [sentence for _, sentence in verdicts]
    more = len(sentences) - NUM_NAMED
    return sentences[:NUM_NAMED] + ([f"{more} more in the tables below"] if more > 0 else [])


def comparison_notes(compared: Iterable[GroupComparison]) -> list[str]:
    """A sentence for each reason why scores are not compared query by query, whichever runs have it."""
    by_kind: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for comparison in compared:
        for d in comparison.differences:
            for reason, origin in d.problems:
                row = reason, d.score.benchmark, origin or comparison.title
                by_kind[reason.partition(" (")[0]].append(row)
    notes = []
    for rows in by_kind.values():
        (reason, *_), benchmarks, keys = (list(dict.fromkeys(column)) for column in zip(*rows, strict=True))
        notes.append(f"{reason} ({', '.join(benchmarks)}; {list_names(keys, _NUM_NAMED)})")
    return notes


def without_common_scores(
    groups: Sequence[Group], reference: Group, compared: Sequence[GroupComparison]
) -> list[str]:
    """The groups that have no score in common with the one that all are compared with, in one sentence."""
    seen = {reference.name} | {
        comparison.candidate for comparison in compared if comparison.reference == reference.name
    }
    names = list_names([group.name for group in groups if group.name not in seen], NUM_NAMED)
    return [f"not compared with {reference.name}, as they have no score in common: {names}"] if names else []
