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
        meanings: of each row, such as "idiomatic" and "literal".

    Returns:
        [idiom, meaning] of each row as numbers from 0, in the order in which names first occur.

    Raises:
        ValueError: if there are not as many meanings as idioms.
    """
    numbers: tuple[dict[Hashable, int], dict[Hashable, int]] = ({}, {})
    return [
        [number_of.setdefault(name, len(number_of)) for number_of, name in zip(numbers, pair, strict=True)]
        for pair in zip(idioms, meanings, strict=True)
    ]


def check_dataset(dataset: Any, loss: nn.Module) -> None:
    """Check, before training, that a loss reads a dataset's columns as intended.

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
    label = row.get(labels)
    texts = [name for name in names if name != labels]
    for name in texts:
        if not isinstance(row[name], str):
            raise ValueError(f"column {name}: expected texts, got {row[name]!r}: {_remove(name)}")
    if (word := _first_name(label)) is not None:
        raise ValueError(
            f"column {labels}: {word!r} is a name, and labels are numbers: meaning_numbers(idioms, meanings) "
            "makes them"
        )
    takes = getattr(loss, "texts", None)
    if takes == "tuple":
        if len(texts) < 2:
            raise ValueError(f"expected columns anchor, positive and any negatives, got {', '.join(texts)}")
        if unknown := [name for name in texts[2:] if not name.startswith("negative")]:
            raise ValueError(
                f"column {unknown[0]} would be taken for a negative: {_remove(unknown[0])}, or, if it is "
                "one, name it negative_1, …"
            )
    elif takes == "candidates":
        num = len(label) if isinstance(label, Sequence) else 0
        if len(texts) != 1 + num:
            raise ValueError(
                f"label has ranks of {num} candidates, which with the query need {1 + num} columns of "
                f"texts, but there are {', '.join(texts)}"
            )
    elif takes == "one" and len(texts) != 1:
        raise ValueError(
            f"{type(loss).__name__} takes one column of texts, but there are {', '.join(texts)}: "
            f"{_remove(*texts[1:])}"
        )


def _first_name(label: object) -> str | None:
    """The first word among the numbers of a label, however deep."""
    if isinstance(label, str):
        return label
    parts = label if isinstance(label, Sequence) else ()
    return next((word for part in parts if (word := _first_name(part)) is not None), None)


def _remove(*names: str) -> str:
    return f"leave it out by dataset.remove_columns({list(names)})"
