"""Glossary files: what is read of them, and what is said of their rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from train.encoder.glossary import first_clause, read_glossary
from train.io.files import fingerprint

ROWS: list[dict[str, Any]] = [
    {"expression": "break the ice", "meaning": "make people relax", "literal": "yes", "source": "mine"},
    {
        "expression": "home run",
        "meaning": "a great success",
        "literal": "a hit in baseball",
        "licence": "CC0",
    },
    {"expression": "home run", "meaning": "a hit in baseball"},
]


def written(folder: Path, kind: str) -> Path:
    path = folder / f"mine.{kind}"
    columns = ["expression", "meaning", "literal", "source", "licence", "note"]
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    elif kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.Table.from_pylist([dict.fromkeys(columns) | row for row in ROWS]), path)
    else:
        between = {"csv": ",", "tsv": "\t"}[kind]
        lines = [between.join(columns)]
        lines += [between.join(str(row.get(column, "")) for column in columns) for row in ROWS]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_every_kind_of_file_says_the_same(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind)
    glossary = read_glossary([path])
    assert glossary.senses == {
        "break the ice": ["make people relax"],
        "home run": ["a great success", "a hit in baseball"],
    }
    assert [entry.literal for entry in glossary.entries] == [True, "a hit in baseball", None]
    assert glossary.describe() == {
        "files": [f"mine.{kind}"],
        "sums": {f"mine.{kind}": fingerprint(path)},
        "expressions": 2,
        "meanings": 3,
        "sources": ["mine"],
        "licences": ["CC0"],
        "without_licence": 2,
    }


def test_rows_that_want_a_look_are_named(tmp_path: Path) -> None:
    path, other = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text(
        "expression,meaning\nkeep in the dark,tell nothing\nin the dark,not informed\n"
        "Home-Run,a great success\n",
        encoding="utf-8",
    )
    other.write_text("expression,meaning\nhome run,A great success\nhome run,a hit\n", encoding="utf-8")
    glossary = read_glossary([path, other])
    assert glossary.senses["Home-Run"] == ["a great success", "a hit"]
    said = "\n".join(glossary.notes)
    for part in ("b.csv, row 2", "(a.csv, row 4): left out"):
        assert part in said
    assert "a.csv, row 3: 'in the dark' is part of 'keep in the dark' (a.csv, row 2)" in said
    assert "'Home-Run' (a.csv, row 4): 2" in said


def test_rows_that_few_texts_will_match_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = ["take (someone) for a ride,cheat", f"go ghost,{'vanish ' * 60}", "tie the knot,get married"]
    path.write_text("\n".join(["expression,meaning", *rows]), encoding="utf-8")
    brackets, long = sorted(read_glossary([path]).notes)
    assert "a.csv, row 2" in brackets
    assert "brackets" in brackets
    assert "a.csv, row 3: the meaning of 'go ghost' has 60 words" in long


def test_what_is_never_literal_is_said_by_no_row_to_be(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    rows = ["a b,x,no", "A-B,y,", "c d,x,no", "c d,y,a knot", "e f,x,yes", "g h,x,"]
    path.write_text("\n".join(["expression,meaning,literal", *rows]), encoding="utf-8")
    assert read_glossary([path]).never_literal == {"a b"}


def test_what_occurs_and_what_does_not_is_counted(tmp_path: Path) -> None:
    meanings = read_glossary([written(tmp_path, "csv")]).meanings()
    counts, num_texts = meanings.coverage(["He broke the ice.", "He broke the ice.", "No.", "Break the ice!"])
    assert counts == {"break the ice": 2, "home run": 0}
    assert num_texts == 2


def test_a_meaning_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "g.jsonl"
    path.write_text(json.dumps({"expression": "a  b", "meaning": "one\n two\u202e"}), encoding="utf-8")
    assert read_glossary([path]).senses == {"a b": ["one two\\u202e"]}


@pytest.mark.parametrize(
    ("meaning", "first"),
    [
        ("get married", "get married"),
        ("(psychiatry) a disorder of thought; a milder term", "a disorder of thought"),
        ("rich people (collectively), or others; them", "rich people, or others"),
        ("(slang); (rare)", "(slang); (rare)"),
        ("(of a person (or animal); rare) tired", "tired"),
        ("(informal); get married; wed", "get married"),
    ],
)
def test_the_first_clause_of_a_definition(meaning: str, first: str) -> None:
    assert first_clause(meaning) == first


def test_brief_meanings_are_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("expression\tmeaning\ntie the knot\tget married; wed\ntie the knot\tget married; unite\n")
    meanings = read_glossary([path]).meanings(num_senses=2, brief=True)
    assert meanings.added("they tie the knot")[0] == "they tie the knot (get married)"
    assert meanings.about["brief"]


def test_published_tables_serve_as_they_are(tmp_path: Path) -> None:
    senses = tmp_path / "senses.csv"
    senses.write_text(
        "Multiword Expression,Literal Meaning,Non-Literal Meaning 1,Non-Literal Meaning 2,"
        "Non-Literal Meaning 3,Data Split\n"
        "elbow room,joint room,space,freedom,None,test\nmailing list,address list,None,None,None,test\n",
        encoding="utf-8",
    )
    pie = tmp_path / "data_cleaned.csv"
    row = '"old hat","outdated,","That is old hat .","That is dated .",O O B I O,O O B O\n'
    header = "Idiom,Sense,Idiomatic_Sent,Literal_Sent,Idiomatic_Label,Literal_Label\n"
    pie.write_text(header + row + row, encoding="utf-8")
    glossary = read_glossary([senses, pie])
    assert glossary.senses == {"elbow room": ["space", "freedom"], "old hat": ["outdated"]}
    about = glossary.describe()
    assert about["sources"] == ["AStitchInLanguageModels", "PIE"]
    assert about["licences"] == ["gpl-3.0"]
    assert about["without_licence"] == 1
    assert not any("left out" in note for note in glossary.notes), "PIE has a row for each sentence"
