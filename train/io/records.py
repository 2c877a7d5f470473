"""JSON and YAML, and records made of rows, with messages that name file, row and field."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from train.errors import UserError
from train.io.text import printable

S = TypeVar("S")
T = TypeVar("T")

_MAX_PROBLEMS_SHOWN = 5
_YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is many times as fast
_MAX_YAML_DEPTH = 100


def raise_problems(problems: Sequence[str], what: Path | str) -> None:
    """Raise one error for all problems, if there are any: the first few in full, the rest counted."""
    if not problems:
        return
    lines = [f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"]
    lines += [f"  - {problem}" for problem in problems[:_MAX_PROBLEMS_SHOWN]]
    if len(problems) > _MAX_PROBLEMS_SHOWN:
        lines.append(f"  … and {len(problems) - _MAX_PROBLEMS_SHOWN} more")
    raise UserError(printable("\n".join(lines)), file=what)


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
    problems: list[str] = []
    for row in rows:
        try:
            done = make(row)
        except ValueError as error:
            problems += [f"{where(row)}, {problem}" for problem in _problems_of(error)]
        else:
            yield done
    raise_problems(problems, what)


def _problems_of(error: ValueError) -> list[str]:
    """Each problem of one record as `field 'usage': ...`."""
    if not isinstance(error, ValidationError):
        return [str(error)]
    problems = []
    for e in error.errors():
        text = {
            "missing": "is missing",
            "extra_forbidden": "is not a known field",
            "literal_error": f"{e['input']!r} is not one of {e.get('ctx', {}).get('expected')}",
            "value_error": str(e.get("ctx", {}).get("error")),
        }.get(e["type"], f"{e['msg'][0].lower()}{e['msg'][1:]}, got {e['input']!r}")
        field = ".".join(map(str, e["loc"]))
        problems.append(f"field {field!r}: {text}" if field else text)
    return problems


def read_text(path: Path) -> str:
    """The file's text.

    Raises:
        UserError: if it cannot be read or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")  # with or without a byte order mark
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8 text ({error.reason} at byte {error.start})", file=path) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", file=path) from None


def read_json(path: Path) -> Any:
    """The file's content.

    Raises:
        UserError: if it cannot be read, is not UTF-8, or is not JSON (with line and column).
    """
    text = read_text(path)
    try:
        return parse_json(text)
    except ValueError as error:
        raise UserError(f"not valid JSON: {error}", file=path) from None


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
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"an object has the field {max(keys, key=keys.count)!r} twice")
    return content


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


def parse_yaml(text: str) -> Any:
    """What `yaml.safe_load` gives.

    Raises:
        yaml.YAMLError: if it is not valid YAML, or is nested so deep that building it would end the process.
    """
    depth = 0
    for event in yaml.parse(text, _YAML_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_YAML_DEPTH:
            raise yaml.YAMLError("nested too deep")
    return yaml.load(text, _YAML_LOADER)  # a safe loader: only plain values
