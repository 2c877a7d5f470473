"""Tables, row by row: CSV, TSV, JSON lines and Parquet, by the file's suffix."""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar, cast

from pydantic import BaseModel

from train.errors import UserError
from train.io.paths import is_file
from train.io.records import Problems, made, parse_json
from train.io.text import has_lone_surrogate, one_line, printable

R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")

KINDS = ".csv, .tsv, .jsonl and .parquet"
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons"}  # those that spreadsheets write
_JSON_LINES = (".jsonl", ".ndjson")
_GZIP = ".gz"
_MAX_LINE = (
    10_000_000  # characters, also of a cell; a small packed file can hold a line that fills the memory
)
csv.field_size_limit(_MAX_LINE)
_MAX_BYTES = 4 * _MAX_LINE + 1
_ENDS = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_BATCH_ROWS = 1024  # of a Parquet file, held at a time
_NOT_CLOSED = " (is a quotation mark not closed?)"
_CSV_HINTS = {  # part of what Python's csv says → what is likely the matter
    "unexpected end": _NOT_CLOSED,
    "field larger": _NOT_CLOSED,
    "expected after": " (a field that begins with a quotation mark has to end with one, and those within are "
    'doubled: """spill"" it")',
}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        number: for messages, from 1: a row as a spreadsheet counts it, the header included (CSV, TSV); a
            line of the file (JSON lines); a row of the data (Parquet).
        values: by column, in the file's order. In CSV and TSV they are texts, "" where a cell is empty; in
            JSON lines and Parquet of any type, None where there is no value.
    """

    number: int
    values: dict[str, Any]


def read_rows(path: Path, *, columns: Sequence[str] = (), kind: str | None = None) -> Iterator[Row]:
    """The rows of a table, one at a time.

    Text is UTF-8, with or without a byte order mark; CSV, TSV and JSON lines may be packed (`.csv.gz`).
    Blank lines are passed over.

    Args:
        path: the file.
        columns: those that the table must have; the first names its rows in messages. JSON lines are not
            checked for them, since each may have other fields.
        kind: `.csv`, `.tsv`, `.jsonl` or `.parquet`, whatever the file's suffix.

    Raises:
        UserError: naming the file, and the row or line. At once: a file that is missing, of another kind,
            not UTF-8 or not readable as its kind; columns that are missing or there twice. After the last
            row, all together: rows with another number of fields than the header, lines that are not valid
            JSON or no object. And if the table is empty.
    """
    if not is_file(path):
        raise UserError(f"{path}: there is no such file")
    suffix = kind or _suffix(path)
    problems = Problems(path)
    if suffix in _DELIMITERS:
        rows = _delimited(path, _DELIMITERS[suffix], columns, problems)
    elif suffix in _JSON_LINES:
        rows = _json_lines(path, problems)
    elif suffix == ".parquet":
        rows = _parquet(path, columns)
    else:
        raise UserError(f"{path}: is not one of {KINDS}")
    is_empty = True
    for row in rows:
        is_empty = False
        yield row
    problems.raise_if_any()
    if is_empty:
        raise UserError(f"{path}: there is no row")


def read_table(path: Path, model: type[R], *, kind: str | None = None) -> Iterator[tuple[int, R]]:
    """The rows of a table as records of a pydantic model, each with its number.

    Its fields are columns, by their aliases where they have one. Those without a default must be there; the
    first names rows in messages. Raises as :func:`read_rows` and, after the last row, naming file, row and
    field of all problems.
    """
    fields = model.model_fields.items()
    columns = [field.alias or name for name, field in fields if field.is_required()]
    return read_made(path, columns, lambda row: (row.number, model.model_validate(row.values)), kind=kind)


def read_made(
    path: Path, columns: Sequence[str], make: Callable[[Row], T], *, kind: str | None = None
) -> Iterator[T]:
    """What `make` makes of each row of a table; it raises a ValueError for what is wrong with one.

    Args:
        path, columns, kind: as for :func:`read_rows`.

    Raises:
        UserError: as :func:`read_rows`; after the last row, naming file and row of all problems.
    """
    is_counted_by_line = (kind or _suffix(path)) in _JSON_LINES  # as editors do; a first field may be long
    return made(
        read_rows(path, columns=columns, kind=kind),
        make,
        path,
        lambda row: f"line {row.number}" if is_counted_by_line else name_row(*row, columns[0]),
    )


def name_row(number: int, values: Mapping[str, Any], named_by: str) -> str:
    """`row 12 (expression break the ice)`."""
    name = values.get(named_by)
    return f"row {number}" + (f" ({named_by} {name})" if isinstance(name, str) and name else "")


def is_table(path: Path) -> bool:
    """Whether a file is one, by its suffix."""
    return is_file(path) and _suffix(path) in (*_DELIMITERS, *_JSON_LINES, ".parquet")


def has_header(path: Path) -> bool:
    """Whether all rows of a table have the same columns; in JSON lines each may have others."""
    return _suffix(path) not in _JSON_LINES


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == _GZIP else suffix


def _delimited(path: Path, delimiter: str, columns: Sequence[str], problems: Problems) -> Iterator[Row]:
    # In a table, a line may end with \r alone too.
    lines = (
        part for line in text_lines_of(path) for part in (_ENDS.findall(line) if "\r" in line else [line])
    )
    numbered = _csv_rows(path, lines, delimiter)
    _, header = next(numbered, (0, []))
    if any("\0" in name for name in header):
        raise UserError(f"{path}: not UTF-8 text (NUL in the header): save it as UTF-8")
    _check_separator(path, header, delimiter)
    _check_columns(path, header, columns)
    for number, cells in numbered:
        values = dict(zip(header, cells, strict=False))
        if len(cells) == len(header):
            yield Row(number, values)
        else:
            where = name_row(number, values, columns[0] if columns else "")
            problems.add(
                f"{where}: has another number of fields than the header ({len(cells)}, not {len(header)})"
            )


def _csv_rows(path: Path, file: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, with their numbers."""
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    number, first_line = 0, 1
    try:
        for cells in reader:
            number, first_line = number + 1, reader.line_num + 1
            if cells:
                yield number, cells
    except csv.Error as error:  # strict: an open quotation mark would swallow the rows after it
        hint = next((hint for part, hint in _CSV_HINTS.items() if part in str(error)), "")
        where = f"row {number + 1}, from line {first_line}"
        raise UserError(printable(f"{path}: {where}: cannot be read as a table: {error}{hint}")) from None


def _check_separator(path: Path, header: Sequence[str], delimiter: str) -> None:
    """Refuse a header of one column that would be several if another character separated them."""
    for other, name in _SEPARATORS.items():
        if len(header) == 1 and other in header[0] and all(map(str.strip, header[0].split(other))):
            raise UserError(
                printable(
                    f"{path}: the header is one column, {header[0]!r}: are its columns separated by {name}? "
                    f"A {_suffix(path)} is read with {_SEPARATORS[delimiter]} between them: save it so"
                )
            )


def _check_columns(path: Path, found: Sequence[str], required: Sequence[str]) -> None:
    if missing := [column for column in required if column not in found]:
        names = ", ".join(found) or "none"
        raise UserError(printable(f"{path}: the columns {', '.join(missing)} are missing (found: {names})"))
    if twice := [column for column in dict.fromkeys(found) if found.count(column) > 1]:
        raise UserError(f"{path}: the columns {', '.join(map(repr, twice))} are there twice")


def _json_lines(path: Path, problems: Problems) -> Iterator[Row]:
    for number, line in enumerate(text_lines_of(path), 1):
        if not line.strip():
            continue
        try:
            values = parse_json(line)
        except json.JSONDecodeError as error:
            problems.add(f"line {number}, column {error.colno}: not valid JSON: {error.msg}")
        except ValueError as error:
            problems.add(f"line {number}: not valid JSON: {error}")
        else:
            if not isinstance(values, dict):
                problems.add(f"line {number}: expected an object, found {type(values).__name__}")
            elif "\\" in line and has_lone_surrogate(json.dumps(values, ensure_ascii=False)):
                problems.add(f"line {number}: contains an unpaired surrogate (invalid Unicode)")
            else:
                yield Row(number, values)


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise UserError(f"{path}: Parquet needs the package pyarrow: pip install pyarrow") from None
    number = 0
    try:
        with ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow.names, columns)
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                for values in batch.to_pylist():
                    number += 1
                    yield Row(number, values)
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        place = f", after row {number}" if number else ""
        raise UserError(f"{path}{place}: cannot be read as Parquet: {one_line(str(error))}") from None


def text_lines_of(path: Path) -> Iterator[str]:
    r"""The lines of a file, packed or not, each with its end, which is `\n`.

    Raises:
        UserError: where a line cannot be read.
    """
    number = 0
    try:
        with cast(IO[bytes], gzip.open(path)) if path.suffix.lower() == _GZIP else path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_MAX_BYTES), b""), 1):
                if number == 1 and line.startswith(_UTF16):
                    raise UserError(f"{path}: not UTF-8 text: it is UTF-16; save it as UTF-8")
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                if len(text) > _MAX_LINE:
                    raise UserError(
                        f"{path}, line {number}: has more than {_MAX_LINE:,} characters, too many for a row: "
                        "write each row on a line of its own"
                    )
                yield text
    except UnicodeDecodeError as error:
        place = f"line {number}, byte {error.start + 1}: {error.reason}"
        raise UserError(f"{path}: not UTF-8 text: {place}; save it as UTF-8") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: cannot be unpacked as gzip: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
