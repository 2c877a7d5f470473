"""A plug-in: a data set, a benchmark and an objective that come in by `extensions=`.

cd examples
python -m train --config-dir paraphrases/conf +experiment=paraphrases

Each row of `<split>.csv` has a sentence with an idiom, its meaning, and what the words say literally. The
benchmark counts how often the meaning is the nearer of the two; the objective trains for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from train.benchmarks import BenchmarkResult
from train.data.fields import FilledCell, TableRow
from train.declarations.benchmark import BenchmarkType, OptionsWithSplit, QueryResult
from train.declarations.dataset import DatasetType
from train.declarations.objective import ObjectiveOptions, ObjectiveType
from train.declarations.options import Temperature
from train.errors import DataMissingError
from train.io.tables import read_table
from train.objectives import Batch, ObjectiveLoss
from train.requests import Request

if TYPE_CHECKING:
    from torch import Tensor

NAME = "paraphrases"


class Row(TableRow):
    expression: FilledCell
    sentence: FilledCell
    meaning: FilledCell
    literal: FilledCell

    @property
    def requests(self) -> list[Request]:
        return [Request(text) for text in (self.sentence, self.meaning, self.literal)]


def read_rows(settings: Any, split: str) -> tuple[Path, list[Row]]:
    """A split's file and its rows; `read_table` reports what is wrong in it by file, row and field."""
    from train.factory.data import folder_of  # what is heavy is imported where it is used

    folder = folder_of(settings, NAME)
    if folder is None or not (path := folder / f"{split}.csv").is_file():
        raise DataMissingError(f"no paraphrases: set data.{NAME}=<folder with {split}.csv>")
    return path, [row for _, row in read_table(path, Row)]


def similarities(embeddings: Tensor) -> tuple[Tensor, ...]:
    """Cosines (N,) of sentences with their meanings, and with the literal readings; embeddings: (3 N, D)."""
    from idiomloss.similarity import paired_cosine_similarity

    sentences, meanings, literals = (embeddings[i::3] for i in range(3))
    return tuple(paired_cosine_similarity(sentences, other) for other in (meanings, literals))


class ParaphraseBenchmark:
    """The share of sentences that are nearer to their meaning than to the literal reading."""

    name = NAME
    without_gold: Sequence[str] = ()

    def __init__(self, splits: Mapping[str, tuple[Path, Sequence[Row]]]) -> None:
        self.files = [path for path, _ in splits.values()]
        self._rows = [(split, row) for split, (_, rows) in splits.items() for row in rows]
        self.requests = [request for _, row in self._rows for request in row.requests]

    def score(self, embeddings: Tensor) -> BenchmarkResult:
        """Scores from embeddings (N, D), row i for `requests[i]`."""
        near, far = similarities(embeddings.double())
        result = BenchmarkResult({})
        right: dict[str, list[bool]] = {}
        for (split, row), is_right in zip(self._rows, (near > far).tolist(), strict=True):
            right.setdefault(split, []).append(is_right)
            result.per_query.append({"split": split, "id": row.sentence, "right": is_right})
        result.scores.update({f"{NAME}/{split}/accuracy": sum(v) / len(v) for split, v in right.items()})
        return result


class BenchmarkOptions(OptionsWithSplit):
    def score_keys(self, splits: Sequence[str]) -> list[str]:
        return [f"{NAME}/{split}/accuracy" for split in splits]


def read_record(record: Mapping[str, Any]) -> Iterator[QueryResult]:
    """For comparisons: what each sentence adds to the score."""
    key = f"{NAME}/{record['split']}/accuracy"
    yield QueryResult(key, record["id"], cluster=None, value=float(record["right"]))


def build_benchmark(settings: Any, options: BenchmarkOptions) -> ParaphraseBenchmark:
    return ParaphraseBenchmark({split: read_rows(settings, split) for split in settings.splits(options.name)})


class Options(ObjectiveOptions):
    name: Literal["paraphrases"]
    temperature: Temperature


class ParaphraseObjective:
    """L = mean of log(1 + e^{(cos(sentence, literal) - cos(sentence, meaning)) / temperature})."""

    def __init__(self, settings: Any, options: Options) -> None:
        from torch import nn

        path, self._rows = read_rows(settings, "train")
        self.files = [path]
        self.modules = nn.Module()  # trains nothing in addition to the encoder
        self.batch_size, self.seed = settings.trainer.batch_size, settings.seed
        self.plain_requests = [request for row in self._rows for request in row.requests[1:]]
        self.idiom_sentences = [(row.expression, row.sentence) for row in self._rows]
        self._temperature = options.temperature

    def describe(self) -> str:
        return f"{len(self._rows)} sentences with their meanings"

    def epoch_steps(self, epoch: int, shards: int) -> list[list[list[int]]]:
        import numpy as np

        from train.objectives.steps import in_shards, shuffled_steps

        rng = np.random.default_rng([self.seed, epoch])
        return in_shards(shuffled_steps(range(len(self._rows)), self.batch_size, rng), shards)

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:  # noqa: ARG002  nothing is redrawn
        rows = [self._rows[i] for i in anchors]
        plain = [i for i in range(3 * len(rows)) if i % 3]
        return Batch([r for row in rows for r in row.requests], [row.sentence for row in rows], None, plain)

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:  # noqa: ARG002
        from torch.nn import functional

        near, far = similarities(embeddings)
        return ObjectiveLoss(functional.softplus((far - near) / self._temperature).mean())


DECLARED = [
    DatasetType(NAME, title="Paraphrases", licence="apache-2.0"),
    BenchmarkType(NAME, BenchmarkOptions, build_benchmark, title="Paraphrases", read_record=read_record),
    ObjectiveType(NAME, Options, ParaphraseObjective, datasets=lambda _: [NAME]),
]
