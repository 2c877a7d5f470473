"""External idiom data (PIE, AStitch): what of it is used, and what is left out and counted."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest

from idiomtune.data.admire import read_items
from idiomtune.data.astitch import FILES, SENSES_FILE, read_senses, read_usages
from idiomtune.data.external import detokenise, read_astitch_idioms, read_pie
from idiomtune.data.idiolink import load_split
from idiomtune.data.names import AStitchFile
from idiomtune.data.sources import SAMPLE_ROOT, DataFiles
from idiomtune.errors import UserError
from idiomtune.expressions import plain_expression

HEADER = ["Idiom", "Sense", "Idiomatic_Sent", "Literal_Sent", "Idiomatic_Label", "Literal_Label"]
ROW = [
    *("break the ice", "make people relax", "She broke the ice , did n't she ?"),
    *("She made us relax , did n't she ?", "O B I I O O O O O", "O B I I O O O O O"),
]


def table(path: Path, *rows: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def write(folder: Path, *rows: list[str]) -> Path:
    return table(folder / "data_cleaned.csv", HEADER, *rows)


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


OLD = "an old brown hat"  # holds the words of an idiom


def test_unseen_idioms_are_left_out_and_overlap_is_said(tmp_path: Path) -> None:
    rows = [[idiom, *ROW[1:]] for idiom in ("Break the ice", "take for a ride", OLD, "hit the sack")]
    path = write(tmp_path, *rows)
    corpus = read_pie(path, unseen=["take someone for a ride", "break the ice"], trained=["old hat"])
    assert {d.idiom for d in corpus.documents} == {"hit the sack (PIE 1)"}
    assert list(corpus.unseen) == ["Break the ice", "take for a ride"]
    assert list(corpus.shared) == [OLD]
    said = corpus.describe()
    assert "with external idiom data" in said
    assert f"left out: 1 idioms ({OLD}) also in the training split" in said
    assert "2 idioms (Break the ice, take for a ride) of other splits" in said


def test_a_sentence_without_labels_is_counted_and_labels_of_other_tokens_are_refused(tmp_path: Path) -> None:
    """Its published file has no known sum."""
    corpus = read_pie(write(tmp_path, [*ROW[:5], "O O O O O O O O O"]))
    assert corpus.num_without_span == 1
    assert [d.usage for d in corpus.documents] == ["idiomatic", "sense"]
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


# ---------------------------------------------------------------- AStitchInLanguageModels

TRAIN: list[AStitchFile] = ["train_zero_shot"]
USAGES = ["label", "sentence1", "sentence2"]
NON_LITERAL = [f"Non-Literal Meaning {number}" for number in (1, 2, 3)]
SENSES = ["Multiword Expression", "Literal Meaning", *NON_LITERAL, "Data Split"]


def usages(folder: Path, *rows: Sequence[str], name: str = "train_zero_shot") -> DataFiles:
    table(folder / "EN" / f"{name}.csv", USAGES, *rows)
    return DataFiles(FILES, folder)


def test_labels_spans_and_repeated_rows(tmp_path: Path) -> None:
    one_shot = (["0", "He got cold feet.", "Cold-feet"], ["1", "Warm your feet.", "cold feet"])
    files = usages(tmp_path, *one_shot, name="train_one_shot")
    usages(tmp_path, ["1", "Her cold feet hurt.", "cold feet"], ["0", "He got cold feet.", "cold feet"])
    corpus = read_usages(files, ["train_zero_shot", "train_one_shot"])
    got = [(u.id, u.is_idiomatic, u.span and u.sentence[slice(*u.span)]) for u in corpus.usages]
    assert got == [
        ("train_zero_shot_2", False, "cold feet"),
        ("train_zero_shot_3", True, "cold feet"),
        ("train_one_shot_3", False, None),
    ]
    assert len(read_usages(files, ["train_zero_shot", "train_one_shot"], keep_repeated=True).usages) == 4
    assert [path.name for path in corpus.files] == ["train_zero_shot.csv", "train_one_shot.csv"]


def test_meanings(tmp_path: Path) -> None:
    rows = (
        ["Dog’s Dinner", "meal ", "mess ", "None", "muddle", "train"],
        ["tea towel", "cloth", *["None"] * 4],
    )
    meanings = read_senses(table(tmp_path / "senses.csv", SENSES, *rows))
    first = meanings[plain_expression("dog's dinner")]
    assert (first.compound, first.literal, first.non_literal) == ("Dog’s Dinner", "meal", ("mess", "muddle"))
    assert meanings["tea towel"].non_literal == ()


def test_a_copy_of_the_repository_serves(tmp_path: Path) -> None:
    above = tmp_path / "Dataset" / "Task1" / "SubTaskA" / "EN" / "ContextExcluded_IdiomIncluded"
    path = table(above / "dev.csv", USAGES, ["0", "Cold feet!", "cold feet"])
    assert DataFiles(FILES, tmp_path)("EN/dev.csv") == path


def test_the_sample_is_whole() -> None:
    files = DataFiles(FILES, SAMPLE_ROOT / "astitch")
    corpus = read_usages(files, get_args(AStitchFile))
    assert (len(corpus.usages), sum(u.span is None for u in corpus.usages)) == (31, 1)
    assert {u.is_idiomatic for u in corpus.usages} == {True, False}
    items = read_items(SAMPLE_ROOT / "admire", "train").items
    meanings = read_senses(files(SENSES_FILE))
    with_meanings = [item for item in items if plain_expression(item.compound) in meanings]
    assert 0 < len(with_meanings) < len(items)  # both kinds, as in the real data


def test_usages_are_documents_and_an_only_meaning_is_a_sense(tmp_path: Path) -> None:
    """Of the idioms that other splits do not have."""
    files = usages(
        tmp_path,
        ["0", "The trial was a kangaroo court.", "kangaroo court"],
        ["1", "The kangaroo court at the zoo has new grass.", "kangaroo court"],
        ["0", "They gave us elbow room.", "elbow room"],
        ["1", "A mailing-list was kept.", "mailing list"],
        ["0", "Nothing of it stands here.", "elbow room"],
    )
    table(
        tmp_path / SENSES_FILE,
        SENSES,
        ["kangaroo court", "court of kangaroos", "unfair trial", "None", "None", "train"],
        ["elbow room", "joint room", "space", "freedom", "None", "train"],
        ["mailing list", "address list", "None", "None", "None", "train"],
    )
    corpus = read_astitch_idioms(files)
    court, literal = "kangaroo court (AStitch)", "The kangaroo court at the zoo has new grass."
    assert [(d.idiom, d.usage, d.sentence, d.span) for d in corpus.documents] == [
        (court, "idiomatic", "The trial was a kangaroo court.", "kangaroo court"),
        (court, "literal", literal, "kangaroo court"),
        ("elbow room (AStitch)", "idiomatic", "They gave us elbow room.", "elbow room"),
        ("mailing list (AStitch)", "literal", "A mailing-list was kept.", "mailing-list"),
        (court, "sense", "unfair trial", "unfair trial"),
    ]
    assert (corpus.num_idioms, corpus.num_without_span) == (3, 1)
    assert {path.name for path in corpus.files} == {"train_zero_shot.csv", SENSES_FILE}
    other = read_astitch_idioms(files, unseen=["a Kangaroo court"], trained=["elbow-room"])
    assert {d.idiom for d in other.documents} == {"mailing list (AStitch)"}
    assert (list(other.unseen), list(other.shared)) == (["kangaroo court"], ["elbow room"])


def test_real_astitch_files(real_data: Path) -> None:
    files = DataFiles(FILES, real_data / "astitch")
    corpus = read_usages(files, TRAIN)
    assert len(corpus.usages) == 3327
    assert sum(u.span is None for u in corpus.usages) == 2  # gold miner, traffic controllers
    assert sum(u.is_idiomatic for u in corpus.usages) == 1762
    everything = read_usages(files, get_args(AStitchFile))
    repeated = read_usages(files, get_args(AStitchFile), keep_repeated=True)
    assert len(repeated.usages) - len(everything.usages) == 87  # the one-shot rows are few-shot ones too
    meanings = read_senses(files(SENSES_FILE))
    assert len(meanings) == 223
    assert sum(not m.non_literal for m in meanings.values()) == 80
    compounds = {plain_expression(item.compound) for item in read_items(real_data / "admire", "train").items}
    assert len(compounds & set(meanings)) == 24
    assert len(compounds & {plain_expression(u.phrase) for u in everything.usages}) == 24
    external = read_astitch_idioms(files)
    of_usage = [d.usage for d in external.documents]
    assert (external.num_idioms, external.num_without_span) == (163, 2)
    assert of_usage.count("idiomatic") + of_usage.count("literal") == 3327 - 2
    assert of_usage.count("sense") == 96
