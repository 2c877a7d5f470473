"""Files that are written completely or not at all, even across power failures."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import itertools
import json
import os
import re
import subprocess
import tokenize
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from io import StringIO
from numbers import Integral
from pathlib import Path, PureWindowsPath
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from idiomtune.errors import ArgumentValueError, UserError
from idiomtune.io.version import __version__

# C0 and C1 controls, formats (bidirectional overrides, zero-width characters), lone surrogates, characters of
# private use, the separators of lines and paragraphs.
_UNSAFE = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_HARMLESS = "\n\t\u200c\u200d"  # the latter join parts of words in some scripts, and of emoji


def text_lines(text: str) -> list[str]:
    r"""The lines of a text, which end at `\n` and nowhere else.

    `str.splitlines` also cuts at U+2028, U+0085 and others, which may be in any sentence.
    """
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def list_names(names: Sequence[str], num_shown: int = 10) -> str:
    """The first names of a list and, if there are more, how many there are."""
    return ", ".join(names[:num_shown]) + (f", … ({len(names)} in all)" if len(names) > num_shown else "")


def printable(text: str) -> str:
    r"""Text for a terminal, with control characters and those that reorder a line escaped.

    Line ends and tabs stay, since messages have several lines; use `repr` or :func:`one_line` for values
    within a message. An ESC becomes `\x1b`, a right-to-left override `\u202e`.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape", "surrogatepass").decode("ascii")
        if unicodedata.category(c) in _UNSAFE and c not in _HARMLESS
        else c
        for c in text
    )


def one_line(text: str) -> str:
    """As :func:`printable`, with line ends and tabs escaped too, for values within a message."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def flat(config: Mapping[Any, Any], above: str = "") -> dict[str, Any]:
    """Nested options as dotted ones; lists are values."""
    options: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{above}{key}"
        options |= flat(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value}
    return options


def has_lone_surrogate(text: str) -> bool:
    r"""Whether it contains an unpaired surrogate (JSON's `"\ud800"`): it cannot be written or tokenized."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def describe_type(value: object) -> str:
    """The kind and the beginning of a value, for messages: `the int 3`."""
    return f"the {type(value).__name__} {one_line(show_value(value)[:60])}"


def show_value(value: object) -> str:
    """Its `repr`, in messages."""
    try:
        return repr(value)
    except Exception:  # nested too deep, a number with too many digits, a class whose own is wrong
        return "…"


def checked_text(text: object, option: str) -> str:
    """A text or path from Python that files and messages can hold.

    Raises:
        UserError: naming the argument, if it is of another kind, or has a NUL or an unpaired surrogate.
    """
    value = os.fspath(text) if isinstance(text, str | os.PathLike) else None
    if not isinstance(value, str):
        raise UserError(f"must be a text or a path, got {describe_type(text)}", option=option)
    if "\0" in value or has_lone_surrogate(value):
        raise UserError(f"has a NUL, or is no valid Unicode: {value[:60]!a}", option=option)
    return str.__str__(value)  # of an enumeration or of NumPy, too


def path_text(path: object, option: str) -> str:
    """As :func:`checked_text`, of a path or name, which is not empty."""
    if not (text := checked_text(path, option)).strip():
        raise UserError("must be a path or a name, and is empty", option=option)
    return text


def checked_count(number: object, option: str) -> int:
    """A number of things, 1 or more.

    Raises:
        ArgumentValueError: naming the argument, if it is none.
    """
    if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
        message = f"must be a whole number, 1 or more, got {describe_type(number)}"
        raise ArgumentValueError(message, option=option)
    return int(number)


def user_path(path: str, option: str) -> Path:
    """The path with `~` as the home folder.

    Args:
        option: or environment variable, that named it, for the message.

    Raises:
        UserError: if there is no user `~somebody`.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        message = f"there is no home folder for {Path(path).parts[0]}"
        raise UserError(message, option=option, file=path) from None


def cache_folder() -> Path:
    """Where downloads are stored: `$IDIOM_CACHE`, else `idiomtune` in the user's cache."""
    if folder := os.environ.get("IDIOM_CACHE"):
        return user_path(folder, "IDIOM_CACHE")
    return user_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "XDG_CACHE_HOME") / "idiomtune"


def is_folder(path: Path) -> bool:
    """Whether a path is a folder; False if its name is too long, or access is denied."""
    return os.path.isdir(path)  # noqa: PTH112  Path.is_dir raises some errors


def is_file(path: Path) -> bool:
    """Whether a path is a file, see :func:`is_folder`."""
    return os.path.isfile(path)  # noqa: PTH113


def is_plain_name(name: str) -> bool:
    """Whether a name from a data file can only refer to something in the folder where it is looked up.

    It must not be a path on any system: `../x`, `/x`, `C:x`, `..`, `.`, an empty text, one with a NUL.
    """
    return name not in ("", ".", "..") and "\0" not in name and PureWindowsPath(name).name == name


def leads_out(path: Path, folder: Path) -> bool:
    """Whether links lead a path within a folder out of it."""
    try:
        return not path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links in a circle
        return True


def free_name(path: Path) -> Iterator[Path]:
    """The path, then `<path>-2`, `<path>-3`, …"""
    yield path
    for number in itertools.count(2):
        yield path.with_name(f"{path.name}-{number}")


_PACKAGES = (
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "accelerate",
    "pytorch-metric-learning",
    "hydra-core",
    "numpy",
)


def package_versions() -> dict[str, str]:
    """Versions of the packages that decide the numbers."""
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def code_version() -> dict[str, Any]:
    """Version of this code, and in a clone its commit and whether the work tree differs from it."""
    root = Path(__file__).resolve().parents[2]
    version: dict[str, Any] = {"version": __version__}
    if not (root / ".git").exists():
        return version

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    with suppress(OSError, subprocess.SubprocessError):
        version["commit"] = git("rev-parse", "HEAD")
        version["modified"] = bool(git("status", "--porcelain", "--untracked-files=no"))
    return version


# What may be wrong with a path; any other OSError is one of the disk.
UNREADABLE = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, under another name that is then renamed, and sync it to the disk.

    A symbolic link with either name is replaced, never followed.

    Raises:
        OSError: naming the file.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with naming_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.unlink(missing_ok=True)
            with partial.open("x", encoding="utf-8", newline="") as file:  # line ends as they are
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
            sync(path.parent)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: object) -> None:
    """Write JSON atomically."""
    write_text(path, json_text(content))


def json_text(content: object) -> str:
    """JSON as files have it."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def write_jsonl(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object a line, atomically."""
    write_text(path, jsonl_text(records))


def jsonl_text(records: Iterable[Mapping[str, Any]]) -> str:
    """One JSON object a line."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


@contextmanager
def naming_errors(path: Path) -> Iterator[None]:
    """Add the file's name to system errors without one, such as a full disk's."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Turn system errors of safetensors and tokenizers into OSError."""
    try:
        yield
    except Exception as error:
        match = None if isinstance(error, OSError) else re.search(r"\(os error (\d+)\)", str(error))
        if match is None:
            raise
        raise OSError(int(match[1]), os.strerror(int(match[1]))) from error


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's list of names, to the disk.

    Some systems cannot do so for folders (Windows, some network file systems); there this does nothing.
    """
    with suppress(OSError) if path.is_dir() else nullcontext():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def seal(folder: Path) -> None:
    """Flush all files of a folder, whoever wrote them, and their names to the disk.

    Files get the permissions of new files: some libraries leave theirs unreadable to others.
    """
    mask = os.umask(0o077)  # it can only be read by setting it
    os.umask(mask)
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(parent, name)
            path.chmod(0o666 & ~mask)
            sync(path)
        sync(Path(parent))


def fingerprint(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprints(files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of each file, by its path."""
    return {str(path): fingerprint(path) for path in dict.fromkeys(files)}


def changed_files(folder: Path, sums: Mapping[str, str]) -> list[str]:
    """The files of a folder that are missing, or differ from these checksums.

    Args:
        sums: path in the folder → SHA-256.
    """
    return [n for n in sums if not is_file(folder / n) or fingerprint(folder / n) != sums[n]]


def find_links(folder: Path, *, excluding: Iterable[str] = ()) -> list[Path]:
    """All symbolic links in a folder and below it.

    Args:
        excluding: names of direct subfolders to skip.
    """
    skipped = {folder / name for name in excluding}
    return [path for path in folder.rglob("*") if path.is_symlink() and not skipped & {*path.parents}]


S = TypeVar("S")
T = TypeVar("T")

_MAX_PROBLEMS_SHOWN = 5
_YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is many times as fast
_MAX_YAML_DEPTH = 100


def raise_problems(problems: Sequence[str], source: Path | str) -> None:
    """Raise one error for all problems, if there are any: the first few in full, the rest counted."""
    if not problems:
        return
    lines = [f"{len(problems)} problem{'s' * (len(problems) > 1)}"]
    lines += [f"  - {problem}" for problem in problems[:_MAX_PROBLEMS_SHOWN]]
    more = len(problems) - _MAX_PROBLEMS_SHOWN
    lines += [f"  … and {more} more"] * (more > 0)
    raise UserError(printable("\n".join(lines)), file=source)


def read_checked(
    rows: Iterable[S], make: Callable[[S], T], source: Path | str, location: Callable[[S], str]
) -> Iterator[T]:
    """The result of `make` for each row; its ValueErrors (also pydantic's) are collected.

    Args:
        source: the file, for messages.
        location: names a row.

    Raises:
        UserError: after the last row, naming file, row and field of all problems.
    """
    problems: list[str] = []
    for row in rows:
        try:
            done = make(row)
        except ValueError as error:
            problems += [f"{location(row)}, {problem}" for problem in _problems_of(error)]
        else:
            yield done
    raise_problems(problems, source)


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
    if path.exists() and not is_file(path) and not is_folder(path):
        raise UserError("is no file, but a device or a pipe", file=path)
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
    if len(content := dict(pairs)) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"an object has the field {max(keys, key=keys.count)!r} twice")
    return content


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a value")


def parse_list(text: str) -> list[Any] | None:
    """A list in Python's notation, such as `['a.png', 'b.png']`; None if the text is not one."""
    try:
        value = ast.literal_eval(text.strip())
        tokens = tokenize.generate_tokens(StringIO(text).readline)
        words = [token.string for token in tokens if token.type == tokenize.STRING]
        if isinstance(value, list) and len(words) > len(value) and all(isinstance(v, str) for v in value):
            value = [ast.literal_eval(word) for word in words]  # as NumPy prints them, without commas
    # It fails in all these ways, depending on the text.
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, tokenize.TokenError):
        return None
    return value if isinstance(value, list) else None


def parse_yaml(text: str) -> Any:
    """The content of a YAML text: plain values alone.

    Raises:
        yaml.YAMLError: if it is not valid YAML, or is nested so deep that building it would end the process.
    """
    depth = 0
    for event in yaml.parse(text, _YAML_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_YAML_DEPTH:
            raise yaml.YAMLError("nested too deep")
    return yaml.load(text, _YAML_LOADER)
