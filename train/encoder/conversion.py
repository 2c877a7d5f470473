"""Checkpoints whose weights are pickles (`pytorch_model.bin`) alone, as copies with safetensors."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download

from train.encoder.files import module_folders
from train.errors import UserError
from train.io.files import copy_file, fingerprint
from train.io.hub import CLIENT_ERRORS, first_line
from train.io.paths import cache_folder

log = logging.getLogger(__name__)

_PICKLE = "pytorch_model.bin"
_SHARDS = f"{_PICKLE}.index.json"
_WEIGHTS = "model.safetensors"
_SETTINGS = (".json", ".txt", ".model", ".jinja", ".py", ".safetensors")
_DOWNLOADED = [*(f"*{suffix}" for suffix in _SETTINGS), "*pytorch_model*.bin"]


def converted(path: str, revision: str | None = None, *, local_files_only: bool = False) -> str:
    """The folder of a checkpoint with its pickled weights as safetensors; `path` if it has no pickles alone.

    The copy lies in the cache (`IDIOM_CACHE`), named by its content, and is made once.

    Args:
        path: a local folder, or the name of a model on the Hugging Face Hub.

    Raises:
        UserError: if a file holds more than weights or is damaged, or a download or the copy fails.
    """
    folder = Path(path) if Path(path).is_dir() else _download(path, revision, local_files_only)
    if folder is None:
        return path
    named = [Path(name) for name in module_folders(folder)]
    places = [Path(), *(p for p in named if not p.is_absolute() and ".." not in p.parts)]
    pickles = {place: found for place in places if (found := _pickles(folder / place))}
    if not pickles:
        return path
    files = [f for place in places for f in sorted((folder / place).glob("*")) if _is_copied(f)]
    name = re.sub(r"[^\w.-]+", "--", path.rstrip("/")).rsplit("--", 2)[-1]
    content = [(f.relative_to(folder).as_posix(), fingerprint(f)) for f in files]
    content += [(f.name, fingerprint(f)) for found in pickles.values() for f in found]
    target = (
        cache_folder() / "converted" / f"{name}-{hashlib.sha256(repr(content).encode()).hexdigest()[:16]}"
    )
    if target.is_dir():
        return str(target)
    log.info("model %s: its pickled weights are converted to safetensors in %s", path, target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as partial:
            made = Path(partial, "model")
            for place in places:
                (made / place).mkdir(parents=True, exist_ok=True)
            for file in files:
                copy_file(file, made / file.relative_to(folder))
            for place, found in pickles.items():
                _convert(path, found, made / place / _WEIGHTS)
            if not target.is_dir():  # another process may have been faster
                made.replace(target)
    except (OSError, shutil.Error) as error:
        raise UserError(
            f"model {path}: the converted copy could not be written to {target}: {error}"
        ) from None
    return str(target)


def _download(path: str, revision: str | None, local_files_only: bool) -> Path | None:
    """The files that a copy needs; None if the model has safetensors on the Hub."""
    try:
        names = [] if local_files_only else HfApi().list_repo_files(path, revision=revision)
        if any(re.fullmatch(r"model.*\.safetensors", name) for name in names):
            return None
        return Path(
            snapshot_download(
                path, revision=revision, allow_patterns=_DOWNLOADED, local_files_only=local_files_only
            )
        )
    except CLIENT_ERRORS as error:
        raise UserError(f"model {path}: it could not be downloaded: {first_line(error)}") from error


def _pickles(folder: Path) -> list[Path]:
    """The weights files of a folder that has no safetensors."""
    if any(folder.glob("model*.safetensors")):
        return []
    if (index := folder / _SHARDS).is_file():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            raise UserError(f"{index}: does not say which files hold the weights: get it again") from None
        return [folder / Path(name).name for name in names]
    return [folder / _PICKLE] if (folder / _PICKLE).is_file() else []


def _is_copied(file: Path) -> bool:
    return file.is_file() and file.suffix in _SETTINGS and file.name != _SHARDS


def _convert(path: str, pickles: Sequence[Path], target: Path) -> None:
    # -P: the modules beside the program must not be taken for others of the same name.
    program = [sys.executable, "-P", str(Path(__file__).with_name("weights_only.py"))]
    done = subprocess.run([*program, *map(str, pickles), str(target)], capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        reason = lines[-1] if lines else "no reason given"
        raise UserError(
            f"model {path}: its weights could not be converted ({reason}). "
            "Nothing in the file was run: take a checkpoint with safetensors"
        )
