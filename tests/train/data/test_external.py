"""External idiom data (PIE, AStitch): what of it is used, and what is left out and counted."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from train.data.astitch import FILES, SENSES_FILE
from train.data.external import detokenise, read_astitch_idioms, read_pie
from train.data.idiolink import load_split
from train.data.sources import DataFiles
from train.errors import UserError

HEADER = ["Idiom", "Sense", "Idiomatic_Sent", "Literal_Sent", "Idiomatic_Label", "Literal_Label"]
ROW = [
    *("break the ice", "make people relax", "She broke the ice , did n't she ?"),
    *("She made us relax , did n't she ?", "O B I I O O O O O", "O B I I O O O O O"),
]


def write(folder: Path, *rows: list[str], header: list[str] = HEADER) -> Path:
    path = folder / "data_cleaned.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def test_a_row_gives_a_sentence_a_paraphrase_and_a_sense(tmp_path: Path) -> None:
    path = write(tmp_path, ROW, ROW, [ROW[0], "start something", *ROW[2:]])
    corpus = read_pie(path)
    got = [(d.id, d.usage, d.idiom, d.sentence, d.span) for d in corpus.documents[:3]]
    first, second = "break the ice (PIE 1)", "break the ice (PIE 2)"
    assert got == [
        ("pie_1_idiomatic", "idiomatic", first, "She broke the ice, didn't she?", "broke the ice"),
        ("pie_1_simplification", "simplification", first, "She made us relax, didn't she?", "made us relax"),
        ("pie_1_sense", "sense", first, "make people relax", "make people relax"),
    ]
    assert [d.idiom for d in corpus.documents[3:]] == [first] * 2 + [second] * 3
    assert corpus.num_idioms == 2


def test_unseen_idioms_are_left_out_and_overlap_is_said(tmp_path: Path) -> None:
    rows = [[idiom, *ROW[1:]] for idiom in ("Break the ice", "take for a ride", "old hat", "hit the sack")]
    path = write(tmp_path, *rows)
    corpus = read_pie(path, unseen=["take someone for a ride", "break the ice"], trained=["old hat"])
    assert {d.idiom for d in corpus.documents} == {"hit the sack (PIE 1)"}
    assert list(corpus.unseen) == ["Break the ice", "take for a ride"]
    assert list(corpus.shared) == ["old hat"]
    said = corpus.describe()
    assert "with external idiom data" in said
    assert "left out: 1 idioms (old hat) also in the training split" in said
    assert "2 idioms (Break the ice, take for a ride) of other splits" in said


def test_sentences_without_a_span_are_counted(tmp_path: Path) -> None:
    corpus = read_pie(write(tmp_path, [*ROW[:5], "O O O O O O O O O"]))
    assert corpus.num_without_span == 1
    assert [d.usage for d in corpus.documents] == ["idiomatic", "sense"]


def test_labels_of_other_tokens_are_refused(tmp_path: Path) -> None:
    """Its published file has no known sum."""
    with pytest.raises(UserError, match=r"row 3 \(Idiom .*\), 3 labels for 9 tokens"):
        read_pie(write(tmp_path, ROW, [*ROW[:4], "O B O", ROW[5]]))


def test_detokenise() -> None:
    words = "`` I ca n't ( really ) say John 's $ 5 offer , '' he said ."
    text, (start, end) = detokenise(words.split(), 8, 9)
    assert text[start:end] == "John's"
    assert text.endswith("he said.")
    assert "can't (really) say" in text


@pytest.mark.slow
def test_real_corpus(real_data: Path) -> None:
    """No val idiom is in it, eight train idioms are (and one that shares its words)."""
    root = real_data / "idiolink"
    trained, unseen = ({d.idiom for d in load_split(root, name).documents} for name in ("train", "val"))
    path = real_data / "pie" / "data_cleaned.csv"
    corpus = read_pie(path, unseen=unseen, trained=trained)
    everything = read_pie(path)
    assert (everything.num_idioms, everything.num_without_span) == (850, 140)
    assert len(everything.documents) == 2 * 5094 - 140 + 850
    assert not corpus.unseen
    assert len(everything.documents) - len(corpus.documents) > 9 * 5
    assert set(corpus.shared) - {"in the black"} <= trained
    assert len(corpus.shared) == 9


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
def test_real_astitch_corpus(real_data: Path) -> None:
    corpus = read_astitch_idioms(DataFiles(FILES, real_data / "astitch"))
    usages = [d.usage for d in corpus.documents]
    assert (corpus.num_idioms, corpus.num_without_span) == (163, 2)
    assert usages.count("idiomatic") + usages.count("literal") == 3327 - 2
    assert usages.count("sense") == 96
