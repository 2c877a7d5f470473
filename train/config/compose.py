"""`conf/` composed with overrides, by Hydra, and what its errors mean."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from train.errors import UserError

CONF = Path(__file__).resolve().parents[2] / "conf"


def compose_config(config_name: str, *overrides: str) -> dict[str, Any]:
    """`conf/<config_name>.yaml` with overrides, for use from Python, where no program was started.

    Raises:
        UserError: if an override is none.
    """
    register_resolvers()
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            config = OmegaConf.to_container(hydra.compose(config_name, list(overrides)), resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(explained(error)) from error
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


def config_names(group: str) -> list[str]:
    """The choices of a config group that come with the project."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def register_resolvers() -> None:
    """The interpolations that `conf/` uses beside Hydra's own."""
    resolvers: dict[str, Callable[..., Any]] = {
        "experiments": lambda: " | ".join(config_names("experiment")),
        "searches": lambda: " | ".join(config_names("sweep")),
        "experts_mode": lambda clip: "experts_text" if clip is None else "experts_image",
        "models": _models,
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, use_cache=False, replace=True)


def _models() -> str:
    """The models by name, for the help texts, in lines below one another."""
    names = " | ".join(name for name in config_names("model") if name != "pretrained")
    return textwrap.fill(names, width=105, subsequent_indent=" " * 17, break_on_hyphens=False)


def explained(error: Exception) -> str:
    """What an option or a choice that is not there may have been meant to be; else Hydra's own message and
    its cause, without advice that does not apply here.
    """
    met = error.__cause__
    if isinstance(met, ConfigAttributeError | ConfigKeyError) and isinstance(met.parent_node, DictConfig):
        section, _, name = str(met.full_key).rpartition(".")
        return _unknown("option", section, name, [str(key) for key in met.parent_node if key != "hydra"])
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        if names := config_names(group):
            return _unknown("choice", group, name, names)
    cause = f"\n{error.__cause__}" if isinstance(error.__cause__, OmegaConfBaseException) else ""
    text = f"{error}{cause}".partition("Config search path:")[0]
    # Options have no default to append to, but experiments and debug do come with a plus.
    kept = [line for line in text.splitlines() if not line.startswith("To append to your config")]
    return "\n".join(kept).strip()


def _unknown(kind: str, place: str, name: str, known: Sequence[str]) -> str:
    """That there is no such option of a section, or no such choice of a group, and what there is."""
    if kind == "option":
        told, sign, there = f"{place}.{name}".lstrip("."), ".", place or "the configuration"
    else:
        told, sign, there = f"{place}={name}", "=", place
    near = difflib.get_close_matches(name, known, n=1)
    guess = f" Did you mean {place}{sign if place else ''}{near[0]}?" if near else ""
    return f"{told}: there is no such {kind}.{guess}" + (f"\n{there} has {', '.join(known)}" if known else "")
