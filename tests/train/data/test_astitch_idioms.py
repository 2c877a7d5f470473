"""AStitchInLanguageModels as external idiom data: what becomes a document, and what is left out."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from train.data.astitch import FILES, SENSES_FILE
from train.data.astitch_idioms import read_astitch_idioms
from train.data.sources import DataFiles

SENTENCES = [
    ("0", "The trial was a kangaroo court.", "kangaroo court"),
    ("1", "The kangaroo court at the zoo has new grass.", "kangaroo court"),
    ("0", "They gave us elbow room.", "elbow room"),
    ("1", "A mailing-list was kept.", "mailing list"),
    ("0", "Nothing of it stands here.", "elbow room"),
]
SENSES = [
    ("kangaroo court", "court of kangaroos", "unfair trial", "None", "None", "train"),
    ("elbow room", "joint room", "space", "freedom", "None", "train"),
    ("mailing list", "address list", "None", "None", "None", "train"),
]


@pytest.fixture
def files(tmp_path: Path) -> DataFiles:
    (tmp_path / "EN").mkdir()
    tables: dict[str, list[tuple[str, ...]]] = {
        "EN/train_zero_shot.csv": [("label", "sentence1", "sentence2"), *SENTENCES],
        SENSES_FILE: [
            (
                *("Multiword Expression", "Literal Meaning"),
                *(f"Non-Literal Meaning {number}" for number in (1, 2, 3)),
                "Data Split",
            ),
            *SENSES,
        ],
    }
    for name, rows in tables.items():
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
    return DataFiles(FILES, tmp_path)


def test_usages_are_documents_and_an_only_meaning_is_a_sense(files: DataFiles) -> None:
    corpus = read_astitch_idioms(files)
    assert [(d.idiom, d.usage, d.sentence, d.span) for d in corpus.documents] == [
        ("kangaroo court (AStitch)", "idiomatic", "The trial was a kangaroo court.", "kangaroo court"),
        (
            *("kangaroo court (AStitch)", "literal"),
            *("The kangaroo court at the zoo has new grass.", "kangaroo court"),
        ),
        ("elbow room (AStitch)", "idiomatic", "They gave us elbow room.", "elbow room"),
        ("mailing list (AStitch)", "literal", "A mailing-list was kept.", "mailing-list"),
        ("kangaroo court (AStitch)", "sense", "unfair trial", "unfair trial"),
    ]
    assert (corpus.num_idioms, corpus.num_without_span) == (3, 1)
    assert {path.name for path in corpus.files} == {"train_zero_shot.csv", SENSES_FILE}


def test_idioms_of_other_splits_are_left_out(files: DataFiles) -> None:
    corpus = read_astitch_idioms(files, unseen=["a Kangaroo court"], trained=["elbow-room"])
    assert {d.idiom for d in corpus.documents} == {"mailing list (AStitch)"}
    assert (list(corpus.unseen), list(corpus.shared)) == (["kangaroo court"], ["elbow room"])


@pytest.mark.slow
def test_real_corpus(real_data: Path) -> None:
    corpus = read_astitch_idioms(DataFiles(FILES, real_data / "astitch"))
    usages = [d.usage for d in corpus.documents]
    assert (corpus.num_idioms, corpus.num_without_span) == (163, 2)
    assert usages.count("idiomatic") + usages.count("literal") == 3327 - 2
    assert usages.count("sense") == 96
