"""What training changed: recall by usage, and where the documents of an idiom lie."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from train.benchmarks.idiolink.keys import IDIOLINK_RELEVANT_USAGES, IDIOLINK_USAGES
from train.benchmarks.idiolink.records import QueryRecord, shown
from train.declarations.examples import QueryRecords
from train.declarations.figures import Figures, Gain, Gains, Maps, Panel

_PER_END = 3  # idioms that gained most, and that lost most


class _Query(QueryRecord):
    r_precision: float
    recall_at_r: dict[str, float] = Field(default_factory=dict)


class _Point(BaseModel):
    model_config = ConfigDict(strict=True)

    id: str
    usage: str
    x: float
    y: float


class _Map(BaseModel):
    """A record of `idiolink.map.jsonl`."""

    model_config = ConfigDict(strict=True)

    split: str
    idiom: str
    explained: list[float] = Field(min_length=2, max_length=2)
    points: list[_Point]


_Pairs = Sequence[tuple[_Query, _Query]]  # a query's record before and after training


def figures(run: QueryRecords) -> Figures:
    """Both figures in the mode that picked the best checkpoint; none without records of before and after."""
    before, after = run.read(_Query, untrained=True), run.read(_Query)
    if not after:
        return Figures()
    split, mode = shown(after, run.monitor)
    untrained = {query.id: query for query in before if (query.split, query.mode) == (split, mode)}
    pairs = [
        (untrained[query.id], query)
        for query in after
        if (query.split, query.mode) == (split, mode) and query.id in untrained
    ]
    if not pairs:
        return Figures()
    return Figures(_gains(pairs, f"{split}, {mode}"), _maps(run, pairs, split, mode))


def _gains(pairs: _Pairs, where: str) -> Gains:
    by_query = [
        Gain(usage, [b.r_precision for b, _ in of_it], [a.r_precision for _, a in of_it])
        for usage in ("literal", "idiomatic")
        if (of_it := [(b, a) for b, a in pairs if a.usage == usage])
    ]
    by_document = [
        Gain(usage, [b.recall_at_r[usage] for b, _ in of_it], [a.recall_at_r[usage] for _, a in of_it])
        for usage in IDIOLINK_RELEVANT_USAGES
        if (of_it := [(b, a) for b, a in pairs if usage in b.recall_at_r and usage in a.recall_at_r])
    ]
    groups = {
        "queries, by usage": by_query,
        "relevant documents of idiomatic queries, by usage": by_document,
    }
    return Gains(
        f"IdioLink {where}: recall by usage",
        "recall@R: share of the relevant documents that\nstand among the first R (R: how many there are)",
        {heading: gains for heading, gains in groups.items() if gains},
    )


def _maps(run: QueryRecords, pairs: _Pairs, split: str, mode: str) -> Maps | None:
    """Those of the idioms that training changed most; None where a model has none."""
    sides = [
        {one.idiom: one for one in run.read(_Map, untrained=untrained, part="map") if one.split == split}
        for untrained in (True, False)
    ]
    scores: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for before, after in pairs:
        if all(after.idiom in side for side in sides):
            scores[after.idiom].append((before.ndcg, after.ndcg))
    means = {
        idiom: (statistics.fmean(b for b, _ in values), statistics.fmean(a for _, a in values))
        for idiom, values in scores.items()
    }
    if not means:
        return None
    ordered = sorted(means, key=lambda idiom: means[idiom][0] - means[idiom][1])
    is_choice = len(ordered) > 2 * _PER_END
    chosen = [*ordered[:_PER_END], *ordered[-_PER_END:]] if is_choice else ordered
    which = f"the {_PER_END} that gained most and the {_PER_END} that gained least" if is_choice else "all"
    return Maps(
        f"IdioLink {split}: documents of an idiom, by usage",
        IDIOLINK_USAGES,
        [
            (
                _panel(sides[0][idiom], f"“{idiom}”\nuntrained, nDCG@10 {means[idiom][0]:.3f}"),
                _panel(sides[1][idiom], f"trained, nDCG@10 {means[idiom][1]:.3f}"),
            )
            for idiom in chosen
        ],
        f"Idioms: {which}, by nDCG@10 of their queries ({mode}), the greatest gain first. Each panel has the "
        "principal components (PC) of its own: of this idiom's documents by this model, as unit vectors. "
        "Each is turned so that idiomatic meanings lie to the right and up.",
    )


def _panel(one: _Map, heading: str) -> Panel:
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for point in one.points:
        points[point.usage].append((point.x, point.y))
    first, second = (f"PC {n} ({share:.0%} of variance)" for n, share in enumerate(one.explained, 1))
    return Panel(heading, points, (first, second))
