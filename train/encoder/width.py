"""The width of a checkpoint's embeddings, from its settings files alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from train.encoder.files import damaged_setting, fetch_file
from train.errors import UserError
from train.io.records import read_json


def configured_width(
    path: str, *, revision: str | None = None, own_pooling: bool = True, local_files_only: bool = False
) -> int | None:
    """The width D of a checkpoint's embeddings, without its weights; None if its configuration does not say.

    Args:
        own_pooling: whether the checkpoint's pooling is used; another one gives the transformer's width.

    Raises:
        UserError: if a settings file is damaged, or could not be downloaded.
    """

    def read(name: str) -> dict[str, Any]:
        content = _settings_file(path, name, revision, local_files_only)
        return content if isinstance(content, dict) else {}

    modules = _settings_file(path, "modules.json", revision, local_files_only) if own_pooling else None
    if isinstance(modules, list):
        for module in reversed(modules):
            kind = str(module["type"]).rpartition(".")[2]
            config = read(f"{module['path']}/config.json") if kind in ("Dense", "Pooling") else {}
            if kind == "Dense":
                return _whole(config.get("out_features"))
            if kind == "Pooling":
                width = _whole(config.get("embedding_dimension") or config.get("word_embedding_dimension"))
                return None if width is None else width * _num_pooled(config)
            if kind not in ("Normalize", "Dropout"):
                return None
        return None
    config = read("config.json")
    return next((config[name] for name in ("hidden_size", "d_model") if _whole(config.get(name))), None)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _num_pooled(config: Mapping[str, Any]) -> int:
    """How many poolings are concatenated: a list since version 6 of the library, flags before."""
    mode = config.get("pooling_mode")
    flags = [value for name, value in config.items() if name.startswith("pooling_mode_")]
    return len(mode) if isinstance(mode, list) else sum(map(bool, flags)) or 1


def _settings_file(path: str, name: str, revision: str | None, local_files_only: bool) -> Any:
    """The content of a JSON file of a checkpoint; None if it has none."""
    if Path(path).is_dir() and (problem := damaged_setting(path)) is not None:
        raise UserError(f"could not load model {path}: {problem}: get the file again, or correct it")
    found = fetch_file(path, name, revision, local_files_only=local_files_only)
    return None if found is None else read_json(found)
