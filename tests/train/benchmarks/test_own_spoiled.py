"""What is wrong with a user's file is told in one message: file, row and field, before a model is loaded."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import FUZZED, TEXTS, VALUES
from tests.own_data import write, write_collection
from tests.programs import run
from train.benchmarks.own.collections import read_collection
from train.benchmarks.own.pair_files import read_labelled_pairs, read_scored_pairs
from train.benchmarks.own.ranking_files import read_ranking
from train.errors import UserError

Read = Callable[[str, Path], Any]

PAIRS = "id,sentence1,sentence2,score\n"
LABELS = "sentence1,sentence2,label\n"
SPANS = "sentence1,sentence2,score,span1,span1_start,span1_end\n"
RANKED = "query_id,query,candidate,grade\n"

# reader, content of the file, what the message names beside it
TABLES: list[tuple[Read, str, tuple[str, ...]]] = [
    (read_scored_pairs, "", ("no row",)),
    (read_scored_pairs, PAIRS, ("no row",)),
    (read_scored_pairs, "a,b,c\n1,2,3\n", ("sentence1, sentence2, score", "found: a, b, c", "columns")),
    (read_scored_pairs, "sentence1,text_1,sentence2,score\na,b,c,1\n", ("sentence1", "text_1", "columns")),
    (read_scored_pairs, PAIRS + "7,a,b,1\n8,c,,0\n", ("row 3", "id 8", "'sentence2'", "empty")),
    (read_scored_pairs, PAIRS + "7,a,b,1\n8,c,  ,0\n", ("row 3", "'sentence2'", "blank")),
    (read_scored_pairs, PAIRS + "7,a,b,1\n8,c,d,high\n", ("row 3", "'score'", "'high' is no number")),
    (read_scored_pairs, PAIRS + '7,a,b,1\n8,c,d,"3,5"\n', ("row 3", "'score'", "'3,5'")),
    (read_scored_pairs, PAIRS + "7,a,b,1\n8,c,d,nan\n", ("row 3", "'score'", "nan")),
    (read_scored_pairs, PAIRS + "7,a,b,1\n8,c,d,\n", ("row 3", "'score'", "empty")),
    (read_scored_pairs, PAIRS + "7,a,b,1\n7,c,d,0\n", ("row 3", "'id'", "row 2")),
    (read_scored_pairs, PAIRS + "7,a,b,1\n8,c,d,1\n", ("all scores are 1",)),
    (read_scored_pairs, PAIRS + "7,a,b,1\n8,c,d\n", ("row 3", "fields")),
    (read_scored_pairs, PAIRS + '7,a,b,1\n8,"c,d,0\n', ("row 3", "quotation mark")),
    (read_scored_pairs, PAIRS + "7,,b,1\n8,c,,x\n", ("2 problems", "row 2", "row 3")),
    (read_scored_pairs, SPANS + "a cat,b,1,dog,,\nc,d,0,,,\n", ("row 2", "'span1'", "'dog' is not in")),
    (read_scored_pairs, SPANS + "a cat,b,1,,2,9\nc,d,0,,,\n", ("row 2", "'span1_start'", "2–9")),
    (read_scored_pairs, SPANS + "a cat,b,1,,2,\nc,d,0,,,\n", ("row 2", "'span1_start'", "span1_end")),
    (read_scored_pairs, SPANS + "a cat,b,1,,1.5,2\nc,d,0,,,\n", ("row 2", "'span1_start'")),
    (read_scored_pairs, "sentence1,sentence2,score,span\na,b,1,a\n", ("row 2", "'span'", "span1 or span2")),
    (read_labelled_pairs, LABELS + "a,b,1\nc,d,maybe\n", ("row 3", "'label'", "'maybe' is no label")),
    (read_labelled_pairs, LABELS + "a,b,1\nc,d,2\n", ("row 3", "'label'", "'2'")),
    (read_labelled_pairs, LABELS + "a,b,1\nc,d,1\n", ("two labels", "found 1")),
    (read_labelled_pairs, LABELS + "a,b,1\nc,d,0\ne,f,-1\n", ("two labels", "-1, 0, 1")),
    (read_ranking, "query,text2\nq,x\n", ("row 2", "'candidates'", "positives")),
    (read_ranking, RANKED + "1,q,a,1\n1,q,b,good\n", ("row 3", "'grade'", "'good'")),
    (read_ranking, RANKED + "1,q,a,1\n1,q,a,0\n", ("row 3", "'candidate'", "twice")),
    (read_ranking, RANKED + "1,q,a,1\n1,other,b,0\n", ("row 3", "'query'", "first row of '1'")),
    (read_ranking, RANKED + "1,q,a,0\n1,q,b,0\n", ("no query", "relevant")),
    (
        read_ranking,
        'query,candidates,grades\nq,"[""a"", ""b""]",[1]\n',
        ("row 2", "'grades'", "1 grades of 2"),
    ),
    (
        read_ranking,
        'query,candidates,grades\nq,"[""a"", ""b""]","[1, ""x""]"\n',
        ("row 2", "'grades'", "'x'"),
    ),
    (read_ranking, 'query,candidates\nq,"[""a"", ""a""]"\n', ("row 2", "'candidates'", "twice")),
    (read_ranking, 'query,candidates\nq,"[""a"", 3]"\n', ("row 2", "'candidates'", "3 is no text")),
]

CORPUS = '{"_id": "d1", "text": "A"}\n'
QUERIES = '{"_id": "q1", "text": "a"}\n'
COLLECTIONS: list[tuple[dict[str, str | None], tuple[str, ...]]] = [
    ({"corpus": None}, ("no corpus.jsonl",)),
    ({"queries": None}, ("no queries.jsonl",)),
    ({"qrels": None}, ("qrels",)),
    (
        {"corpus": '{"_id": "d1", "text": "A"}\n{"_id": "d1", "text": "B"}\n'},
        ("corpus", "row 2", "'d1'", "twice"),
    ),
    ({"corpus": '{"_id": "d1", "text": "A"}\n{"_id": "d2", "text": ""}\n'}, ("corpus", "row 2", "empty")),
    ({"corpus": '{"_id": "d1", "text": "A"}\n{"_id": "d2"}\n'}, ("corpus", "row 2", "'text'", "missing")),
    ({"corpus": '{"_id": "d1", "text": "A"}\n{"_id": "d2", \n'}, ("corpus", "line 2", "JSON")),
    ({"corpus": '{"_id": true, "text": "A"}\n'}, ("corpus", "row 1", "'_id'", "True")),
    ({"corpus": '{"name": "d1", "text": "A"}\n'}, ("corpus", "id", "found: name, text")),
    ({"queries": QUERIES + QUERIES}, ("queries", "row 2", "'q1'", "twice")),
    ({"queries": '{"_id": "q1", "text": ["a"]}\n'}, ("queries", "row 1", "'text'", "['a']")),
    ({"queries": '{"_id": "q1", "text": "a", "span": "b"}\n'}, ("queries", "row 1", "'span'", "'b'")),
    ({"qrels": "q1\td1\t1\nq9\td1\t1\n"}, ("test.tsv", "row 2", "no query 'q9'")),
    ({"qrels": "q1\td1\t1\nq1\td9\t1\n"}, ("test.tsv", "row 2", "no document 'd9'")),
    ({"qrels": "q1\td1\tyes\n"}, ("test.tsv", "row 1", "'yes' is no number")),
    ({"qrels": "q1\td1\t1\nq1\td1\t2\n"}, ("test.tsv", "row 2", "judged twice")),
    ({"qrels": "q1\td1\t0\n"}, ("test.tsv", "no query has a relevant document")),
    ({"qrels": "q1\td1\t1\t0\tx\n"}, ("test.tsv", "row 1", "5 fields")),
    ({"qrels": ""}, ("test.tsv", "no row")),
]


def said_of(read: Callable[[], Any]) -> str:
    with pytest.raises(UserError) as caught:
        read()
    return str(caught.value)


@pytest.mark.parametrize(("read", "content", "named"), TABLES, ids=[str(n) for n in range(len(TABLES))])
def test_a_spoiled_table_is_told(tmp_path: Path, read: Read, content: str, named: tuple[str, ...]) -> None:
    path = write(tmp_path / "mine.csv", content)
    said = said_of(lambda: read("mine", path))
    assert all(part in said for part in (str(path), *named)), said
    assert "Error" not in said


@pytest.mark.parametrize(("spoiled", "named"), COLLECTIONS, ids=[str(n) for n in range(len(COLLECTIONS))])
def test_a_spoiled_collection_is_told(
    tmp_path: Path, spoiled: dict[str, str | None], named: tuple[str, ...]
) -> None:
    folder = write_collection(tmp_path / "mine", **spoiled)
    said = said_of(lambda: read_collection("mine", folder))
    assert all(part in said for part in (str(folder), *named)), said
    assert "Error" not in said


def test_files_of_other_kinds(tmp_path: Path) -> None:
    assert "no such file" in said_of(lambda: read_scored_pairs("mine", tmp_path / "none.csv"))
    assert "no such folder" in said_of(lambda: read_collection("mine", tmp_path / "none"))
    spoiled = tmp_path / "mine.csv"
    spoiled.write_bytes(PAIRS.encode() + "1,café,b,1\n".encode("latin-1"))
    assert "line 2" in said_of(lambda: read_scored_pairs("mine", spoiled))
    said = said_of(lambda: read_scored_pairs("mine", write(tmp_path / "mine.txt", "a")))
    assert ".csv" in said
    folder = write_collection(tmp_path / "mine")
    (folder / "qrels" / "test.tsv").write_bytes("q1\td1\t\xe9\n".encode("latin-1"))
    assert "UTF-8" in said_of(lambda: read_collection("mine", folder))
    write(folder / "corpus.csv", "id,text\n1,a\n")
    assert "corpus.csv and corpus.jsonl" in said_of(lambda: read_collection("mine", folder))


PAIR = {"id": "1", "sentence1": "a b", "sentence2": "c", "span1": "b", "span2_start": 0, "span2_end": 1}
VALID: list[tuple[Read, dict[str, Any]]] = [
    (read_scored_pairs, PAIR | {"score": 0.5, "group": "g"}),
    (read_labelled_pairs, PAIR | {"label": 1, "instruction": "i"}),
    (read_ranking, {"id": 1, "query": "q", "candidates": ["a", "b"], "grades": [0, 1], "span": "q"}),
    (read_ranking, {"query": "q", "positives": ["a"], "negatives": "b"}),
    (read_ranking, {"query_id": 1, "query": "q", "candidate": "a", "grade": 1}),
]
PARTS: dict[str, dict[str, Any]] = {
    "corpus": {"_id": "d1", "title": "t", "text": "a", "span": "a"},
    "queries": {"_id": "q1", "text": "a", "span_start": 0, "span_end": 1},
    "qrels": {"query-id": "q1", "corpus-id": "d1", "score": 1},
}
FIELDS = st.one_of(TEXTS, st.sampled_from(VALUES), st.lists(st.one_of(TEXTS, st.integers()), max_size=3))


@pytest.mark.slow
@FUZZED
@given(data=st.data())
def test_whatever_stands_in_a_field_is_read_or_refused_by_the_files_name(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("fuzzed")
    for read, row in VALID:
        changed = row | data.draw(st.dictionaries(st.sampled_from(list(row)), FIELDS, min_size=1, max_size=2))
        for path in both_kinds(folder / "mine", [row, changed]):
            refused_by_name(partial(read, "mine", path), folder)
    for name, row in PARTS.items():
        changed = row | data.draw(st.dictionaries(st.sampled_from(list(row)), FIELDS, min_size=1, max_size=2))
        collection = write_collection(folder / name, qrels="q1\td1\t1\n")
        place = "qrels/test" if name == "qrels" else name
        for old in collection.glob(f"{place}.*"):
            old.unlink()
        for path in both_kinds(collection / place, [row, changed]):
            refused_by_name(partial(read_collection, "mine", collection), folder)
            path.unlink()


def both_kinds(path: Path, rows: list[dict[str, Any]]) -> Iterator[Path]:
    """The rows as JSON lines, then as a table between tabs."""
    yield write(path.with_suffix(".jsonl"), "".join(json.dumps(row) + "\n" for row in rows))
    with path.with_suffix(".tsv").open("w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.DictWriter(file, rows[0], delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)
    yield path.with_suffix(".tsv")


def refused_by_name(read: Callable[[], Any], folder: Path) -> None:
    said = str(folder)
    try:
        read()
    except UserError as error:
        said = str(error)
    assert str(folder) in said


@pytest.mark.slow
def test_a_spoiled_file_is_told_before_a_model_is_looked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.csv", PAIRS + "7,a,b,1\n8,c,,0\n")
    done = run(
        *("train.evaluate", f"model={tmp_path}/none", "benchmarks=[own_sts]", "device=cpu"),
        f"benchmark.own_sts.path={path}",
    )
    said = " ".join(done.stderr.split())
    assert done.returncode == 2
    assert "mine.csv: 1 problem" in said
    assert "row 3 (id 8), field 'sentence2': is empty" in said
    assert "none" not in said


def test_reading_needs_no_model() -> None:
    """Files are checked without torch, in the time that they take."""
    modules = ("collections", "pair_files", "ranking_files")
    code = "; ".join(f"import train.benchmarks.own.{module}" for module in modules)
    code += "; import sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
