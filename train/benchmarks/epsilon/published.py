"""The models of the ε-compositionality paper with all figures that it prints: `published.tsv`.

Each row is a model: its name; its name in `conf/model/` and further options of the command that scores it;
checkpoints that are this model; the values of `model.pooling` that are this row's (`null`: the checkpoint's
own); whether each text has the paper's instruction; the figures, under their score keys without `epsilon/`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from train.benchmarks.epsilon.kinds import kind_of
from train.data.names import EPSILON_CLASSES
from train.declarations.benchmark import Layout, Published, PublishedRow

INSTRUCTION = "Given a sentence, encode its semantic properties."
_WORDS = [(class_, word) for class_ in EPSILON_CLASSES for word in ("modifier", "head")]
_DISTANCES = [(what, how) for what in ("phrase", "context") for how in ("mean", "std")]
_P, _EFFECT = ([f"epsilon/{c}/{metric}" for c in EPSILON_CLASSES] for metric in ("p_value", "rank_biserial"))
_BY_WORD = [f"epsilon/{class_}/rank_biserial/{word}" for class_, word in _WORDS]
_BY_PAIR = [f"epsilon/all/{what}_distance_{how}" for what, how in _DISTANCES]
_TITLE = "ε-compositionality, ours and the published"


def _row(cells: Mapping[str, str]) -> PublishedRow:
    instructed = cells["instructed"] == "yes"
    overrides = [f"model={cells['model']}", "benchmarks=[epsilon]", *cells["options"].split()]
    return PublishedRow(
        cells["name"],
        [*overrides, *([f"benchmark.epsilon.instruction='{INSTRUCTION}'"] if instructed else [])],
        checkpoints=cells["checkpoints"].split("|"),
        # What has another value gives no counterpart of these figures.
        options={
            "model.pooling": [None if p == "null" else p for p in cells["model.pooling"].split("|")],
            "benchmark.epsilon.instruction": [INSTRUCTION if instructed else None],
            "benchmark.epsilon.classes": ["type"],
            "benchmark.epsilon.phrases": ["word"],
            "benchmark.epsilon.versions": ["same_word"],
            "model.glossary": [None, []],
            "model.idiom_tokens": [None],
        },
        scores={key: float(cells[key.partition("/")[2]]) for key in (*_P, *_EFFECT, *_BY_WORD, *_BY_PAIR)},
    )


def _kind(scores: Mapping[str, float]) -> str:
    p_values = {class_: scores[key] for class_, key in zip(EPSILON_CLASSES, _P, strict=True) if key in scores}
    return kind_of(p_values) if len(p_values) == len(_P) else ""


def _rows() -> list[PublishedRow]:
    with Path(__file__).with_suffix(".tsv").open(encoding="utf-8", newline="") as file:
        return [_row(cells) for cells in csv.DictReader(file, delimiter="\t")]


PUBLISHED = Published(
    source="Wold, Simon, Velldal and Øvrelid, on ε-compositionality",
    layouts=[
        Layout(
            "epsilon-published",
            f"{_TITLE}: p; rank-biserial correlation (0.5 = no effect)",
            [(name, class_) for name in ("p", "rank-biserial") for class_ in EPSILON_CLASSES],
            [((), [*_P, *_EFFECT])],
        ),
        Layout(
            "epsilon-published-words",
            f"{_TITLE}: rank-biserial correlation by the word that has synonyms; cosine distances",
            [*_WORDS, *_DISTANCES],
            [((), [*_BY_WORD, *_BY_PAIR])],
        ),
    ],
    rows=_rows(),
    kind=_kind,
)
