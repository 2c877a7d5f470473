"""ε-compositionality: does context bring a compound and its literal rewordings closer, or not?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata, wilcoxon

from idiomtune.benchmarks import Benchmark, Embed, Result, Score
from idiomtune.benchmarks.epsilon import ALL, EpsilonBenchmarkOptions, epsilon_score, reading_note
from idiomtune.data.names import EPSILON_CLASSES, EpsilonLanguage
from idiomtune.data.ncimp import WORDS, Ncimp
from idiomtune.requests import EmbeddingRequest

Array = NDArray[np.float64]

# Phrases that the model does not distinguish (as an uncased one, of case) have no ε: only rounding is left.
_NO_DISTANCE = 1e-6


class _Unit(NamedTuple):
    """A phrase and its M versions, which are compared with it and with one another, in one sentence.

    Attributes:
        word: which of the compound's words has synonyms in the versions; "" for either.
        phrases: the phrase, then its versions: 1 + M.
        sentences: the sentence with the compound, then with each version in its place: 1 + M.
    """

    compound: str
    class_: str
    word: str
    phrases: list[str]
    sentences: list[str]


class _Pairs(NamedTuple):
    """The P pairs of a language.

    Attributes:
        items: a row each, as per-query records have them; ε are NaN without a distance outside context.
        distances: (P, 2, 2): of a version with the phrase and with the next version; alone and in context.
        shuffled: (orders, P): idiomaticity − baseline, synonyms in random orders.
    """

    items: pd.DataFrame
    distances: Array
    shuffled: Array

    @property
    def is_defined(self) -> pd.Series:
        return self.items[["idiomaticity", "baseline"]].notna().all(axis=1)


class EpsilonBenchmark(Benchmark):
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

    Portuguese has one synonym a word, hence no baseline for a single word. There a and b are whole compounds,
    and a baseline compares versions with a synonym of either word, which has no counterpart in the published
    figures.

    Args:
        data: one entry for each language.
        options: `orders`, the number of random orders; `instruction`, put before each text.

    References:
        Wold, Simon, Velldal and Øvrelid, on ε-compositionality; the interpretation is ours.
    """

    name = "epsilon"

    def __init__(self, data: Sequence[Ncimp], options: EpsilonBenchmarkOptions) -> None:
        self.files = list(dict.fromkeys(path for ncimp in data for path in ncimp.files))
        self.options = options
        self._units = {ncimp.language: list(_units_of(ncimp)) for ncimp in data}

    @property
    def requests(self) -> list[EmbeddingRequest]:
        """The distinct texts of all languages."""
        units = (unit for in_language in self._units.values() for unit in in_language)
        texts = dict.fromkeys(text for unit in units for text in (*unit.phrases, *unit.sentences))
        instruction = self.options.instruction
        role = "document" if instruction is None else "query"
        return [EmbeddingRequest(text, role=role, instruction=instruction) for text in texts]  # type: ignore[arg-type]

    def score(self, embed: Embed) -> Result:
        """The scores of all languages."""
        requests = self.requests
        rows = embed(requests).double().numpy()
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows / np.where(norms > 0, norms, 1)
        vectors = {request.text: row for request, row in zip(requests, rows, strict=True)}
        result = Result()
        for language, units in self._units.items():
            if units:
                self._score_language(language, _pairs(language, units, vectors, self.options.orders), result)
        return result

    def _score_language(self, language: EpsilonLanguage, pairs: _Pairs, result: Result) -> None:
        classes, words = pairs.items["class"], pairs.items["word"]
        p_values = {}
        for class_ in EPSILON_CLASSES:
            for word in ("", *(word for word in WORDS if (words == word).any())):
                effect = _effect(pairs, ((classes == class_) & ((words == word) | (not word))).to_numpy())
                result.scores.extend(epsilon_score(language, class_, m, word, v) for m, v in effect.items())
                if not word and "p_value_order_free" in effect:
                    p_values[class_] = effect["p_value_order_free"]
        result.scores.extend(_distance_scores(language, pairs))
        result.per_query.extend(pairs.items.to_dict("records"))
        reading = reading_note(p_values)
        title = "ε-compositionality" + (", Portuguese" if language == "pt" else "")
        result.notes.extend(f"{title}: {note}" for note in _notes(language, pairs, reading))


def _units_of(data: Ncimp) -> Iterator[_Unit]:
    """All comparisons in a language. In Portuguese, a word has one synonym, hence no pairs of synonyms."""
    for compound in data.compounds:
        if data.language == "pt":
            versions = [version for word in WORDS for version in compound.versions[word]]
            compared = {"": list({version.phrase: version for version in versions}.values())}
        else:
            compared = {word: list(compound.versions[word]) for word in WORDS}
        for word, of_word in compared.items():
            if len(of_word) < 2:
                continue
            names = [compound.name, *(version.phrase for version in of_word)]
            phrases = names
            if word:
                phrases = [compound.words[word], *(v.synonym or v.phrase for v in of_word)]  # type: ignore[index]
            for before, after in compound.contexts:
                sentences = [" ".join(filter(None, (before, name, after))) for name in names]
                yield _Unit(compound.name, compound.class_type, word, phrases, sentences)


def _pairs(
    language: EpsilonLanguage, units: Sequence[_Unit], vectors: Mapping[str, Array], orders: int
) -> _Pairs:
    """Args: vectors: text → its unit vector."""
    rng = np.random.default_rng(0)
    items, distances, shuffled = [], [], []
    for size in sorted({len(unit.phrases) for unit in units}):
        of_size = [unit for unit in units if len(unit.phrases) == size]  # R
        of_phrases, in_context = (
            1
            - (rows := np.array([[vectors[text] for text in texts] for texts in of_units]))
            @ rows.swapaxes(-1, -2)
            for of_units in ([u.phrases for u in of_size], [u.sentences for u in of_size])
        )  # (R, 1 + M, 1 + M) each
        epsilon = in_context / np.where(of_phrases > _NO_DISTANCE, of_phrases, np.nan) - 1
        # Each version and the next, cyclically; of two there is one pair.
        version = np.arange(1, size if size > 3 else size - 1)
        following = version % (size - 1) + 1
        all_distances = np.stack([of_phrases, in_context], axis=-1)
        near = np.stack([all_distances[:, 0, version], all_distances[:, version, following]], axis=2)
        distances.append(near.reshape(-1, 2, 2))
        shuffled.append(_shuffle(of_size, epsilon, version, following, orders, rng))
        items += [
            {
                "language": language,
                "compound": unit.compound,
                "class": unit.class_,
                "word": unit.word or None,
                "sentence": unit.sentences[0],
                "version": unit.phrases[i],
                "next": unit.phrases[j],
                "idiomaticity": of_unit[0, i],
                "baseline": of_unit[i, j],
            }
            for unit, of_unit in zip(of_size, epsilon, strict=True)
            for i, j in zip(version, following, strict=True)
        ]
    return _Pairs(pd.DataFrame(items), np.concatenate(distances), np.concatenate(shuffled, axis=1))


def _shuffle(
    units: Sequence[_Unit],
    epsilon: Array,
    version: NDArray[np.int64],
    following: NDArray[np.int64],
    orders: int,
    rng: np.random.Generator,
) -> Array:
    """Idiomaticity − baseline of each of R · N pairs, synonyms in random orders: (orders, R · N)."""
    by_name = np.array([np.argsort(np.array(u.phrases[1:]), kind="stable") for u in units])  # (R, M)
    # Drawn for a compound and word, so that versions have the same order in each of its sentences.
    groups: dict[tuple[str, str], int] = {}
    group = [groups.setdefault((u.compound, u.word), len(groups)) for u in units]
    ranks = rng.random((orders, len(groups), by_name.shape[1])).argsort(axis=-1)[:, group]  # (orders, R, M)
    unit = np.arange(len(units))[None, :, None]  # (1, R, 1)
    order = by_name[unit, ranks] + 1
    first, second = order[:, :, version - 1], order[:, :, following - 1]  # (orders, R, N)
    differences: Array = epsilon[unit, 0, first] - epsilon[unit, first, second]
    return differences.reshape(orders, -1)


def _notes(language: EpsilonLanguage, pairs: _Pairs, reading: str) -> list[str]:
    num_defined = int(pairs.is_defined.sum())
    notes = [reading] if reading else []
    if language == "pt":
        notes.append(
            "one synonym per word is too few for the published reading; instead, compounds are compared with "
            f"a synonym of either word, {num_defined} pairs of {pairs.items['compound'].nunique()} compounds"
        )
    if undefined := len(pairs.items) - num_defined:
        notes.append(f"{undefined} pairs left out, whose phrases the model does not distinguish")
    return notes


def _effect(pairs: _Pairs, chosen: NDArray[np.bool_]) -> dict[str, float]:
    """The metrics of some pairs; none if no pair has a difference.

    Args:
        chosen: (P,), which; those without both ε do not count.
    """
    counted = pairs.items[chosen & pairs.is_defined.to_numpy()]
    effect = {"num_pairs": float(len(counted))}
    differences = (counted["idiomaticity"] - counted["baseline"]).to_numpy()
    if not differences.any():
        return effect
    (value,) = rank_biserial(differences[None])
    effect |= {
        "p_value": float(wilcoxon(differences, alternative="greater").pvalue),
        "rank_biserial": float(value),
        "rank_biserial_signed": float(2 * value - 1),
    }
    shuffled = pairs.shuffled[:, chosen]
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


def _distance_scores(language: EpsilonLanguage, pairs: _Pairs) -> Iterator[Score]:
    """Counts, and means and standard deviations over the distances of both ε of each pair."""
    for class_ in (*EPSILON_CLASSES, ALL):
        chosen = ((pairs.items["class"] == class_) | (class_ == ALL)).to_numpy()
        if not chosen.any():
            continue
        num_compounds = float(pairs.items["compound"][chosen].nunique())
        yield epsilon_score(language, class_, "num_compounds", value=num_compounds)
        for number, part in enumerate(("phrase", "context")):
            distances = pairs.distances[chosen][:, :, number]
            yield epsilon_score(language, class_, f"{part}_distance_mean", value=float(distances.mean()))
            yield epsilon_score(language, class_, f"{part}_distance_std", value=float(distances.std()))
    yield epsilon_score(language, ALL, "num_pairs", value=float(pairs.is_defined.sum()))
