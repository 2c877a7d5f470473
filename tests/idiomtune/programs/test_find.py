"""Occurrences of expressions: on the command line, in files, from Python; labels of a user's own."""

import json
from io import StringIO
from math import isnan
from pathlib import Path

import pandas as pd
import pytest

import idiomtune as it
from idiomtune.errors import UserError
from tests.programs import main_of

main = main_of("find")

TEXTS = [
    "Well. At last a joke broke the ice.",
    "Nothing here.",
    "The boy broke the ice on the pond with a stick.",
]


def test_a_concordance_on_the_screen_and_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, table = tmp_path / "texts.txt", tmp_path / "texts.csv"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    pd.DataFrame({"text": TEXTS}).to_csv(table, index=False)
    glossary = tmp_path / "mine.tsv"
    glossary.write_text("expression\tmeaning\nbreak the ice\tmake people relax\n", encoding="utf-8")
    assert main([str(texts), f"glossary={glossary}", f"output={tmp_path / 'a.jsonl'}"]) == 0
    assert main([str(texts), f"glossary={glossary}"]) == 0
    printed = pd.read_csv(StringIO(capsys.readouterr().out.partition("\n")[2]), sep="\t").to_dict("records")
    assert main([str(table), f"glossary={glossary}", f"output={tmp_path / 'a.tsv'}"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()]
    written = pd.read_csv(tmp_path / "a.tsv", sep="\t").to_dict("records")
    for other, numbers in ((printed, (1, 3)), (written, (2, 4))):  # a table's first row has its columns
        assert [row.pop("line") for row in other] == [*numbers]
        assert len({row.pop("file") for row in other}) == 1
    assert [{**row, "file": 0, "line": 0} for row in printed] == [
        {**row, "file": 0, "line": 0} for row in rows
    ]
    assert printed == written
    assert [(row["text"], row["start"], row["end"]) for row in rows] == [(1, 21, 34), (3, 8, 21)]
    assert rows[0]["sentence"] == "At last a joke broke the ice."
    assert rows[1]["usage"] < 0.5 < rows[0]["usage"]
    assert main([str(texts), f"glossary={glossary}", f"output={tmp_path / 'a.tsv'}"]) == 2
    assert "overwrite=true" in capsys.readouterr().err


def test_an_expression_may_go_over_a_line_end_and_have_an_adjective(tmp_path: Path) -> None:
    """In a text file; rows of a table, and lines with a capital, are texts of their own."""
    lines = [
        "It was a joke that broke",
        "the ice. A wit broke the thick ice.",
        "They broke",
        "The ice.",
        "the ice",
    ]
    rows = {}
    for name in ("texts.txt", "texts.csv"):
        path = tmp_path / name
        path.write_text("\n".join(["text"] * (name == "texts.csv") + lines), encoding="utf-8")
        rows[name] = it.find(path, {"break the ice": "make people relax"})
    spans = [(row.text, row.sentence[row.sentence.index("broke") :]) for row in rows["texts.txt"]]
    assert spans == [(0, "broke\nthe ice."), (1, "broke the thick ice.")]
    assert [row.text for row in rows["texts.csv"]] == [1]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "texts"),
        (["none.txt"], "none.txt"),
        (["glosary=x.tsv", "none.txt"], "glosary"),
        (["none.txt", "output=a.pdf"], "output=a.pdf"),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert named in capsys.readouterr().err


def test_own_labels_correct_the_gate() -> None:
    """With literal uses labelled idiomatic, the gate is turned round."""
    literal = [
        "The boy broke the ice with a stick.",
        "An axe broke the ice there.",
        "Boots broke the ice on the path.",
    ]
    idiomatic = [
        "A game broke the ice.",
        "A toast broke the ice there.",
        "Her smile broke the ice between them.",
    ]
    unknown = ["A hammer broke the ice at last.", "Some wine broke the ice at last.", "No ice."]
    labels = [True] * 3 + [False] * 3 + [None] * 3
    plain = it.usage("minilm", [*literal, *idiomatic, *unknown], "break the ice")
    turned = it.usage("minilm", [*literal, *idiomatic, *unknown], "break the ice", labels)
    assert plain[6] < plain[7]
    assert turned[6] > turned[7]
    assert turned[8] != turned[8]
    for wrong in (labels[:-1], [True] * 9, ["yes"] * 9):
        with pytest.raises(UserError, match="labels"):
            it.usage("minilm", [*literal, *idiomatic, *unknown], "break the ice", wrong)  # type: ignore[arg-type]


def test_from_python(tmp_path: Path) -> None:
    (row,) = it.find(TEXTS[:2], {"break the ice": "make people relax"})
    (path := tmp_path / "texts.txt").write_text("\n".join(TEXTS[:2]), encoding="utf-8")
    assert it.find(path, {"break the ice": "make people relax"}) == [row]
    assert it.find(
        TEXTS[:2], model=it.Encoder("minilm", glossary={"break the ice": "make people relax"})
    ) == [row]


def test_expressions_that_occur_nowhere_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, glossary = tmp_path / "texts.txt", tmp_path / "mine.tsv"
    texts.write_text("\n".join(["=1+1, it broke the ice.", *TEXTS]), encoding="utf-8")
    glossary.write_text("idiom\tmeaning\nbreak the ice\trelax\ncold feet\tfear\n", encoding="utf-8")
    output = tmp_path / "found.csv"
    assert main([str(texts), f"glossary={glossary}", f"output={output}"]) == 0
    streams = capsys.readouterr()
    assert "cold feet" in streams.err
    assert streams.out == f"{output}\n"
    sentences = pd.read_csv(output)["sentence"]  # a spreadsheet takes none for a formula
    assert [text[0] for text in sentences] == ["'", "A", "T"]


def test_a_text_that_is_too_long_costs_no_other_row_its_usage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    long, texts, glossary = 1, [*TEXTS[::2], TEXTS[0]], {"break the ice": "make people relax"}
    texts[long] = f"{'word ' * 300}{texts[long]}"
    (path := tmp_path / "texts.txt").write_text("\n\n".join(texts), encoding="utf-8")
    (table := tmp_path / "mine.tsv").write_text("expression\tmeaning\nbreak the ice\trelax\n")
    assert [row.text for row in it.find(texts, glossary) if isnan(row.usage)] == [long]
    assert f"text {long}" in caplog.text
    assert [isnan(usage) for usage in it.usage("minilm", texts, "break the ice")] == [
        i == long for i in range(3)
    ]
    caplog.clear()
    assert main([str(path), f"glossary={table}"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()][1:]
    assert [row[4] == "" for row in rows] == [i == long for i in range(3)]
    assert f"texts.txt, line {1 + 2 * long}" in caplog.text


def test_a_search_counts_expressions_of_queries_and_corpus(caplog: pytest.LogCaptureFixture) -> None:
    encoder = it.Encoder("minilm", glossary={"miss the boat": "be too late"})
    with caplog.at_level("INFO"):
        encoder.search("He was late.", ["He missed the boat.", "It rained."])
    assert "1 of 1 expressions" in caplog.text
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
