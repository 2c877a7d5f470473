"""Checkpoints whose weights are pickles (`pytorch_model.bin`) alone, as copies with safetensors."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download

from idiomtune.errors import UserError
from idiomtune.io import cache
from idiomtune.io.files import copy_file, fingerprint, read_json
from idiomtune.io.hub import CLIENT_ERRORS, first_line

log = logging.getLogger(__name__)

_PICKLES = "pytorch_model*.bin"  # one file, or its shards
_SETTINGS = ("*.json", "*.txt", "*.model", "*.jinja", "*.py", "*.safetensors")


def converted(path: str, revision: str | None = None, *, local_files_only: bool = False) -> str:
    """The folder of a checkpoint with its pickled weights as safetensors; `path` if it has no pickles alone.

    The copy is in the cache (`IDIOM_CACHE`), named by its content, and is made once.

    Args:
        path: a local folder, or the name of a model on the Hugging Face Hub.

    Raises:
        UserError: if a file holds more than weights or is damaged, or a download or the copy fails.
    """
    folder = Path(path) if Path(path).is_dir() else _download(path, revision, local_files_only)
    if folder is None:
        return path
    modules = folder / "modules.json"
    listed = [Path(module["path"]) for module in read_json(modules)] if modules.is_file() else []
    places = dict.fromkeys([Path(), *(p for p in listed if not p.is_absolute() and ".." not in p.parts)])
    pickles = {
        place: files
        for place in places
        if not any((folder / place).glob("model*.safetensors"))
        and (files := sorted((folder / place).glob(_PICKLES)))
    }
    if not pickles:
        return path
    copied = [file for place in places for kind in _SETTINGS for file in sorted((folder / place).glob(kind))]
    copied = [file for file in copied if not file.name.startswith("pytorch_model.bin")]
    content = [
        (file.relative_to(folder).as_posix(), fingerprint(file))
        for file in (*copied, *(file for files in pickles.values() for file in files))
    ]

    def convert(target: Path) -> None:
        log.info("model %s: its pickled weights are converted to safetensors", path)
        for place in places:
            (target / place).mkdir(parents=True, exist_ok=True)
        for file in copied:
            copy_file(file, target / file.relative_to(folder))
        for place, files in pickles.items():
            _convert(path, files, target / place / "model.safetensors")

    try:
        return str(cache.get("converted", content, convert))
    except (OSError, shutil.Error) as error:
        raise UserError(f"model {path}: the converted copy could not be written: {error}") from None


def _download(path: str, revision: str | None, local_files_only: bool) -> Path | None:
    """The files that a copy needs; None if the model has safetensors on the Hub."""
    try:
        names = [] if local_files_only else HfApi().list_repo_files(path, revision=revision)
        if any(re.fullmatch(r"model.*\.safetensors", name) for name in names):
            return None
        patterns = [*_SETTINGS, f"*{_PICKLES}"]
        return Path(
            snapshot_download(
                path, revision=revision, allow_patterns=patterns, local_files_only=local_files_only
            )
        )
    except CLIENT_ERRORS as error:
        raise UserError(f"model {path}: it could not be downloaded: {first_line(error)}") from error


def _convert(path: str, pickles: list[Path], target: Path) -> None:
    # -P: the modules next to the program must not be taken for others of the same name.
    program = [sys.executable, "-P", str(Path(__file__).with_name("weights_only.py"))]
    done = subprocess.run([*program, *map(str, pickles), str(target)], capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(
            f"model {path}: its weights could not be converted ({reason}). "
            "Nothing in the file was run: take a checkpoint with safetensors"
        )
