"""The objectives: their data read and checked."""

from __future__ import annotations

from typing import Any

from train.config import TrainSettings
from train.data import semeval2022
from train.data.semeval2022 import read_groups
from train.declarations.objective import ObjectiveOptions
from train.declarations.registry import objective_types, resolve
from train.factory.data import data_files
from train.factory.losses import triplet_loss
from train.objectives import Objective
from train.objectives.adaptive_triplet import AdaptiveTripletObjective
from train.objectives.joint import JointObjective
from train.objectives.options import AdaptiveTripletSettings, JointSettings


def build_objective(settings: TrainSettings) -> Objective:
    """The objective, its data read and checked against the splits that are scored."""
    objective: Objective = _build(settings, settings.objective)
    return objective


def _build(settings: TrainSettings, options: ObjectiveOptions) -> Any:
    return resolve(objective_types()[options.name].build)(settings, options)


def joint_objective(settings: TrainSettings, options: JointSettings) -> JointObjective:
    """Several objectives in turn."""
    parts = {name: _build(settings, getattr(options, name)) for name in options.proportions}
    return JointObjective(parts, options.proportions, settings.seed)


def triplet_objective(settings: TrainSettings, options: AdaptiveTripletSettings) -> Objective:
    """Whole groups of relabelled sentences."""
    files = data_files(settings, semeval2022.FILES)
    paths = [files(semeval2022.TRAIN_FILE)]
    if options.one_shot:
        paths.append(files(semeval2022.ONE_SHOT_FILE))
    groups = [group for path in paths for group in read_groups(path)]
    return AdaptiveTripletObjective(
        groups,
        triplet_loss(options.loss),
        batch_size=settings.trainer.batch_size,
        seed=settings.seed,
        shuffled=options.order == "shuffled",
        whole_groups=options.whole_groups,
        only_usable=options.groups == "usable",
        per_expression=options.groups_per_expression,
        files=paths,
    )
