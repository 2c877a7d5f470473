"""Options that a model cannot have, found from its settings files and tokenizer, without its weights."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import torch

from train.benchmarks import Benchmark, announced
from train.config import TrainSettings
from train.encoder.loading import check_positions, num_positions
from train.encoder.lora import add_adapters, check_peft
from train.encoder.pooling_modules import pooling_modules
from train.errors import UserError
from train.factory.unloaded import UnloadedModel, empty_transformer
from train.objectives import Objective
from train.requests import Request

log = logging.getLogger(__name__)


def check_model_options(
    settings: TrainSettings, objective: Objective, benchmarks: Sequence[Benchmark]
) -> None:
    """Check the options that loading the model, or the first step, would refuse.

    A model that is out of reach, or cannot be read, is not checked: a check of data may not need it, and
    loading it reports why.

    Raises:
        UserError: naming the option.
    """
    options, lora = settings.model, settings.retain.lora
    if lora.rank is not None:
        check_peft()
    try:
        model = UnloadedModel(options)
        tokenizer = model.reader.tokenizer.wrapped
        transformer = empty_transformer(model.config, trust_remote_code=options.trust_remote_code)
    except Exception:
        log.debug("the model's options are not checked", exc_info=True)
        return
    check_positions(options.path, num_positions(transformer), options.max_length)
    with torch.device("meta"):
        if options.pooling is not None:
            pooling_modules(transformer, tokenizer, model.config.hidden_size, options.pooling)
        if lora.rank is not None:
            add_adapters(transformer, lora)
    first_step = objective.epoch_steps(0, settings.trainer.accumulation)[0]
    for requests in (objective.batch(0, first_step[0]).requests, *map(announced, benchmarks)):
        _check_spans(model, requests)


def _check_spans(model: UnloadedModel, requests: Iterable[Request]) -> None:
    """Refuse spans that all begin beyond the maximum length."""
    problem = None
    for request in requests:
        if request.pooling == "span":
            try:
                model.tokens_of_span(request)
            except UserError as error:
                problem = problem or error
            else:
                return
    if problem is not None:
        raise problem
