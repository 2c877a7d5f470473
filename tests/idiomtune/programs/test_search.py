"""The nearest texts of a file: several queries, rows for other programs, what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import idiomtune as it
from tests.programs import main_of

main = main_of("search")

TEXTS = ["He told a joke.", "The ship sank, they say.", "Nobody spoke."]
pytestmark = pytest.mark.usefixtures("in_folder")


@pytest.mark.parametrize(
    "options",
    [
        ["query=[The joke., 'A ship, sunk.']"],
        ["queries=queries.txt"],
        ["query=The joke.", "queries=more.csv"],
    ],
)
def test_rows_are_the_hits_of_an_encoder(
    options: list[str], tiny_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    Path("queries.txt").write_text("The joke.\r\nA ship, sunk.\r\n", encoding="utf-8")
    Path("more.csv").write_text('n,sentence\n1,"A ship, sunk."\n', encoding="utf-8")
    assert main([str(tiny_path), "corpus=a.txt", *options, "top_k=2"]) == 0
    header, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    hits = it.Encoder(tiny_path).search(queries := ["The joke.", "A ship, sunk."], TEXTS, k=2)
    assert [dict(zip(header, row, strict=True)) for row in rows] == [
        {
            **{"query": query, "rank": str(rank), "score": str(round(hit.similarity, 4)), "file": "a.txt"},
            **{"line": str(1 + 2 * hit.index), "text": hit.text},
        }
        for query, of_query in zip(queries, hits, strict=True)
        for rank, hit in enumerate(of_query, 1)
    ]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["corpus=a.txt", "query=x"], "model"),
        (["minilm", "query=x"], "corpus"),
        (["minilm", "corpus=a.txt"], "query"),
        (["minilm", "corpus=a.txt", "query=x", "top_k=0"], "top_k"),
        (["minilm", "corpus=none.txt", "query=x"], "corpus=none.txt"),
        (["minilm", "corpus=a.txt", "queries=none.txt"], "queries=none.txt"),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.txt").write_text("x\n", encoding="utf-8")
    assert main(arguments) == 2
    assert named in capsys.readouterr().err
