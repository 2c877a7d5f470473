"""A user's own data as an objective."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from idiomloss import CoSENTLoss, CosineMSELoss
from train.benchmarks.own import HELD_OUT, OwnValOptions
from train.benchmarks.own.held_out import OwnValBenchmark
from train.config import Common, TrainSettings
from train.data.own.load import OwnSplits, load_own
from train.data.own.store import Examples, number_for
from train.declarations.own_data import OwnData
from train.errors import UserError
from train.factory.losses import info_nce, triplet_loss
from train.factory.mining import with_mined_negatives
from train.objectives import Objective
from train.objectives.contrastive import ContrastiveObjective, ContrastiveOptions
from train.objectives.mixture_options import MixtureSettings
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


def forget_own_data() -> None:
    """Let go of the tables that an earlier job of this process has read; they may also have changed since."""
    _loaded.cache_clear()


@lru_cache(maxsize=32)
def _loaded(data: str) -> OwnSplits:
    splits = load_own(OwnData.model_validate_json(data))
    for note in splits.notes:
        log.info("%s", note)
    return splits


def own_revisions(settings: Common) -> dict[str, str]:
    """Data set of the Hub → its commit, of those of the user's own data that are read."""
    objective = getattr(settings, "objective", None)
    reading = [settings] if isinstance(objective, OwnSettings) or HELD_OUT in settings.benchmark.names else []
    if isinstance(objective, MixtureSettings):
        reading = [part.seen_by(settings) for part in objective.parts.values() if part.is_own]
    found: dict[str, str] = {}
    for each in reading:
        if any(name.startswith("hf:") for name in [*(each.data.train or []), *(each.data.val or [])]):
            found |= own_splits(each).revisions
    return found


def held_out_benchmark(settings: Common, options: OwnValOptions) -> OwnValBenchmark:
    """What is held out of the training data: of a mixture, of each part on the user's own."""
    names = settings.splits(HELD_OUT)
    if not names:
        splits = own_splits(settings)
        return OwnValBenchmark({"": splits.val}, splits.files, options)
    mixture = settings.objective  # type: ignore[attr-defined]  # it alone brings such splits
    loaded = {name: own_splits(mixture.parts[name].seen_by(settings)) for name in names}
    _warn_of_shared(loaded)
    files = [path for splits in loaded.values() for path in splits.files]
    return OwnValBenchmark({name: splits.val for name, splits in loaded.items()}, files, options)


def _warn_of_shared(loaded: Mapping[str, OwnSplits]) -> None:
    """Tell which parts train on what others hold out: their scores are of rows that the model has seen."""
    for name, splits in loaded.items():
        held_out = splits.val.store.text_ids[splits.val.anchors]
        for other, others in loaded.items():
            shared = np.isin(held_out, others.train.store.text_ids[others.train.anchors]).sum()
            if other != name and shared:
                log.warning("%d rows that are held out of part %s are trained on in %s", shared, name, other)


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
        scores = examples.store.scores[examples.rows]
        if loss == "cosine" and np.abs(scores - graded.low).max() > graded.high - graded.low:
            raise UserError(
                f"objective.graded.low={graded.low:g} and high={graded.high:g} are the cosines 0 and 1, "
                f"but the data has scores from {scores.min():g} to {scores.max():g}: set both to fit"
            )
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
    has_spans = splits.train.store.has_spans
    for option in ("query_mode", "document_mode"):
        modes = getattr(options, option) or ["sentence"]
        if modes != ["sentence"] and not has_spans and settings.resume is None:
            raise UserError(
                f"objective.{option}={','.join(modes)}: no row of the data has a span: leave it out"
            )
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
            query_modes=options.query_mode or ["span"] if has_spans else ["sentence"],
            query_weights=options.query_weights if has_spans else None,
            document_modes=options.document_mode or ["span"] if has_spans else ["sentence"],
            mask=options.mask,
            in_batch="all" if from_batch else options.infonce.in_batch,
            false_negatives="positive" if from_batch else options.infonce.false_negatives,
            candidates_from_batch=from_batch,
            groups_per_batch=options.groups_per_batch,
            positive_weights=weights or None,
            drop_last=options.drop_last,
        ),
        loss_section="objective.infonce",
        groups_name="groups" if splits.train.store.has_groups else "",
    )
