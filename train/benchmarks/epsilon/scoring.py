"""ε-compositionality: does context bring a compound and its literal rewordings closer, or not?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, wilcoxon
from torch import Tensor

from train.benchmarks import BenchmarkResult, Distributions
from train.benchmarks.epsilon.keys import EPSILON_WORDS, epsilon_key
from train.benchmarks.epsilon.kinds import KINDS, SIGNIFICANT, WEAK, kind_of
from train.benchmarks.epsilon.pairs import (
    Array,
    Block,
    Measured,
    Pairs,
    Phrases,
    Unit,
    Versions,
    compound_units,
    shuffled_differences,
)
from train.data.names import EPSILON_CLASSES, EpsilonLanguage
from train.data.ncimp import Ncimp
from train.requests import Request, Role


class EpsilonBenchmark:
    """Whether idiomatic compounds stay apart from rewordings in context, beyond what rewordings do.

    ε(a, b, c) = d(μ(ac), μ(bc)) / d(μ(a), μ(b)) − 1, with cosine distance d, embedding μ, phrases a and b,
    and context c. For a compound with synonyms a₁ … aₘ of one of its words b, and each of its sentences
    c, the *idiomaticity-ε* ε(aᵢ, b, c) is paired with the *baseline-ε* ε(aᵢ, aᵢ₊₁, c), cyclically (two
    synonyms give one pair, one gives none). In context, a and b are whole compounds. For each class there are
    the p of a one-sided paired Wilcoxon test (idiomaticity > baseline) and the rank-biserial W⁺ / (W⁺ + W⁻):
    0.5 = no effect, more = the compound stays apart. The standard coefficient, from −1 to 1, is
    `rank_biserial_signed`.

    The paper does not specify the pairing; this one reproduces its figures. It depends on the order in which
    synonyms are listed. So the median over many random orders is given too (`rank_biserial_order_free`,
    `p_value_order_free`), with the interval that holds 95% of them (`_low`, `_high`). Synonyms are sorted
    first and the seed is fixed, so this does not depend on the order of the data. The interval covers the
    choice of order only, not that of compounds; p treats the pairs of a compound as independent, as in the
    paper.

    Portuguese has one synonym a word, hence no baseline for a single word. It is always scored with
    `phrases="compound"` and `versions="any_word"`, which has no counterpart in the published figures.

    Args:
        data: one entry for each language.
        classes: a compound's class as such (`type`), or in its sentences (`token`).
        phrases: a and b are single words (`word`), or whole compounds, with and without synonym (`compound`).
        versions: a baseline compares versions with synonyms of the `same_word`, or of `any_word`.
        orders: number of random orders.
        instruction: put before each text.

    References:
        Wold, Simon, Velldal and Øvrelid, on ε-compositionality; the interpretation is ours.
    """

    name = "epsilon"
    without_gold: Sequence[str] = ()

    def __init__(
        self,
        data: Sequence[Ncimp],
        classes: Literal["type", "token"] = "type",
        phrases: Phrases = "word",
        versions: Versions = "same_word",
        orders: int = 1000,
        instruction: str | None = None,
    ) -> None:
        if versions == "any_word" and phrases == "word":
            raise ValueError("versions=any_word compares whole compounds: it needs phrases=compound")
        self.files: list[Path] = list(dict.fromkeys(path for ncimp in data for path in ncimp.files))
        self.classes = classes
        self.orders = orders
        units = {ncimp.language: self._units(ncimp, phrases, versions) for ncimp in data}
        texts = dict.fromkeys(
            text for in_language in units.values() for unit in in_language for text in unit.texts
        )
        rows = {text: row for row, text in enumerate(texts)}
        self._blocks = {language: _blocks(in_language, rows) for language, in_language in units.items()}
        role: Role = "document" if instruction is None else "query"
        self.requests = [Request(text, role=role, instruction=instruction) for text in texts]

    def _units(self, ncimp: Ncimp, phrases: Phrases, versions: Versions) -> list[Unit]:
        """What is compared, of all compounds of a language."""
        if ncimp.language == "pt":
            phrases, versions = "compound", "any_word"
        return [
            unit
            for number, compound in enumerate(ncimp.compounds)
            for unit in compound_units(
                compound,
                number,
                compound.class_type if self.classes == "type" else compound.class_token,
                phrases,
                versions,
            )
        ]

    def score(self, embeddings: Tensor) -> BenchmarkResult:
        """Scores from embeddings (N, D), row i for `requests[i]`."""
        vectors = embeddings.double().numpy()
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.where(norms > 0, norms, 1)
        result = BenchmarkResult({})
        for language, blocks in self._blocks.items():
            measured = [Measured(block, vectors) for block in blocks]
            if measured:
                self._score_language(language, measured, result)
        return result

    def _score_language(
        self, language: EpsilonLanguage, measured: list[Measured], result: BenchmarkResult
    ) -> None:
        pairs = Pairs.of(measured)
        scores = {
            **_class_scores(language, pairs, shuffled_differences(measured, self.orders)),
            **_facts(language, pairs),
        }
        result.scores.update(scores)
        result.per_query.extend(pairs.records(language))
        p_values = {
            class_: scores[key]
            for class_ in EPSILON_CLASSES
            if (key := epsilon_key(language, class_, "p_value_order_free")) in scores
        }
        reading = _reading(p_values)
        title = "ε-compositionality" + (", Portuguese" if language == "pt" else "")
        result.notes.extend(f"{title}: {note}" for note in _notes(language, pairs, reading))
        result.plots["epsilon" if language == "en" else f"epsilon_{language}"] = Distributions(
            title, "ε = distance in context / distance alone − 1", _distributions(pairs), reading
        )


def _blocks(units: Sequence[Unit], rows: Mapping[str, int]) -> list[Block]:
    """The units by their number of versions."""
    sizes = sorted({len(unit.versions) for unit in units})
    return [Block.of([unit for unit in units if len(unit.versions) == size], rows) for size in sizes]


def _class_scores(language: EpsilonLanguage, pairs: Pairs, shuffled: Array) -> dict[str, float]:
    """The scores of each class, of all its pairs and by word.

    Args:
        shuffled: (orders, P), the pairs' differences with synonyms in random orders.
    """
    scores = {}
    for class_ in EPSILON_CLASSES:
        for word in (None, *(w for w in EPSILON_WORDS if w in pairs.word)):
            chosen = (pairs.class_ == class_) & ((pairs.word == word) if word else True)
            for metric, value in _effect(pairs, chosen, shuffled[:, chosen]).items():
                scores[epsilon_key(language, class_, metric, word)] = value
    return scores


def _distributions(pairs: Pairs) -> dict[str, dict[str, Sequence[float]]]:
    """Class → both ε of its pairs, for the plot."""
    groups: dict[str, dict[str, Sequence[float]]] = {}
    for class_ in EPSILON_CLASSES:
        shown = (pairs.class_ == class_) & pairs.defined
        groups[f"{class_} ({int(shown.sum())} pairs)"] = {
            "idiomaticity-ε": pairs.idiomaticity[shown],
            "baseline-ε": pairs.baseline[shown],
        }
    return groups


def _notes(language: EpsilonLanguage, pairs: Pairs, reading: str) -> list[str]:
    num_defined = int(pairs.defined.sum())
    notes = [reading] if reading else []
    if language == "pt":
        notes.append(
            f"one synonym a word is too few for the published reading; compared are whole compounds with a "
            f"synonym of either word, {num_defined} pairs of {len(set(pairs.compound.tolist()))} compounds"
        )
    if undefined := len(pairs.defined) - num_defined:
        notes.append(f"{undefined} pairs left out, whose phrases the model does not tell apart")
    return notes


def _effect(pairs: Pairs, chosen: NDArray[np.bool_], shuffled: Array) -> dict[str, float]:
    """The metrics of some pairs; none where there is no difference at all.

    Args:
        chosen: (P,), which; those without both ε do not count.
        shuffled: (orders, number chosen), their differences with synonyms in random orders.
    """
    counted = chosen & pairs.defined
    effect = {"num_pairs": float(counted.sum())}
    differences = pairs.idiomaticity[counted] - pairs.baseline[counted]
    if not differences.any():
        return effect
    (value,) = rank_biserial(differences[None])
    effect |= {
        "p_value": float(wilcoxon(differences, alternative="greater").pvalue),
        "rank_biserial": float(value),
        "rank_biserial_signed": float(2 * value - 1),
    }
    values = rank_biserial(shuffled)  # (orders,)
    if not np.isfinite(values).all():
        return effect
    # One of the orders rather than the mean of two, so that it has a p.
    median = int(np.argsort(values, kind="stable")[(len(values) - 1) // 2])
    low, high = np.quantile(values, (0.025, 0.975))
    at_median = shuffled[median][np.isfinite(shuffled[median])]
    return effect | {
        "rank_biserial_order_free": float(values[median]),
        "rank_biserial_order_free_low": float(low),
        "rank_biserial_order_free_high": float(high),
        "p_value_order_free": float(wilcoxon(at_median, alternative="greater").pvalue),
    }


def rank_biserial(differences: Array) -> Array:
    """W⁺ / (W⁺ + W⁻) of each row of paired differences (K, P): (K,).

    Differences of zero, or that are not defined (NaN), do not count, as in Wilcoxon's own test; equal ones
    share their mean rank. NaN where nothing counts.
    """
    differences = np.nan_to_num(differences, nan=0.0)
    zeros = (differences == 0).sum(axis=1)
    ranks = rankdata(np.abs(differences), axis=1) - zeros[:, None]
    num = differences.shape[1] - zeros
    total = num * (num + 1) / 2
    positive = np.where(differences > 0, ranks, 0.0).sum(axis=1)
    return np.where(total > 0, positive / np.where(total > 0, total, 1), np.nan)


def _facts(language: EpsilonLanguage, pairs: Pairs) -> dict[str, float]:
    """Counts, and means and standard deviations over the distances of both ε of each pair."""
    facts = {}
    for class_ in (*EPSILON_CLASSES, "all"):
        chosen = (pairs.class_ == class_) | (class_ == "all")
        if not chosen.any():
            continue
        phrase, context = pairs.distances[chosen][:, :2], pairs.distances[chosen][:, 2:]
        for name, value in (
            ("num_compounds", len(np.unique(pairs.compound[chosen]))),
            ("phrase_distance_mean", phrase.mean()),
            ("phrase_distance_std", phrase.std()),
            ("context_distance_mean", context.mean()),
            ("context_distance_std", context.std()),
        ):
            facts[epsilon_key(language, class_, name)] = float(value)
    facts[epsilon_key(language, "all", "num_pairs")] = float(pairs.defined.sum())
    return facts


def _reading(p_values: dict[str, float]) -> str:
    """The interpretation of the classes' p in a sentence."""
    if set(p_values) != set(EPSILON_CLASSES):
        return ""
    name = kind_of(p_values)
    values = ", ".join(f"{class_} {p_values[class_]:.3f}" for class_ in EPSILON_CLASSES)
    return (
        f"{name}: {KINDS[name]} (idiomaticity-ε above baseline-ε at p < {SIGNIFICANT}, of C at "
        f"p ≤ {WEAK:.2f}; p: {values})"
    )
