"""The files of a checkpoint: which one is damaged, and what the libraries raise for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from safetensors import SafetensorError, safe_open
from sentence_transformers.util import load_file_path
from tokenizers import Tokenizer

from train.errors import UserError
from train.io.hub import first_line, is_network_error

_TOKENIZER = "tokenizer.json"
_SENTENCEPIECE = ("spm.model", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
_MODULES = "modules.json"
_DIMENSIONS = ("embedding_dimension", "word_embedding_dimension")  # of a pooling, since version 6 and before
# Numbers that every transformer's configuration has.
_COUNTS = ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "vocab_size")


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
    checks: list[tuple[str, Callable[[Any], str | None]]] = [
        ("config.json", _config_problem),
        ("config_sentence_transformers.json", _prompts_problem),
        ("sentence_bert_config.json", _length_problem("max_seq_length")),
        ("tokenizer_config.json", _length_problem("model_max_length")),
        (_MODULES, _modules_problem),
    ]
    for name, check in checks:
        problem = _json_problem(find(name), check)
        if problem is not None:
            return problem
    for folder, kind in _modules(find(_MODULES)):
        check = _pooling_problem if kind.endswith(".Pooling") else _module_problem
        problem = _json_problem(find(f"{folder}/config.json"), check)
        if problem is not None:
            return problem
    return None


def damaged_data(path: str, revision: str | None = None) -> str | None:
    """What is wrong with the tokenizer's file or a weights file, or None; for when loading has failed."""
    find = _finder(path, revision)
    tokenizer = find(_TOKENIZER)
    if tokenizer is not None:
        problem = (
            _link_problem(tokenizer) or _json_problem(tokenizer, _is_object) or _tokenizer_problem(tokenizer)
        )
        if problem is not None:
            return problem
    for file in _weights(path, find):
        problem = _link_problem(file) or _weights_problem(file)
        if problem is not None:
            return problem
    return None


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


def _weights(path: str, find: Callable[[str], Path | None]) -> Iterator[Path]:
    if Path(path).is_dir():
        yield from sorted(Path(path).rglob("*.safetensors"))
        return
    for folder in ("", *(folder for folder, _ in _modules(find(_MODULES)))):
        file = find(f"{folder}/model.safetensors" if folder else "model.safetensors")
        if file is not None:
            yield file


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


def _config_problem(content: Any) -> str | None:
    problem = _is_object(content)
    return problem or next((p for name in _COUNTS if (p := _count_problem(content, name)) is not None), None)


def _count_problem(content: Mapping[str, Any], name: str) -> str | None:
    value = content.get(name)
    # Some architectures give a list, a number for each layer.
    if value is None or isinstance(value, list) or (_is_whole(value) and value > 0):
        return None
    return f"field {name!r}: expected a whole number above 0, found {_shown(value)}"


def _prompts_problem(content: Any) -> str | None:
    problem = _is_object(content)
    if problem is not None:
        return problem
    prompts = content.get("prompts")
    if prompts is None:
        return None
    if not isinstance(prompts, dict) or not all(isinstance(p, str | None) for p in prompts.values()):
        return f"field 'prompts': expected names with their prompts, found {_shown(prompts)}"
    return None


def _length_problem(name: str) -> Callable[[Any], str | None]:
    def check(content: Any) -> str | None:
        problem = _is_object(content)
        if problem is not None:
            return problem
        value = content.get(name)
        # Tokenizers without a limit say 1e30, which is no whole number in JSON.
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value > 0):
            return None
        return f"field {name!r}: expected a number of tokens above 0, found {_shown(value)}"

    return check


def _modules_problem(content: Any) -> str | None:
    if not isinstance(content, list) or not content:
        return f"expected a list of modules, found {_shown(content)}"
    for number, entry in enumerate(content, 1):
        for name in ("name", "path", "type"):
            if not isinstance(entry, dict) or not isinstance(entry.get(name), str):
                return f"module {number}, field {name!r}: expected a text, found {_shown(entry)}"
    return None


def _module_problem(content: Any) -> str | None:
    problem = _is_object(content)
    counts = (*_DIMENSIONS, "in_features", "out_features")
    return problem or next((p for name in counts if (p := _count_problem(content, name)) is not None), None)


def _pooling_problem(content: Any) -> str | None:
    problem = _module_problem(content)
    if problem is None and not any(name in content for name in _DIMENSIONS):
        return f"field {_DIMENSIONS[0]!r} is missing"
    return problem


def _tokenizer_problem(file: Path) -> str | None:
    try:
        Tokenizer.from_file(str(file))
    # The library raises a bare Exception for any content that it does not understand.
    except Exception as error:
        return f"{file} is no tokenizer ({str(error).splitlines()[0] if str(error) else 'unreadable'})"
    return None


def _weights_problem(file: Path) -> str | None:
    try:
        with safe_open(file, framework="pt") as content:
            if not list(content.keys()):
                return f"{file} holds no weights"
    except (SafetensorError, OSError) as error:
        return f"{file} is damaged or cut off ({error})"
    return None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:59] + "…"
