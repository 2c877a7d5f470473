"""Names of SemEval-2022 Task 2B's scores."""

from collections.abc import Iterable

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
