"""Benchmarks of pairs and of retrieval: a new one needs only data and a class of options.

@benchmark("proverbs", title="Proverbs")
class ProverbOptions(PairsOptions):
    \"""`data.proverbs=<folder>` has `<split>.csv`, with the columns sentence1, sentence2 and score.\"""

DECLARED = [DatasetType("proverbs", title="Proverbs", licence="cc0-1.0")]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from idiomtune.benchmarks.user import PAIRS, RETRIEVAL
from idiomtune.errors import DataMissingError
from idiomtune.plugins.benchmark import OptionsWithSplit
from idiomtune.plugins.inputs import RunInputs

if TYPE_CHECKING:
    from idiomtune.benchmarks.user.pairs import UserPairBenchmark
    from idiomtune.benchmarks.user.retrieval import UserRetrievalBenchmark


class _Kind(OptionsWithSplit):
    @property
    def score_modes(self) -> list[str]:
        return ["", "span"]

    def _folder(self, inputs: RunInputs) -> Path:
        from idiomtune.data.locations import folder_of

        if (folder := folder_of(inputs, self.name)) is None:
            raise DataMissingError(f"its data is nowhere: data.{self.name}=<folder>")
        return folder


class PairsOptions(_Kind):
    """Pairs of sentences with scores: do their cosines order them alike? In `<folder>/<split>.csv`.

    Or .tsv, .jsonl, .parquet: the columns are those of `own_sts` (docs/own-data-scoring.md).
    """

    facts: ClassVar[dict[str, Any]] = PAIRS

    def build(self, inputs: RunInputs) -> UserPairBenchmark:
        """The benchmark, on the scored splits."""
        from idiomtune.benchmarks.user.pairs import UserPairBenchmark, read_pairs
        from idiomtune.io.tables import is_table

        folder, files = self._folder(inputs), dict[str, Path]()
        for split in inputs.splits(self.name):
            tables = filter(is_table, sorted(folder.glob(f"{split}.*")))
            if (table := next(tables, None)) is None:
                raise DataMissingError(f"there is no {split}.csv in data.{self.name}={folder}")
            files[split] = table
        pairs = {split: read_pairs(table, self.name) for split, table in files.items()}
        return UserPairBenchmark(self.name, pairs, [*files.values()])


class RetrievalOptions(_Kind):
    """Queries that search documents: in `<folder>/<split>/` a corpus, queries and judgements.

    The files are those of `own_retrieval` (docs/own-data-scoring.md).
    """

    facts: ClassVar[dict[str, Any]] = RETRIEVAL

    def build(self, inputs: RunInputs) -> UserRetrievalBenchmark:
        """The benchmark, on the scored splits."""
        from idiomtune.benchmarks.user.collections import read_collection
        from idiomtune.benchmarks.user.retrieval import UserRetrievalBenchmark

        folder = self._folder(inputs)
        collections = [read_collection(split, folder / split) for split in inputs.splits(self.name)]
        return UserRetrievalBenchmark(collections, name=self.name)
