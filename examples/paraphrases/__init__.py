"""A plug-in: a data set, a benchmark and an objective that come in by `extensions=`.

cd examples
idiomtune train --config-dir paraphrases/conf +experiment=paraphrases

Each row of `<split>.csv` has a sentence with an idiom, its meaning, and what the words say literally. The
benchmark counts how often the meaning is the nearer of the two; the objective trains for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from idiomtune.extend import (
    BaseObjective,
    Batch,
    Benchmark,
    DataMissingError,
    DatasetType,
    Embed,
    EmbeddingRequest,
    FilledCell,
    Metric,
    ObjectiveLoss,
    ObjectiveOptions,
    ObjectiveType,
    OptionsWithSplit,
    Result,
    RunInputs,
    Score,
    TableRow,
    Temperature,
    benchmark,
    folder_of,
    read_table,
)

if TYPE_CHECKING:
    from torch import Tensor

NAME = "paraphrases"


class Row(TableRow):
    expression: FilledCell
    sentence: FilledCell
    meaning: FilledCell
    literal: FilledCell

    @property
    def requests(self) -> list[EmbeddingRequest]:
        return [EmbeddingRequest(text) for text in (self.sentence, self.meaning, self.literal)]


def read_rows(inputs: RunInputs, split: str) -> tuple[Path, list[Row]]:
    """A split's file and its rows; `read_table` reports what is wrong in it by file, row and field."""
    folder = folder_of(inputs, NAME)
    if folder is None or not (path := folder / f"{split}.csv").is_file():
        raise DataMissingError(f"no paraphrases: set data.{NAME}=<folder with {split}.csv>")
    return path, [row for _, row in read_table(path, Row)]


def similarities(embeddings: Tensor) -> tuple[Tensor, ...]:
    """Cosines (N,) of sentences with their meanings, and with the literal readings; embeddings: (3 N, D)."""
    from idiomloss.similarity import paired_cosine_similarity

    sentences, meanings, literals = (embeddings[i::3] for i in range(3))
    return tuple(paired_cosine_similarity(sentences, other) for other in (meanings, literals))


class ParaphraseBenchmark(Benchmark):
    """The share of sentences that are nearer to their meaning than to the literal reading."""

    name = NAME

    def __init__(self, splits: Mapping[str, tuple[Path, Sequence[Row]]]) -> None:
        self.files = [path for path, _ in splits.values()]
        self._splits = splits

    def score(self, embed: Embed) -> Result:
        """The accuracy on each split."""
        result = Result()
        for split, (_, rows) in self._splits.items():
            near, far = similarities(embed([request for row in rows for request in row.requests]).double())
            right = (near > far).tolist()
            result.scores.append(Score(NAME, split, "", "accuracy", value=sum(right) / len(right)))
            for row, is_right in zip(rows, right, strict=True):
                result.per_query.append({"split": split, "id": row.sentence, "accuracy": is_right})
        return result


@benchmark(NAME, title="Paraphrases", metrics=[Metric("accuracy", is_drawn=True)])
class BenchmarkOptions(OptionsWithSplit):
    def build(self, inputs: RunInputs) -> ParaphraseBenchmark:
        return ParaphraseBenchmark({split: read_rows(inputs, split) for split in inputs.splits(NAME)})


class Options(ObjectiveOptions):
    name: Literal["paraphrases"]
    temperature: Temperature


class ParaphraseObjective(BaseObjective):
    """L = mean of log(1 + e^{(cos(sentence, literal) - cos(sentence, meaning)) / temperature})."""

    def __init__(self, inputs: RunInputs, options: Options) -> None:
        path, self._rows = read_rows(inputs, "train")
        self._temperature = options.temperature
        super().__init__(
            len(self._rows),
            batch_size=inputs.batch_size,
            seed=inputs.seed,
            files=[path],
            plain_requests=[request for row in self._rows for request in row.requests[1:]],
            idiom_sentences=[(row.expression, row.sentence) for row in self._rows],
        )

    def describe(self) -> str:
        return f"{len(self._rows)} sentences with their meanings"

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
    ObjectiveType(NAME, Options, ParaphraseObjective, datasets=lambda _: [NAME]),
]
