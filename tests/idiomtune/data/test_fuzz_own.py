"""Tables and glossaries of users, in every format: one is read, or refused by the name of its file.

`test_own_tables.py` has the cells of each form of data, in text files.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from idiomtune.data.own.load import load_own
from idiomtune.declarations.dataset import OwnData
from idiomtune.encoder.glossary import read_glossary
from idiomtune.errors import UserError
from tests.fuzzing import FUZZED, TEXTS, VALUES
from tests.tiny_runs import composed

_DEFAULTS = {name: composed("config")["data"][name] for name in OwnData.model_fields}
Rows = Sequence[Sequence[Any]]
SUFFIXES = [".csv", ".tsv", ".jsonl", ".parquet", ".xlsx"]
LABELLED: Rows = [
    ["text", "span", "label", "group"],
    *([f"he broke the ice {i}", "broke the ice", i % 3, f"group {i}"] for i in range(8)),
]
GLOSSARY: Rows = [
    ["expression", "meaning", "literal", "source", "licence", "forms"],
    ["break the ice", "make people relax", "yes", "mine", "", "breaks the ice"],
    ["home run", "a great success", "a hit in baseball", "", "CC0", ""],
    ["take someone for a ride", "cheat someone", "", "", "", ""],
]


def read_as_training_data(path: Path) -> None:
    # A row may be left out with a note; what remains has texts.
    splits = load_own(OwnData.model_validate({**_DEFAULTS, "train": [str(path)], "val_share": 0.3}))
    assert len(splits.train)


def read_as_glossary(path: Path) -> None:
    glossary = read_glossary([path])
    assert all(entry.expression.strip() for entry in glossary.entries)
    glossary.meanings().added("They broke the ice, take them for a ride")


KINDS: list[tuple[Callable[[Path], None], Rows]] = [
    (read_as_training_data, LABELLED),
    (read_as_glossary, GLOSSARY),
]


def content(suffix: str, rows: Rows) -> bytes | None:
    """A file with these rows; None if such a file cannot have them."""
    names = [str(name) for name in rows[0]]
    if suffix in (".csv", ".tsv"):
        out = io.StringIO()
        csv.writer(out, delimiter="\t" if suffix == ".tsv" else ",", lineterminator="\n").writerows(rows)
        return out.getvalue().encode("utf-8", errors="surrogatepass")
    if suffix == ".jsonl":
        return "\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows[1:]).encode()
    buffer = io.BytesIO()
    try:
        if suffix == ".parquet":
            parquet.write_table(
                pa.Table.from_arrays([pa.array(c) for c in zip(*rows[1:], strict=True)], names), buffer
            )
        else:
            book = openpyxl.Workbook()
            for row in rows:
                book.active.append(row)
            book.save(buffer)
    except (
        pa.ArrowException,
        OverflowError,
        TypeError,
        ValueError,
        openpyxl.utils.exceptions.IllegalCharacterError,
    ):
        return None
    return buffer.getvalue()


def read_or_refused(read: Callable[[Path], None], path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        read(path)
    except UserError as error:
        message = str(error)
    else:
        return
    assert path.name in message or "data.val=" in message, message
    assert "\x1b" not in message


@pytest.mark.parametrize(("read", "good"), KINDS, ids=["labelled", "glossary"])
def test_a_columns_name_is_shown_as_no_terminal_would_obey_it(
    read: Callable[[Path], None], good: Rows, tmp_path: Path
) -> None:
    data = content(".csv", [["\x1b[2J", *good[0][1:]], *good[1:]])
    assert data is not None
    (tmp_path / "mine.csv").write_bytes(data)
    with pytest.raises(UserError, match=r"mine\.csv.*\\x1b"):
        read(tmp_path / "mine.csv")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(("read", "good"), KINDS, ids=["labelled", "glossary"])
def test_cells_changed_at_random(
    read: Callable[[Path], None], good: Rows, suffix: str, tmp_path: Path
) -> None:
    """Also names of columns, and rows twice."""
    written = content(suffix, good)
    assert written is not None
    path = tmp_path / f"mine{suffix}"
    path.write_bytes(written)
    read(path)
    place = st.tuples(st.integers(0, len(good) - 1), st.integers(0, len(good[0]) - 1))
    values = st.one_of(TEXTS, st.just("\x1b[2J"), st.sampled_from(VALUES))

    @FUZZED
    @given(
        st.lists(st.tuples(place, values), max_size=3), st.lists(st.integers(1, len(good) - 1), max_size=2)
    )
    def tried(changes: list[tuple[tuple[int, int], Any]], doubled: list[int]) -> None:
        rows = [list(row) for row in good]
        for (row, column), value in changes:
            rows[row][column] = value if row else str(value)
        if (data := content(suffix, [*rows, *(rows[row] for row in doubled)])) is not None:
            read_or_refused(read, path, data)

    tried()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(("read", "good"), KINDS, ids=["labelled", "glossary"])
def test_bytes_changed_at_random(
    read: Callable[[Path], None], good: Rows, suffix: str, tmp_path: Path
) -> None:
    written = content(suffix, good)
    assert written is not None
    signs = st.sampled_from([b'"', b",", b"\n", b"\r", b"\t", b"[", b"}", b"\x00"])
    change = st.tuples(
        st.integers(0, len(written)), st.integers(0, 40), st.one_of(st.binary(max_size=3), signs)
    )

    @FUZZED
    @given(st.lists(change, min_size=1, max_size=3))
    def tried(changes: list[tuple[int, int, bytes]]) -> None:
        data = written
        for start, length, put in changes:
            data = data[:start] + put + data[start + length :]
        read_or_refused(read, tmp_path / f"mine{suffix}", data)

    tried()
