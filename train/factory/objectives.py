"""The objectives: their data read and checked."""

from __future__ import annotations

from idiomloss import AdaptiveTripletLoss
from train.config import (
    AdaptiveTripletSettings,
    AdmireObjectiveSettings,
    IdioLinkObjectiveSettings,
    TrainSettings,
)
from train.data import semeval2022
from train.data.semeval2022 import read_groups
from train.factory.data import semeval_files
from train.factory.experts import admire_objective
from train.factory.idiolink_objective import idiolink_objective
from train.objectives import Objective
from train.objectives.adaptive_triplet import AdaptiveTripletObjective
from train.objectives.joint import JointObjective


def build_objective(settings: TrainSettings) -> Objective:
    """The objective, its data read and checked against the splits that are scored."""
    own = settings.objective
    if isinstance(own, IdioLinkObjectiveSettings):
        return idiolink_objective(settings, own)
    if isinstance(own, AdaptiveTripletSettings):
        return _triplet_objective(settings, own)
    if isinstance(own, AdmireObjectiveSettings):
        return admire_objective(settings, own)
    parts = {
        "idiolink": lambda: idiolink_objective(settings, own.idiolink),
        "adaptive_triplet": lambda: _triplet_objective(settings, own.adaptive_triplet),
    }
    return JointObjective({name: parts[name]() for name in own.proportions}, own.proportions, settings.seed)


def _triplet_objective(settings: TrainSettings, own: AdaptiveTripletSettings) -> Objective:
    files = semeval_files(settings)
    paths = [files(semeval2022.TRAIN_FILE)]
    if own.one_shot:
        paths.append(files(semeval2022.ONE_SHOT_FILE))
    groups = [group for path in paths for group in read_groups(path)]
    loss = own.loss
    return AdaptiveTripletObjective(
        groups,
        AdaptiveTripletLoss(
            *(loss.margin, loss.mining_margin, loss.mining_distance, loss.triplets, loss.scope),
            *(loss.triplet_weight, loss.property_weight, loss.correct_weight),
        ),
        batch_size=settings.trainer.batch_size,
        seed=settings.seed,
        shuffled=own.order == "shuffled",
        only_usable=own.groups == "usable",
        per_expression=own.groups_per_expression,
        files=paths,
    )
