"""SemEval-2022 Task 2B: does the model give two sentences their gold similarity?"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from train.benchmarks import Embed, Result
from train.benchmarks.pairs import cosines, spearman
from train.benchmarks.semeval2022 import LANGUAGES, SUBSETS, SemEvalBenchmarkOptions, spearman_of
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
    def announced(self) -> list[Request]:
        """The sentences; halves of dev share theirs."""
        pairs = dict.fromkeys(pair for split in self.splits for pair in split.pairs)
        return [Request(pair.sentence1) for pair in pairs] + [Request(pair.sentence2) for pair in pairs]

    def score(self, embed: Embed) -> Result:
        """The scores of all splits, and predictions for them."""
        result = Result()
        for split in self.splits:
            first = embed([Request(pair.sentence1) for pair in split.pairs])
            second = embed([Request(pair.sentence2) for pair in split.pairs])
            ids = (pair.id for pair in split.pairs)
            predicted = dict(zip(ids, cosines(first, second), strict=True))
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
    for language, subset in product(LANGUAGES, SUBSETS):
        chosen = [
            i for i in items if language in (i["language"].lower(), "all") and subset in (i["subset"], "all")
        ]
        value = spearman([i["predicted"] for i in chosen], [i["gold"] for i in chosen])
        if value is not None:
            result.scores.append(spearman_of(split.name, language, subset, value))


def _submission(split: PairSplit, predicted: Mapping[str, float], setting: str) -> str:
    """The task's submission form, filled in: every row in its order, with the line ends of the form."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(["ID", "Language", "Setting", "Sim"])
    for id_, language, row_setting in split.form:
        filled = setting in (row_setting, "both")
        writer.writerow([id_, language, row_setting, repr(predicted[id_]) if filled else ""])
    return file.getvalue()
