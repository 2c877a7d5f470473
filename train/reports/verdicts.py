"""A report's head in words: which groups beat their untrained models, and what is set aside."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from train.declarations.registry import benchmark_of
from train.io.text import first_of
from train.reports.compare import UNTRAINED, Comparison, Difference
from train.reports.frames import Group
from train.reports.runs import Run

_PERFECT = 1 - 1e-9
_NUM_NAMED = 5


def in_words(difference: Difference | None) -> str:
    """`better`, `worse`, or why neither."""
    if difference is None or difference.by_query is None:
        return "not tested"
    return difference.verdict or "no clear difference"


def beats_untrained(
    keys: Sequence[str],
    after: Mapping[str, float],
    before: Mapping[str, float],
    differences: Mapping[str, Difference],
) -> str:
    """Whether training helped, by the mean of the monitored scores; "" if an untrained model has none.

    It beats it only if a score is better, query by query, and none is worse.

    Args:
        keys: the monitored scores.
        after, before: key → score.
        differences: key → comparison query by query.
    """
    keys = [key for key in keys if key in after and key in before]
    if not keys:
        return ""
    ours, theirs = (statistics.fmean(side[key] for key in keys) for side in (after, before))
    known = [differences.get(key) for key in keys]
    verdicts = Counter(map(in_words, known))
    if len(keys) == 1:
        name, counts = keys[0], next(iter(verdicts))
    else:
        name = f"the mean of the {len(keys)} monitored scores"
        counts = ", ".join(f"{number} {word}" for word, number in verdicts.items())
    if known[0] and known[0].num_clusters:
        counts += f"; {known[0].num_clusters} groups of {benchmark_of(keys[0]).name}'s queries"
    beats = "does NOT beat"
    if ours > theirs:
        beats = "beats" if verdicts["better"] and not verdicts["worse"] else "is not clearly better than"
    cannot_choose = theirs >= _PERFECT or max(d.num_queries if d else 0 for d in known) == 1
    no_choice = "; this score cannot choose a checkpoint" if cannot_choose else ""
    return f"{beats} the untrained model: {name} {ours:.4f}, was {theirs:.4f} ({counts}){no_choice}"


def head_verdicts(groups: Sequence[Group], compared: Sequence[Comparison]) -> list[str]:
    """A sentence for each group, the best first if all monitor the same scores; of many groups a few."""
    to_untrained = {one.ours: one.differences for one in compared if one.theirs == UNTRAINED}
    found = []
    for group in groups:
        keys = group.runs[0].monitor
        after, before = (
            {key: mean.mean for key in keys if (mean := group.mean(key, untrained=side))}
            for side in (False, True)
        )
        differences = {d.key: d for d in to_untrained.get(group.name, ())}
        if verdict := beats_untrained(keys, after, before, differences):
            who = "the best checkpoint" if len(groups) == 1 else group.name
            found.append((statistics.fmean(after.values()), f"{who} {verdict}"))
    if len({tuple(group.runs[0].monitor) for group in groups}) == 1:  # else these are means of other scores
        found.sort(key=lambda one: -one[0])
    sentences = [sentence for _, sentence in found]
    more = len(sentences) - _NUM_NAMED
    return sentences[:_NUM_NAMED] + ([f"{more} more in the tables below"] if more > 0 else [])


def not_counted(runs: Sequence[Run]) -> list[str]:
    """The runs whose scores are not counted, a sentence for each reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        if not run.is_scored:
            by_reason[f"({run.status}): {'; '.join(run.notes) or 'it has no scores'}"].append(run.name)
    return [f"{first_of(names, _NUM_NAMED)} {reason}" for reason, names in by_reason.items()]


def without_common_scores(
    groups: Sequence[Group], reference: Group, compared: Sequence[Comparison]
) -> list[str]:
    """The groups that have no score in common with the one that all are compared with, in one sentence."""
    seen = {reference.name} | {one.ours for one in compared if one.theirs == reference.name}
    names = first_of([group.name for group in groups if group.name not in seen], _NUM_NAMED)
    return [f"not compared with {reference.name}, as they have no score in common: {names}"] if names else []
