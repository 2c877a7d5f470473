"""Names of AdMIRe's scores, of captions and of the experts."""

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from train.data.names import ADMIRE_SENSES, AStitchSplit, ExpertsMode

AdmireMode = Literal["caption", "caption_span"]
ADMIRE_METRICS = ("top1_accuracy", "rank_difference", "ndcg@5")
SENSE_METRICS = ("sense_accuracy", "sense_macro_f1")
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
            keys += [admire_key(split, m, "sense_macro_f1") for m in (mode, MAJORITY)]
        else:
            keys += admire_keys([split], [mode, f"{mode}_{GOLD_SENSE}"])
        senses = (None, *ADMIRE_SENSES)
        keys += [admire_key(split, m, "sense_accuracy", s) for m in (mode, MAJORITY) for s in senses]
    return keys
