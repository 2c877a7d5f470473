"""Names of every score: the flat keys of `scores.json`, tables, trackers and sweeps.

Imports nothing heavy, so that an unknown key in an override is reported at once.
"""

import difflib
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

QueryMode = Literal["sentence", "span", "instruction_sentence", "instruction_span"]
Bm25Mode = Literal["bm25_sentence", "bm25_span"]
MultivectorMode = Literal["span_window", "span_late"]  # several vectors a document
# Training only: the span hidden, so that the context alone carries the meaning.
TrainQueryMode = QueryMode | Literal["masked_sentence", "masked_span"]
TrainDocumentMode = Literal["sentence", "span", "masked_sentence"]

CV_SPLIT = "cv"  # a fold of the idioms of train and val, instead of a split on disk

IDIOLINK_METRICS = ("r_precision", "ndcg@10")
IDIOLINK_SLICES = ("literal", "idiomatic", "gold", "silver")
VECTORS_PER_DOCUMENT = "vectors_per_document"
IDIOLINK_USAGES = ("literal", "idiomatic", "simplification", "sense")
IDIOLINK_RELEVANT_USAGES = ("idiomatic", "simplification", "sense")  # of an idiomatic query

LANGUAGE_NAMES = {"en": "English", "pt": "Portuguese", "gl": "Galician", "all": "together"}


def no_such_score(key: str, known: Sequence[str]) -> str:
    """In words, that a run has no score of this name, and which it has that look like it."""
    close = difflib.get_close_matches(key, known, n=3, cutoff=0.3)
    return (
        f"this run has no score {key!r}; the nearest it has: {', '.join(close) or 'none'} (keys are as the "
        "table of scores shows them)"
    )


def idiolink_key(split: str, mode: str, metric: str, slice_: str | None = None) -> str:
    """`idiolink/<split>/<mode>/<metric>[/<slice>]`; without a slice: over all queries."""
    key = f"idiolink/{split}/{mode}/{metric}"
    return key if slice_ is None else f"{key}/{slice_}"


def idiolink_keys(splits: Iterable[str], modes: Sequence[str]) -> list[str]:
    """Every key that the benchmark `idiolink` can give for these splits and modes."""
    keys = []
    for split in splits:
        for mode in modes:
            for metric in IDIOLINK_METRICS:
                keys += [idiolink_key(split, mode, metric, s) for s in (None, *IDIOLINK_SLICES)]
            keys += [idiolink_key(split, mode, "recall_at_r", u) for u in IDIOLINK_RELEVANT_USAGES]
            if mode in get_args(MultivectorMode):
                keys.append(idiolink_key(split, mode, VECTORS_PER_DOCUMENT))
    return keys


def diagnosis_key(split: str, mode: str, what: str, kind: str) -> str:
    """`idiolink/<split>/<mode>/<median_rank|above_sense>/<kind of document>`."""
    return f"idiolink/{split}/{mode}/{what}/{kind}"


def knowledge_key(split: str, what: str) -> str:
    """`idiolink/<split>/knowledge/<what>`: of no query mode."""
    return f"idiolink/{split}/knowledge/{what}"


# SemEval-2022 Task 2B. `dev_a`, `dev_b`: dev's expressions in halves, to choose on one and report the other.
SemEvalSplit = Literal["dev", "dev_a", "dev_b", "eval", "test"]
SEMEVAL_LANGUAGES = ("en", "pt", "gl", "all")
SEMEVAL_SUBSETS = ("idiom", "sts", "all")


def semeval_key(split: str, language: str, subset: str) -> str:
    """`semeval2022/<split>/<language>/<subset>/spearman`."""
    return f"semeval2022/{split}/{language}/{subset}/spearman"


def semeval_keys(splits: Iterable[str]) -> list[str]:
    """Every key that the benchmark `semeval2022` can give for these splits."""
    return [
        semeval_key(split, language, subset)
        for split in splits
        for language in SEMEVAL_LANGUAGES
        for subset in SEMEVAL_SUBSETS
    ]


# AdMIRe, SemEval-2025 Task 1 A.
ADMIRE_CV_SPLIT = "train_cv"  # the items of train whose compounds a fold holds out
AdmireSplit = Literal["train", "dev", "train_cv"]
AdmireMode = Literal["caption", "caption_span"]
ExpertsMode = Literal["experts_text", "experts_image"]
ADMIRE_METRICS = ("top1_accuracy", "rank_difference", "ndcg@5")
ADMIRE_SENSES = ("idiomatic", "literal")
SENSE_METRICS = ("sense_accuracy", "sense_macro_f1")
# Sentences of AStitchInLanguageModels, of which only the sense is known.
AStitchSplit = Literal["astitch_dev", "astitch_test"]
MAJORITY = "majority"  # the mode of a classifier that always gives the split's most frequent sense
GOLD_SENSE = "gold_sense"  # appended to an experts mode: items go to their expert by the gold sense


def admire_key(split: str, mode: str, metric: str, sense: str | None = None) -> str:
    """`admire/<split>/<mode>/<metric>[/<sense>]`; without a sense: over all items."""
    key = f"admire/{split}/{mode}/{metric}"
    return key if sense is None else f"{key}/{sense}"


def admire_keys(splits: Iterable[str], modes: Sequence[str]) -> list[str]:
    """Every key that the benchmark `admire` can give for these splits and modes."""
    return [
        admire_key(split, mode, metric, sense)
        for split in splits
        for mode in modes
        for metric in ADMIRE_METRICS
        for sense in (None, *ADMIRE_SENSES)
    ]


def experts_keys(splits: Iterable[str], mode: ExpertsMode) -> list[str]:
    """Every key that AdMIRe's experts can give for these splits, of either dataset."""
    keys = []
    for split in splits:
        if split in get_args(AStitchSplit):
            keys += [admire_key(split, m, metric) for m in (mode, MAJORITY) for metric in SENSE_METRICS]
        else:
            keys += admire_keys([split], [mode, f"{mode}_{GOLD_SENSE}"])
            keys += [admire_key(split, m, "sense_accuracy") for m in (mode, MAJORITY)]
    return keys


# ε-compositionality, on compounds that are compositional, partly, not (as people see them).
EPSILON_CLASSES = ("C", "PC", "NC")
EPSILON_WORDS = ("modifier", "head")
EpsilonLanguage = Literal["en", "pt"]
# Of a class, by pairs: also of one word's synonyms alone.
EPSILON_METRICS = (
    "p_value",
    "rank_biserial",
    "rank_biserial_signed",
    "rank_biserial_order_free",
    "rank_biserial_order_free_low",
    "rank_biserial_order_free_high",
    "p_value_order_free",
    "num_pairs",
)
# Of a class or all of them.
EPSILON_FACTS = (
    "num_compounds",
    "phrase_distance_mean",
    "phrase_distance_std",
    "context_distance_mean",
    "context_distance_std",
)


def epsilon_key(language: EpsilonLanguage, class_: str, metric: str, word: str | None = None) -> str:
    """`epsilon/<class>/<metric>[/modifier|/head]`; Portuguese under `epsilon/pt/`."""
    key = f"epsilon/{class_}/{metric}" if language == "en" else f"epsilon/{language}/{class_}/{metric}"
    return key if word is None else f"{key}/{word}"


def epsilon_keys(languages: Iterable[EpsilonLanguage], *, by_word: bool) -> list[str]:
    """Every key that the benchmark `epsilon` can give.

    Args:
        by_word: also of modifiers and heads alone (English only).
    """
    keys = []
    for language in languages:
        for class_ in EPSILON_CLASSES:
            words = (None, *EPSILON_WORDS) if by_word and language == "en" else (None,)
            keys += [epsilon_key(language, class_, m, word) for m in EPSILON_METRICS for word in words]
        for class_ in (*EPSILON_CLASSES, "all"):
            keys += [epsilon_key(language, class_, fact) for fact in EPSILON_FACTS]
        keys.append(epsilon_key(language, "all", "num_pairs"))
    return keys
