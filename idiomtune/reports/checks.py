"""Floors, and margins within which a model's scores may fall, judged by intervals of differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from idiomtune.config.validation import no_such_score
from idiomtune.declarations.score import Score
from idiomtune.errors import UserError
from idiomtune.io.files import list_names, one_line
from idiomtune.reports.compare import Difference, compare, comparison_notes, unit_of
from idiomtune.reports.frames import Group
from idiomtune.reports.score_tables import decimals, show_interval
from idiomtune.reports.tables import Table
from idiomtune.statistics import MIN_ITEMS, mean_interval

Verdict = Literal["passes", "cannot tell", "fails"]
Limits = Mapping[str, float]  # score key, or EVERY, → floor or margin

STATUS: Mapping[Verdict, int] = {"passes": 0, "cannot tell": 3, "fails": 1}  # in the order of severity
EVERY = ""  # in place of a score's key: all by which models are compared
# With fewer, no two-sided test of signs reaches 5% (2 / 2^5 > 0.05), and a bootstrap interval is too narrow.
_COLOURS: Mapping[Verdict, Literal["better", "worse", ""]] = {"passes": "better", "fails": "worse"}
_NUM_NAMED = 3  # clusters, in a table
_NO_CLUSTERS = "a correlation has no value for a single idiom or group, and queries without one have none"


@dataclass(frozen=True)
class ClusterChange:
    """A cluster's mean change in a score, with its 95% interval, resampling its queries.

    Attributes:
        verdict: None if its queries are too few, and it did not lose more than the margin.
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
        check: what it asks, in words.
        kind: the option that asks for it.
        limit: a floor (of errors and ranks: a ceiling), or a margin, in the score's own unit.
        before, after: scores of what it is checked against and of the candidate; means over seeds.
        difference: after − before; of `cluster_margin` that of the cluster in question.
        interval: 95% interval of the difference, resampling clusters (of `cluster_margin`: queries).
        reason: for the verdict.
        clusters: of `cluster_margin`, the greatest loss first.
    """

    check: str
    kind: str
    score: Score
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
    def key(self) -> str:
        """Of the score."""
        return str(self.score)


def run_checks(
    candidate: Group, reference: Group | None, limits: Mapping[str, Limits], *, untrained: bool = False
) -> tuple[list[Check], list[str]]:
    """Each check, and notes.

    Args:
        candidate: the candidate.
        reference: what it may replace; None if nothing is compared, or its own untrained model (`untrained`).
        limits: `floor`, `margin` and `cluster_margin`.

    Raises:
        UserError: for a score that a side lacks, or that has no margin; if there is nothing to compare.
    """
    other = candidate if untrained else reference
    before = {key: m.mean for key in candidate.keys if other and (m := other.mean(key, untrained=untrained))}
    checks = [_floor(candidate, key, floor, before.get(key)) for key, floor in limits["floor"].items()]
    margins = {kind: _by_key(kind, limits[kind], candidate, before) for kind in ("margin", "cluster_margin")}
    keys = list(dict.fromkeys(key for of_key in margins.values() for key in of_key))
    compared = compare(candidate, reference, keys)
    notes = comparison_notes([compared])
    margin, cluster_margin = margins.values()
    checks += [_margin(d, margin[d.key]) for d in compared.differences if d.key in margin]
    by_cluster = {d.key: d for d in compared.differences if d.key in cluster_margin}
    without = [k for k, d in by_cluster.items() if not d.problems and (d.in_ranks or not len(d.changes))]
    if named := next((key for key in without if key in limits["cluster_margin"]), None):
        raise UserError(f"cluster_margin={named}: {_NO_CLUSTERS}; use margin=")
    checks += [_cluster_margin(d, cluster_margin[k]) for k, d in by_cluster.items() if k not in without]
    for kind in margins:
        others = [key for key in before if candidate.parts[key].is_compared and key not in margins[kind]]
        if EVERY in limits[kind] and others:
            every = f"{kind}={limits[kind][EVERY]:g}"
            notes.append(f"not checked by {every}, in units of their own: {', '.join(others)}")
    if without:
        notes.append(f"left out of cluster_margin, since {_NO_CLUSTERS}: {', '.join(without)}")
    if reference and any(EVERY in limits[kind] for kind in margins):
        missing = [key for key, score in reference.parts.items() if score.is_compared and key not in before]
        notes += [f"not compared, since {candidate.name} lacks them: {', '.join(missing)}"] if missing else []
    if not checks:
        raise UserError(f"cluster_margin: nothing to check, since {_NO_CLUSTERS}")
    return checks, notes


def worst(verdicts: Iterable[Verdict | None]) -> Verdict:
    """A failure, else doubt."""
    return max(filter(None, verdicts), key=list(STATUS).index)


def summary(checks: Sequence[Check]) -> str:
    """The verdict, the check that decides it and, in doubt, the remedy."""
    verdict = worst(check.verdict for check in checks)
    decisive = [check for check in checks if check.verdict == verdict]
    if verdict == "passes":
        return f"passes ({len(checks)} check{'s' * (len(checks) > 1)})"
    first = max(decisive, key=lambda check: max(_loss(check.score, end) for end in check.interval or (0.0,)))
    text = f"{verdict} in {len(decisive)} of {len(checks)} checks, at worst {first.score} ({first.reason})"
    remedy = "; score more queries or several seeds, or check the scores that count: margin=<score>:<margin>"
    return text + remedy * (verdict == "cannot tell")


def check_table(checks: Sequence[Check], title: str) -> Table:
    """A line each check."""
    rows, unit = [], unit_of(check.score for check in checks)
    for c in checks:
        verdict = f"{c.verdict}: {c.reason}" if c.reason else c.verdict
        scores = decimals(c.before), decimals(c.after), decimals(c.difference, "+")
        ends = show_interval(c.interval) if c.interval else ""
        rows.append([c.check, verdict, *scores, ends, str(c.num_queries), str(c.num_clusters)])
    columns = ["check", "verdict", "before", "after", "difference", "95 %", "queries", f"{unit}s"]
    return Table(title, columns, rows, 2, [_COLOURS.get(c.verdict, "") for c in checks])


def _by_key(kind: str, limits: Limits, candidate: Group, before: Limits) -> dict[str, float]:
    """Score key → margin; the one for all applies to keys without their own."""
    for key in limits:
        if key != EVERY and key not in before:
            owner = candidate.name if key not in candidate.keys else "what it is compared with"
            raise UserError(f"{kind}: {no_such_score(key, list(before), owner)}")
        if key != EVERY and not candidate.parts[key].better:
            raise UserError(f"{kind}={key}: a change of it is neither better nor worse; use floor=")
    # The margin for all applies to shares and correlations, not to ranks or errors.
    parts = {key: candidate.parts[key] for key in before if EVERY in limits}
    main = [key for key, part in parts.items() if part.is_compared and part.better == "higher"]
    if EVERY in limits and not main:
        raise UserError(
            f"{kind}={limits[EVERY]:g}: both sides have no score in common that is better when higher; "
            f"name the score, {kind}=<score>:<margin>"
        )
    every = dict.fromkeys(main, limits.get(EVERY, 0.0))
    return every | {key: limit for key, limit in limits.items() if key != EVERY}


def _floor(candidate: Group, key: str, floor: float, before: float | None) -> Check:
    mean, queries = candidate.mean(key), candidate.queries.get((False, key))
    if mean is None:
        raise UserError(f"floor: {no_such_score(key, candidate.keys, candidate.name)}")
    score = candidate.parts[key]
    check = f"{key} {'≤' if score.better == 'lower' else '≥'} {floor:g}"
    change = None if before is None else mean.mean - before
    missing = _loss(score, mean.mean - floor)
    judged: tuple[Verdict, str] = ("fails", f"misses it by {missing:.4f}") if missing > 0 else ("passes", "")
    counts = (0, 0) if queries is None else (len(queries), queries.cluster.nunique(dropna=False))
    return Check(check, "floor", score, floor, before, mean.mean, change, None, *judged, *counts)


def _margin(d: Difference, margin: float) -> Check:
    check = f"{d.key}: worse by at most {margin:g}"
    change = d.reference, d.candidate, d.difference, d.by_cluster
    verdict, reason = _within(d, d.by_cluster, margin, d.num_clusters)
    return Check(check, "margin", d.score, margin, *change, verdict, reason, d.num_queries, d.num_clusters)


def _cluster_margin(d: Difference, margin: float) -> Check:
    """Whether any cluster by itself lost more than the margin."""
    clusters = []
    for name, changes in (d.changes.iloc[:0] if d.in_ranks else d.changes).groupby(level=0, sort=False):
        mean, ends, num = float(changes.mean()), mean_interval(changes), len(changes)
        is_judged = num >= MIN_ITEMS or _loss(d.score, mean) > margin
        verdict = _within(d, ends, margin, num)[0] if is_judged else None
        clusters.append(ClusterChange(str(name), mean, ends, num, verdict))
    clusters.sort(key=lambda cluster: -_loss(d.score, cluster.difference))
    text = f"{d.key}: each {unit_of([d.score])} worse by at most {margin:g}"
    check = replace(_margin(d, margin), check=text, kind="cluster_margin", clusters=clusters)
    check = replace(check, difference=None, interval=None)  # those of all clusters together
    judged = [cluster for cluster in clusters if cluster.verdict]
    if not judged:
        reason = f"each has fewer than {MIN_ITEMS} queries" if clusters else check.reason
        return replace(check, verdict="cannot tell", reason=reason)
    verdict = worst(cluster.verdict for cluster in judged)
    decisive = [cluster for cluster in judged if cluster.verdict == verdict]
    losses = [f"{one_line(cluster.name)} {cluster.difference:+.4f}" for cluster in decisive]
    reason = f"at worst {losses[0]}" if verdict == "passes" else list_names(losses, _NUM_NAMED)
    if few := len(clusters) - len(judged):
        reason += f"; {few} of fewer than {MIN_ITEMS} queries not judged"
    change, ends = decisive[0].difference, decisive[0].interval
    return replace(check, verdict=verdict, reason=reason, difference=change, interval=ends)


def _within(
    d: Difference, ends: tuple[float, float] | None, margin: float, num_items: int
) -> tuple[Verdict, str]:
    """Whether a score lost no more than the margin, by the interval of its change."""
    if not d.problems and num_items < MIN_ITEMS:
        return "cannot tell", f"fewer than {MIN_ITEMS} {unit_of([d.score])}s"
    if ends is None:
        return "cannot tell", f"no interval ({'; '.join(dict.fromkeys(reason for reason, _ in d.problems))})"
    least, most = sorted(_loss(d.score, end) for end in ends)
    if most <= margin:
        return "passes", ""
    if least > margin:
        return "fails", f"worse by at least {least:.4f}"
    return "cannot tell", f"may be worse by {most:.4f}"


def _loss(score: Score, change: float) -> float:
    """The loss that a change makes; negative for a gain."""
    return change if score.better == "lower" else -change
