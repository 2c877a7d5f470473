"""Names of the data sets' splits, languages and classes, and of the ways in which their texts are embedded.

Imports nothing heavy, so that declarations can use them.
"""

from typing import Literal

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

# NCIMP: compounds that are compositional, partly, not (as people see them).
EPSILON_CLASSES = ("C", "PC", "NC")
EpsilonLanguage = Literal["en", "pt"]

LANGUAGE_NAMES = {"en": "English", "pt": "Portuguese", "gl": "Galician", "all": "together"}
