"""Parts of a data set by name, the same in every run."""

from __future__ import annotations

from collections.abc import Iterable

from train.errors import UserError


def shuffled_part(names: Iterable[str], part: int, parts: int) -> set[str]:
    """Part number `part` of distinct names, which are sorted, shuffled with a fixed seed and dealt out."""
    from numpy.random import default_rng

    ordered = sorted(set(names))
    order = default_rng(0).permutation(len(ordered)).tolist()
    return {ordered[i] for i in order[part::parts]}


def held_out(names: Iterable[str], fold: int, folds: int, what: str) -> set[str]:
    """The names that fold number `fold` scores; it trains on the others.

    Args:
        what: the names, as `idioms in train and val`.

    Raises:
        UserError: if there is no such fold.
    """
    distinct = set(names)
    if not 0 <= fold < folds <= len(distinct):
        raise UserError(
            f"data.fold={fold} of data.folds={folds}: there are {len(distinct)} {what}; folds go from 0, and "
            "there are at most as many as names to hold out"
        )
    return shuffled_part(distinct, fold, folds)
