"""The data sets that the project knows, the names of their splits, languages and classes, and parts of names.

Imports nothing heavy, so that declarations can use it. Where files are published is in `published.tsv`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, get_args

from idiomtune.errors import UserError
from idiomtune.plugins.dataset import DatasetType

IDIOLINK = DatasetType(
    "idiolink",
    option="idiolink",
    title="IdioLink",
    licence="cc-by-nc-sa-4.0",  # of its repository, the stricter of two
    hub="Intellexus/IdioLink",
    allows_custom=True,
    in_sample=True,
)
SEMEVAL2022 = DatasetType(
    "semeval2022_task2b",
    option="semeval2022",
    title="SemEval-2022 Task 2B",
    licence="gpl-3.0",
    in_sample=True,
)
NCIMP = DatasetType("ncimp", title="NCIMP", in_sample=True)
ADMIRE = DatasetType("admire", title="AdMIRe (SemEval-2025 Task 1)", in_sample=True)
ASTITCH = DatasetType("astitch", title="AStitchInLanguageModels", licence="gpl-3.0", in_sample=True)
MAGPIE = DatasetType("magpie", title="MAGPIE", licence="cc-by-4.0")

WRITTEN = "write.json"  # in a folder of IdioLink's form: the record of `idiomtune write`
DECLARED = [IDIOLINK, SEMEVAL2022, ADMIRE, ASTITCH, NCIMP, MAGPIE]

# IdioLink.
CV_SPLIT = "cv"  # a fold of the idioms of train and val, instead of a split on disk
QueryMode = Literal["sentence", "span", "instruction_sentence", "instruction_span"]
# Training only: the span hidden, so that only the context carries the meaning.
TrainQueryMode = QueryMode | Literal["masked_sentence", "masked_span"]
TrainDocumentMode = Literal["sentence", "span", "masked_sentence"]

# SemEval-2022 Task 2B. `dev_a`, `dev_b`: dev's expressions in halves, to choose on one and report the other.
SemEvalSplit = Literal["dev", "dev_a", "dev_b", "eval", "test"]

# AdMIRe, SemEval-2025 Task 1 A.
ADMIRE_CV_SPLIT = "train_cv"  # the items of train whose compounds a fold holds out
AdmireSplit = Literal["train", "dev", "test", "extended", "test_pt", "extended_pt", "train_cv"]
ADMIRE_SENSES = ("idiomatic", "literal")
ExpertsMode = Literal["experts_text", "experts_image"]
# Sentences of AStitchInLanguageModels, for which only the sense is known.
AStitchSplit = Literal["astitch_dev", "astitch_test"]
AStitchFile = Literal["train_zero_shot", "train_one_shot", "train_few_shot", "dev", "test"]
_ASTITCH_SHOTS = ("train_one_shot", "train_few_shot")  # sentences of dev's and test's compounds

# NCIMP: compounds that are compositional, partly, not (as people see them).
EPSILON_CLASSES = ("C", "PC", "NC")
EpsilonLanguage = Literal["en", "pt"]

LANGUAGE_NAMES = {"en": "English", "pt": "Portuguese", "gl": "Galician", "all": "together"}


def unseen_astitch(trained: Collection[str]) -> list[AStitchSplit]:
    """The splits of AStitch that share no compound with the AStitch files that were trained on.

    AdMIRe's items teach senses too, and share some compounds with both splits.
    """
    splits = () if set(trained) & set(_ASTITCH_SHOTS) else get_args(AStitchSplit)
    return [split for split in splits if split.removeprefix("astitch_") not in trained]


def fold_part(names: Iterable[str], part: int, parts: int) -> set[str]:
    """Part number `part` of distinct names, which are sorted, shuffled with a fixed seed and dealt out."""
    from numpy.random import default_rng

    ordered = sorted(set(names))
    order = default_rng(0).permutation(len(ordered)).tolist()
    return {ordered[i] for i in order[part::parts]}


def held_out_names(names: Iterable[str], fold: int, folds: int, kind: str) -> set[str]:
    """The names that fold number `fold` scores; it trains on the others.

    Args:
        kind: of the names, as `idioms in train and val`.

    Raises:
        UserError: if there is no such fold.
    """
    distinct = set(names)
    if not 0 <= fold < folds <= len(distinct):
        raise UserError(
            f"data.fold={fold} of data.folds={folds}: there are {len(distinct)} {kind}; folds are numbered "
            "from 0, and there can be at most one per name"
        )
    return fold_part(distinct, fold, folds)
