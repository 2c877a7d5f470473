"""The files of a checkpoint: which one is damaged, and what the libraries raise for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from sentence_transformers.util import load_file_path

from train.errors import UserError
from train.io.hub import first_line, is_network_error

_TOKENIZER = "tokenizer.json"
_SENTENCEPIECE = ("spm.model", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
_MODULES = "modules.json"
_SETTINGS = (
    "config.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "tokenizer_config.json",
)


def fetch_file(path: str, name: str, revision: str | None, *, local_files_only: bool) -> Path | None:
    """A file of a checkpoint, downloaded if the checkpoint is on the Hub; None if there is no such file.

    Raises:
        UserError: if it could not be downloaded.
    """
    try:
        found = load_file_path(path, name, revision=revision, local_files_only=local_files_only)
    except Exception as error:
        if not is_network_error(error):
            raise
        raise UserError(f"model {path}: {name} could not be downloaded: {first_line(error)}") from error
    return None if found is None else Path(found)


def is_load_error(error: Exception) -> bool:
    """Whether an error while loading may come from a faulty checkpoint: any but running out of memory."""
    return not isinstance(error, torch.OutOfMemoryError | MemoryError)


def damaged_setting(path: str, revision: str | None = None) -> str | None:
    """What is wrong with the settings files (JSON) of a checkpoint, or None.

    Args:
        path: a local folder, or the name of a model on the Hub, whose downloaded files are checked.

    Returns:
        File, field and what was found there, in one line.
    """
    find = _finder(path, revision)
    for name in _SETTINGS:
        if (problem := _json_problem(find(name), _is_object)) is not None:
            return problem
    if (problem := _json_problem(find(_MODULES), _modules_problem)) is not None:
        return problem
    files = [find(f"{folder}/config.json") for folder, _ in _modules(find(_MODULES))]
    return next(filter(None, (_json_problem(file, _is_object) for file in files)), None)


def has_sentencepiece_alone(path: str, revision: str | None = None) -> bool:
    """Whether a checkpoint's tokenizer is a SentencePiece model without a tokenizer.json."""
    find = _finder(path, revision)
    return find(_TOKENIZER) is None and any(find(name) is not None for name in _SENTENCEPIECE)


def _finder(path: str, revision: str | None) -> Callable[[str], Path | None]:
    """Name of a file → its path; None if it is not there, or was not downloaded."""
    folder = Path(path)

    def in_folder(name: str) -> Path | None:
        file = folder / name
        return file if file.exists() or file.is_symlink() else None

    def in_cache(name: str) -> Path | None:
        found = try_to_load_from_cache(path, name, revision=revision)
        return Path(found) if isinstance(found, str) else None

    return in_folder if folder.is_dir() else in_cache


def _modules(modules: Path | None) -> Iterator[tuple[str, str]]:
    """The sub-folders that modules.json names, with their modules' types; nothing if it is damaged."""
    if modules is None:
        return
    try:
        content = json.loads(modules.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    for entry in content if isinstance(content, list) else []:
        if isinstance(entry, dict) and isinstance(folder := entry.get("path"), str) and folder:
            yield folder, str(entry.get("type"))


def module_folders(folder: Path) -> list[str]:
    """The sub-folders of a local checkpoint that its modules.json names."""
    return [name for name, _ in _modules(_finder(str(folder), None)(_MODULES))]


def _json_problem(file: Path | None, check: Callable[[Any], str | None]) -> str | None:
    if file is None:
        return None
    if (problem := _link_problem(file)) is not None:
        return problem
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        return f"{file} cannot be read: {error.strerror or error}"
    except UnicodeDecodeError:
        return f"{file} is no text (UTF-8)"
    except json.JSONDecodeError as error:
        return f"{file} is not valid JSON (line {error.lineno}, column {error.colno}: {error.msg})"
    except RecursionError:
        return f"{file} is not valid JSON: it is nested too deep"
    problem = check(content)
    return None if problem is None else f"{file}: {problem}"


def _link_problem(file: Path) -> str | None:
    if file.is_symlink() and not file.exists():
        return f"{file} is a link to {file.readlink()}, which does not exist"
    return None


def _is_object(content: Any) -> str | None:
    return None if isinstance(content, dict) else f"expected an object, found {_shown(content)}"


def _modules_problem(content: Any) -> str | None:
    if not isinstance(content, list) or not content:
        return f"expected a list of modules, found {_shown(content)}"
    for number, entry in enumerate(content, 1):
        for name in ("name", "path", "type"):
            if not isinstance(entry, dict) or not isinstance(entry.get(name), str):
                return f"module {number}, field {name!r}: expected a text, found {_shown(entry)}"
    return None


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:59] + "…"
