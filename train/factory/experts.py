"""AdMIRe's experts: the objective that trains them, the benchmark that scores them, and saved ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

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
from train.data import astitch as astitch_data
from train.data.admire import Item, read_items
from train.data.astitch import Meanings, Usage, UsageCorpus, read_senses, read_usages
from train.data.names import ADMIRE_CV_SPLIT, AdmireSplit, AStitchFile, AStitchSplit, unseen_astitch
from train.distributed.device import Placement
from train.encoder.files import fetch_file
from train.encoder.loading import locate_checkpoint
from train.errors import DataMissingError, UserError
from train.experts.aima import SYSTEM, AimaSystem, load_aima
from train.experts.captions import CaptionOptions, Captions
from train.experts.heads import FILES as EXPERTS_FILES
from train.experts.heads import Experts, ExpertsOptions, load_experts
from train.expressions import plain_expression
from train.factory.data import admire_folder, admire_split, data_files
from train.factory.encoder import embedding_width
from train.io.paths import cache_folder
from train.io.records import read_json
from train.objectives.admire import AdmireObjective
from train.objectives.admire_options import AdmireObjectiveSettings, RankLossSettings

if TYPE_CHECKING:
    from train.experts.clip import ClipTowers

log = logging.getLogger(__name__)

_ASTITCH_FILES: dict[AStitchSplit, AStitchFile] = {"astitch_dev": "dev", "astitch_test": "test"}


class TrainingData(NamedTuple):
    """What AdMIRe's experts are trained on, without the compounds that a fold holds out.

    Attributes:
        meanings: by compound.
        files: that were read.
        note: what was held out.
    """

    items: Sequence[Item]
    usages: list[Usage]
    meanings: dict[str, Meanings]
    files: list[Path]
    note: str


def training_data(
    settings: TrainSettings,
    split: AdmireSplit,
    astitch: Sequence[AStitchFile],
    *,
    check_images: bool,
    keep_repeated: bool = False,
) -> TrainingData:
    """Items, AStitch's sentences and meanings.

    Raises:
        UserError: if the data is wrong, or no sentence is left.
    """
    training = admire_split(settings, split, training=True, check_images=check_images)
    files = data_files(settings, astitch_data.FILES)
    corpus = read_usages(files, astitch, keep_repeated=keep_repeated)
    usages, note = list(corpus.usages), ""
    senses = files(astitch_data.SENSES_FILE)
    meanings = read_senses(senses)
    if split == ADMIRE_CV_SPLIT:
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
    return TrainingData(training.items, usages, meanings, [*training.files, *corpus.files, senses], note)


def ranking_loss(loss: RankLossSettings) -> nn.Module:
    """The loss of an item's scores that is named."""
    losses: dict[str, nn.Module] = {
        "pairwise": PairwiseHingeLoss(loss.margin),
        "listwise": ListwiseSoftmaxLoss(loss.gold_temperature),
        "top1": Top1HingeLoss(loss.margin, bounded=loss.bounded),
        "pairwise_printed": PairwisePrintedLoss(loss.margin),
        "top1_printed": Top1PrintedLoss(loss.margin, loss.sum_weight),
    }
    return losses[loss.rank]


def admire_objective(settings: TrainSettings, options: AdmireObjectiveSettings) -> AdmireObjective:
    """The experts with their data."""
    data = training_data(settings, options.split, options.astitch, check_images=options.clip.path is not None)
    loss = options.loss
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
        sense_features=options.sense_features,
        mask=options.mask,
        astitch=tuple(options.astitch),
    )
    towers = None
    if options.clip.path is not None:
        from train.experts.clip import ClipTowers

        towers = ClipTowers.from_pretrained(
            options.clip.path, revision=options.clip.revision, trained_layers=options.clip.trained_layers
        )
    return AdmireObjective(
        Experts(experts_options, towers),
        data.items,
        data.usages,
        data.meanings,
        ranking_loss(loss),
        batch_size=settings.trainer.batch_size,
        seed=settings.seed,
        usages_per_item=options.usages_per_item,
        temperature=loss.temperature,
        weights=(loss.rank_weight, loss.sense_weight, loss.meaning_weight),
        files=data.files,
        note=data.note,
    )


def module_benchmarks(
    settings: Common, modules: nn.Module | None, benchmarks: Sequence[Benchmark]
) -> list[Benchmark]:
    """The benchmarks of the modules that an objective trains beside the encoder, which they hold.

    Empty if there is nothing to score, or its benchmark is not among `benchmarks`, which are scored.
    """
    is_scored = any(benchmark.name == "admire" for benchmark in benchmarks)
    # In a mixture they are those of a part.
    trained = [] if modules is None else [m for m in modules.modules() if isinstance(m, Experts | AimaSystem)]
    if not trained or not is_scored:
        return []
    modules = trained[0]
    with_images = bool(modules.towers)
    splits = [
        admire_split(settings, name, check_images=with_images)
        for name in get_args(AdmireSplit)
        if name in settings.splits("admire")
    ]
    usages: list[tuple[AStitchSplit, UsageCorpus]] = []
    try:
        files = data_files(settings, astitch_data.FILES)
        for split in unseen_astitch(modules.options.astitch or ()):
            usages.append((split, read_usages(files, [_ASTITCH_FILES[split]])))
    except DataMissingError as error:
        usages = []
        log.warning("the sense classifier is NOT SCORED on AStitchInLanguageModels: %s", error)
    benchmark = ExpertsBenchmark(modules, splits, usages)
    if isinstance(modules, AimaSystem) and modules.sees_captions:
        captions = (c.caption for split in splits for item in split.items for c in item.candidates)
        benchmark.files += modules.captions.prepare(captions)
    return [benchmark]


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

    def towers(clip_path: str, trained_layers: int, clip_revision: str | None) -> ClipTowers:
        from train.experts.clip import ClipTowers

        return ClipTowers.from_pretrained(clip_path, revision=clip_revision, trained_layers=trained_layers)

    content = read_json(folder / EXPERTS_FILES[0])
    if isinstance(content, dict) and content.get("system") == SYSTEM:
        system = load_aima(folder, towers, lambda options: make_captions(options, placement))
        return system.to(placement.device)
    return load_experts(folder, towers).to(placement.device)


def make_captions(options: CaptionOptions, placement: Placement) -> Captions:
    """Captions whose summaries lie in the cache of downloads."""
    return Captions(options, cache_folder(), placement.device)
