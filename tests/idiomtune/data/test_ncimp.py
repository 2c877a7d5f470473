"""NCIMP: what is read, and what is left out and counted."""

import csv
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from openpyxl import load_workbook

from idiomtune.data.ncimp import FILES, SCORES_FILE, Compound, Ncimp, Version, read_ncimp
from idiomtune.data.sources import SAMPLE_ROOT, DataFiles
from tests.programs import refused

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


def synonym(column: str, sentence: str, num_words: int = 2) -> Row:
    """The last tokens of the sentence are the compound."""
    tags = [False] * (len(sentence.split()) - num_words) + [True] * num_words
    return {column: sentence, f"{column}_tag": str(tags)}


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


def test_what_is_left_out_is_counted(folder: Path) -> None:
    neutral = folder / "EN" / "neutral.csv"
    herrings = ("a Scarlet", "a Red", "a scarlet", "nan", "nan ruby")  # the word itself, case, twice and nan
    for column, words in zip(("", " alt1", " alt2", " alt3", " alt4"), herrings, strict=True):
        change = synonym(f"modifier synonym{column}", f"This is {words} herring")
        edit(neutral, "red herring", partial(_update, change=change))
    vehicle = synonym("modifier synonym", "A big vehicle park", 3)
    edit(neutral, "car park", partial(_update, change=vehicle))
    read = english(folder)
    assert compound(read, "car park").versions["modifier"][0].synonym == "big vehicle"
    assert [v.synonym for v in compound(read, "red herring").versions["modifier"]] == ["scarlet", "ruby"]
    words = read.describe()
    assert "repeat one of their compound: 48" in words  # most of them in the sample as it is
    for what in ("are the word itself", "is missing (nan)", "'nan' for an article", "of two words"):
        assert f"{what}: 1" in words


def test_no_human_score_no_singular_and_a_sentence_twice(folder: Path) -> None:
    book = load_workbook(folder / SCORES_FILE)
    new = {"car park": "Car Park", "rain cloud": "something else"}  # case does not matter
    for row in book.worksheets[0].iter_rows(min_row=2):
        row[3].value = new.get(row[3].value, row[3].value)
    book.save(folder / SCORES_FILE)

    def plural(row: Row) -> None:
        row["original sentence"] = row["original sentence"].replace("kitchen knife", "kitchen knives")

    sentences = [folder / "EN" / f"naturalistics_examplesent{number}.csv" for number in (1, 2)]
    edit(sentences[1], "kitchen knife", plural)
    first: Row = {}
    edit(sentences[0], "car park", first.update)
    edit(sentences[1], "car park", lambda row: row.update(first))
    read = english(folder)
    assert list(read.left_out.values()) == [["rain cloud"], ["kitchen knife"]]
    assert len(read.compounds) == 10
    assert compound(read, "car park").class_type == "C"
    assert len(compound(read, "car park").contexts) == 2
    for part in ("left out 1 without a human score (rain cloud)", "inflected: 2", "twice: 1"):
        assert part in read.describe()


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("neutral.csv", {"modifier synonym_tag": str([True, False, False, True, True])}, ["row 2", "_tag'"]),
        ("neutral.csv", {"head synonym": "This is a bus stop"}, ["row 2", "'bus stop'"]),
        ("naturalistics_examplesent3.csv", {"compound": "bike park"}, ["neutral.csv"]),
    ],
)
def test_what_cannot_be_read_is_named(folder: Path, file: str, change: Row, named: list[str]) -> None:
    edit(folder / "EN" / file, "car park", partial(_update, change=change))
    refused(lambda: english(folder), str(folder / "EN" / file), *named)


def _update(row: Row, change: Row) -> None:
    row.update(change)


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
