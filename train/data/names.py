"""Names of the data sets' splits, languages and classes, and of the ways in which their texts are embedded.

Imports nothing heavy, so that declarations can use them.
"""

from collections.abc import Collection
from typing import Literal, get_args

# IdioLink.
CV_SPLIT = "cv"  # a fold of the idioms of train and val, instead of a split on disk
QueryMode = Literal["sentence", "span", "instruction_sentence", "instruction_span"]
# Training only: the span hidden, so that the context alone carries the meaning.
TrainQueryMode = QueryMode | Literal["masked_sentence", "masked_span"]
TrainDocumentMode = Literal["sentence", "span", "masked_sentence"]

# SemEval-2022 Task 2B. `dev_a`, `dev_b`: dev's expressions in halves, to choose on one and report the other.
SemEvalSplit = Literal["dev", "dev_a", "dev_b", "eval", "test"]

# AdMIRe, SemEval-2025 Task 1 A.
ADMIRE_CV_SPLIT = "train_cv"  # the items of train whose compounds a fold holds out
AdmireSplit = Literal["train", "dev", "train_cv"]
ADMIRE_SENSES = ("idiomatic", "literal")
ExpertsMode = Literal["experts_text", "experts_image"]
# Sentences of AStitchInLanguageModels, of which only the sense is known.
AStitchSplit = Literal["astitch_dev", "astitch_test"]
AStitchFile = Literal["train_zero_shot", "train_one_shot", "train_few_shot", "dev", "test"]
_ASTITCH_SHOTS = ("train_one_shot", "train_few_shot")  # sentences of dev's and test's compounds

# NCIMP: compounds that are compositional, partly, not (as people see them).
EPSILON_CLASSES = ("C", "PC", "NC")
EpsilonLanguage = Literal["en", "pt"]

LANGUAGE_NAMES = {"en": "English", "pt": "Portuguese", "gl": "Galician", "all": "together"}


def unseen_astitch(taught: Collection[str]) -> list[AStitchSplit]:
    """The splits of AStitch none of whose compounds is in AStitch's files that taught the senses.

    AdMIRe's items teach senses too, and share some compounds with both splits.
    """
    splits = () if set(taught) & set(_ASTITCH_SHOTS) else get_args(AStitchSplit)
    return [split for split in splits if split.removeprefix("astitch_") not in taught]
