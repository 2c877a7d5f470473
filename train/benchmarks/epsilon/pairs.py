"""The pairs of ε-compositionality: idiomaticity-ε and baseline-ε of a compound's versions in context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from train.data.names import EpsilonLanguage
from train.data.ncimp import WORDS, Compound, Version, Word

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Phrases = Literal["word", "compound"]
Versions = Literal["same_word", "any_word"]

# Phrases that the model does not tell apart (as an uncased one, of case) have no ε: only rounding is left.
_NO_DISTANCE = 1e-6


@dataclass(frozen=True)
class Unit:
    """A phrase and its M versions, which are compared with it and with one another, in one sentence.

    Attributes:
        compound: number of the compound in its data.
        compound_name: the compound.
        class_: of the compound.
        word: which of the compound's words has synonyms in the versions; empty for either.
        original: the phrase.
        versions: M phrases.
        sentence: the sentence with the compound.
        version_sentences: M sentences, each with a version in the compound's place.
    """

    compound: int
    compound_name: str
    class_: str
    word: str
    original: str
    versions: list[str]
    sentence: str
    version_sentences: list[str]

    @property
    def texts(self) -> list[str]:
        """All texts to embed."""
        return [self.original, *self.versions, self.sentence, *self.version_sentences]


def compound_units(
    compound: Compound, number: int, class_: str, phrases: Phrases, versions: Versions
) -> Iterator[Unit]:
    """The units of a compound in each of its sentences, for options as in `EpsilonBenchmark`."""
    for word, compared in _compared_versions(compound, versions):
        if len(compared) < 2:
            continue
        if word is None or phrases == "compound":
            original, names = compound.name, [version.phrase for version in compared]
        else:
            original, names = compound.words[word], [v.synonym or v.phrase for v in compared]
        for before, after in compound.contexts:
            yield Unit(
                number,
                compound.name,
                class_,
                word or "",
                original,
                names,
                _in_context(before, compound.name, after),
                [_in_context(before, version.phrase, after) for version in compared],
            )


def _compared_versions(compound: Compound, versions: Versions) -> list[tuple[Word | None, Sequence[Version]]]:
    """The versions that are compared with one another, and the word that they replace; None for either."""
    if versions == "same_word":
        return [(word, compound.versions[word]) for word in WORDS]
    by_phrase = {version.phrase: version for word in WORDS for version in compound.versions[word]}
    return [(None, list(by_phrase.values()))]


def _in_context(before: str, phrase: str, after: str) -> str:
    return " ".join(filter(None, (before, phrase, after)))


@dataclass(frozen=True)
class Block:
    """R units of M versions each; all but `by_name` and `group` are rows of the embeddings.

    Attributes:
        original: (R,).
        versions: (R, M).
        original_in_context: (R,).
        versions_in_context: (R, M).
        by_name: (R, M), the versions' positions in alphabetical order.
        group: (R,), the same for units of one compound and word, in its several sentences.
    """

    units: list[Unit]
    original: Indices
    versions: Indices
    original_in_context: Indices
    versions_in_context: Indices
    by_name: Indices
    group: Indices

    @classmethod
    def of(cls, units: Sequence[Unit], rows: Mapping[str, int]) -> Block:
        """Units that have equally many versions.

        Args:
            rows: text → row of its embedding.
        """
        groups: dict[tuple[int, str], int] = {}
        return cls(
            list(units),
            original=np.array([rows[unit.original] for unit in units]),
            versions=np.array([[rows[text] for text in unit.versions] for unit in units]),
            original_in_context=np.array([rows[unit.sentence] for unit in units]),
            versions_in_context=np.array([[rows[text] for text in unit.version_sentences] for unit in units]),
            by_name=np.array([np.argsort(np.array(unit.versions), kind="stable") for unit in units]),
            group=np.array([groups.setdefault((unit.compound, unit.word), len(groups)) for unit in units]),
        )


class Measured:
    """All ε of a block."""

    def __init__(self, block: Block, vectors: Array) -> None:
        self.block = block
        original, versions = vectors[block.original], vectors[block.versions]  # (R, D), (R, M, D)
        self.phrase = 1 - np.einsum("rmd,rd->rm", versions, original)  # (R, M): d(aᵢ, b)
        self.phrases = 1 - np.einsum("rmd,rnd->rmn", versions, versions)  # (R, M, M): d(aᵢ, aⱼ)
        original, versions = vectors[block.original_in_context], vectors[block.versions_in_context]
        self.context = 1 - np.einsum("rmd,rd->rm", versions, original)  # (R, M): d(aᵢc, bc)
        self.contexts = 1 - np.einsum("rmd,rnd->rmn", versions, versions)  # (R, M, M): d(aᵢc, aⱼc)
        self.idiomaticity = _epsilon(self.context, self.phrase)  # (R, M)
        self.baseline = _epsilon(self.contexts, self.phrases)  # (R, M, M)


def _epsilon(in_context: Array, alone: Array) -> Array:
    """NaN where the phrases without context have no distance."""
    return in_context / np.where(alone > _NO_DISTANCE, alone, np.nan) - 1


@dataclass(frozen=True)
class Pairs:
    """The P pairs, synonyms in the data's order; each field (P,).

    Attributes:
        names: compound, its sentence, version, next version.
        distances: (P, 4): d(a, b), d(a, a′), d(ac, bc), d(ac, a′c).
    """

    names: list[tuple[str, str, str, str]]
    idiomaticity: Array
    baseline: Array
    distances: Array
    class_: NDArray[np.str_]
    word: NDArray[np.str_]
    compound: Indices

    @property
    def defined(self) -> NDArray[np.bool_]:
        """(P,), whether a pair has both ε."""
        return np.isfinite(self.idiomaticity) & np.isfinite(self.baseline)

    @classmethod
    def of(cls, measured: Sequence[Measured]) -> Pairs:
        """The pairs of all blocks, one block after the other."""
        blocks = [cls._of_block(m) for m in measured]
        return cls(
            names=[name for block in blocks for name in block.names],
            idiomaticity=np.concatenate([block.idiomaticity for block in blocks]),
            baseline=np.concatenate([block.baseline for block in blocks]),
            distances=np.concatenate([block.distances for block in blocks]),
            class_=np.concatenate([block.class_ for block in blocks]),
            word=np.concatenate([block.word for block in blocks]),
            compound=np.concatenate([block.compound for block in blocks]),
        )

    @classmethod
    def _of_block(cls, measured: Measured) -> Pairs:
        units = measured.block.units
        first, second = _neighbours(len(units[0].versions))  # (N,), the pairs of a unit
        distances = [
            measured.phrase[:, first],  # (R, N)
            measured.phrases[:, first, second],
            measured.context[:, first],
            measured.contexts[:, first, second],
        ]
        unit_of_pair = [unit for unit in units for _ in first]
        return cls(
            names=[
                (unit.compound_name, unit.sentence, unit.versions[i], unit.versions[j])
                for unit in units
                for i, j in zip(first, second, strict=True)
            ],
            idiomaticity=measured.idiomaticity[:, first].ravel(),
            baseline=measured.baseline[:, first, second].ravel(),
            distances=np.stack(distances, axis=-1).reshape(-1, 4),
            class_=np.array([unit.class_ for unit in unit_of_pair]),
            word=np.array([unit.word for unit in unit_of_pair]),
            compound=np.array([unit.compound for unit in unit_of_pair]),
        )

    def records(self, language: EpsilonLanguage) -> list[dict[str, Any]]:
        """A record a pair, for the file of single results."""
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
                self.names, self.class_, self.word, self.idiomaticity, self.baseline, strict=True
            )
        ]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _neighbours(num_versions: int) -> tuple[Indices, Indices]:
    """Each version and the next, cyclically; of two there is one pair."""
    first = np.arange(num_versions if num_versions > 2 else num_versions - 1)
    return first, (first + 1) % num_versions


def shuffled_differences(measured: Sequence[Measured], orders: int) -> Array:
    """Idiomaticity − baseline of each pair, synonyms in random orders: (orders, P), columns as in `Pairs`."""
    rng = np.random.default_rng(0)
    return np.concatenate([_shuffled_block(m, orders, rng) for m in measured], axis=1)


def _shuffled_block(measured: Measured, orders: int, rng: np.random.Generator) -> Array:
    """(orders, R · N) for R units with N pairs each."""
    block = measured.block
    num_units, num_versions = block.versions.shape  # R, M
    num_groups = int(block.group.max()) + 1
    # Drawn for a group, so that versions have the same order in each sentence of a compound, as in the data.
    places = rng.random((orders, num_groups, num_versions)).argsort(axis=-1)  # (orders, groups, M)
    places = places[:, block.group]  # (orders, R, M)
    unit = np.arange(num_units)[None, :, None]  # (1, R, 1)
    order = block.by_name[unit, places]  # (orders, R, M)
    first, second = _neighbours(num_versions)  # (N,)
    version, following = order[:, :, first], order[:, :, second]  # (orders, R, N)
    idiomaticity = measured.idiomaticity[unit, version]  # (orders, R, N)
    baseline = measured.baseline[unit, version, following]  # (orders, R, N)
    return (idiomaticity - baseline).reshape(orders, -1)
