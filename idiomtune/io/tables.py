"""Tables, row by row: CSV, TSV, JSON lines, Parquet and XLSX, by the file's suffix."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import logging
import math
import os
import re
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar, cast

from pydantic import BaseModel

from idiomtune.errors import UserError
from idiomtune.io.files import (
    describe_type,
    has_lone_surrogate,
    is_file,
    one_line,
    parse_json,
    path_text,
    printable,
    raise_problems,
    read_checked,
    write_text,
)

R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")

log = logging.getLogger(__name__)

_INPUTS = ContextVar("INPUTS", default=Path("checkpoints/inputs"))
_FROM_MEMORY = "rows-in-memory-"
KINDS = ".csv, .tsv, .jsonl, .parquet and .xlsx"  # .json is read too, but in a folder it may be anything
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_JSON_LINES = (".jsonl", ".ndjson", ".json")
# Of an object with one of these names and a list for each, the lists are columns.
_COLUMNS = {"expression", "idiom", "phrase", "term", "text", "sentence", "anchor", "query", "sentence1"}
_COLUMNS |= {"mwe", "pie", "multiword_expression"}
# A dictionary with one of these names is a row, and not expression → meaning.
_GLOSSARY_ROW = {"expression", "idiom", "meaning", "definition"}
_QUOTED = re.compile('"(?:[^"]|"")*"')
_QUOTE = (
    ": a text with a comma needs quotation marks, a cell of a TSV has no tab or line break, and no title is "
    "above the names of the columns"
)
# In bytes: a quotation mark that is not closed makes the rest of a file one cell.
csv.field_size_limit(10_000_000)


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        number: for messages, from 1: a row as a spreadsheet counts it, the header included (CSV, TSV, XLSX);
            a line of the file (JSON lines); a row of the data (Parquet).
        values: by column, in the file's order. In CSV, TSV and XLSX they are texts, "" where a cell is empty;
            in JSON lines and Parquet of any type, None where there is no value.
    """

    number: int
    values: dict[str, Any]


def normalise(column: str) -> str:
    """A column's name as names are compared: in lower case, with _ between words."""
    return column.strip().lower().replace("-", "_").replace(" ", "_")


@contextmanager
def inputs_in(folder: Path) -> Iterator[None]:
    """Within this context, data in memory have their files in this folder; else next to the runs."""
    before = _INPUTS.set(folder)
    try:
        yield
    finally:
        _INPUTS.reset(before)


def write_table(data: Any, option: str = "data") -> str:
    """The path of a table; rows in memory are written to a file named by their digest.

    Args:
        data: a path; rows, each a dictionary; texts; a dictionary expression → meaning (or meanings), or
            column → values; a frame of pandas or polars; a `datasets.Dataset`. A dictionary with a key such
            as `expression` is a row.
        option: that the data are for.

    Raises:
        UserError: if it is none of these, or empty; naming row and field of a value that JSON does not have,
            such as a date. What pandas has for a missing value becomes null, a number of NumPy a number.
    """
    if isinstance(data, str | os.PathLike):
        return path_text(data, option)
    return _input_file((json.dumps(row, ensure_ascii=False) for row in rows_of(data, option)), ".jsonl")


def write_tables(data: Any, option: str) -> list[str]:
    """The paths of tables, or names such as those of glossaries: as :func:`write_table`.

    A list of rows is one table; of another list each part is a name, a path or a table by itself.
    """
    is_list = isinstance(data, list | tuple) and not (data and all(isinstance(row, Mapping) for row in data))
    tables = data if is_list else [data]
    if any(isinstance(table, list | tuple) and table and isinstance(table[0], str) for table in tables):
        problem = "has a list of texts: write pairs as a dictionary, {'miss the boat': 'be late'}, or as rows"
        raise UserError(problem, option=option)
    return [write_table(table, option) for table in tables]


def write_texts(data: Any, option: str) -> str:
    """As :func:`write_table`; texts without other fields become a file with one text per line."""
    if isinstance(data, str | os.PathLike):
        return path_text(data, option)
    rows = rows_of(data, option)
    if any(row.keys() != {"text"} or not isinstance(row["text"], str) for row in rows):
        return write_table(rows, option)
    return _input_file((" ".join(row["text"].split()) for row in rows), ".txt")


def rows_of(data: Any, option: str) -> list[dict[str, Any]]:
    """The rows of data in memory, with the values that JSON has. Raises as :func:`write_table`."""
    records: Any = _rows_of_columns(data, option)
    is_glossary = isinstance(data, Mapping) and records is None and not _names(data) & _GLOSSARY_ROW
    if is_glossary:
        records = [
            {"expression": expression, "meaning": "" if sense is None else sense}
            for expression, meaning in data.items()
            for sense in (meaning if isinstance(meaning, list | tuple) else [meaning]) or [""]
        ]
    elif isinstance(data, Mapping):
        records = [data] if records is None else records
    elif hasattr(data, "to_dicts"):  # polars
        records = data.to_dicts()
    elif hasattr(data, "to_list") and hasattr(data, "column_names"):  # datasets
        records = data.to_list()
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
        if any(name is not None for name in data.index.names):
            data = data.reset_index(allow_duplicates=True)
        columns = list(data.columns)
        if len(set(columns)) < len(columns):
            raise UserError("has a column twice", option=option, field=str(max(columns, key=columns.count)))
        records = data.to_dict("records")
    elif isinstance(data, Iterable) and not isinstance(data, Set | bytes) and getattr(data, "ndim", 1) != 0:
        records = [{"text": row} if isinstance(row, str) else row for row in data]
    if not records:
        message = "must be a path, rows (dictionaries), texts, expression → meaning, a frame or a Dataset"
        problem = f"{message}; got {describe_type(data)}" if records is None else "has no rows"
        raise UserError(problem, option=option)
    return [_row(record, option, number, is_glossary) for number, record in enumerate(records, 1)]


def has_columns(data: Any) -> bool:
    """Whether it is a dictionary of columns: name → its values, a list or an array."""
    if not isinstance(data, Mapping) or not data or data.keys() & {"train", "val"}:
        return False
    return all(hasattr(v, "__len__") and not isinstance(v, str | Mapping) for v in data.values())


def _row(record: Any, option: str, number: int, has_texts: bool) -> dict[str, Any]:
    if not isinstance(record, Mapping):
        raise UserError(f"must be a dictionary, got {describe_type(record)}", option=option, row=number)
    row = {}
    for name, value in record.items():
        where: dict[str, Any] = {"option": option, "row": number, "field": one_line(f"{name!s:.60}")}
        if not isinstance(name, str) or not (isinstance(value, str) or not has_texts):
            expected = "a text, as in {expression: meaning}" if has_texts else "a text"
            raise UserError(f"must be {expected}, got {describe_type(value if has_texts else name)}", **where)
        try:
            row[name] = _json_value(value)
        except ValueError as error:
            raise UserError(str(error), **where) from None
    return row


def _json_value(value: Any) -> Any:
    """A value as JSON has it; what pandas has for a missing one is None. Raises ValueError."""
    if hasattr(value, "dtype") and getattr(value.dtype, "kind", "") not in "mM":  # of NumPy or torch
        value = value.tolist()
    is_nan = isinstance(value, float) and math.isnan(value)
    if value is None or is_nan or type(value).__name__ in ("NaTType", "NAType"):
        return None
    if isinstance(value, str) and not has_lone_surrogate(value):
        return str.__str__(value)
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list | tuple):
        return [_json_value(part) for part in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _json_value(part) for name, part in value.items()}
    raise ValueError(f"must be a text, a number, or a list of these, got {describe_type(value)}")


def is_from_memory(path: Path) -> bool:
    """Whether a table was in memory, and has a file only so that it can be read again."""
    return path.name.startswith(_FROM_MEMORY)


def shown_path(path: Path) -> str:
    """A table's path in messages; `in memory` for rows from Python."""
    return "rows in memory" if is_from_memory(path) else str(path)


def _input_file(lines: Iterable[str], suffix: str) -> str:
    content = "".join(f"{line}\n" for line in lines)
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
    path = _INPUTS.get().absolute() / f"{_FROM_MEMORY}{digest[:16]}{suffix}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, content)
    return str(path)


def read_rows(path: Path, *, columns: Sequence[str] = ()) -> Iterator[Row]:
    """The rows of a table, one at a time.

    Text is UTF-8, with or without a byte order mark; CSV, TSV and JSON lines may be packed (`.csv.gz`). Blank
    lines and empty rows are skipped.

    Args:
        path: the file.
        columns: those that the table must have; the first names its rows in messages. JSON lines are not
            checked for them, since each row may have other fields.

    Raises:
        UserError: naming the file, and the row or line. At once: a file that is missing, of another kind,
            not UTF-8 or not readable as its kind; columns that are missing or there twice. After the last
            row, all together: rows with another number of fields than the header, and lines that are not
            valid JSON or not an object. And if the table is empty.
    """
    if not is_file(path):
        raise UserError("there is no such file", file=path)
    suffix = _suffix(path)
    problems: list[str] = []
    if suffix in _DELIMITERS:
        rows = _with_header(path, _read_delimited(path, _DELIMITERS[suffix]), columns, problems)
    elif suffix in _JSON_LINES:
        rows = _read_json(path, problems)
    elif suffix == ".parquet":
        rows = _read_parquet(path, columns)
    elif suffix == ".xlsx":
        rows = _with_header(path, _read_spreadsheet(path, problems), columns, problems)
    else:
        raise UserError(f"is not one of {KINDS}: save it as .xlsx or .csv", file=path)
    row = None
    for row in rows:
        yield row
    raise_problems(problems, path)
    if row is None:
        raise UserError("there is no row", file=path)


def read_table(path: Path, model: type[R]) -> Iterator[tuple[int, R]]:
    """The rows of a table as records of a pydantic model, each with its number.

    Its fields are columns, by their aliases where they have one. Those without a default must be there; the
    first names rows in messages. Raises as :func:`read_rows` and, after the last row, naming file, row and
    field of all problems.
    """
    fields = model.model_fields.items()
    columns = [field.alias or name for name, field in fields if field.is_required()]
    return read_checked_table(path, columns, lambda row: (row.number, model.model_validate(row.values)))


def read_checked_table(path: Path, columns: Sequence[str], make: Callable[[Row], T]) -> Iterator[T]:
    """The result of `make` for each row of a table; its ValueErrors are collected.

    Args:
        path, columns: as for :func:`read_rows`.

    Raises:
        UserError: as :func:`read_rows`; after the last row, naming file and row of all problems.
    """
    return read_checked(read_rows(path, columns=columns), make, path, lambda row: name_row(*row, columns[0]))


def name_row(number: int, values: Mapping[str, Any], named_by: str) -> str:
    """`row 12 (expression break the ice)`."""
    name = values.get(named_by)
    return f"row {number}" + (f" ({named_by} {name[:60]})" if isinstance(name, str) and name else "")


def is_table(path: Path) -> bool:
    """Whether a file is one, by its suffix."""
    if path.name.startswith("~$"):  # the lock of a spreadsheet that is open
        return False
    return is_file(path) and _suffix(path) in (*_DELIMITERS, ".jsonl", ".ndjson", ".parquet", ".xlsx")


def has_header(path: Path) -> bool:
    """Whether all rows of a table have the same columns; in JSON lines each may have others."""
    return _suffix(path) not in _JSON_LINES


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == ".gz" else suffix


def _with_header(
    path: Path, numbered: Iterable[tuple[int, list[str]]], columns: Sequence[str], problems: list[str]
) -> Iterator[Row]:
    """The rows of cells by the names in the first row that is not blank."""
    header: list[str] | None = None
    for number, cells in numbered:
        if header is None:
            header = cells
            _check_columns(path, header, columns)
            continue
        values = dict(zip(header, cells, strict=False))
        if len(cells) == len(header):
            yield Row(number, values)
        else:
            row = name_row(number, values, columns[0] if columns else "")
            problems.append(f"{row}: has {len(cells)} fields, but the header has {len(header)}{_QUOTE}")
    if header is None:
        _check_columns(path, [], columns)


def _read_delimited(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    lines = text_lines_of(path)
    # Strict: otherwise an open quotation mark would swallow the rows after it.
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    number, first_line = 0, 1
    try:
        for number, cells in enumerate(map(_read_tabbed, lines) if delimiter == "\t" else reader, 1):
            if any(map(str.strip, cells)):
                yield number, cells
            first_line = reader.line_num + 1
    except csv.Error as error:
        hint = "a quotation mark is not closed, or one within a cell is not doubled?"
        row = f"row {number + 1}, from line {first_line}"
        raise UserError(f"cannot be read as a table: {error} ({hint})", file=path, row=row) from None


def _read_tabbed(line: str) -> list[str]:
    """The cells of a line of a TSV; quotation marks are CSV's only if each cell that has some is quoted."""
    cells = line.rstrip("\r\n").split("\t")
    if not all(_QUOTED.fullmatch(cell) for cell in cells if '"' in cell):
        return cells
    return [cell[1:-1].replace('""', '"') if cell[:1] == '"' else cell for cell in cells]


def _check_columns(path: Path, header: Sequence[str], required: Sequence[str]) -> None:
    if header and header[0].lower().startswith("sep="):
        problem = (
            "the first line, sep=, is for spreadsheet programs: take it out, and put commas between cells"
        )
        raise UserError(problem, file=path)
    if missing := [column for column in required if column not in header]:
        names = ", ".join(header) or "none"
        message = f"the columns {', '.join(missing)} are missing (found: {names})"
        raise UserError(printable(message), file=path)
    if twice := [column for column in dict.fromkeys(header) if column and header.count(column) > 1]:
        raise UserError(f"the columns {', '.join(map(repr, twice))} are there twice", file=path)


def _read_json(path: Path, problems: list[str]) -> Iterator[Row]:
    """The objects of JSON lines; in `.json` also those of a list, or of one object with columns."""
    lines = [(number, line) for number, line in enumerate(text_lines_of(path), 1) if line.strip()]
    if _suffix(path) == ".json" and (document := _json_document(path, lines)):
        lines = [(number, json.dumps(record)) for number, record in enumerate(document, 1)]
    for number, line in lines:
        try:
            values = parse_json(line)
            if not isinstance(values, dict):
                raise ValueError(f"expected an object, got {type(values).__name__} (a list is named .json)")
            if "\\" in line and has_lone_surrogate(json.dumps(values, ensure_ascii=False)):
                raise ValueError("contains an unpaired surrogate (invalid Unicode)")
        except ValueError as error:
            problems.append(f"line {number}: {error}")
        else:
            yield Row(number, values)


def _json_document(path: Path, lines: Sequence[tuple[int, str]]) -> list[Any]:
    """The rows of a file that is one list, or one object of columns; none of JSON lines."""
    text = "".join(line for _, line in lines)
    try:
        content = parse_json(text)
    except ValueError as error:
        if text.lstrip().startswith("["):
            raise UserError(f"not valid JSON: {error}", file=path) from None
        return []
    return content if isinstance(content, list) else _rows_of_columns(content, str(path)) or [content]


def _rows_of_columns(data: Any, option: str) -> list[dict[str, Any]] | None:
    """The rows of `{"expression": […], "meaning": […]}`; else None."""
    if not has_columns(data) or not (_names(data) & _COLUMNS or option.startswith("data.")):
        return None
    lengths = {name: len(column) for name, column in data.items()}
    if len({*lengths.values()}) > 1:
        raise UserError(f"the columns have different numbers of values: {lengths}", option=option)
    return [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]


def _names(data: Mapping[Any, Any]) -> set[str]:
    """The keys, as names of columns are compared."""
    return {normalise(name) for name in data if isinstance(name, str)}


def _read_parquet(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table as read_columns
    except ImportError:
        raise UserError("Parquet needs the package pyarrow: pip install pyarrow", file=path) from None
    try:
        table = read_columns(path, partitioning=None)
        _check_columns(path, table.column_names, columns)
        yield from map(Row, count(1), table.to_pylist())
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read as Parquet: {one_line(str(error))}", file=path) from None


def _read_spreadsheet(path: Path, problems: list[str]) -> Iterator[tuple[int, list[str]]]:
    """The cells of the only sheet, as CSV has them."""
    import openpyxl  # takes a moment

    @cache
    def book(*, data_only: bool) -> Any:
        try:
            with warnings.catch_warnings(action="ignore"):  # of what openpyxl does not keep
                return openpyxl.load_workbook(path, data_only=data_only)
        except Exception as error:  # of many kinds
            message = f"cannot be read as a spreadsheet (has it a password?): {one_line(str(error))}"
            raise UserError(message, file=path) from None

    sheets = [
        s
        for s in book(data_only=True).worksheets
        if any(cell is not None for row in s.values for cell in row)
    ]
    if len(sheets) > 1:
        names = ", ".join(repr(sheet.title) for sheet in sheets)
        raise UserError(f"has {len(sheets)} sheets ({names}): save the one to read as .csv", file=path)
    width = 0
    for sheet in sheets:
        for cells in sheet.merged_cells.ranges:
            problems.append(f"row {cells.min_row}: {cells} is merged: write each as a cell of its own")
        for number, row in enumerate(sheet.iter_rows(), 1):
            try:
                texts = list(map(_cell_text, row))
                for cell in (cell for cell in row[: width or None] if cell.value is None):
                    _cell_text(book(data_only=False)[sheet.title][cell.coordinate])  # of a formula: an error
            except ValueError as error:
                problems.append(f"row {number}: {error}")
                continue
            num_filled = max((column for column, text in enumerate(texts, 1) if text), default=0)
            width = width or num_filled
            if num_filled:
                yield number, texts[: max(width, num_filled)]


def _cell_text(cell: Any) -> str:
    """A cell as CSV has it. Raises ValueError with the address."""
    value = cell.value
    if cell.data_type in "fe":
        kind = "no saved value of the formula" if cell.data_type == "f" else "the error"
        raise ValueError(f"cell {cell.coordinate} has {kind}, {value}: write its value, or save as .csv")
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, str | int | float | None):
        raise ValueError(f"cell {cell.coordinate} is a date or time ({value}): format its column as text")
    return "" if value is None else str(value)


def lines_of(path: Path) -> Iterator[bytes]:
    r"""The lines of a file, packed (`.gz`) or not, each with its end, which is `\n`.

    Raises:
        UserError: if it cannot be read.
    """
    try:
        is_packed = path.suffix.lower() == ".gz"
        with cast(IO[bytes], gzip.open(path)) if is_packed else path.open("rb") as file:
            yield from file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"cannot be unpacked as gzip: {error}", file=path) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", file=path) from None


def text_lines_of(path: Path) -> Iterator[str]:
    r"""The lines of a text, packed or not, each with its end, which is `\n`.

    Raises:
        UserError: where a line cannot be read.
    """
    for number, line in enumerate(lines_of(path), 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            message = f"byte {error.start + 1} is not UTF-8 text ({error.reason}): save the file as UTF-8"
            raise UserError(message, file=path, row=f"line {number}") from None
