"""Rows for the trainer of sentence-transformers: labels from names, and a check of a dataset's columns.

That trainer takes every column but the labels for texts: one that was left over silently becomes a negative.
Labels become a tensor, which names cannot.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from torch import nn

_LABELS = ("label", "labels", "score", "scores")  # what the trainer takes for labels


def meaning_numbers(idioms: Iterable[Hashable], meanings: Iterable[Hashable]) -> list[list[int]]:
    """The column `label` of :class:`~idiomloss.sentence_transformers.InfoNCETrainerLoss` from names.

    Args:
        idioms: of each row, such as "break the ice".
        meanings: likewise, such as "idiomatic" and "literal".

    Returns:
        [idiom, meaning] of each row as numbers from 0, in the order in which names first occur.

    Raises:
        ValueError: if there are not as many meanings as idioms.
    """
    numbers: tuple[dict[Hashable, int], dict[Hashable, int]] = ({}, {})
    return [
        [known.setdefault(name, len(known)) for known, name in zip(numbers, pair, strict=True)]
        for pair in zip(idioms, meanings, strict=True)
    ]


def check_dataset(dataset: Any, loss: nn.Module) -> None:
    """Check, before training, that a loss takes a dataset's columns as they are meant.

    Args:
        dataset: of the trainer, such as a `datasets.Dataset`; its first row is looked at.
        loss: one of `idiomloss.sentence_transformers`.

    Raises:
        ValueError: naming the column that is wrong, and what to do.
    """
    names: Sequence[str] = dataset.column_names
    if not isinstance(names, Sequence):  # of several splits
        raise ValueError(f"the dataset has splits ({', '.join(names)}): check each, as dataset['train']")
    row = dataset[0]
    labels = next((name for name in _LABELS if name in names), None)
    texts = [name for name in names if name != labels]
    for name in texts:
        if not isinstance(row[name], str):
            raise ValueError(f"column {name}: expected texts, got {row[name]!r}: {_remove(name)}")
    if labels is not None:
        _check_numbers(labels, row[labels])
    _check_number_of_texts(texts, row.get(labels), loss)


def _check_number_of_texts(texts: Sequence[str], label: Any, loss: nn.Module) -> None:
    takes = getattr(loss, "texts", None)
    if takes == "tuple":
        if len(texts) < 2:
            raise ValueError(f"expected columns anchor, positive and any negatives, got {', '.join(texts)}")
        for name in texts[2:]:
            if not name.startswith("negative"):
                raise ValueError(
                    f"column {name} would be taken for a negative: {_remove(name)}, or, if it is one, "
                    "name it negative_1, …"
                )
    elif takes == "candidates":
        num_candidates = len(label) if isinstance(label, Sequence) else 0
        if len(texts) != 1 + num_candidates:
            raise ValueError(
                f"a query and {num_candidates} candidates, as label has ranks, are {1 + num_candidates} "
                f"columns of texts, but there are {', '.join(texts)}"
            )
    elif takes == "one" and len(texts) != 1:
        raise ValueError(
            f"{type(loss).__name__} takes one column of texts, but there are {', '.join(texts)}: "
            f"{_remove(*texts[1:])}"
        )


def _check_numbers(name: str, value: Any) -> None:
    if isinstance(value, str):
        raise ValueError(
            f"column {name}: {value!r} is a name, and labels are numbers: meaning_numbers(idioms, meanings) "
            "makes them"
        )
    for part in value if isinstance(value, Sequence) else ():
        _check_numbers(name, part)


def _remove(*names: str) -> str:
    return f"leave it out by dataset.remove_columns({list(names)})"
