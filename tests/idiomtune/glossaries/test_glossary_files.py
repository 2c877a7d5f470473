"""Glossary files: what is read of them, and what is said of their rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from idiomtune import Encoder, expressions
from idiomtune.glossaries.tables import first_clause, glossary_path, read_glossary
from idiomtune.hub.model_card import learned_card
from idiomtune.io.files import fingerprint
from idiomtune.io.tables import inputs_in, write_tables
from tests.counting import lines_run
from tests.own_data import write_lines
from tests.programs import refused

NAME = "break the ice"


def written(path: Path, *rows: str, header: str = "expression,meaning") -> Path:
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def test_a_file_says_meanings_and_whose_they_are(tmp_path: Path) -> None:
    """Any kind of table does (tests/idiomtune/io); its sum is recorded."""
    rows = ("break the ice,make people relax,yes,mine,", "home run,a great success,a hit in baseball,,CC0")
    header = "expression,meaning,literal,source,licence"
    path = written(tmp_path / "mine.csv", *rows, "home run,a hit in baseball,,,", header=header)
    glossary = read_glossary([path])
    senses = {"break the ice": ["make people relax"], "home run": ["a great success", "a hit in baseball"]}
    assert glossary.senses == senses
    assert [entry.literal for entry in glossary.entries] == [True, "a hit in baseball", None]
    assert glossary.describe() == {
        **{"files": ["mine.csv"], "sums": {"mine.csv": fingerprint(path)}},
        **{"expressions": 2, "meanings": 3, "sources": ["mine"], "licences": ["CC0"], "without_licence": 2},
    }
    marked = ("a b,x,no", "A-B,y,", "c d,x,no", "c d,y,a knot", "e f,x,yes", "g h,x,")
    path = written(tmp_path / "g.csv", *marked, header="expression,meaning,literal")
    assert read_glossary([path]).never_literal == {"a b"}
    for header in ("idiom,definition", "phrase,gloss", "Term,Sense", "mwe,meaning"):
        assert read_glossary([written(path, "break the ice,relax", header=header)]).senses == {
            NAME: ["relax"]
        }
    texts = ["He broke the ice."] * 2 + ["No.", "Break the ice!"]
    assert glossary.meanings().log_coverage(texts, "tests") == ({"break the ice"}, 2)


def test_rows_that_want_a_look_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A function word is no expression: every text would have it. Of several words they may be one."""
    caplog.set_level("INFO")
    path = written(tmp_path / "a.csv", "Home-Run,a great success,CC0", header="expression,meaning,licenc")
    rows = ["home run,A great success", "home run,a hit", "take (someone) for a ride,cheat"]
    rows += ["the,article", "\u2026,dots", "It,she", "let alone,even less"]
    glossary = read_glossary([path, written(tmp_path / "b.csv", *rows)])
    assert all(part in caplog.text for part in ("licenc", "a.csv"))  # a column that is not read
    assert glossary.senses["Home-Run"] == ["a great success", "a hit"]
    assert list(glossary.senses) == ["Home-Run", "take someone for a ride", "let alone"]
    marks, signs = glossary.notes
    assert "'take (someone) for a ride' as 'take someone for a ride'" in marks
    assert "'\u2026'" in signs
    words, meanings = sorted(glossary.left_out, key=lambda note: "Home-Run" in note)
    assert "'the', '\u2026', 'It'" in words
    assert meanings.count("row") == 2, "'Home-Run': the meaning that is read, and the other"


def test_an_encoder_warns_once_of_what_it_does_not_read(
    tiny_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = str(written(tmp_path / "g.csv", "break the ice,MINE", "break the ice,LAST", "the,article"))
    for named in ([["'the'"], ["MINE", "g.csv, row 2", "english.tsv, row"]], []):
        caplog.clear()
        Encoder(tiny_path, glossary=["english", table])
        lines = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert len(lines) == len(named), "it is read once"
        assert all(word in line for line, words in zip(lines, named, strict=True) for word in words), lines
    english = read_glossary([glossary_path("english", "glossary")])
    assert not (*english.notes, *english.left_out)


@pytest.mark.parametrize("divider", ["|", " | ", ";", "; ", "\n", "<br>", " / "])
def test_expressions_and_forms_are_divided_alike(divider: str, tmp_path: Path) -> None:
    """And meanings are of one line."""
    row = {"expression": f"tie  the knot{divider}wed", "meaning": "get\n married\u202e"}
    listed = {"expression": "old hat", "meaning": "outdated", "forms": ["e f", "g h"]}
    path = write_lines(tmp_path / "g.jsonl", [row | {"forms": f"a b{divider}c d"}, listed])
    glossary = read_glossary([path])
    assert glossary.senses == {
        "tie the knot": ["get married"],
        "wed": ["get married"],
        "old hat": ["outdated"],
    }
    names = {name: ["a b", "c d"] for name in ("tie the knot", "wed")}
    assert glossary.forms == names | {"old hat": ["e f", "g h"]}


def test_the_first_clause_of_a_definition() -> None:
    for meaning, first in (
        ("rich people (collectively), or others; them", "rich people, or others"),
        ("(slang); (rare)", "(slang); (rare)"),
        ("(of a person (or animal); rare) tired", "tired"),
        ("(informal); get married; wed", "get married"),
    ):
        assert first_clause(meaning) == first


def test_published_tables_serve_as_they_are(tmp_path: Path) -> None:
    non_literal = ",".join(f"Non-Literal Meaning {number}" for number in (1, 2, 3))
    senses = written(
        tmp_path / "senses.csv",
        "elbow room,joint room,space,freedom,None,test",
        "mailing list,address list,None,None,None,test",
        header=f"Multiword Expression,Literal Meaning,{non_literal},Data Split",
    )
    row = '"old hat","outdated,","That is old hat .","That is dated .",O O B I O,O O B O'
    header = "Idiom,Sense,Idiomatic_Sent,Literal_Sent,Idiomatic_Label,Literal_Label"
    pie = written(tmp_path / "data_cleaned.csv", row, row, header=header)
    glossary = read_glossary([senses, pie])
    assert glossary.senses == {"elbow room": ["space", "freedom"], "old hat": ["outdated"]}
    about = [glossary.describe()[name] for name in ("sources", "licences", "without_licence")]
    assert about == [["AStitchInLanguageModels", "PIE"], ["gpl-3.0"], 1]


def _word(number: int) -> str:
    """A word of letters for each number."""
    return "".join(chr(97 + number // 26**n % 26) for n in range(4))


WORDS = ("boat", "rain", "cat", "house", "road", "tree", "take", "give")
ALIKE: dict[str, Callable[[int], str]] = {
    "nested": lambda i: " ".join(_word(j) for j in range(i % 20 + 1)) + f" {_word(i)}",
    "placeholders": lambda i: f"take someone to one's {_word(i)} place",
    "the same few words": lambda i: " ".join(WORDS[i * 7919 // 8**n % 8] for n in range(6)),
}


@pytest.mark.parametrize("kind", ALIKE)
def test_reading_grows_no_faster_than_the_file(kind: str, tmp_path: Path) -> None:
    """Four times as many rows take no more than 8 times the work (a quadratic reader: 16 times)."""

    def work(num_rows: int) -> int:
        path = tmp_path / f"{num_rows}.tsv"
        rows = dict.fromkeys(ALIKE[kind](i) for i in range(num_rows))
        path.write_text("expression\tmeaning\n" + "".join(f"{row}\tmeaning\n" for row in rows), "utf-8")
        text = "They take the boat to their place, and break the ice 12."
        return lines_run(lambda: read_glossary([path]).meanings().find(text), without_caches_of=expressions)

    assert work(400) < 8 * work(100)


def test_an_encoder_says_once_that_no_expression_occurs(
    tiny_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for text, warnings in (("Nothing of it.", ["WARNING"]), ("He missed the boat.", [])):
        encoder: Any = Encoder(tiny_path, glossary={"miss the boat": "be late"})
        assert encoder.meanings.senses == {"miss the boat": ["be late"]}
        caplog.clear()
        encoder.encode([text])
        encoder.encode([text])
        assert [r.levelname for r in caplog.records if "glossary" in r.getMessage()] == warnings


TERMS = {"break the ice": ["relax"], "tie the knot": ["marry"]}


@pytest.mark.parametrize(
    "content",
    [
        '{"break the ice": "relax", "tie the knot": "marry"}',
        '{"break the ice": ["relax"],\n "tie the knot": "marry"}',
        '[{"term": "break the ice", "gloss": "relax"},\n{"term": "tie the knot", "gloss": "marry"}]',
        '{"phrase": ["break the ice", "tie the knot"], "gloss": ["relax", "marry"]}',
    ],
)
def test_a_json_glossary_is_read_from_a_file_and_from_memory(tmp_path: Path, content: str) -> None:
    path = tmp_path / "g.json"
    path.write_text(content, encoding="utf-8")
    assert read_glossary([path]).senses == TERMS
    with inputs_in(tmp_path):
        (table,) = write_tables(json.loads(content), "glossary")
    assert read_glossary([Path(table)]).senses == TERMS
    path.write_text('{"term": ["break the ice", "tie the knot"], "definition": ["relax"]}', encoding="utf-8")
    refused(lambda: read_glossary([path]), str(path), "'term': 2", "'definition': 1")


def test_what_is_left_out_of_meanings_is_said(tmp_path: Path) -> None:
    first = r"break the ice|broke the ice,(idiom)\nto make people relax\n2. to begin"
    glossary = read_glossary([written(tmp_path / "g.csv", first, "tie the knot,1. marry")])
    assert glossary.senses["broke the ice"] == ["to make people relax", "to begin"]
    (said,) = (note for note in glossary.left_out if "labels" in note)
    assert "break the ice" in said
    assert "tie the knot" not in said
    card = learned_card({"path": "minilm"}, glossary.describe(), glossary.senses)
    assert "to make people relax" in card
    assert "to begin" not in card, "the first meaning is the one that is read"
