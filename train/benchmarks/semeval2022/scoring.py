"""SemEval-2022 Task 2B: does the model give two sentences their gold similarity?"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from train.benchmarks import BenchmarkResult
from train.benchmarks.pairs import cosines, spearman
from train.benchmarks.semeval2022.keys import semeval_key
from train.data.semeval2022 import PairSplit
from train.requests import Request


class SemEvalBenchmark:
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
        splits: from :func:`train.data.semeval2022.read_pairs`; one without gold gives predictions only.
        setting: which rows of the task's submission form the predictions fill: `pre_train` (a model that saw
            none of the task's training data), `fine_tune`, or `both`.

    References:
        Tayyar Madabushi et al. 2022, arXiv 2204.10050.
    """

    name = "semeval2022"

    def __init__(self, splits: Sequence[PairSplit], setting: str = "fine_tune") -> None:
        self.splits = list(splits)
        self.setting = setting
        self.files: list[Path] = list(dict.fromkeys(path for split in splits for path in split.files))
        self.without_gold = [split.name for split in splits if split.gold is None]
        self.requests: list[Request] = []
        self._start: dict[tuple[str, ...], int] = {}  # halves of dev share their pairs
        for split in self.splits:
            ids = tuple(pair.id for pair in split.pairs)
            if ids not in self._start:
                self._start[ids] = len(self.requests)
                self.requests += [Request(pair.sentence1) for pair in split.pairs]
                self.requests += [Request(pair.sentence2) for pair in split.pairs]

    def score(self, embeddings: Tensor) -> BenchmarkResult:
        """Scores from embeddings (N, D), row i for `requests[i]`."""
        result = BenchmarkResult({})
        for split in self.splits:
            ids = tuple(pair.id for pair in split.pairs)
            start = self._start[ids]
            first = embeddings[start : start + len(ids)]
            second = embeddings[start + len(ids) : start + 2 * len(ids)]
            predicted = dict(zip(ids, cosines(first, second), strict=True))
            if split.gold is not None:
                self._score_split(split, predicted, result)
            result.predictions[f"semeval2022_{split.name}.csv"] = _submission(split, predicted, self.setting)
        return result

    def _score_split(self, split: PairSplit, predicted: dict[str, float], result: BenchmarkResult) -> None:
        assert split.gold is not None
        pairs_by_id = {pair.id: pair for pair in split.pairs}
        rows = []
        for item in split.gold:
            pair = pairs_by_id[item.id]
            gold = predicted[item.other] if item.similarity is None and item.other else item.similarity
            assert gold is not None
            rows.append((pair.language.lower(), "sts" if item.is_sts else "idiom", predicted[item.id], gold))
            result.per_query.append(
                {
                    "split": split.name,
                    "id": item.id,
                    "language": pair.language,
                    "subset": rows[-1][1],
                    "expression": pair.expression,
                    "sentence1": pair.sentence1,
                    "sentence2": pair.sentence2,
                    "predicted": predicted[item.id],
                    "gold": gold,
                }
            )
        for language in ("en", "pt", "gl", "all"):
            for subset in ("idiom", "sts", "all"):
                pairs = [
                    (p, g) for lang, sub, p, g in rows if language in (lang, "all") and subset in (sub, "all")
                ]
                value = spearman(*zip(*pairs, strict=True)) if pairs else None
                if value is not None:
                    result.scores[semeval_key(split.name, language, subset)] = value


def _submission(split: PairSplit, predicted: dict[str, float], setting: str) -> str:
    """The task's submission form, filled in: every row in its order, with the line ends of the form."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(["ID", "Language", "Setting", "Sim"])
    for id_, language, row_setting in split.form:
        filled = setting in (row_setting, "both")
        writer.writerow([id_, language, row_setting, repr(predicted[id_]) if filled else ""])
    return file.getvalue()
