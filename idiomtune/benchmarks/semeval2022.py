"""SemEval-2022 Task 2B: are two sentences as similar as people say?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field

from idiomtune.benchmarks import Benchmark, Embed, Result, scores_of, table_text
from idiomtune.data.locations import data_files
from idiomtune.data.names import LANGUAGE_NAMES, SemEvalSplit
from idiomtune.data.semeval2022 import FILES, PairSplit, read_pairs
from idiomtune.plugins.benchmark import BenchmarkOptions, QueryResult, TableCell, results_of
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.options import as_list
from idiomtune.plugins.registry import benchmark
from idiomtune.plugins.score import Metric, Score
from idiomtune.requests import EmbeddingRequest, symmetric_query

_LANGUAGES = ("en", "pt", "gl", "all")
_SUBSETS = {"idiom": "idiom", "sts": "STS", "all": "all"}
_MODES = ["/".join(parts) for parts in product(_LANGUAGES, _SUBSETS)]
_METRICS = [Metric("spearman", is_drawn=True, statistic="spearman")]


def _refine(score: Score) -> Score:
    """Halves of dev are details, for choosing on one of them; of the languages, `all` is drawn."""
    role = "compared" if score.split in ("dev_a", "dev_b") else score.role
    return replace(score, role=role, is_drawn=score.mode.startswith("all/"))


def _cell(score: Score) -> TableCell:
    language, _, subset = score.mode.partition("/")
    return LANGUAGE_NAMES[language], "Spearman", _SUBSETS[subset]


def _read_record(record: Mapping[str, Any]) -> Iterator[QueryResult]:
    """A pair counts for its language and for all, in its subset and in all."""
    language, subset = record["language"].lower(), record["subset"]
    # STS pairs have no expression: each is a cluster of its own.
    record = {**record, "expression": record["expression"] or record["id"]}
    for mode in product((language, "all"), (subset, "all")):
        yield from results_of(
            {**record, "mode": "/".join(mode)}, "semeval2022", _METRICS, cluster="expression"
        )


@benchmark(
    "semeval2022",
    title="SemEval-2022 Task 2B",
    metrics=_METRICS,
    refine=_refine,
    rows="language",
    cell=_cell,
    cluster="expression",
    read_record=_read_record,
    hub_dataset="semeval2022_task2b",
    hub_task="semantic-similarity",
)
class SemEvalBenchmarkOptions(BenchmarkOptions):
    known_splits: ClassVar[tuple[str, ...]] = get_args(SemEvalSplit)

    name: Literal["semeval2022"]
    split: Annotated[list[SemEvalSplit], BeforeValidator(as_list), Field(min_length=1)]
    setting: Literal["pre_train", "fine_tune", "both"]

    @property
    def score_modes(self) -> list[str]:
        return _MODES

    def build(self, inputs: RunInputs) -> SemEvalBenchmark:
        files, wanted = data_files(inputs, FILES), inputs.splits("semeval2022")
        splits = [read_pairs(files, name) for name in get_args(SemEvalSplit) if name in wanted]
        return SemEvalBenchmark(splits, self)


class SemEvalBenchmark(Benchmark):
    """Spearman's correlation of the cosine of a pair with its gold similarity.

    Where the gold is the similarity of another pair (the idiom replaced by its correct paraphrase), the
    model's similarity of that pair is used: a model should treat a sentence with an idiom as it treats one
    that means the same. The subsets `idiom`, `sts` and `all` are scored, for each language and all together.
    Gold STS similarities differ in level by language, so the pooled figure mixes in an offset: read the
    languages too.

    Sentences that a model reads as the same text have a cosine of 1 up to rounding, which differs by kernel
    and device; they count as 1. Truncated at 128 tokens, five Portuguese pairs of dev are the same to MiniLM,
    and their order alone moves its Portuguese idiom score by 0.007; at its own 256 tokens none are.

    Args:
        splits: from :func:`idiomtune.data.semeval2022.read_pairs`; one without gold gives predictions only.
        options: `setting` says which rows of the task's submission form the predictions fill: `pre_train` (a
            model that saw none of the task's training data), `fine_tune`, or `both`.

    References:
        Tayyar Madabushi et al. 2022, arXiv 2204.10050.
    """

    name = "semeval2022"

    def __init__(self, splits: Sequence[PairSplit], options: SemEvalBenchmarkOptions) -> None:
        self.splits, self.options = list(splits), options
        self.files = list(dict.fromkeys(path for split in splits for path in split.files))
        self.without_gold = [split.name for split in splits if split.gold is None]

    @property
    def requests(self) -> list[EmbeddingRequest]:
        """The sentences; halves of dev share theirs."""
        pairs = dict.fromkeys(pair for split in self.splits for pair in split.pairs)
        return [symmetric_query(pair.sentence1) for pair in pairs] + [
            symmetric_query(pair.sentence2) for pair in pairs
        ]

    def score(self, embed: Embed) -> Result:
        """The scores of all splits, and predictions for them."""
        from idiomtune.benchmarks.pairs import cosines

        result = Result()
        for split in self.splits:
            first = embed([symmetric_query(pair.sentence1) for pair in split.pairs])
            second = embed([symmetric_query(pair.sentence2) for pair in split.pairs])
            predicted = {p.id: cosine for p, cosine in zip(split.pairs, cosines(first, second), strict=True)}
            _score_split(split, predicted, result)
            form = _submission(split, predicted, self.options.setting)
            result.predictions[f"semeval2022_{split.name}.csv"] = form
        return result


def _score_split(split: PairSplit, predicted: Mapping[str, float], result: Result) -> None:
    pairs_by_id = {pair.id: pair for pair in split.pairs}
    items: list[dict[str, Any]] = []
    for item in split.gold or ():
        pair = pairs_by_id[item.id]
        items.append(
            {
                "split": split.name,
                "id": item.id,
                "language": pair.language,
                "subset": "sts" if item.is_sts else "idiom",
                "expression": pair.expression,
                "sentence1": pair.sentence1,
                "sentence2": pair.sentence2,
                "predicted": predicted[item.id],
                "gold": predicted[item.other or ""] if item.similarity is None else item.similarity,
            }
        )
    result.per_query.extend(items)
    scores = sorted(scores_of(items, "semeval2022"), key=lambda score: _MODES.index(score.mode))
    result.scores.extend(score for score in scores if math.isfinite(score.value))


def _submission(split: PairSplit, predicted: Mapping[str, float], setting: str) -> str:
    """The task's submission form, filled in: every row in its order, with the line ends of the form."""
    rows = [
        (id_, language, of_row, repr(predicted[id_]) if setting in (of_row, "both") else "")
        for id_, language, of_row in split.form
    ]
    return table_text(("ID", "Language", "Setting", "Sim"), rows)
