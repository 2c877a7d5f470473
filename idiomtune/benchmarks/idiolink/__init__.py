"""IdioLink: which documents convey what the idiom means in the query? Declared here, scored in `scoring`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import model_validator

from idiomtune.data.locations import idiolink_folder, idiolink_split
from idiomtune.data.names import CV_SPLIT, QueryMode
from idiomtune.plugins.benchmark import BenchmarkOptions, TableCell
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.options import Names
from idiomtune.plugins.registry import benchmark
from idiomtune.plugins.score import Metric, Score

if TYPE_CHECKING:
    from idiomtune.benchmarks.idiolink.scoring import IdioLinkBenchmark

Bm25Mode = Literal["bm25_sentence", "bm25_span"]

METRICS = ("r_precision", "ndcg@10")
SLICES = ("literal", "idiomatic", "gold", "silver")
USAGES = ("literal", "idiomatic", "simplification", "sense")
RELEVANT_USAGES = USAGES[1:]  # of an idiomatic query
_BM25 = "bm25_"  # before a mode


def _refine(score: Score) -> Score:
    """BM25 is a separate model, and does not depend on training."""
    return replace(score, role="constant") if score.mode.startswith(_BM25) else score


def _cell(score: Score) -> TableCell | None:
    if score.metric not in METRICS or score.slice:
        return None
    return "BM25" if score.is_constant else "", score.mode.removeprefix(_BM25), score.metric


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
    report="idiomtune.benchmarks.idiolink.report",
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

    def build(self, inputs: RunInputs) -> IdioLinkBenchmark:
        from idiomtune.benchmarks.idiolink.scoring import IdioLinkBenchmark

        root = idiolink_folder(inputs)
        splits = [idiolink_split(inputs, root, name) for name in inputs.splits("idiolink")]
        return IdioLinkBenchmark(splits, self)
