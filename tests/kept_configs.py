"""What Hydra reads and composes, kept for the life of a process: most of the time that it takes."""

from __future__ import annotations

import pickle
from collections.abc import Hashable
from functools import wraps
from pathlib import Path
from typing import Any

from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.defaults_list import DefaultsList, create_defaults_list
from omegaconf import DictConfig, OmegaConf

from idiomtune.plugins.models import CONF

# Each call gets a copy of its own: from a pickle, in a quarter of a deep copy's time.


def keep_configs() -> None:
    """Parse a file again only when it has changed; compose the same choices of `conf/` only once."""
    _keep_files()
    _keep_choices()
    _keep_compositions()


def _keep_files() -> None:
    load = OmegaConf.load
    kept: dict[tuple[str, int, int], bytes] = {}

    @wraps(load)
    def load_once(file: Any) -> Any:
        """Hydra hands over an open file; those within packages of its own have no path."""
        path = Path(str(getattr(file, "name", file)))
        if not path.is_absolute():
            return load(file)
        found = path.stat()
        key = (str(path), found.st_mtime_ns, found.st_size)
        if key not in kept:
            kept[key] = pickle.dumps(load(file))
        return pickle.loads(kept[key])

    OmegaConf.load = load_once  # type: ignore[assignment,method-assign]


def _keep_choices() -> None:
    """Which files are merged: a function of the overrides that choose one of a group."""
    choose = create_defaults_list
    kept: dict[Hashable, DefaultsList] = {}

    @wraps(choose)
    def choose_once(
        repo: Any, config_name: str | None, overrides_list: list[Any], prepend_hydra: bool, skip_missing: bool
    ) -> DefaultsList:
        if not _is_ours(repo):
            return choose(repo, config_name, overrides_list, prepend_hydra, skip_missing)
        choices: list[Any] = []
        values: list[Any] = []
        for override in overrides_list:  # told apart as Hydra's `Overrides` does
            sets_value = isinstance(override.value(), dict) or not repo.group_exists(override.key_or_group)
            (values if sets_value and not override.is_sweep_override() else choices).append(override)
        key = (config_name, prepend_hydra, skip_missing, *(override.input_line for override in choices))
        if key not in kept:
            kept[key] = choose(repo, config_name, choices, prepend_hydra, skip_missing)
        chosen = kept[key]
        return DefaultsList(chosen.defaults, chosen.defaults_tree, values, chosen.overrides)

    config_loader_impl.create_defaults_list = choose_once  # type: ignore[attr-defined]


def _keep_compositions() -> None:
    """The files merged, before any value is overridden."""
    merge = ConfigLoaderImpl._compose_config_from_defaults_list
    kept: dict[Hashable, bytes] = {}

    @wraps(merge)
    def merge_once(self: ConfigLoaderImpl, defaults: list[Any], repo: Any) -> DictConfig:
        if not _is_ours(repo):
            return merge(self, defaults, repo)
        key = tuple((default.config_path, default.package, default.primary) for default in defaults)
        if key not in kept:
            merged = merge(self, defaults, repo)
            try:
                kept[key] = pickle.dumps(merged)
            except pickle.PicklingError:  # a class of Hydra's that it has imported once more
                return merged
        config: DictConfig = pickle.loads(kept[key])
        return config

    ConfigLoaderImpl._compose_config_from_defaults_list = merge_once  # type: ignore[method-assign]


def _is_ours(repo: Any) -> bool:
    """Whether all files are Hydra's and the project's, which do not change while tests run."""
    return all(source.scheme() != "file" or Path(source.path) == CONF for source in repo.get_sources())
