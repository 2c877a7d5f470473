"""The pairs of ε-compositionality: idiomaticity-ε and baseline-ε of a compound's versions in context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train.benchmarks.epsilon import EpsilonBenchmarkOptions
from train.data.names import EpsilonLanguage
from train.data.ncimp import WORDS, Ncimp

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# Phrases that the model does not distinguish (as an uncased one, of case) have no ε: only rounding is left.
_NO_DISTANCE = 1e-6


@dataclass(frozen=True)
class Unit:
    """A phrase and its M versions, which are compared with it and with one another, in one sentence.

    Attributes:
        compound: name of the compound.
        class_: of the compound.
        word: which of the compound's words has synonyms in the versions; empty for either.
        phrases: the phrase, then its versions: 1 + M.
        sentences: the sentence with the compound, then with each version in its place: 1 + M.
    """

    compound: str
    class_: str
    word: str
    phrases: list[str]
    sentences: list[str]


def units_of(data: Ncimp, options: EpsilonBenchmarkOptions) -> Iterator[Unit]:
    """All that is compared in a language. In Portuguese one word's synonyms make no pair: there is one."""
    any_word = data.language == "pt" or options.versions == "any_word"
    for compound in data.compounds:
        if any_word:
            versions = [version for word in WORDS for version in compound.versions[word]]
            compared = {"": list({version.phrase: version for version in versions}.values())}
        else:
            compared = {word: list(compound.versions[word]) for word in WORDS}
        for word, some in compared.items():
            if len(some) < 2:
                continue
            names = [compound.name, *(version.phrase for version in some)]
            phrases = names
            if word and options.phrases == "word":
                phrases = [compound.words[word], *(v.synonym or v.phrase for v in some)]  # type: ignore[index]
            class_ = compound.class_type if options.classes == "type" else compound.class_token
            for before, after in compound.contexts:
                sentences = [" ".join(filter(None, (before, name, after))) for name in names]
                yield Unit(compound.name, class_, word, phrases, sentences)


class Block:
    """R units of M versions each, with their ε.

    Args:
        vectors: text → its row in `rows`.
        rows: unit vectors.

    Attributes:
        epsilon: (R, 1 + M, 1 + M), ε of any two phrases of a unit; NaN without a distance outside context.
        distances: (R, 1 + M, 1 + M, 2), those outside context and in it.
    """

    def __init__(self, units: Sequence[Unit], vectors: Mapping[str, int], rows: Array) -> None:
        self.units = list(units)
        alone, in_context = (
            1 - (chosen := rows[[[vectors[text] for text in texts] for texts in of_units]]) @ chosen.mT
            for of_units in ([u.phrases for u in units], [u.sentences for u in units])
        )
        self.distances = np.stack([alone, in_context], axis=-1)
        self.epsilon: Array = in_context / np.where(alone > _NO_DISTANCE, alone, np.nan) - 1

    def neighbours(self) -> tuple[Indices, Indices]:
        """(N,), each version and the next, cyclically; of two there is one pair."""
        num_versions = self.epsilon.shape[1] - 1
        first = np.arange(num_versions if num_versions > 2 else num_versions - 1)
        return first + 1, (first + 1) % num_versions + 1

    def shuffled_differences(self, orders: int, rng: np.random.Generator) -> Array:
        """Idiomaticity − baseline of each pair, synonyms in random orders: (orders, R · N)."""
        num_units, num_versions = len(self.units), self.epsilon.shape[1] - 1  # R, M
        by_name = np.array([np.argsort(np.array(u.phrases[1:]), kind="stable") for u in self.units])  # (R, M)
        # Drawn for a compound and word, so that versions have the same order in each of its sentences.
        groups: dict[tuple[str, str], int] = {}
        group = [groups.setdefault((u.compound, u.word), len(groups)) for u in self.units]
        places = rng.random((orders, len(groups), num_versions)).argsort(axis=-1)[:, group]  # (orders, R, M)
        unit = np.arange(num_units)[None, :, None]  # (1, R, 1)
        order = by_name[unit, places]
        first, second = self.neighbours()
        version, following = order[:, :, first - 1] + 1, order[:, :, second - 1] + 1  # (orders, R, N)
        differences: Array = self.epsilon[unit, 0, version] - self.epsilon[unit, version, following]
        return differences.reshape(orders, num_units * len(first))


class Pairs:
    """The P pairs of all blocks, synonyms in the data's order; each array (P,).

    Attributes:
        names: unit, version, next version.
        distances: (P, 2, 2): of a version with the phrase and with the next version; alone and in context.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.names = [
            (unit, unit.phrases[i], unit.phrases[j])
            for block in blocks
            for unit in block.units
            for i, j in zip(*block.neighbours(), strict=True)
        ]
        ends = [block.neighbours() for block in blocks]
        both = list(zip(blocks, ends, strict=True))
        self.idiomaticity: Array = np.concatenate([b.epsilon[:, 0, i].ravel() for b, (i, _) in both])
        self.baseline: Array = np.concatenate([b.epsilon[:, i, j].ravel() for b, (i, j) in both])
        self.distances: Array = np.concatenate(
            [
                np.stack([b.distances[:, 0, i], b.distances[:, i, j]], axis=2).reshape(-1, 2, 2)
                for b, (i, j) in both
            ]
        )
        self.class_ = np.array([unit.class_ for unit, _, _ in self.names])
        self.word = np.array([unit.word for unit, _, _ in self.names])
        self.compound = np.array([unit.compound for unit, _, _ in self.names])
        self.defined = np.isfinite(self.idiomaticity) & np.isfinite(self.baseline)

    def items(self, language: EpsilonLanguage) -> Iterator[dict[str, Any]]:
        """A record for each pair."""
        epsilons = zip(self.idiomaticity.tolist(), self.baseline.tolist(), strict=True)
        for (unit, version, following), (idiomaticity, baseline) in zip(self.names, epsilons, strict=True):
            yield {
                "language": language,
                "compound": unit.compound,
                "class": unit.class_,
                "word": unit.word or None,
                "sentence": unit.sentences[0],
                "version": version,
                "next": following,
                "idiomaticity": idiomaticity,
                "baseline": baseline,
            }
