"""AdMIRe's experts: the objective that trains them, the benchmark that scores them, and saved ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import get_args

import torch
from torch import nn

from idiomloss import (
    ListwiseSoftmaxLoss,
    PairwiseHingeLoss,
    PairwisePrintedLoss,
    Top1HingeLoss,
    Top1PrintedLoss,
)
from train.benchmarks import Benchmark
from train.benchmarks.admire.experts import ExpertsBenchmark
from train.config import Common, TrainSettings
from train.data import astitch
from train.data.admire import read_items
from train.data.astitch import UsageCorpus, read_senses, read_usages
from train.data.names import ADMIRE_CV_SPLIT, AdmireSplit, AStitchSplit
from train.distributed.device import Placement
from train.encoder.files import fetch_file
from train.encoder.loading import locate_checkpoint
from train.errors import DataMissingError, UserError
from train.experts.heads import FILES as EXPERTS_FILES
from train.experts.heads import Experts, ExpertsOptions, Towers, load_experts
from train.expressions import plain_expression
from train.factory.data import admire_folder, admire_split, data_files
from train.factory.encoder import embedding_width
from train.objectives.admire import AdmireObjective
from train.objectives.options import AdmireObjectiveSettings

log = logging.getLogger(__name__)


def admire_objective(settings: TrainSettings, options: AdmireObjectiveSettings) -> AdmireObjective:
    """The experts with their data, without the compounds that a fold holds out."""
    training = admire_split(
        settings, options.split, training=True, check_images=options.clip.path is not None
    )
    files = data_files(settings, astitch.FILES)
    corpus = read_usages(files, options.astitch)
    usages, note = list(corpus.usages), ""
    senses = files(astitch.SENSES_FILE)
    meanings = read_senses(senses)
    if options.split == ADMIRE_CV_SPLIT:
        trained = {plain_expression(item.compound) for item in training.items}
        everything = read_items(admire_folder(settings), "train").items
        held_out = {plain_expression(item.compound) for item in everything} - trained
        usages = [usage for usage in usages if plain_expression(usage.phrase) not in held_out]
        meanings = {compound: meaning for compound, meaning in meanings.items() if compound not in held_out}
        note = (
            f"held out: {len(held_out)} compounds of fold {settings.data.fold} of {settings.data.folds}, "
            f"and {len(corpus.usages) - len(usages)} sentences of AStitch with them"
        )
    if not usages:
        raise UserError("objective.astitch: no sentence is left to learn senses from")
    loss = options.loss
    losses: dict[str, nn.Module] = {
        "pairwise": PairwiseHingeLoss(loss.margin),
        "listwise": ListwiseSoftmaxLoss(loss.gold_temperature),
        "top1": Top1HingeLoss(loss.margin, bounded=loss.bounded),
        "pairwise_printed": PairwisePrintedLoss(loss.margin),
        "top1_printed": Top1PrintedLoss(loss.margin, loss.sum_weight),
    }
    torch.manual_seed(settings.seed)  # of the experts' first weights
    experts_options = ExpertsOptions(
        width=embedding_width(settings.model),
        hidden=options.hidden,
        head=options.head,
        cosine=options.cosine,
        captions=options.captions,
        literal=options.literal,
        sense_encoder=options.sense_encoder,
        caption_words=options.caption_words,
        separator=options.separator,
    )
    towers = None
    if options.clip.path is not None:
        from train.experts.clip import ClipTowers

        towers = ClipTowers.from_pretrained(
            options.clip.path, revision=options.clip.revision, trained_layers=options.clip.trained_layers
        )
    return AdmireObjective(
        Experts(experts_options, towers),
        training.items,
        usages,
        meanings,
        losses[loss.rank],
        batch_size=settings.trainer.batch_size,
        seed=settings.seed,
        usages_per_item=options.usages_per_item,
        temperature=loss.temperature,
        weights=(loss.rank_weight, loss.sense_weight, loss.meaning_weight),
        files=[*training.files, *corpus.files, senses],
        note=note,
    )


def module_benchmarks(
    settings: Common, modules: nn.Module | None, benchmarks: Sequence[Benchmark]
) -> list[Benchmark]:
    """The benchmarks of the modules that an objective trains beside the encoder, which they hold.

    Empty if there is nothing to score, or its benchmark is not among `benchmarks`, which are scored.
    """
    if not isinstance(modules, Experts) or all(benchmark.name != "admire" for benchmark in benchmarks):
        return []
    with_images = bool(modules.towers)
    splits = [
        admire_split(settings, name, check_images=with_images)
        for name in get_args(AdmireSplit)
        if name in settings.splits("admire")
    ]
    usages: list[tuple[AStitchSplit, UsageCorpus]] = []
    try:
        files = data_files(settings, astitch.FILES)
        usages = [
            ("astitch_dev", read_usages(files, ["dev"])),
            ("astitch_test", read_usages(files, ["test"])),
        ]
    except DataMissingError as error:
        log.warning("the sense classifier is NOT SCORED on AStitchInLanguageModels: %s", error)
    return [ExpertsBenchmark(modules, splits, usages)]


def saved_modules(path: str, placement: Placement, revision: str | None = None) -> nn.Module | None:
    """The modules of an objective that were saved with a model, or None.

    Args:
        path: a folder, or the name of a model on the Hub.

    Raises:
        UserError: if it is damaged, or could not be downloaded.
    """
    found, offline = locate_checkpoint(path, revision)
    files = [fetch_file(found, name, revision, local_files_only=offline) for name in EXPERTS_FILES]
    if files[0] is None:
        return None
    folder = files[0].parent.parent  # for a model on the Hub, that of the downloaded files

    def towers(clip_path: str, trained_layers: int, clip_revision: str | None) -> Towers:
        from train.experts.clip import ClipTowers

        return ClipTowers.from_pretrained(clip_path, revision=clip_revision, trained_layers=trained_layers)

    return load_experts(folder, towers).to(placement.device)
