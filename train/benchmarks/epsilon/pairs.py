"""The pairs of ε-compositionality: idiomaticity-ε and baseline-ε of a compound's versions in context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train.scores import EpsilonLanguage

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# Phrases that the model does not tell apart (as an uncased one, of case) have no ε: only rounding is left.
_NO_DISTANCE = 1e-6


@dataclass(frozen=True)
class Unit:
    """Versions of a compound that are compared, in one sentence: rows of the embeddings."""

    compound: int
    compound_name: str
    sentence: str
    class_: str
    word: str
    phrases: list[str]
    original: int
    versions: list[int]
    original_in_context: int
    versions_in_context: list[int]


@dataclass(frozen=True)
class Block:
    """R units of M versions each."""

    units: list[Unit]
    original: Indices  # (R,)
    versions: Indices  # (R, M)
    original_in_context: Indices  # (R,)
    versions_in_context: Indices  # (R, M)
    by_name: Indices  # (R, M): versions in alphabetical order
    group: Indices  # (R,): units of one compound and word, in its several sentences


def block_of(units: list[Unit]) -> Block:
    groups: dict[tuple[int, str], int] = {}
    return Block(
        units,
        np.array([u.original for u in units]),
        np.array([u.versions for u in units]),
        np.array([u.original_in_context for u in units]),
        np.array([u.versions_in_context for u in units]),
        np.array([np.argsort(np.array(u.phrases), kind="stable") for u in units]),
        np.array([groups.setdefault((u.compound, u.word), len(groups)) for u in units]),
    )


class Measured:
    """All ε of a block."""

    def __init__(self, block: Block, vectors: Array) -> None:
        self.block = block
        original, versions = vectors[block.original], vectors[block.versions]
        self.phrase = 1 - np.einsum("rmd,rd->rm", versions, original)  # (R, M): d(aᵢ, b)
        self.phrases = 1 - np.einsum("rmd,rnd->rmn", versions, versions)  # (R, M, M): d(aᵢ, aⱼ)
        original, versions = vectors[block.original_in_context], vectors[block.versions_in_context]
        self.context = 1 - np.einsum("rmd,rd->rm", versions, original)
        self.contexts = 1 - np.einsum("rmd,rnd->rmn", versions, versions)
        self.idiomaticity = _epsilon(self.context, self.phrase)  # (R, M)
        self.baseline = _epsilon(self.contexts, self.phrases)  # (R, M, M)


def _epsilon(in_context: Array, alone: Array) -> Array:
    """NaN where the phrases alone have no distance."""
    return in_context / np.where(alone > _NO_DISTANCE, alone, np.nan) - 1


@dataclass(frozen=True)
class Pairs:
    """The P pairs in the data's own order of synonyms; each field (P,)."""

    names: list[tuple[str, str, str, str]]  # compound, its sentence, version, next version
    idiomaticity: Array
    baseline: Array
    distances: Array  # (P, 4): d(a, b), d(a, a′), d(ac, bc), d(ac, a′c)
    class_: NDArray[np.str_]
    word: NDArray[np.str_]
    compound: Indices

    @property
    def defined(self) -> NDArray[np.bool_]:
        return np.isfinite(self.idiomaticity) & np.isfinite(self.baseline)

    @classmethod
    def of(cls, measured: Sequence[Measured]) -> Pairs:
        columns: list[list[Any]] = [[] for _ in range(6)]
        names: list[tuple[str, str, str, str]] = []
        for m in measured:
            first, second = _neighbours(m.block.versions.shape[1])
            columns[0].append(m.idiomaticity[:, first].ravel())
            columns[1].append(m.baseline[:, first, second].ravel())
            distances = [m.phrase[:, first], m.phrases[:, first, second]]
            distances += [m.context[:, first], m.contexts[:, first, second]]
            columns[2].append(np.stack(distances, axis=-1).reshape(-1, 4))
            units = [u for u in m.block.units for _ in first]
            columns[3].append([u.class_ for u in units])
            columns[4].append([u.word for u in units])
            columns[5].append([u.compound for u in units])
            names += [
                (u.compound_name, u.sentence, u.phrases[i], u.phrases[j])
                for u in m.block.units
                for i, j in zip(first, second, strict=True)
            ]
        return cls(names, *(np.concatenate(column) for column in columns))

    def records(self, language: EpsilonLanguage) -> list[dict[str, Any]]:
        return [
            {
                "language": language,
                "compound": compound,
                "class": str(class_),
                "word": str(word) or None,
                "sentence": sentence,
                "version": version,
                "next": following,
                "idiomaticity": _number(idiomaticity),
                "baseline": _number(baseline),
            }
            for (compound, sentence, version, following), class_, word, idiomaticity, baseline in zip(
                *(self.names, self.class_, self.word, self.idiomaticity, self.baseline), strict=True
            )
        ]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _neighbours(num_versions: int) -> tuple[Indices, Indices]:
    """Each version and the next, cyclically; of two there is one pair."""
    first = np.arange(num_versions if num_versions > 2 else num_versions - 1)
    return first, (first + 1) % num_versions


def shuffled_differences(measured: Sequence[Measured], orders: int) -> Array:
    """Idiomaticity − baseline of each pair (orders, P), synonyms in random order; columns as `Pairs`."""
    rng = np.random.default_rng(0)
    drawn = []
    for m in measured:
        block = m.block
        num_rows, num_versions = block.versions.shape
        first, second = _neighbours(num_versions)
        num_groups = int(block.group.max()) + 1
        # The same order in each sentence of a compound, as in the data.
        order = rng.random((orders, num_groups, num_versions)).argsort(axis=-1)[:, block.group]
        rows = np.arange(num_rows)[:, None]
        order = block.by_name[rows[None], order]
        differences = m.idiomaticity[:, :, None] - m.baseline
        chosen = differences[rows[None], order[:, :, first], order[:, :, second]]
        drawn.append(chosen.reshape(orders, -1))
    return np.concatenate(drawn, axis=1)
