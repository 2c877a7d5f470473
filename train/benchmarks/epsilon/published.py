"""The models of the ε-compositionality paper with all figures that it prints."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from train.benchmarks.epsilon import WORDS, epsilon_score, kind_of
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
_COLUMNS = ("p", "rank_biserial", "rank_biserial_by_word", "distances")  # their figures, as below
_P = [str(epsilon_score("en", class_, "p_value")) for class_ in EPSILON_CLASSES]
_EFFECT = [str(epsilon_score("en", class_, "rank_biserial")) for class_ in EPSILON_CLASSES]
_BY_WORD = [str(epsilon_score("en", c, "rank_biserial", word)) for c in EPSILON_CLASSES for word in WORDS]
_DISTANCES = [
    str(epsilon_score("en", "all", f"{what}_distance_{how}"))
    for what in ("phrase", "context")
    for how in ("mean", "std")
]


def _rows() -> Iterator[PublishedRow]:
    """The rows of `published.tsv`, next to this module: figures as printed, but shares rather than percent.

    `pooling` is written into the command, if the model's configuration does not have it; `poolings` are all
    that are this row's; `instruction`, whether each text has the paper's. (For Qwen3 the paper says mean; the
    model's card says last token.)
    """
    keys = (*_P, *_EFFECT, *_BY_WORD, *_DISTANCES)
    with Path(__file__).with_suffix(".tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            figures = " ".join(row[name] for name in _COLUMNS)
            overrides = [f"model={row['model']}", "benchmarks=[epsilon]"]
            if row["pooling"]:
                overrides.append(f"model.pooling={row['pooling']}")
            instruction = INSTRUCTION if row["instruction"] == "yes" else None
            if instruction:
                overrides.append(f"benchmark.epsilon.instruction='{instruction}'")
            options = {
                **_OPTIONS,
                "model.pooling": [None if name == "null" else name for name in row["poolings"].split()],
                "benchmark.epsilon.instruction": [instruction],
            }
            scores = dict(zip(keys, map(float, figures.split()), strict=True))
            yield PublishedRow(row["name"], overrides, row["checkpoints"].split(), options, scores)


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
                *((class_, word) for class_ in EPSILON_CLASSES for word in WORDS),
                *((what, how) for what in ("phrase", "context") for how in ("mean", "sd")),
            ],
            [((), [*_BY_WORD, *_DISTANCES])],
        ),
    ],
    rows=list(_rows()),
    kind=lambda scores: (
        kind_of({c: scores[key] for c, key in zip(EPSILON_CLASSES, _P, strict=True)})
        if all(key in scores for key in _P)
        else ""
    ),
)
