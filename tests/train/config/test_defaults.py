"""Defaults of objectives stand in `conf/` alone: in Python there is none that could say otherwise."""

from __future__ import annotations

import inspect

import pytest

from train.admire.objectives import AdmireObjective, AimaObjective
from train.objectives.adaptive_triplet import AdaptiveTripletObjective
from train.objectives.contrastive import ContrastiveObjective, ContrastiveOptions
from train.objectives.idiolink import IdioLinkObjective
from train.objectives.mixture import MixtureObjective, Part

# What an objective is told of its data; no option of anybody's.
FACTS = {"files", "extra_files", "note", "idiom_sentences", "loss_section", "groups_name"}


@pytest.mark.parametrize(
    "objective",
    [
        AdaptiveTripletObjective,
        AdmireObjective,
        AimaObjective,
        ContrastiveObjective,
        ContrastiveOptions,
        IdioLinkObjective,
        MixtureObjective,
        Part,
    ],
)
def test_no_option_of_an_objective_has_a_default_in_python(objective: type) -> None:
    parameters = inspect.signature(objective).parameters.values()
    with_default = {p.name for p in parameters if p.default is not inspect.Parameter.empty}
    assert with_default <= FACTS
