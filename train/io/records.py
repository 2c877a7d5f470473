"""Checked records from JSON files, with messages that name file, record and field."""

import ast
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from train.errors import UserError
from train.io.text import has_lone_surrogate, printable

R = TypeVar("R", bound=BaseModel)
S = TypeVar("S")
T = TypeVar("T")

MAX_PROBLEMS_SHOWN = 5


class Problems:
    """What is wrong with the rows of a file: the first few in full, the rest counted."""

    def __init__(self, what: Path | str) -> None:
        self._what = what
        self._shown: list[str] = []
        self._count = 0

    def add(self, *problems: str) -> None:
        """Take up some."""
        self._shown += problems[: MAX_PROBLEMS_SHOWN - len(self._shown)]
        self._count += len(problems)

    def raise_if_any(self) -> None:
        """Raise one error for all of them, if there are any."""
        if self._count:
            lines = [f"{self._what}: {self._count} problem{'s' if self._count > 1 else ''}"]
            lines += [f"  - {problem}" for problem in self._shown]
            if self._count > len(self._shown):
                lines.append(f"  … and {self._count - len(self._shown)} more")
            raise UserError(printable("\n".join(lines)))


def raise_problems(problems: Sequence[str], what: Path | str) -> None:
    """Raise one error for all problems, if there are any."""
    found = Problems(what)
    found.add(*problems)
    found.raise_if_any()


def made(
    rows: Iterable[S], make: Callable[[S], T], what: Path | str, where: Callable[[S], str]
) -> Iterator[T]:
    """What `make` makes of each row; a ValueError, pydantic's too, says what is wrong with one.

    Args:
        what: the file, for messages.
        where: names a row.

    Raises:
        UserError: after the last row, naming file, row and field of all problems.
    """
    problems = Problems(what)
    for row in rows:
        try:
            done = make(row)
        except ValidationError as error:
            problems.add(*(f"{where(row)}, {problem}" for problem in _field_problems(error)))
        except ValueError as error:
            problems.add(f"{where(row)}, {error}")
        else:
            yield done
    problems.raise_if_any()


def read_json(path: Path) -> Any:
    """The file's content.

    Raises:
        UserError: if it cannot be read, is not UTF-8, or is not JSON (with line and column).
    """
    text = read_text(path)
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}: not valid JSON, line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON: {error}") from None


def parse_json(text: str) -> Any:
    """Parse JSON; repeated keys in an object, and NaN, are errors.

    Raises:
        ValueError: saying what is wrong; a JSONDecodeError if the place is known.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("lists or objects are nested too deep") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"an object has the field {key!r} twice")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a value")


def parse_list(text: str) -> list[Any] | None:
    """A list in Python's notation, such as `['a.png', 'b.png']`; None if the text is not one."""
    try:
        value = ast.literal_eval(text.strip())
    # It fails in all these ways, depending on the text.
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def read_text(path: Path) -> str:
    """The file's text.

    Raises:
        UserError: if it cannot be read or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")  # with or without a byte order mark
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_records(path: Path, kind: type[R]) -> list[R]:
    """A JSON list of objects as records.

    Raises:
        UserError: naming file, record (position and id) and field of each problem.
    """
    raw = read_json(path)
    if not isinstance(raw, list):
        raise UserError(f"{path}: expected a list of records, found {type(raw).__name__}")

    def record(numbered: tuple[int, Any]) -> R:
        validated = kind.model_validate(numbered[1])
        if half := [name for name, value in numbered[1].items() if _is_half(value)]:
            raise ValueError(f"field {half[0]!r}: contains an unpaired surrogate (invalid Unicode)")
        return validated

    return list(made(enumerate(raw), record, path, lambda numbered: name_record(*numbered)))


def _is_half(value: Any) -> bool:
    """Whether it can be neither tokenized nor written; some types accept it."""
    return isinstance(value, str) and has_lone_surrogate(value)


def name_record(position: int, entry: Any) -> str:
    """`record 12 (id 017_s01_lit_01)`: positions count from 1, as people do."""
    id_ = entry.get("id") if isinstance(entry, dict) else None
    return f"record {position + 1}" + (f" (id {id_})" if isinstance(id_, str) else "")


def _field_problems(error: ValidationError) -> list[str]:
    """Each problem of one record as `field 'usage': ...`."""
    lines = []
    for e in error.errors():
        field = ".".join(str(part) for part in e["loc"])
        given = e.get("input")
        if e["type"] == "missing":
            text = "is missing"
        elif e["type"] == "extra_forbidden":
            text = "is not a known field"
        elif e["type"] == "literal_error":
            text = f"{given!r} is not one of {e['ctx']['expected']}"
        elif e["type"] == "value_error":
            text = str(e["ctx"]["error"])
        else:
            text = f"{e['msg'][0].lower()}{e['msg'][1:]}, found {given!r}"
        lines.append(f"field {field!r}: {text}" if field else text)
    return lines
