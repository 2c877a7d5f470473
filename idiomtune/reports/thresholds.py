"""Margins by which a model's scores may fall, judged by the intervals of the differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from idiomtune.config.validation import no_such_score
from idiomtune.errors import UserError
from idiomtune.reports.compare import Difference, compare, unit_of
from idiomtune.reports.frames import Group
from idiomtune.reports.score_tables import decimals, show_interval
from idiomtune.reports.statistics import MIN_ITEMS
from idiomtune.reports.tables import Table

Outcome = Literal["passes", "cannot tell", "fails"]  # in the order of severity

_ORDER: Sequence[Outcome] = ("passes", "cannot tell", "fails")
EVERY = ""  # in place of a score's key: all by which models are compared
_COLOURS: Mapping[Outcome, Literal["better", "worse", ""]] = {"passes": "better", "fails": "worse"}


@dataclass(frozen=True)
class Threshold:
    """By how much a score may be worse, and whether it is.

    Attributes:
        margin: in the score's own unit.
        reason: for the outcome.
    """

    difference: Difference
    margin: float
    outcome: Outcome
    reason: str


def thresholds_of(
    candidate: Group, reference: Group | None, margins: Mapping[str, float]
) -> tuple[list[Threshold], list[str]]:
    """The threshold of each score that has a margin, and notes on those that have none.

    Args:
        reference: what the candidate may replace; None for its own untrained model.
        margins: score key, or EVERY, → margin.

    Raises:
        UserError: for a score that a side lacks, or that has no margin; if there is nothing to compare.
    """
    other, untrained = reference or candidate, reference is None
    common = [key for key in candidate.keys if other.mean(key, untrained=untrained)]
    if untrained and not common:
        raise UserError(f"against=baseline: {candidate.name} has no scores of its untrained model")
    by_key = _by_key(margins, candidate, common)
    compared = compare(candidate, reference, list(by_key))
    thresholds = [Threshold(d, by_key[d.key], *_judge(d, by_key[d.key])) for d in compared.differences]
    notes = []
    if EVERY in margins:
        units = [key for key in common if candidate.parts[key].is_compared and key not in by_key]
        lacking = [key for key, s in other.parts.items() if s.is_compared and key not in candidate.parts]
        if units:
            option = f"fail_below={margins[EVERY]:g}"
            notes.append(f"not judged by {option}, in units of their own: {', '.join(units)}")
        if lacking:
            notes.append(f"not judged, since {candidate.name} lacks them: {', '.join(lacking)}")
    return thresholds, notes


def _by_key(margins: Mapping[str, float], candidate: Group, common: Sequence[str]) -> dict[str, float]:
    """Score key → margin; the one for all applies to shares and correlations, not to ranks or errors."""
    named = {key: margin for key, margin in margins.items() if key != EVERY}
    for key in named:
        if key not in common:
            owner = candidate.name if key not in candidate.keys else "what it is compared with"
            raise UserError(f"fail_below: {no_such_score(key, common, owner)}")
        if not candidate.parts[key].better:
            raise UserError(f"fail_below={key}: a change of it is neither better nor worse")
    if EVERY not in margins:
        return named
    parts = {key: candidate.parts[key] for key in common}
    every = [key for key, score in parts.items() if score.is_compared and score.better == "higher"]
    if not every:
        raise UserError(
            f"fail_below={margins[EVERY]:g}: both sides have no score in common that is better when higher; "
            "name the score, fail_below=<score>:<margin>"
        )
    return dict.fromkeys(every, margins[EVERY]) | named


def _judge(d: Difference, margin: float) -> tuple[Outcome, str]:
    """Whether a score lost no more than the margin, by the interval over idioms of its change."""
    # With fewer no two-sided test of signs reaches 5% (2 / 2^5 > 0.05), and an interval is too narrow.
    if not d.problems and d.num_clusters < MIN_ITEMS:
        return "cannot tell", f"fewer than {MIN_ITEMS} {unit_of([d.score])}s"
    if d.by_cluster is None:
        return "cannot tell", f"no interval ({'; '.join(dict.fromkeys(reason for reason, _ in d.problems))})"
    least, most = _losses(d)
    if most <= margin:
        return "passes", ""
    if least > margin:
        return "fails", f"worse by at least {least:.4f}"
    return "cannot tell", f"may be worse by {most:.4f}"


def _losses(d: Difference) -> list[float]:
    """The least and the greatest loss within the interval; negative for a gain."""
    return sorted(end if d.score.better == "lower" else -end for end in d.by_cluster or (0.0, 0.0))


def worst(thresholds: Sequence[Threshold]) -> Outcome:
    """A failure, else doubt."""
    return max((t.outcome for t in thresholds), key=_ORDER.index)


def summary(name: str, thresholds: Sequence[Threshold]) -> str:
    """The outcome, the score that decides it and, in doubt, the remedy."""
    outcome, number = worst(thresholds), len(thresholds)
    if outcome == "passes":
        return f"{name}: passes ({number} score{'s' * (number > 1)})"
    decisive = [t for t in thresholds if t.outcome == outcome]
    first = max(decisive, key=lambda t: max(_losses(t.difference)))
    worst_score = f"{first.difference.key} ({first.reason})"
    text = f"{name}: {outcome} in {len(decisive)} of {number} scores, at worst {worst_score}"
    remedy = "; score more queries or several seeds, or name the scores that count: fail_below=<score>:…"
    return text + remedy * (outcome == "cannot tell")


def threshold_table(title: str, thresholds: Sequence[Threshold]) -> Table:
    """A line each score."""
    rows, unit = [], unit_of(t.difference.score for t in thresholds)
    for t in thresholds:
        d = t.difference
        rows.append(
            [
                f"{d.key}: worse by at most {t.margin:g}",
                f"{t.outcome}: {t.reason}" if t.reason else t.outcome,
                *(decimals(d.reference), decimals(d.candidate), decimals(d.difference, "+")),
                *(show_interval(d.by_cluster), str(d.num_queries), str(d.num_clusters)),
            ]
        )
    columns = [
        "threshold",
        "verdict",
        "before",
        "after",
        "difference",
        f"95% by {unit}",
        "queries",
        f"{unit}s",
    ]
    return Table(title, columns, rows, 2, [_COLOURS.get(t.outcome, "") for t in thresholds])
