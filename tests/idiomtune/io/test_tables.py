"""Tables of users' own: what is read of each kind of file, and what is said of one that is damaged."""

import csv
import gzip
import io
import itertools
import json
import re
import zipfile
from collections.abc import Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from pydantic import BaseModel

from idiomtune.errors import UserError
from idiomtune.io.tables import Row, read_rows, read_table
from tests.fuzzing import damaged_bytes, fuzz
from tests.programs import refused

ROWS = [
    {"id": "a", "text": 'He said "no",\nthen left.\u2028'},
    {"id": "b", "text": "caf\u00e9\ttable"},
    {"id": "c", "text": ""},
]


def delimited(rows: Sequence[dict[str, Any]], delimiter: str) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def json_lines(rows: Sequence[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    written = pyarrow.BufferOutputStream()
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), written)
    content: bytes = written.getvalue().to_pybytes()
    return content


def workbook(*sheets: Sequence[Sequence[Any]]) -> bytes:
    book, out = openpyxl.Workbook(), io.BytesIO()
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet(f"Sheet{number + 1}") if number else book.active
        for row in rows:
            sheet.append(row)
    book.save(out)
    return out.getvalue()


IN_TSV = [{name: re.sub("[\n\t]", " ", value) for name, value in row.items()} for row in ROWS]


def content_of(name: str) -> bytes:
    kinds = {"tsv": partial(delimited, IN_TSV, "\t"), "csv": partial(delimited, ROWS, ",")}
    sheet = [[*ROWS[0]], *([*row.values()] for row in ROWS)]
    kinds |= {"parquet": partial(parquet, ROWS), "xlsx": partial(workbook, sheet)}
    content = kinds.get(name.split(".")[1], partial(json_lines, ROWS))()
    return gzip.compress(content) if name.endswith(".gz") else content


@pytest.mark.parametrize(
    "name", ["t.csv", "t.tsv", "t.json", "t.parquet", "t.xlsx", "t.csv.gz", "t.jsonl.gz"]
)
def test_each_kind_of_file_holds_the_same(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(content_of(name))
    first = 2 if re.search("csv|tsv|xlsx", name) else 1
    rows = IN_TSV if name == "t.tsv" else ROWS  # a cell has neither tabs nor line breaks there
    assert list(read_rows(path, columns=("id", "text"))) == [Row(n, r) for n, r in enumerate(rows, first)]


@pytest.mark.parametrize(
    "content",
    [
        '[{"id": "a", "text": "b"}, {"id": "c", "text": "d"}]',
        '{"id": ["a", "c"], "text": ["b", "d"]}',
    ],
)
def test_a_json_document_has_rows(tmp_path: Path, content: str) -> None:
    """A list of objects, or columns, as pandas writes them."""
    path = tmp_path / "t.json"
    path.write_text(content, encoding="utf-8")
    assert list(read_rows(path)) == [Row(1, {"id": "a", "text": "b"}), Row(2, {"id": "c", "text": "d"})]


def test_byte_order_marks_line_ends_and_blank_lines_make_no_difference(tmp_path: Path) -> None:
    table, lines = tmp_path / "t.csv", tmp_path / "t.jsonl"
    table.write_bytes(b"\xef\xbb\xbfid,text\r\na,b\r\n\r\nc,d")
    assert list(read_rows(table)) == [Row(2, {"id": "a", "text": "b"}), Row(4, {"id": "c", "text": "d"})]
    lines.write_bytes(b'\xef\xbb\xbf{"id": "a"}\r\n\n{"id": null}')
    assert list(read_rows(lines)) == [Row(1, {"id": "a"}), Row(3, {"id": None})]


ODD_CELLS = workbook([["id", "text"], ["a", date(2024, 5, 3)], [], ["b", "#REF!"], ["c", "d", 1]])


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("t.csv", b"", ["columns id"]),
        ("t.csv", b"id,text\n", ["no row"]),
        ("t.csv", b"sep=,\nid,text\na,b\n", ["sep=", "take it out"]),
        ("t.csv", b"id,text,id\n", ["'id'", "twice"]),
        ("t.csv", b"name,text\na,b\n", ["columns id", "name, text"]),
        ("t.csv", b"id,text\na,b\nc\nd,e,f\n", ["2 problems", "row 3 (id c)", "row 4 (id d)", "quotation"]),
        ("t.csv", b'id,text\na,b\nc,"d\ne,f\n', ["row 3", "line 3", "quotation mark"]),
        ("t.tsv", b'id\ttext\na\t"b\nc"\n', ["row 3", "line break"]),
        ("t.csv", b"id,text\na,b\nc,\xe9\n", ["line 3", "byte 3", "UTF-8"]),
        ("t.csv.gz", gzip.compress(b"id,text\na,b\n", mtime=0)[:-9], ["gzip"]),
        ("t.jsonl", b'{"id": 1}\n{"id"\n[1]\n', ["2 problems", "line 2", "line 3", "object", ".json"]),
        ("t.jsonl", b'{"id": NaN}\n', ["line 1", "NaN"]),
        ("t.jsonl", b'{"id": 1, "id": 2}\n', ["line 1", "'id' twice"]),
        ("t.jsonl", b'{"id": "\\ud800"}\n', ["line 1", "surrogate"]),
        ("t.json", b'\n[\n{"id": 1}, 2]', ["line 2", "int"]),
        ("t.json", b'[{"id": 1},\n{"id"', ["line 2 column"]),
        ("t.parquet", b"id,text\n", ["Parquet"]),
        ("t", b"", [".csv, .tsv, .jsonl, .parquet and .xlsx"]),
        ("t.ods", b"", ["save it as .xlsx or .csv"]),
        ("t.xlsx", b"id,text\n", ["spreadsheet"]),
        ("t.xlsx", workbook([]), ["columns id"]),
        ("t.xlsx", workbook([["id"], ["a"]], [], [["b"]]), ["2 sheets", "'Sheet', 'Sheet3'"]),
        ("t.xlsx", ODD_CELLS, ["3 problems", "row 2: cell B2", "row 4: cell B4", "#REF!", "row 5"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, content: bytes, parts: list[str]) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_bytes(content)
    error = refused(lambda: list(read_rows(path, columns=["id"])), str(path), *parts)
    assert str(error).count("\n") < 7  # of many problems the first


def test_numbers_in_a_spreadsheet_are_as_in_csv(tmp_path: Path) -> None:
    """The row that is counted is that of the spreadsheet; other sheets may be empty."""
    path = tmp_path / "t.xlsx"
    path.write_bytes(workbook([["id", "n"], [], [7, 0.5], [2.0, True], [None, "x"]], []))
    assert list(read_rows(path)) == [
        Row(3, {"id": "7", "n": "0.5"}),
        Row(4, {"id": "2", "n": "TRUE"}),
        Row(5, {"id": "", "n": "x"}),
    ]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").mkdir()
    for name in ("t.csv", "none.csv", "a" * 5000):
        with pytest.raises(UserError, match="no such file"):
            next(read_rows(tmp_path / name))


def test_rows_as_records(tmp_path: Path) -> None:
    class Sense(BaseModel):
        id: str
        rank: int

    path = tmp_path / "t.csv"
    path.write_text("id,rank\na,1\nb,x\nc,\nd,4\n", encoding="utf-8")
    records = read_table(path, Sense)
    assert next(records) == (2, Sense(id="a", rank=1))
    wrong = ("2 problems", "row 3 (id b), field 'rank'", "'x'", "row 4 (id c), field 'rank'")
    refused(lambda: list(records), str(path), *wrong)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl", "t.parquet", "t.xlsx", "t.csv.gz"])
def test_whatever_bytes_there_are(tmp_path: Path, name: str) -> None:
    """Rows or a UserError with the file's name; nothing else."""
    path = tmp_path / name

    def tried(content: bytes) -> None:
        path.write_bytes(content)
        try:
            numbers = [row.number for row in read_rows(path)]
            assert all(a < b for a, b in itertools.pairwise(numbers))
        except UserError as error:
            assert str(path) in str(error)  # noqa: PT017

    fuzz(damaged_bytes(content_of(name)), tried)


def merged() -> bytes:
    out = io.BytesIO()
    book = openpyxl.load_workbook(io.BytesIO(workbook([["id"], ["a"], [None]])))
    book.active.merge_cells("A2:A3")
    book.save(out)
    return out.getvalue()


def test_the_saved_value_of_a_formula_is_read(tmp_path: Path) -> None:
    """As spreadsheet programs write it, which openpyxl cannot."""
    path = tmp_path / "t.xlsx"
    with zipfile.ZipFile(io.BytesIO(workbook([["id", "n"], ["a", 2], [None, 3]]))) as book:
        parts = {
            name: book.read(name).replace(b"<v>2</v>", b"<f>1+1</f><v>2</v>") for name in book.namelist()
        }
    with zipfile.ZipFile(path, "w") as book:
        for name, part in parts.items():
            book.writestr(name, part)
    assert b"<f>1+1</f>" in parts["xl/worksheets/sheet1.xml"]
    assert [row.values for row in read_rows(path)] == [{"id": "a", "n": "2"}, {"id": "", "n": "3"}]


@pytest.mark.parametrize(
    ("content", "parts"),
    [(merged(), ["row 2", "A2:A3"]), (workbook([["id"], ["=1+1"]]), ["row 2", "A2", "formula"])],
)
def test_merged_cells_and_formulas_are_named(tmp_path: Path, content: bytes, parts: list[str]) -> None:
    path = tmp_path / "t.xlsx"
    path.write_bytes(content)
    refused(lambda: list(read_rows(path)), str(path), *parts)
