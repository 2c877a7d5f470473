"""A user's own data as an objective."""

from __future__ import annotations

import logging
from functools import lru_cache

from idiomloss import CoSENTLoss, CosineMSELoss
from train.benchmarks.own import OwnValOptions
from train.benchmarks.own.held_out import OwnValBenchmark
from train.config import Common, TrainSettings
from train.data.own.load import OwnSplits, load_own
from train.data.own.store import Examples, number_for
from train.declarations.own_data import OwnData
from train.errors import UserError
from train.factory.losses import info_nce, triplet_loss
from train.factory.negatives import with_mined_negatives
from train.objectives import Objective
from train.objectives.contrastive import ContrastiveObjective, ContrastiveOptions
from train.objectives.own_contrastive import OwnContrastiveData
from train.objectives.own_labelled import LabelledObjective
from train.objectives.own_options import OwnLoss, OwnSettings
from train.objectives.own_scored import ScoredPairsObjective

log = logging.getLogger(__name__)

_FORMS: dict[OwnLoss, str] = {
    "infonce": "pairs or sentences",
    "cosent": "scored",
    "cosine": "scored",
    "triplet": "sentences",
}


def own_splits(settings: Common) -> OwnSplits:
    """The user's tables, read once a program."""
    return _loaded(settings.data.own.model_dump_json())


@lru_cache(maxsize=4)
def _loaded(data: str) -> OwnSplits:
    splits = load_own(OwnData.model_validate_json(data))
    for note in splits.notes:
        log.info("%s", note)
    return splits


def held_out_benchmark(settings: Common, options: OwnValOptions) -> OwnValBenchmark:
    """What is held out of the training data."""
    splits = own_splits(settings)
    return OwnValBenchmark({"": splits.val}, splits.files, options)


def own_objective(settings: TrainSettings, options: OwnSettings) -> Objective:
    """The objective, by the form of the data."""
    splits = with_mined_negatives(settings, own_splits(settings), options.instruction)
    examples = splits.train
    loss = options.loss or _loss_for(examples)
    if examples.form not in _FORMS[loss]:
        raise UserError(
            f"objective.loss={loss} is for {_FORMS[loss]}, but the training data are {examples.form}; "
            "objective.loss=null takes the one that fits"
        )
    if loss in ("cosent", "cosine"):
        graded = options.graded
        return ScoredPairsObjective(
            examples,
            CoSENTLoss(graded.temperature) if loss == "cosent" else CosineMSELoss(graded.low, graded.high),
            batch_size=settings.trainer.batch_size,
            seed=settings.seed,
            files=splits.files,
        )
    if loss == "triplet":
        return LabelledObjective(
            examples,
            triplet_loss(options.triplet),
            batch_size=settings.trainer.batch_size,
            seed=settings.seed,
            shuffled=options.order == "shuffled",
            per_label=options.per_label,
            files=splits.files,
        )
    return _contrastive(settings, options, splits)


def _loss_for(examples: Examples) -> OwnLoss:
    if examples.form == "sentences":
        return "triplet" if examples.store.has_labels else "infonce"
    return "infonce" if examples.form == "pairs" else "cosent"


def _contrastive(settings: TrainSettings, options: OwnSettings, splits: OwnSplits) -> Objective:
    from_batch = splits.train.form == "sentences"
    weights = {str(number_for(usage)): weight for usage, weight in options.positive_weights.items()}
    data = OwnContrastiveData(
        splits.train,
        "the training data",
        splits.files,
        options.num_positives,
        options.num_negatives,
        options.instruction,
    )
    return ContrastiveObjective(
        data,
        info_nce(options.infonce),
        ContrastiveOptions(
            batch_size=settings.trainer.batch_size,
            seed=settings.seed,
            query_modes=options.query_mode,
            query_weights=options.query_weights,
            document_modes=options.document_mode,
            mask=options.mask,
            in_batch="all" if from_batch else options.infonce.in_batch,
            false_negatives="positive" if from_batch else options.infonce.false_negatives,
            candidates_from_batch=from_batch,
            groups_per_batch=options.groups_per_batch,
            positive_weights=weights or None,
            drop_last=options.drop_last,
        ),
        groups_name="groups" if splits.train.store.has_groups else "",
    )
