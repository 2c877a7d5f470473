"""IdioLink: which documents convey what the idiom means in the query? Declared here, scored in `scoring`."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, model_validator

from idiomtune.data.locations import idiolink_folder, idiolink_split
from idiomtune.data.names import CV_SPLIT, QueryMode
from idiomtune.declarations.benchmark import BenchmarkOptions, TableCell
from idiomtune.declarations.examples import (
    GAINED_MOST,
    NUM_FIRST,
    Answer,
    Example,
    Examples,
    Figures,
    Gain,
    Gains,
    Maps,
    Panel,
    QueryRecords,
    Shares,
    worst_and_best,
)
from idiomtune.declarations.options import Names
from idiomtune.declarations.registry import benchmark
from idiomtune.declarations.score import Metric, Score
from idiomtune.io.files import fingerprint

if TYPE_CHECKING:
    from idiomtune.benchmarks.idiolink.scoring import IdioLinkBenchmark

Bm25Mode = Literal["bm25_sentence", "bm25_span"]

METRICS = ("r_precision", "ndcg@10")
SLICES = ("literal", "idiomatic", "gold", "silver")
USAGES = ("literal", "idiomatic", "simplification", "sense")
RELEVANT_USAGES = USAGES[1:]  # of an idiomatic query
_BM25 = "bm25_"  # before a mode

_PER_END = 3  # idioms that gained most, and that lost most
_OTHER = "other idiom"


def _refine(score: Score) -> Score:
    """BM25 is a separate model, and does not depend on training."""
    return replace(score, role="constant") if score.mode.startswith(_BM25) else score


def _cell(score: Score) -> TableCell | None:
    if score.metric not in METRICS or score.slice:
        return None
    return "BM25" if score.is_constant else "", score.mode.removeprefix(_BM25), score.metric


class _FoundDocument(BaseModel, strict=True):
    id: str
    usage: str
    relevant: bool


class _QueryRecord(BaseModel, strict=True):
    """A record of `idiolink.jsonl`: a query in one mode."""

    id: str
    split: str
    mode: str
    idiom: str
    sentence: str
    usage: str
    ndcg: float = Field(alias="ndcg@10")
    r_precision: float
    recall_at_r: dict[str, float] = {}
    top: list[_FoundDocument]

    def first_score(self) -> float:
        """Of the first three documents how many are right; among equals, nDCG@10."""
        return 10 * sum(document.relevant for document in self.top[:NUM_FIRST]) + self.ndcg

    @property
    def keys_begin(self) -> str:
        """How the keys of its split and mode begin."""
        return f"idiolink/{self.split}/{self.mode}/"


class _Point(BaseModel, strict=True):
    usage: str
    x: float
    y: float


class _Map(BaseModel, strict=True):
    """A record of `idiolink.map.jsonl`: the documents of an idiom."""

    split: str
    idiom: str
    explained: list[float] = Field(min_length=2, max_length=2)
    points: list[_Point]

    def panel(self, heading: str) -> Panel:
        points: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for point in self.points:
            points[point.usage].append((point.x, point.y))
        first, second = (f"PC {n} ({share:.0%} of variance)" for n, share in enumerate(self.explained, 1))
        return Panel(heading, points, (first, second))


_Texts = Mapping[str, tuple[str, str]]  # id of a document → sentence, idiom
_Pairs = Sequence[tuple[_QueryRecord, _QueryRecord]]  # a query's record before and after training


def _show_records(run: QueryRecords) -> tuple[list[_QueryRecord], dict[str, _QueryRecord]]:
    """The queries of one split and mode, and those of the untrained model by id.

    It is the split and mode that picked the best checkpoint, else the first that was scored.
    """
    after, before = run.read(_QueryRecord), run.read(_QueryRecord, untrained=True)
    scored = dict.fromkeys(query.keys_begin for query in after)
    monitored = [start for key in run.monitor for start in scored if key.startswith(start)]
    chosen = next(iter([*monitored, *scored]), "")
    untrained = {query.id: query for query in before if query.keys_begin == chosen}
    return [query for query in after if query.keys_begin == chosen], untrained


def _examples(run: QueryRecords) -> Examples | None:
    """Worst and best queries by nDCG@10, and those that training changed most; None without records."""
    queries, untrained = _show_records(run)
    if not queries:
        return None
    texts, notes = _documents(run.files)

    def lists(
        shown: Sequence[_QueryRecord], score: Callable[[_QueryRecord], float]
    ) -> dict[str, list[Example]]:
        pairs = [(query, untrained.get(query.id)) for query in shown]
        return worst_and_best(pairs, score, lambda query, before: _example(query, before, texts))

    split, mode = queries[0].split, queries[0].mode
    of_queries, *others = split.split("+")
    about = f": queries of {of_queries}, documents of {split.replace('+', ' and ')}" if others else ""
    subtitle = f"IdioLink {split}{about}; by {mode}"
    idiomatic = [query for query in queries if query.usage == "idiomatic"]
    (gain, *_) = lists(idiomatic, _QueryRecord.first_score).get(GAINED_MOST, [None])
    shown = lists(queries, lambda query: query.ndcg)
    return Examples("What it retrieves", subtitle, shown, notes, _shares(queries, texts), greatest_gain=gain)


def _documents(files: Mapping[str, str]) -> tuple[_Texts, list[str]]:
    """The documents in the run's own data files, if these have not changed since."""
    texts: dict[str, tuple[str, str]] = {}
    missing = []
    indexes = {Path(name): checksum for name, checksum in files.items() if Path(name).name == "indexes.json"}
    for path, checksum in indexes.items():
        try:
            if fingerprint(path) != checksum:
                missing.append(f"{path.parent.name}/{path.name} has changed since")
                continue
            for record in json.loads(path.read_text(encoding="utf-8")):
                texts[record["id"]] = record["sentence"], record["idiom"]
        except (OSError, ValueError, KeyError, TypeError):
            missing.append(f"{path.parent.name}/{path.name} is not here")
    return texts, [f"documents are shown by their ids: {', '.join(missing)}"] if missing else []


def _answers(query: _QueryRecord, texts: _Texts) -> list[Answer]:
    answers = []
    for document in query.top:
        text, idiom = texts.get(document.id, (document.id, query.idiom))
        mark = "✓ relevant" if document.relevant else "✗ not relevant"
        label = document.usage if idiom == query.idiom else f"{document.usage}, of “{idiom}”"
        answers.append(Answer(text, mark, document.relevant, document.usage, label))
    return answers


def _example(query: _QueryRecord, before: _QueryRecord | None, texts: _Texts) -> Example:
    return Example(
        query.sentence,
        kind=query.usage,
        topic=f"idiom “{query.idiom}”",
        metric="nDCG@10",
        score=f"{query.ndcg:.3f}",
        remark="" if before is None else f", untrained {before.ndcg:.3f}",
        answers=_answers(query, texts),
        untrained_answers=[] if before is None else _answers(before, texts),
    )


def _shares(queries: Sequence[_QueryRecord], texts: _Texts) -> Shares:
    kinds = [*RELEVANT_USAGES, "literal", *([_OTHER] if texts else [])]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for query in queries:
        for document in query.top:
            _, idiom = texts.get(document.id, ("", query.idiom))
            counts[query.usage][document.usage if idiom == query.idiom else _OTHER] += 1
    rows = {usage: [count[kind] / max(1, count.total()) for kind in kinds] for usage, count in counts.items()}
    return Shares("The first ten documents, by the query's own usage:", kinds, rows)


def _figures(run: QueryRecords) -> Figures:
    """Recall by usage, and the documents of an idiom in two dimensions; none without both records."""
    queries, untrained = _show_records(run)
    pairs = [(untrained[query.id], query) for query in queries if query.id in untrained]
    return Figures(_gains(pairs), _maps(run, pairs)) if pairs else Figures()


def _gains(pairs: _Pairs) -> Gains:
    groups: dict[str, list[Gain]] = defaultdict(list)

    def add(heading: str, usage: str, values: Sequence[tuple[float, float]]) -> None:
        if values:
            groups[heading].append(Gain(usage, *map(list, zip(*values, strict=True))))

    for usage in ("literal", "idiomatic"):
        values = [(b.r_precision, a.r_precision) for b, a in pairs if a.usage == usage]
        add("queries, by usage", usage, values)
    for usage in RELEVANT_USAGES:
        recalls = [(b.recall_at_r, a.recall_at_r) for b, a in pairs]
        values = [(b[usage], a[usage]) for b, a in recalls if usage in b and usage in a]
        add("relevant documents of idiomatic queries, by usage", usage, values)
    return Gains(
        f"IdioLink {pairs[0][1].split}, {pairs[0][1].mode}: recall by usage",
        "recall@R: share of the relevant documents that\nare among the first R (R: how many there are)",
        groups,
    )


def _maps(run: QueryRecords, pairs: _Pairs) -> Maps | None:
    """Maps of the idioms that training changed most; None where a model has none."""
    split, mode = pairs[0][1].split, pairs[0][1].mode
    untrained, trained = (
        {
            map_of.idiom: map_of
            for map_of in run.read(_Map, untrained=side, part="map")
            if map_of.split == split
        }
        for side in (True, False)
    )
    scores: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for before, after in pairs:
        if after.idiom in untrained and after.idiom in trained:
            scores[after.idiom].append((before.ndcg, after.ndcg))
    means = {idiom: tuple(map(fmean, zip(*values, strict=True))) for idiom, values in scores.items()}
    if not means:
        return None
    ordered = sorted(means, key=lambda idiom: means[idiom][0] - means[idiom][1])
    is_choice = len(ordered) > 2 * _PER_END
    chosen = [*ordered[:_PER_END], *ordered[-_PER_END:]] if is_choice else ordered
    chosen_ = f"the {_PER_END} that gained most and the {_PER_END} that gained least" if is_choice else "all"
    return Maps(
        f"IdioLink {split}: documents of an idiom, by usage",
        USAGES,
        [
            (
                untrained[idiom].panel(f"“{idiom}”\nuntrained, nDCG@10 {means[idiom][0]:.3f}"),
                trained[idiom].panel(f"trained, nDCG@10 {means[idiom][1]:.3f}"),
            )
            for idiom in chosen
        ],
        f"Idioms: {chosen_}, by nDCG@10 of their queries ({mode}), the largest gain first. Each panel has "
        "its own principal components (PC): of this idiom's documents by this model, as unit vectors. "
        "Each is turned so that idiomatic meanings are to the right and up.",
    )


@benchmark(
    "idiolink",
    title="IdioLink",
    metrics=[
        Metric("r_precision", title="R-Precision"),
        Metric("ndcg@10", title="nDCG@10", is_drawn=True),
    ],
    refine=_refine,
    percent=True,
    cell=_cell,
    cluster="idiom",
    slices="usage",
    examples=_examples,
    figures=_figures,
    hub_dataset="Intellexus/IdioLink",
    hub_task="information-retrieval",
)
class IdioLinkBenchmarkOptions(BenchmarkOptions):
    known_splits: ClassVar[tuple[str, ...]] = ("train", "val", "test")
    fold_split: ClassVar[str] = CV_SPLIT
    has_others: ClassVar[bool] = True

    name: Literal["idiolink"]
    split: Names
    query_modes: list[QueryMode]
    bm25_modes: list[Bm25Mode]

    @model_validator(mode="after")
    def _something_is_scored(self) -> Self:
        if not (self.query_modes or self.bm25_modes):
            raise ValueError("query_modes and bm25_modes are both empty: nothing is scored")
        return self

    def possible_scores(self, splits: Sequence[str]) -> list[Score]:
        modes = [*self.query_modes, *self.bm25_modes]
        parts = [*product(METRICS, ("", *SLICES)), *product(["recall_at_r"], RELEVANT_USAGES)]
        return [Score("idiolink", split, mode, *part) for split in splits for mode in modes for part in parts]

    def build(self, settings: Any) -> IdioLinkBenchmark:
        from idiomtune.benchmarks.idiolink.scoring import IdioLinkBenchmark

        root = idiolink_folder(settings)
        splits = [idiolink_split(settings, root, name) for name in settings.splits("idiolink")]
        return IdioLinkBenchmark(splits, self)
