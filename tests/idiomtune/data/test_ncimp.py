"""NCIMP: what is read, and what is left out and counted."""

from __future__ import annotations

import csv
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from openpyxl import Workbook, load_workbook

from idiomtune.data.ncimp import FILES, SCORES_FILE, Compound, Ncimp, Version, read_ncimp
from idiomtune.data.sources import SAMPLE_ROOT, DataFiles
from idiomtune.errors import UserError

Row = dict[str, str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the sample, to break."""
    return Path(shutil.copytree(SAMPLE_ROOT / "ncimp", tmp_path / "ncimp"))


def english(folder: Path) -> Ncimp:
    return read_ncimp(DataFiles(FILES, folder), "en")


def edit(path: Path, compound: str, change: Callable[[Row], None]) -> None:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if row["compound"] == compound:
            change(row)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([[*rows[0]], *([*row.values()] for row in rows)])


def set_synonym(row: Row, column: str, sentence: str) -> None:
    """The last two tokens are the compound."""
    row[column] = sentence
    row[f"{column}_tag"] = str([False] * (len(sentence.split()) - 2) + [True, True])


def compound(read: Ncimp, name: str) -> Compound:
    return next(c for c in read.compounds if c.name == name)


def test_a_compound_with_its_versions_and_sentences(folder: Path) -> None:
    trail = compound(english(folder), "paper trail")
    assert (trail.class_type, trail.class_token) == ("PC", "NC")
    assert trail.words == {"modifier": "paper", "head": "trail"}
    assert trail.versions["modifier"] == (
        Version("document", "document trail"),
        Version("sheet", "sheet trail"),
        Version("page", "page trail"),
    )
    assert [v.phrase for v in trail.versions["head"]] == ["paper track", "paper path", "paper trace"]
    # The third sentence has "paper trails": the singular takes its place.
    assert trail.contexts[2] == ("several", "ended at the same bank .")


def test_portuguese_has_one_version_a_word(folder: Path) -> None:
    read = read_ncimp(DataFiles(FILES, folder), "pt")
    door = read.compounds[0]
    assert door.versions == {
        "modifier": (Version(None, "porta destrancada"),),
        "head": (Version(None, "entrada aberta"),),
    }


def test_what_is_left_out_is_counted(folder: Path) -> None:
    def own_word_case_twice_and_nan(row: Row) -> None:
        set_synonym(row, "modifier synonym", "This is a Scarlet herring")
        set_synonym(row, "modifier synonym alt1", "This is a Red herring")
        set_synonym(row, "modifier synonym alt2", "This is a scarlet herring")
        set_synonym(row, "modifier synonym alt3", "This is nan herring")
        set_synonym(row, "modifier synonym alt4", "This is nan ruby herring")

    def two_words(row: Row) -> None:
        row["modifier synonym"] = "This is a big vehicle park"
        row["modifier synonym_tag"] = str([False] * 3 + [True] * 3)

    edit(folder / "EN" / "neutral.csv", "red herring", own_word_case_twice_and_nan)
    edit(folder / "EN" / "neutral.csv", "car park", two_words)
    read = english(folder)
    assert compound(read, "car park").versions["modifier"][0].synonym == "big vehicle"
    assert [v.synonym for v in compound(read, "red herring").versions["modifier"]] == ["scarlet", "ruby"]
    words = read.describe()
    for what in ("are the word itself", "is missing (nan)", "'nan' for an article", "of two words"):
        assert f"{what}: 1" in words


def test_no_human_score_and_no_singular(folder: Path) -> None:
    book = load_workbook(folder / SCORES_FILE)
    sheet = book.worksheets[0]
    for row in sheet.iter_rows(min_row=2):
        if row[3].value == "car park":
            row[3].value = "Car Park"  # case does not matter
        elif row[3].value == "rain cloud":
            row[3].value = "something else"
    book.save(folder / SCORES_FILE)

    def plural(row: Row) -> None:
        row["original sentence"] = row["original sentence"].replace("kitchen knife", "kitchen knives")

    edit(folder / "EN" / "naturalistics_examplesent2.csv", "kitchen knife", plural)
    read = english(folder)
    assert list(read.left_out.values()) == [["rain cloud"], ["kitchen knife"]]
    assert len(read.compounds) == 10
    assert compound(read, "car park").class_type == "C"
    assert "left out 1 without a human score (rain cloud)" in read.describe()
    assert "inflected: 2" in read.describe()


def test_the_same_sentence_twice_is_one(folder: Path) -> None:
    first: Row = {}
    edit(folder / "EN" / "naturalistics_examplesent1.csv", "car park", first.update)
    edit(folder / "EN" / "naturalistics_examplesent2.csv", "car park", lambda row: row.update(first))
    read = english(folder)
    assert len(compound(read, "car park").contexts) == 2
    assert "twice: 1" in read.describe()


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("neutral.csv", {"modifier synonym_tag": "[True]"}, r"row 2 .* field 'modifier synonym_tag'"),
        ("neutral.csv", {"modifier synonym_tag": str([True, False, False, True, True])}, r"row 2 .*_tag'"),
        ("neutral.csv", {"head synonym": "This is a bus stop"}, r"row 2 .* 'bus stop' is not a synonym"),
        ("naturalistics_examplesent3.csv", {"compound": "bike park"}, "are not those of neutral.csv"),
    ],
)
def test_what_cannot_be_read_is_named(folder: Path, file: str, change: Row, message: str) -> None:
    path = folder / "EN" / file
    edit(path, "car park", lambda row: row.update(change))
    with pytest.raises(UserError, match=message) as caught:
        english(folder)
    assert str(path) in str(caught.value)


def test_scores_that_cannot_be_read(folder: Path) -> None:
    path = folder / SCORES_FILE
    book = load_workbook(path)
    book.worksheets[0]["E2"] = "X"
    book.save(path)
    with pytest.raises(UserError, match="'car park' must be one of C, PC, NC, got 'X'"):
        english(folder)
    Workbook().save(path)
    with pytest.raises(UserError, match="human_compositionality"):
        english(folder)


def test_the_repositorys_own_layout(folder: Path, tmp_path: Path) -> None:
    above = tmp_path / "clone"
    shutil.copytree(folder, above / "dataset")
    (above / "dataset" / SCORES_FILE).rename(above / "dataset" / SCORES_FILE.replace(" ", "_"))
    assert len(english(above).compounds) == 12


def test_the_real_data(real_data: Path) -> None:
    files = DataFiles(FILES, real_data / "ncimp")
    read = read_ncimp(files, "en")
    assert Counter(c.class_type for c in read.compounds) == {"C": 97, "PC": 89, "NC": 89}
    assert sum(len(c.contexts) for c in read.compounds) == 825
    assert next(iter(read.left_out.values())) == ["dust storm", "small fry"]
    assert "inflected: 157" in read.describe()
    assert compound(read, "blood bath").versions["modifier"][0] == Version(
        "sanguine fluid", "sanguine fluid bath"
    )
    routine = compound(read, "number crunching").versions["modifier"]
    assert [v.synonym for v in routine] == ["figure", "act", "routine", "turn"]
    portuguese = read_ncimp(files, "pt")
    assert len(portuguese.compounds) == 116
    assert {len(c.versions["head"]) for c in portuguese.compounds} == {1}
