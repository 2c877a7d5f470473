"""IdioLink and SemEval-2022 Task 2B as tasks of mteb, on local data.

ε-compositionality and AdMIRe fit none of mteb's kinds of task: they do not rank texts or pairs. Needs the
extra `mteb`.
"""

from __future__ import annotations

import hashlib
from typing import Any

from idiomtune.data.idiolink import Split, is_relevant
from idiomtune.data.semeval2022 import PairSplit
from idiomtune.errors import UserError
from idiomtune.io.files import fingerprints

try:
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata
except ImportError as error:
    raise ImportError(
        "this needs the package mteb: pip install 'idiomtune[mteb]', or pip install 'mteb>=2,<3'"
    ) from error

_LANGUAGES = {"EN": "eng-Latn", "PT": "por-Latn", "GL": "glg-Latn"}


class IdioLinkRetrieval(AbsTaskRetrieval):
    """IdioLink in the mode `sentence`: `ndcg_at_10` is `idiolink/<split>/sentence/ndcg@10`.

    The only difference is in ties of similarity, which are rare: mteb puts the greater document id first,
    this project orders them by hashes of their ids.

    Args:
        split: from :func:`idiomtune.data.idiolink.load_split`.
    """

    metadata = TaskMetadata(
        name="IdioLink",
        description="Retrieve the sentences that convey what an idiom means in the query.",
        reference="https://arxiv.org/abs/2605.22247",
        dataset={"path": "Intellexus/IdioLink", "revision": "local"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["val"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        license="cc-by-nc-sa-4.0",
    )

    def __init__(self, split: Split, **kwargs: Any) -> None:
        self.metadata = _of_split(self.metadata, split)
        super().__init__(**kwargs)
        self._split = split

    def load_data(self, *_: object, **__: object) -> None:
        """The split in mteb's form: nothing is downloaded."""
        split = self._split
        self.dataset = {
            "default": {
                split.name: {
                    "corpus": Dataset.from_list([{"id": d.id, "text": d.sentence} for d in split.documents]),
                    "queries": Dataset.from_list([{"id": q.id, "text": q.sentence} for q in split.queries]),
                    "relevant_docs": {
                        q.id: {d.id: 1 for d in split.documents if is_relevant(q, d)} for q in split.queries
                    },
                    "top_ranked": None,
                }
            }
        }
        self.data_loaded = True


class SemEval2022STS(AbsTaskSTS):
    """The STS pairs of SemEval-2022 Task 2B, by language and for `all`.

    `cosine_spearman` of subset `en` is `semeval2022/<split>/en/sts/spearman`. Pairs with idioms do
    not fit mteb: of many the gold is the model's similarity of another pair.

    Args:
        split: from :func:`idiomtune.data.semeval2022.read_pairs`, with gold.

    Raises:
        UserError: if the split has no gold.
    """

    metadata = TaskMetadata(
        name="SemEval2022Task2B-sts",
        description="Similarity of sentences with idioms, English, Portuguese and Galician.",
        reference="https://arxiv.org/abs/2204.10050",
        dataset={"path": "H-TayyarMadabushi/SemEval_2022_Task2-idiomaticity", "revision": "local"},
        type="STS",
        category="t2t",
        modalities=["text"],
        eval_splits=["dev"],
        eval_langs={"all": list(_LANGUAGES.values())},
        main_score="cosine_spearman",
        license="gpl-3.0",
    )
    min_score = 0
    max_score = 1

    def __init__(self, split: PairSplit, **kwargs: Any) -> None:
        if split.gold is None:
            raise UserError(f"SemEval-2022 Task 2B, split {split.name}: no public gold to score by")
        pairs_by_id = {pair.id: pair for pair in split.pairs}
        self._subsets: dict[str, list[dict[str, Any]]] = {}
        languages: dict[str, list[str]] = {}
        for item in split.gold:
            if item.similarity is None or not item.is_sts:
                continue
            pair = pairs_by_id[item.id]
            row = {"sentence1": pair.sentence1, "sentence2": pair.sentence2, "score": item.similarity}
            for subset in (pair.language.lower(), "all"):
                self._subsets.setdefault(subset, []).append(row)
            languages[pair.language.lower()] = [_LANGUAGES[pair.language]]
        languages["all"] = [language for codes in languages.values() for language in codes]
        self.metadata = _of_split(self.metadata, split, eval_langs=languages)
        super().__init__(**kwargs)
        self._name = split.name

    def load_data(self, *_: object, **__: object) -> None:
        """The split in mteb's form: nothing is downloaded."""
        self.dataset = {
            subset: {self._name: Dataset.from_list(rows)} for subset, rows in self._subsets.items()
        }
        self.data_loaded = True


def _of_split(metadata: TaskMetadata, split: Split | PairSplit, **changes: object) -> TaskMetadata:
    """A task's record for a split, with a checksum of its files as revision, to distinguish other data."""
    sums = "".join(sorted(fingerprints(split.files).values()))
    dataset = {**metadata.dataset, "revision": hashlib.sha256(sums.encode()).hexdigest()[:16]}
    return metadata.model_copy(update={"eval_splits": [split.name], "dataset": dataset, **changes})
