"""Builds the objective from settings: hard negatives, special tokens, trained modules."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache as cache_call
from pathlib import Path, PurePath
from typing import Any, TypeVar

import torch
from torch import nn

from idiomtune.benchmarks import Benchmark
from idiomtune.config import TrainSettings
from idiomtune.data.user.load import user_splits
from idiomtune.encoder.device import DeviceAndPrecision
from idiomtune.encoder.loading import fetch_file, locate_checkpoint
from idiomtune.errors import UserError
from idiomtune.glossaries.build import empty_encoder
from idiomtune.objectives import Objective, ScoredModule
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.options import ConfigSection
from idiomtune.plugins.registry import build_objective as build_declared
from idiomtune.plugins.registry import objective_types, resolve
from idiomtune.training.negatives import with_negatives

S = TypeVar("S", bound=ConfigSection)


def build_objective(settings: TrainSettings, folder: Path | None = None) -> Objective:
    """The objective, its data read and checked against the splits that are scored.

    Args:
        folder: the run's, which keeps the hard negatives that are mined for the user's own pairs; a resumed
            run finds them there. None: none are mined.

    Raises:
        UserError: if the data is wrong, or negatives are to be mined for data that are not pairs.
    """
    settings = _with_objective_tokens(with_negatives(settings, folder))
    torch.manual_seed(settings.seed)  # of the first weights of modules that the objective trains
    objective: Objective = build_declared(settings.inputs, settings.objective)
    return objective


# ------------------------------------------------------------------ special tokens


def _with_objective_tokens(settings: TrainSettings) -> TrainSettings:
    """The settings with the model's own mask and separator, where texts need them unnamed."""
    own = cache_call(lambda: _objective_tokens(settings))

    def complete(section: S) -> S:
        changes: dict[str, Any] = {}
        for name, value in section:
            if isinstance(value, ConfigSection):
                changes[name] = complete(value)
            elif isinstance(value, dict) and any(isinstance(part, ConfigSection) for part in value.values()):
                changes[name] = {key: complete(part) for key, part in value.items()}
        for name in getattr(section, "special_tokens", ()):
            if getattr(section, name) is None:
                changes[name] = own()[name]
        return section.model_copy(update=changes)

    return settings.model_copy(update={"objective": complete(settings.objective)})


def _objective_tokens(settings: TrainSettings) -> dict[str, str]:
    """The special tokens of the model, or of a resumed run's best; else BERT's.

    A model that has none, or that is out of reach, is refused where the model is checked or loaded.
    """
    berts = {"mask": "[MASK]", "separator": "[SEP]"}
    best = str(Path(settings.resume or "", "best"))
    for model in (settings.model, settings.model.model_copy(update={"path": best, "revision": None})):
        with suppress(UserError):
            tokenizer: Any = empty_encoder(model).model.tokenizer
            own = {"mask": tokenizer.mask_token, "separator": tokenizer.sep_token}
            return {name: own[name] or token for name, token in berts.items()}
    return berts


def user_revisions(inputs: RunInputs) -> dict[str, str]:
    """Data set of the Hub → commit, for the user's data."""
    revisions: dict[str, str] = {}
    for data in inputs.own_data.values():
        if any(name.startswith("hf:") for name in [*(data.train or []), *(data.val or [])]):
            revisions |= user_splits(data).revisions
    return revisions


# ------------------------------------------------------------------ an objective's modules


def module_benchmarks(
    inputs: RunInputs, modules: nn.Module | None, benchmarks: Sequence[Benchmark]
) -> list[Benchmark]:
    """The benchmarks of what an objective trains in addition to the encoder, in a mixture of its parts.

    A module is scored where the benchmark is to whose scores it adds.
    """
    names = {benchmark.name for benchmark in benchmarks}
    parts = modules.modules() if modules is not None else ()
    return [
        part.benchmark(inputs) for part in parts if isinstance(part, ScoredModule) and part.scored_by in names
    ]


def saved_modules(path: str, placement: DeviceAndPrecision, revision: str | None = None) -> nn.Module | None:
    """The modules of an objective that were saved with a model, or None.

    Args:
        path: a folder, or the name of a model on the Hub.

    Raises:
        UserError: if they are damaged, or could not be downloaded.
    """
    name, offline = locate_checkpoint(path, revision)
    for files, load in {
        (tuple(entry.saved), entry.load) for entry in objective_types().values() if entry.saved
    }:
        first, *_ = [fetch_file(name, file, revision, local_files_only=offline) for file in files]
        if first is not None:
            folder = first.parents[len(PurePath(files[0]).parts) - 1]  # on the Hub, of what was downloaded
            modules: nn.Module = resolve(load)(folder, placement)
            return modules.to(placement.device)
    return None
