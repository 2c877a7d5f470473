"""Names of IdioLink's scores."""

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

Bm25Mode = Literal["bm25_sentence", "bm25_span"]
MultivectorMode = Literal["span_window", "span_late"]  # several vectors a document

IDIOLINK_METRICS = ("r_precision", "ndcg@10")
IDIOLINK_SLICES = ("literal", "idiomatic", "gold", "silver")
VECTORS_PER_DOCUMENT = "vectors_per_document"
IDIOLINK_USAGES = ("literal", "idiomatic", "simplification", "sense")
IDIOLINK_RELEVANT_USAGES = ("idiomatic", "simplification", "sense")  # of an idiomatic query


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
