"""AIMA's system as printed: its models loaded, its captions shortened, its data read."""

from __future__ import annotations

import torch

from train.config import TrainSettings
from train.distributed.device import place
from train.encoder.named import resolve_model_path
from train.experts.aima import AimaOptions, AimaSystem
from train.experts.captions import CaptionOptions
from train.experts.sense_encoder import SenseEncoder
from train.factory.encoder import embedding_width
from train.factory.experts import make_captions, ranking_loss, training_data
from train.objectives.aima import AimaObjective
from train.objectives.aima_options import AimaSettings


def aima_objective(settings: TrainSettings, options: AimaSettings) -> AimaObjective:
    """The system with its data, without the compounds that a fold holds out."""
    data = training_data(settings, options.split, options.astitch, check_images=True, keep_repeated=True)
    from train.experts.clip import ClipTowers

    clip, sense = options.clip, options.sense_encoder
    assert clip.path is not None  # checked by the settings
    captions = make_captions(
        CaptionOptions(options.captions.words, options.captions.summariser, options.captions.revision),
        place(settings.device, settings.precision),
    )
    files = list(data.files)
    if options.ablation != "clip_cosine":
        files += captions.prepare(c.caption for item in data.items for c in item.candidates)
    towers = ClipTowers.from_pretrained(clip.path, revision=clip.revision, trained_layers=clip.trained_layers)
    torch.manual_seed(settings.seed)  # of the first weights
    encoder = None
    if options.ablation != "no_sense_encoder":
        encoder = SenseEncoder.from_pretrained(
            resolve_model_path(sense.path), revision=sense.revision, width=towers.width
        )
    system = AimaSystem(
        AimaOptions(
            width=embedding_width(settings.model),
            hidden=options.hidden,
            ablation=options.ablation,
            sense_stage=sense.stage,
            separator=options.separator,
            astitch=tuple(options.astitch),
        ),
        towers,
        encoder,
        captions,
    )
    notes = [data.note, captions.note if system.sees_captions else "no captions"]
    return AimaObjective(
        system,
        data.items,
        data.usages,
        data.meanings,
        ranking_loss(options.loss),
        batch_size=settings.trainer.batch_size,
        seed=settings.seed,
        sense_epochs=sense.epochs,
        files=files,
        note="; ".join(note for note in notes if note),
    )
