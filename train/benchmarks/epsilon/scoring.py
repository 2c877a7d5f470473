"""ε-compositionality: does context bring a compound and its literal rewordings closer, or not?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, wilcoxon

from train.benchmarks import Distributions, Embed, Result, Score
from train.benchmarks.epsilon import (
    ALL,
    KINDS,
    SIGNIFICANT,
    WEAK,
    WORDS,
    EpsilonBenchmarkOptions,
    epsilon_score,
    kind_of,
)
from train.benchmarks.epsilon.pairs import Array, Block, Pairs, units_of
from train.data.names import EPSILON_CLASSES, EpsilonLanguage
from train.data.ncimp import Ncimp
from train.requests import Request


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
        options: `classes`, a compound's class as such (`type`), or in its sentences (`token`); `phrases`, a
            and b are single words (`word`), or whole compounds, with and without synonym (`compound`);
            `versions`, a baseline compares versions with synonyms of the `same_word`, or of `any_word`;
            `orders`, the number of random orders; `instruction`, put before each text.

    References:
        Wold, Simon, Velldal and Øvrelid, on ε-compositionality; the interpretation is ours.
    """

    name = "epsilon"
    without_gold: Sequence[str] = ()

    def __init__(self, data: Sequence[Ncimp], options: EpsilonBenchmarkOptions) -> None:
        self.files = list(dict.fromkeys(path for ncimp in data for path in ncimp.files))
        self.options = options
        self._units = {ncimp.language: list(units_of(ncimp, options)) for ncimp in data}

    @property
    def announced(self) -> list[Request]:
        """The distinct texts of all languages."""
        units = (unit for in_language in self._units.values() for unit in in_language)
        texts = dict.fromkeys(text for unit in units for text in (*unit.phrases, *unit.sentences))
        instruction = self.options.instruction
        role = "document" if instruction is None else "query"
        return [Request(text, role=role, instruction=instruction) for text in texts]  # type: ignore[arg-type]

    def score(self, embed: Embed) -> Result:
        """The scores of all languages."""
        requests = self.announced
        rows = embed(requests).double().numpy()
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows / np.where(norms > 0, norms, 1)
        row_of = {request.text: row for row, request in enumerate(requests)}
        result = Result()
        for language, units in self._units.items():
            sizes = sorted({len(unit.phrases) for unit in units})
            blocks = [Block([u for u in units if len(u.phrases) == size], row_of, rows) for size in sizes]
            if blocks:
                self._score_language(language, blocks, result)
        return result

    def _score_language(self, language: EpsilonLanguage, blocks: list[Block], result: Result) -> None:
        pairs = Pairs(blocks)
        rng = np.random.default_rng(0)
        shuffled = np.concatenate([b.shuffled_differences(self.options.orders, rng) for b in blocks], axis=1)
        scores = [*_class_scores(language, pairs, shuffled), *_facts(language, pairs)]
        result.scores.extend(scores)
        result.per_query.extend(pairs.items(language))
        p_values = {s.mode: s.value for s in scores if s.metric == "p_value_order_free" and not s.slice}
        reading = _reading(p_values)
        title = "ε-compositionality" + (", Portuguese" if language == "pt" else "")
        result.notes.extend(f"{title}: {note}" for note in _notes(language, pairs, reading))
        result.plots["epsilon" if language == "en" else f"epsilon_{language}"] = Distributions(
            title, "ε = distance in context / distance alone − 1", _distributions(pairs), reading
        )


def _class_scores(language: EpsilonLanguage, pairs: Pairs, shuffled: Array) -> Iterator[Score]:
    """The scores of each class, of all its pairs and by word.

    Args:
        shuffled: (orders, P), the pairs' differences with synonyms in random orders.
    """
    for class_ in EPSILON_CLASSES:
        for word in ("", *(w for w in WORDS if w in pairs.word)):
            chosen = (pairs.class_ == class_) & ((pairs.word == word) if word else True)
            for metric, value in _effect(pairs, chosen, shuffled[:, chosen]).items():
                yield epsilon_score(language, class_, metric, word, value)


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
    """The metrics of some pairs; none if no pair has a difference.

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


def _facts(language: EpsilonLanguage, pairs: Pairs) -> Iterator[Score]:
    """Counts, and means and standard deviations over the distances of both ε of each pair."""
    for class_ in (*EPSILON_CLASSES, ALL):
        chosen = (pairs.class_ == class_) | (class_ == ALL)
        if not chosen.any():
            continue
        num_compounds = float(len(np.unique(pairs.compound[chosen])))
        yield epsilon_score(language, class_, "num_compounds", value=num_compounds)
        for number, what in enumerate(("phrase", "context")):
            distances = pairs.distances[chosen][:, :, number]
            yield epsilon_score(language, class_, f"{what}_distance_mean", value=float(distances.mean()))
            yield epsilon_score(language, class_, f"{what}_distance_std", value=float(distances.std()))
    yield epsilon_score(language, ALL, "num_pairs", value=float(pairs.defined.sum()))


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
