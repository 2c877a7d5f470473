"""Whether a model can tell apart the texts that a run trains on."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from itertools import chain

import numpy as np

from train.config import ModelSettings, TrainSettings
from train.declarations.models import model_names, model_values
from train.encoder.reading import Rendered
from train.errors import UserError
from train.factory.unloaded import UnloadedModel
from train.objectives import Batch, Objective

log = logging.getLogger(__name__)

_NUM_STEPS = 6  # of the first epoch, evenly spread
_MANY = 0.1  # a larger share of texts that are read as others is warned of


def some_steps(objective: Objective, accumulation: int) -> list[list[Batch]]:
    """The micro-steps of some steps of the first epoch, evenly spread."""
    steps = objective.epoch_steps(0, accumulation)
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(_NUM_STEPS, len(steps))).round().astype(int))
    return [[objective.batch(0, anchors) for anchors in steps[number]] for number in chosen.tolist()]


def check_texts(settings: TrainSettings, objective: Objective) -> None:
    """Report texts that are truncated, and different texts that the model reads as the same tokens.

    By the texts of some steps. Nothing is checked if the model cannot be reached or has no tokenizer; loading
    it reports why.

    Raises:
        UserError: if it reads most anchors as their positives, though they differ, or most texts as others.
    """
    read: dict[Rendered, tuple[object, ...]] = {}  # as rendered, with the span that is pooled → tokens, span
    are_equal: list[bool] = []  # of each pair of an anchor and a positive whose texts differ
    limit = num_cut = 0
    with suppress(Exception):
        reader = UnloadedModel(settings.model).reader
        limit = reader.limit or 0
        for batch in chain.from_iterable(some_steps(objective, settings.trainer.accumulation)):
            texts = [request.text for request in batch.requests]
            rendered = [
                (text, span if request.pooling == "span" else None)
                for request, (text, span) in zip(batch.requests, reader.render(batch.requests), strict=True)
            ]
            tokens = reader.tokenizer([text for text, _ in rendered])
            read |= {key: (*ids, key[1]) for key, (ids, _) in zip(rendered, tokens, strict=True)}
            pairs = [(rendered[a], rendered[b]) for a, b in batch.pairs if texts[a] != texts[b]]
            are_equal += [read[anchor] == read[positive] for anchor, positive in pairs]
        num_cut = sum(len(ids) > limit > 0 for ids in read.values())  # the span counts as one
    num_lost = len(read) - len(set(read.values()))
    found = f"{num_cut} of {len(read)} training texts are truncated at {limit} tokens (model.max_length), "
    found += f"{num_lost} are read as the same tokens as others"
    if num_lost > len(read) / 2 or sum(are_equal) > len(are_equal) / 2:
        raise UserError(
            f"{found}, and {sum(are_equal)} of {len(are_equal)} anchors as their positives: raise "
            "model.max_length, remove what all texts begin with, or take a model that reads case and blanks"
        )
    if num_cut or num_lost:
        log.log(logging.WARNING if num_lost > _MANY * len(read) else logging.INFO, "%s", found)


def check_pooling(model: ModelSettings) -> None:
    """Warn of a pooling that is not the one that the checkpoint's files name.

    A file in `conf/model` chooses its pooling on purpose. So does `last<n>`: no checkpoint can name it.
    """
    if model.pooling is None or re.fullmatch(r"last\d+", model.pooling):
        return
    with suppress(Exception):  # as above
        own = UnloadedModel(model).pooling
        chosen = [(values["path"], values["pooling"]) for values in map(model_values, model_names())]
        if own not in (None, model.pooling) and (model.path, model.pooling) not in chosen:
            log.warning("model.pooling=%s: the checkpoint was trained with %s pooling", model.pooling, own)
