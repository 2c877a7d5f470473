"""Tables of users' own, row by row: CSV, TSV, JSON lines and Parquet, told apart by the file's suffix."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, AnyStr, NamedTuple, TypeVar, cast

from pydantic import BaseModel, ValidationError

from train.errors import UserError
from train.io.paths import is_file
from train.io.records import Problems, field_problems, parse_json
from train.io.text import has_lone_surrogate, one_line, printable

R = TypeVar("R", bound=BaseModel)

KINDS = ".csv, .tsv, .jsonl and .parquet"
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons"}  # those that spreadsheets write
_JSON_LINES = (".jsonl", ".ndjson")
_GZIP = ".gz"
_MAX_LINE = (
    10_000_000  # characters, also of a cell; a small packed file can hold a line that fills the memory
)
csv.field_size_limit(_MAX_LINE)
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
    """The rows of a table, which is never held whole.

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
            JSON or no object. And where there is no row.
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
        raise UserError(f"{path}: is none of {KINDS}")
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
    first names rows in messages. Raises as :func:`read_rows` and :func:`validated`.
    """
    fields = model.model_fields.items()
    columns = [field.alias or name for name, field in fields if field.is_required()]
    # JSON lines are counted by editors, and their first field may be long.
    named_by = "" if (kind or _suffix(path)) in _JSON_LINES or not columns else columns[0]
    rows = read_rows(path, columns=columns, kind=kind)
    return validated(rows, model, path, named_by=named_by)


def validated(
    rows: Iterable[tuple[int, Mapping[str, Any]]], model: type[R], path: Path, *, named_by: str
) -> Iterator[tuple[int, R]]:
    """Rows as records of a pydantic model, each with its number.

    Args:
        rows: as :func:`read_rows` gives them.
        path: of the file, for messages.
        named_by: the column that identifies a row in messages.

    Raises:
        UserError: after the last row, naming file, row and field of all problems.
    """
    problems = Problems(path)
    for number, values in rows:
        try:
            record = model.model_validate(values)
        except ValidationError as error:
            unit = "line" if _suffix(path) in _JSON_LINES else "row"
            where = name_row(number, values, named_by, unit=unit)
            problems.add(*(f"{where}, {problem}" for problem in field_problems(error)))
        else:
            yield number, record
    problems.raise_if_any()


def name_row(number: int, values: Mapping[str, Any], named_by: str, *, unit: str = "row") -> str:
    """`row 12 (expression break the ice)`."""
    name = values.get(named_by)
    return f"{unit} {number}" + (f" ({named_by} {name})" if isinstance(name, str) and name else "")


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
    with text_lines_of(path, newline="") as lines:
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
    with text_lines_of(path) as lines:
        for number, line in enumerate(lines, 1):
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
                    problems.add(f"line {number}: holds half a character (a lone surrogate)")
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


@contextlib.contextmanager
def text_lines_of(path: Path, newline: str = "\n") -> Iterator[Iterator[str]]:
    """The lines of a file, packed or not.

    Raises:
        UserError: within the context, for what goes wrong where they are read.
    """
    try:
        with io.TextIOWrapper(_open(path), encoding="utf-8-sig", newline=newline) as file:
            yield _lines(path, file)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text: {_first_wrong_byte(path) or error.reason}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: cannot be unpacked as gzip: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


def _lines(path: Path, file: IO[AnyStr]) -> Iterator[AnyStr]:
    number = 0
    while line := file.readline(_MAX_LINE + 1):
        number += 1
        if len(line) > _MAX_LINE:
            raise UserError(
                f"{path}, line {number}: has more than {_MAX_LINE:,} characters, too many for a row: "
                "write each row on a line of its own"
            )
        yield line


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix.lower() == _GZIP else path.open("rb")


def _first_wrong_byte(path: Path) -> str | None:
    """Where text stops being UTF-8: a decoder only knows the place in the block that it was given."""
    with (
        contextlib.suppress(EOFError, zlib.error, OSError),
        _open(path) as file,
    ):  # gzip may be cut short, too
        for number, line in enumerate(_lines(path, file), 1):
            if number == 1 and line.startswith(_UTF16):
                return "it is UTF-16; save it as UTF-8"
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return f"line {number}, byte {error.start + 1}: {error.reason}; save it as UTF-8"
    return None
