"""Names of the scores of ε-compositionality."""

from collections.abc import Iterable

from train.data.names import EPSILON_CLASSES, EpsilonLanguage

EPSILON_WORDS = ("modifier", "head")
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
