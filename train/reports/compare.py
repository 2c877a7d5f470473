"""Two groups of runs, a group and its untrained model, or two modes: compared query by query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata, wilcoxon

from train.declarations.registry import Verdict, is_compared, judge
from train.errors import UserError
from train.io.text import first_of
from train.reports.frames import Group, Key, read_items
from train.reports.runs import Run
from train.reports.statistics import (
    Array,
    interval,
    mean_interval,
    permutation_p,
    resampled,
    statistic_of,
)

UNTRAINED = "untrained"
_PAIR_RESAMPLES = 1_000
_TOLERANCE = 1e-6
_NUM_NAMED = 4  # runs that share a problem
_NO_CHANGES = pd.Series(dtype=float)


@dataclass(frozen=True)
class Difference:
    """`ours` − `theirs` in one score.

    Attributes:
        ours, theirs: means over seeds; over all queries alike if folds differ in size.
        num_queries: compared; num_clusters: idioms, compounds or expressions of them.
        by_query: 95% interval, resampling queries; None without results of each query.
        by_cluster: the same, resampling idioms and so on, which says more about unseen ones.
        p_query, p_cluster: of the permutation test; None for statistics of pairs, as correlations, because
            swapping two models' predictions would mix scales that differ between them.
        problems: why it is not compared query by query: reasons, each with the run or comparison it is of.
        changes: of each query that has a cluster, under the cluster's name: its difference; of a
            correlation by how much the rank of the pair came nearer to the gold rank, as a share of all.
        in_ranks: whether changes are these gains in rank.
        folds: fold of a cross-validation → the difference there; empty if `data.folds` differ.
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
    problems: Sequence[tuple[str, str]] = ()
    changes: pd.Series = field(default_factory=lambda: _NO_CHANGES)
    in_ranks: bool = False
    folds: pd.Series = field(default_factory=lambda: _NO_CHANGES)

    @property
    def difference(self) -> float:
        return self.ours - self.theirs

    @cached_property
    def clusters(self) -> pd.Series:
        """Idiom, compound or expression → mean change of its queries, the greatest first."""
        means = self.changes.groupby(level=0, sort=False).mean()
        return means.sort_values(ascending=False, kind="stable")

    @property
    def verdict(self) -> Verdict:
        """`better`, `worse`, or "" if the interval over queries holds 0 or there is none."""
        if self.by_query is None or self.by_query[0] <= 0 <= self.by_query[1]:
            return ""
        return judge(self.key, self.difference)


@dataclass(frozen=True)
class Comparison:
    """All differences between two sides."""

    ours: str
    theirs: str
    differences: Sequence[Difference]

    @property
    def is_tested(self) -> bool:
        """Whether anything is compared query by query, or fold by fold, and not by means alone."""
        return any(d.by_query is not None or len(d.folds) or len(d.changes) for d in self.differences)

    @property
    def title(self) -> str:
        return f"{self.ours} − {self.theirs}"


def comparison_notes(compared: Sequence[Comparison]) -> list[str]:
    """A sentence for each reason why scores are not compared query by query, whichever runs have it."""
    rows = [
        (reason.partition(" (")[0], reason, Key.of(d.key).benchmark, where or comparison.title)
        for comparison in compared
        for d in comparison.differences
        for reason, where in d.problems
    ]
    notes = []
    for _, found in pd.DataFrame(rows, columns=["kind", "reason", "benchmark", "where"]).groupby(
        "kind", sort=False
    ):
        where = first_of(list(found["where"].unique()), _NUM_NAMED)
        notes.append(f"{found.reason.iloc[0]} ({', '.join(found.benchmark.unique())}; {where})")
    return notes


def compare(ours: Group, theirs: Group | None = None, keys: Sequence[str] | None = None) -> Comparison:
    """Two groups, or a group and the models that its runs started from.

    Args:
        theirs: None for the untrained models of `ours`.
        keys: the scores, as far as both sides have them; by default those that models are compared by.
    """
    other, untrained = theirs or ours, theirs is None
    if keys is None:
        keys = [key for key in ours.keys if is_compared(key)]
    differences = []
    for key in keys:
        a, b = ours.mean(key), other.mean(key, untrained=untrained)
        if a is not None and b is not None:
            facts: dict[str, Any] = {"ours": a.mean, "theirs": b.mean}
            # Fold 0 of 4 holds other idioms than fold 0 of 8.
            if ours.runs[0].config.get("data.folds") == other.runs[0].config.get("data.folds"):
                by_fold = ours.by_fold(key) - other.by_fold(key, untrained=untrained)
                facts["folds"] = by_fold.dropna()
            facts |= _by_query(key, ours, other, untrained)
            differences.append(Difference(key, **facts))
    return Comparison(ours.name, UNTRAINED if theirs is None else theirs.name, differences)


def _by_query(key: str, ours: Group, theirs: Group, untrained: bool) -> dict[str, Any]:
    """What results of each query say of a difference, or the problems with them."""
    if problems := _problems(key, ours, False) + _problems(key, theirs, untrained):
        return {"problems": problems}
    a, b = ours.items(key), theirs.items(key, untrained=untrained)
    statistic = a.statistic.iloc[0]
    by_query = paired_means(a, b)
    queries, both = len(by_query), len(by_query.dropna(subset=["ours", "theirs"]))
    if both < queries:
        counts = f"{by_query.ours.count()} and {by_query.theirs.count()}, {both} in both"
        return {"problems": [(f"not the same queries ({counts}): compared by seeds alone", "")]}
    clusters = by_query.cluster.where(by_query.cluster.notna(), by_query.index)
    facts: dict[str, Any] = {"num_queries": queries, "num_clusters": clusters.nunique()}
    if statistic == "mean":
        changes = by_query.ours - by_query.theirs
        facts |= {"ours": by_query.ours.mean(), "theirs": by_query.theirs.mean()}
        facts |= {"by_query": mean_interval(changes), "by_cluster": mean_interval(changes, clusters)}
        facts |= {"p_query": permutation_p(changes), "p_cluster": permutation_p(changes, clusters)}
    elif any((side.groupby("run").size() < queries).any() for side in (a, b)):
        return {"problems": [("not the same pairs in all runs: compared by seeds alone", "")]}
    else:
        runs = [
            [run.set_index("query").loc[by_query.index] for _, run in side.groupby("run")] for side in (a, b)
        ]
        for name, together in (("by_query", None), ("by_cluster", tuple(clusters))):
            drawn = [
                np.mean(
                    [_resampled(statistic, tuple(run.value), tuple(run.gold), together) for run in side],
                    axis=0,
                )
                for side in runs
            ]
            facts[name] = interval(drawn[0] - drawn[1])
        if facts["by_query"] is None:
            facts["problems"] = [("too few pairs for an interval", "")]
        distances = [np.mean([_rank_distance(run) for run in side], axis=0) for side in runs]  # (N,) each
        changes = pd.Series(distances[1] - distances[0])
    named = by_query.cluster.notna().to_numpy()
    facts["changes"] = pd.Series(changes.to_numpy()[named], by_query.cluster[named])
    return facts | {"in_ranks": statistic != "mean"}


def _problems(key: str, group: Group, untrained: bool) -> list[tuple[str, str]]:
    """What is wrong with the results of each query, and of which run."""
    problems = []
    of = " of the untrained model" if untrained else ""
    benchmark = Key.of(key).benchmark
    for run in group.runs:
        scores, where = run.baseline if untrained else run.scores, f"run {run.name}"
        if key in scores:
            items, damaged = read_items(run.per_query_file(benchmark, untrained=untrained), benchmark)
            own = items.get(key)
            if own is None:
                problems.append((f"no results of each query{of}: compared by seeds alone", where))
            elif (
                not abs(statistic_of(own.statistic.iloc[0], own.value, own.gold) - scores[key]) <= _TOLERANCE
            ):
                problems.append((f"results of each query{of} are not those of scores.json", where))
            problems += [(damaged, where)] if damaged else []
    return problems


def paired_means(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Query → `ours`, `theirs` (means over runs; NaN if a side lacks it) and its cluster."""
    sides = [side.groupby("query", sort=False)["value"].mean() for side in (ours, theirs)]
    clusters = pd.concat([theirs, ours]).drop_duplicates("query", keep="last").set_index("query")["cluster"]
    frame = pd.concat(sides, axis=1, keys=["ours", "theirs"])
    return frame.assign(cluster=clusters.reindex(frame.index))


@lru_cache(maxsize=256)
def _resampled(statistic: str, values: tuple[float, ...], gold: tuple[float, ...], clusters: Any) -> Array:
    """As :func:`resampled`: a group that several are compared with is resampled once."""
    return resampled(statistic, values, gold, clusters, _PAIR_RESAMPLES)


def _rank_distance(run: pd.DataFrame) -> Array:
    """(N,): how far each pair's predicted rank is from its gold rank, as a share of all ranks."""
    distance: Array = np.abs(rankdata(run.value) - rankdata(run.gold)) / len(run)
    return distance


def compare_modes(runs: Sequence[Run], ours: str, theirs: str, split: str) -> str:
    """Two modes on the same queries of the same runs, a line for each metric: `train.report modes=`.

    Raises:
        UserError: if no query was scored in both modes, or not the same ones, or a record is damaged.
    """
    group = Group("", runs, {})
    nothing_common = UserError(
        f"no items of the split {split} with scores by both {ours} and {theirs} "
        "(eval.per_query=true writes the scores of each item)"
    )
    lines = []
    for key in group.keys:
        score = Key.of(key)
        if (score.split, score.mode) != (split, ours):
            continue
        sides = [group.items(key), group.items("/".join(score._replace(mode=theirs)))]
        if problems := [found for found in _problems(key, group, False) if "damaged" in found[0]]:
            raise UserError(f"{problems[0][1]}: {problems[0][0]}: python -m train.evaluate scores it again")
        if any(side.empty for side in sides):  # a metric of one mode alone
            continue
        means = paired_means(*sides)
        if means.isna()[["ours", "theirs"]].any(axis=None):
            raise nothing_common
        change = means.ours - means.theirs
        low, high = mean_interval(change)
        p = float(wilcoxon(change).pvalue) if change.any() else 1.0
        shown = [
            f"{mode} {mean:.4f} ± {side.groupby('run')['value'].mean().std(ddof=0):.4f}"
            for mode, mean, side in zip((ours, theirs), means[["ours", "theirs"]].mean(), sides, strict=True)
        ]
        lines.append(
            f"{score.metric}: {', '.join(shown)} (std over {len(runs)} runs); difference "
            f"{change.mean():+.4f} [{low:+.4f}, {high:+.4f}], greater in {(change > 0).sum()}, equal in "
            f"{(change == 0).sum()}, smaller in {(change < 0).sum()} of {len(change)} items, "
            f"Wilcoxon p = {p:.2g}"
        )
    if not lines:
        raise nothing_common
    return "\n".join(lines)
