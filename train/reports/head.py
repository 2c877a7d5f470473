"""The head of a report: verdicts in words, and what is set aside, a sentence for each reason."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from train.declarations.registry import benchmark_of
from train.io.text import first_of
from train.reports.compare import Difference, Paired
from train.reports.groups import Group
from train.reports.runs import Run
from train.reports.tables import verdict

_PERFECT = 1 - 1e-9
_NAMED = 5  # of several things


def verdict_in_words(difference: Difference | None) -> str:
    """`better`, `worse`, or why neither."""
    if difference is None or difference.by_query is None:
        return "not tested"
    return verdict(difference) or "no clear difference"


def beats_untrained(
    keys: Sequence[str],
    after: Mapping[str, float],
    before: Mapping[str, float],
    differences: Mapping[str, Difference],
) -> str:
    """Whether training helped, by the mean of the monitored scores; "" where an untrained model has none.

    It beats it only if a score is better, query by query, and none is worse.

    Args:
        keys: the monitored scores.
        after, before: key → score.
        differences: key → comparison query by query.
    """
    scores = {key: (after[key], before[key]) for key in keys if key in after and key in before}
    if not scores:
        return ""
    known = list(scores)
    ours, theirs = (statistics.fmean(side) for side in zip(*scores.values(), strict=True))
    name = known[0] if len(known) == 1 else f"the mean of the {len(known)} monitored scores"
    said = [verdict_in_words(differences.get(key)) for key in known]
    counts = (
        ", ".join(f"{said.count(word)} {word}" for word in dict.fromkeys(said)) if len(known) > 1 else said[0]
    )
    first = known[0]
    clusters = differences[first].num_clusters if first in differences else 0
    of = f"; {clusters} groups of {benchmark_of(first).name}'s queries" if clusters else ""
    beats = "does NOT beat"
    if ours > theirs:
        beats = "beats" if "better" in said and "worse" not in said else "is not clearly better than"
    num_queries = max((differences[key].num_queries for key in known if key in differences), default=0)
    no_choice = "; this score cannot choose a checkpoint" if theirs >= _PERFECT or num_queries == 1 else ""
    return f"{beats} the untrained model: {name} {ours:.4f}, was {theirs:.4f} ({counts}{of}){no_choice}"


def head_verdicts(groups: Sequence[Group], compared: Sequence[Paired]) -> list[str]:
    """A sentence for each group, the best first where all monitor the same scores; of many groups a few."""
    to_untrained = {paired.ours: paired.differences for paired in compared if paired.theirs == "untrained"}
    found = []
    for group in groups:
        differences = {d.key: d for d in to_untrained.get(group.name, ())}
        keys = group.runs[0].monitor
        after, before = (
            {key: value.mean for key in keys if (value := group.value(key, untrained=untrained)) is not None}
            for untrained in (False, True)
        )
        if said := beats_untrained(keys, after, before, differences):
            who = "the best checkpoint" if len(groups) == 1 else group.name
            found.append((statistics.fmean(after.values()), f"{who} {said}"))
    if len({tuple(group.runs[0].monitor) for group in groups}) == 1:  # else these are means of other scores
        found.sort(key=lambda one: -one[0])
    told = [sentence for _, sentence in found]
    return told[:_NAMED] + ([f"{len(told) - _NAMED} more in the tables below"] if len(told) > _NAMED else [])


def not_counted(runs: Sequence[Run]) -> list[str]:
    """The runs whose scores are not counted, a sentence for each reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        if not run.is_scored:
            by_reason[f"({run.status}): {'; '.join(run.notes) or 'it has no scores'}"].append(run.name)
    return [f"{first_of(names, _NAMED)} {reason}" for reason, names in by_reason.items()]


def without_common_scores(groups: Sequence[Group], reference: Group, compared: Sequence[Paired]) -> list[str]:
    """The groups that have no score in common with the one that all are compared with, in one sentence."""
    seen = {paired.ours for paired in compared if paired.theirs == reference.name}
    apart = [group.name for group in groups if group is not reference and group.name not in seen]
    if not apart:
        return []
    named = first_of(apart, _NAMED)
    return [f"not compared with {reference.name}, as they have no score in common: {named}"]
