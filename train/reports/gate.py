"""May a model replace another? Floors, and margins within which its scores may fall."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from train.declarations.registry import benchmark_of, is_compared, smaller_is_better
from train.errors import UserError
from train.io.text import one_line
from train.reports.compare import (
    Difference,
    compare_groups,
    compare_to_untrained,
    count_queries,
    paired_notes,
)
from train.reports.groups import Group
from train.reports.statistics import mean_interval

Verdict = Literal["passes", "fails", "cannot tell"]
STATUS: Mapping[Verdict, int] = {"passes": 0, "fails": 1, "cannot tell": 3}
EVERY = ""  # in place of a score's key: all by which models are compared

# With fewer, no two-sided test of signs reaches 5% (2 / 2^5 > 0.05), and a bootstrap interval is too narrow.
MIN_ITEMS = 6
_NAMED = 3  # clusters, in a table
_NO_CLUSTERS = "a correlation has no value of one cluster, and queries without a group are none"


@dataclass(frozen=True)
class ClusterChange:
    """A cluster's mean change in a score, with its 95% interval, resampling its queries.

    Attributes:
        verdict: None where its queries are too few, and it did not lose more than the margin.
    """

    name: str
    difference: float
    interval: tuple[float, float]
    num_queries: int
    verdict: Verdict | None


@dataclass(frozen=True)
class Check:
    """One check of one score.

    Attributes:
        kind: the option that asks for it.
        limit: a floor (of errors and ranks: a ceiling), or a margin, in the score's own unit.
        before, after: scores of what it is checked against and of the candidate; means over seeds.
        difference: after − before; of `cluster_margin` that of the cluster in question.
        interval: 95% interval of the difference, resampling clusters (of `cluster_margin`: queries).
        reason: the verdict in words, after `verdict` itself.
        clusters: of `cluster_margin`, the greatest loss first.
    """

    kind: Literal["floor", "margin", "cluster_margin"]
    key: str
    limit: float
    before: float | None
    after: float
    difference: float | None
    interval: tuple[float, float] | None
    verdict: Verdict
    reason: str
    num_queries: int
    num_clusters: int
    clusters: Sequence[ClusterChange] = ()

    @property
    def asked(self) -> str:
        """What it asks, in words."""
        if self.kind == "floor":
            return f"{self.key} {'≤' if smaller_is_better(self.key) else '≥'} {self.limit:g}"
        whose = "each cluster " if self.kind == "cluster_margin" else ""
        return f"{self.key}: {whose}worse by at most {self.limit:g}"

    @property
    def told(self) -> str:
        """The verdict in words."""
        return f"{self.verdict}: {self.reason}" if self.reason else self.verdict


@dataclass(frozen=True)
class Limits:
    """What is asked: score key, or :data:`EVERY`, → floor or margin."""

    floors: Mapping[str, float] = field(default_factory=dict)
    margins: Mapping[str, float] = field(default_factory=dict)
    cluster_margins: Mapping[str, float] = field(default_factory=dict)


def run_checks(
    ours: Group, theirs: Group | None, limits: Limits, *, untrained: bool = False
) -> tuple[list[Check], list[str]]:
    """Each check, and notes.

    Args:
        ours: the candidate.
        theirs: what it may replace; None where nothing is compared.
        untrained: compare with the candidate's own untrained model.

    Raises:
        UserError: for a score that a side lacks, or that has no margin; where there is nothing to compare.
    """
    other = ours if untrained else theirs
    before = {
        key: value
        for key in ours.keys
        if _score(ours, key) is not None and (value := _score(other, key, untrained)) is not None
    }
    margins = _by_key("margin", limits.margins, ours, before)
    cluster_margins = _by_key("cluster_margin", limits.cluster_margins, ours, before)
    keys = list(dict.fromkeys([*margins, *cluster_margins]))
    paired = compare_to_untrained(ours, keys) if untrained else compare_groups(ours, theirs or ours, keys)
    differences = {difference.key: difference for difference in paired.differences}

    checks = [_floor(ours, key, floor, before.get(key)) for key, floor in limits.floors.items()]
    checks += [_margin(differences[key], margin) for key, margin in margins.items()]
    notes = paired_notes([paired])
    without = [key for key in cluster_margins if _has_no_clusters(differences[key])]
    if named := [key for key in without if key in limits.cluster_margins]:
        raise UserError(f"cluster_margin={named[0]}: {_NO_CLUSTERS}; use margin=")
    if without:
        notes.append(f"left out of cluster_margin, since {_NO_CLUSTERS}: {', '.join(without)}")
    for key in (key for key in cluster_margins if key not in without):
        checks.append(_cluster_margin(differences[key], cluster_margins[key]))
    if EVERY in {**limits.margins, **limits.cluster_margins}:
        missing = [key for key in (theirs.keys if theirs else ()) if is_compared(key) and key not in before]
        notes += [f"not compared, since {ours.name} lacks them: {', '.join(missing)}"] if missing else []
    if not checks:
        raise UserError(f"cluster_margin: nothing to check, since {_NO_CLUSTERS}")
    return checks, notes


def overall(checks: Sequence[Check]) -> Verdict:
    """The verdict of all together."""
    return _worst(check.verdict for check in checks)


def _score(group: Group | None, key: str, untrained: bool = False) -> float | None:
    value = group.value(key, untrained=untrained) if group else None
    return None if value is None else value.mean


def _by_key(
    option: str, limits: Mapping[str, float], ours: Group, before: Mapping[str, float]
) -> dict[str, float]:
    """Score key → margin; of those that are not named the one for all."""
    for key in limits:
        if key and key not in before:
            whose = ours.name if key not in ours.keys else "what it is compared with"
            raise UserError(f"{option}={key}: {whose} has no such score{_near(key, list(before))}")
        if key and benchmark_of(key).is_fact(key):
            raise UserError(f"{option}={key}: a change of it is neither better nor worse; use floor=")
    main = [key for key in before if is_compared(key)] if EVERY in limits else []
    if EVERY in limits and not main:
        raise UserError(f"{option}={limits[EVERY]:g}: both sides have no score in common to compare")
    return dict.fromkeys(main, limits.get(EVERY, 0.0)) | {
        key: margin for key, margin in limits.items() if key
    }


def _near(key: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, known, n=3)
    return f"; there is {', '.join(close)}" if close else ""


def _floor(ours: Group, key: str, floor: float, before: float | None) -> Check:
    after = _score(ours, key)
    if after is None:
        raise UserError(f"floor={key}: {ours.name} has no such score{_near(key, ours.keys)}")
    missing = _loss(key, after - floor)
    num_queries, num_clusters = count_queries(ours, key)
    return Check(
        kind="floor",
        key=key,
        limit=floor,
        before=before,
        after=after,
        difference=None if before is None else after - before,
        interval=None,
        verdict="fails" if missing > 0 else "passes",
        reason=f"misses it by {missing:.4f}" if missing > 0 else "",
        num_queries=num_queries,
        num_clusters=num_clusters,
    )


def _margin(d: Difference, margin: float) -> Check:
    verdict, reason = _within(d.key, d.by_cluster, margin, d.num_clusters, d.why_not)
    return Check(
        kind="margin",
        key=d.key,
        limit=margin,
        before=d.theirs,
        after=d.ours,
        difference=d.difference,
        interval=d.by_cluster,
        verdict=verdict,
        reason=reason,
        num_queries=d.num_queries,
        num_clusters=d.num_clusters,
    )


def _cluster_margin(d: Difference, margin: float) -> Check:
    """Whether any cluster by itself lost more than the margin."""
    clusters = [_cluster(d.key, name, changes, margin) for name, changes in d.changes.items()]
    clusters.sort(key=lambda cluster: -_loss(d.key, cluster.difference))
    judged = [cluster for cluster in clusters if cluster.verdict is not None]
    verdict = _worst(cluster.verdict for cluster in clusters)
    found = [cluster for cluster in judged if cluster.verdict == verdict]
    if found:
        named = [
            f"{one_line(c.name)} {c.difference:+.4f}" for c in found[: 1 if verdict == "passes" else _NAMED]
        ]
        reason = ("at worst " if verdict == "passes" else "") + ", ".join(named)
        reason += f" and {len(found) - _NAMED} more" * (verdict != "passes" and len(found) > _NAMED)
        few = len(clusters) - len(judged)
        reason += f"; {few} of fewer than {MIN_ITEMS} queries not judged" * (few > 0)
    else:
        verdict = "cannot tell"
        reason = f"each has fewer than {MIN_ITEMS} queries" if clusters else f"no interval ({d.why_not})"
    return Check(
        kind="cluster_margin",
        key=d.key,
        limit=margin,
        before=d.theirs,
        after=d.ours,
        difference=found[0].difference if found else None,
        interval=found[0].interval if found else None,
        verdict=verdict,
        reason=reason,
        num_queries=d.num_queries,
        num_clusters=d.num_clusters,
        clusters=clusters,
    )


def _cluster(key: str, name: str, changes: Sequence[float], margin: float) -> ClusterChange:
    mean, ends = math.fsum(changes) / len(changes), mean_interval(changes)
    verdict: Verdict | None = _within(key, ends, margin, len(changes))[0]
    if len(changes) < MIN_ITEMS and _loss(key, mean) <= margin:
        verdict = None
    return ClusterChange(name, mean, ends, len(changes), verdict)


def _worst(verdicts: Iterable[Verdict | None]) -> Verdict:
    """A failure, else doubt."""
    found = set(verdicts)
    return "fails" if "fails" in found else "cannot tell" if "cannot tell" in found else "passes"


def _within(
    key: str, ends: tuple[float, float] | None, margin: float, num_items: int, why_not: str = ""
) -> tuple[Verdict, str]:
    """Whether a score lost no more than the margin, by the interval of its change."""
    if ends is None:
        return "cannot tell", f"no interval ({why_not})"
    least, most = sorted(_loss(key, end) for end in ends)
    if num_items < MIN_ITEMS:
        return "cannot tell", f"fewer than {MIN_ITEMS} clusters"
    if most <= margin:
        return "passes", ""
    if least > margin:
        return "fails", f"worse by at least {least:.4f}"
    return "cannot tell", f"may be worse by {most:.4f}"


def _loss(key: str, change: float) -> float:
    """By how much a change makes a score worse; negative for a gain."""
    return change if smaller_is_better(key) else -change


def _has_no_clusters(d: Difference) -> bool:
    """Whether no cluster has a value of its own, though there are results of each query."""
    return d.by_cluster is not None and not d.changes
