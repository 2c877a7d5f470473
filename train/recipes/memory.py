"""The memory that a training step needs, by a rule of thumb: without weights, without computing anything."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from torch import nn
from transformers import PreTrainedConfig

from train.config import TrainSettings
from train.distributed.device import Placement
from train.distributed.limits import device_memory
from train.encoder.glossary_files import meanings_of
from train.errors import UserError
from train.factory import named_glossary
from train.factory.unloaded import UnloadedModel, empty_transformer
from train.io.hub import first_line
from train.objectives import Objective
from train.recipes.texts import some_steps
from train.requests import Request
from train.training.memory import gigabytes, longest, what_takes_less

log = logging.getLogger(__name__)

_NEAR = 0.85  # of the free memory: a warning
_TOO_MUCH = 1.5  # the run does not start: even if the rule gives 30% too much, it does not fit
# Bytes kept for the backward pass of each number that goes into or comes out of a linear layer, by precision.
_KEPT = {"fp32": 4.6, "bf16": 3.2, "fp16": 3.2}


class Needed(NamedTuple):
    """What a step needs, give or take 30%.

    Attributes:
        size: bytes, on each device.
        operations: floating-point operations.
    """

    size: int
    operations: float


def describe_memory(settings: TrainSettings, objective: Objective, placement: Placement) -> list[str]:
    """What a step needs here, and on a GPU if this machine has none: lines for a terminal."""
    placements = [placement]
    if placement.device == "cpu":
        placements.append(Placement("cuda", "bf16", "for comparison"))
    try:
        unloaded, sizes, requests = _read(settings, objective)
        lengths = unloaded.lengths(requests)
        here, *elsewhere = [rule_of_thumb(sizes, lengths, settings, each) for each in placements]
    except Exception as error:  # a model out of reach, or one that no rule fits, is not an error of the data
        log.debug("why", exc_info=True)
        return [f"a step's memory cannot be estimated: {first_line(error)}"]
    lines = [f"a step needs about {gigabytes(here.size)}{_room(placement)}, give or take 30%"]
    lines += [f"on a GPU in bfloat16 about {gigabytes(there.size)}" for there in elsewhere]
    return [*lines, f"a step computes about {here.operations / 1e12:.2g} · 10^12 operations"]


def check_memory(settings: TrainSettings, objective: Objective, placement: Placement) -> None:
    """Refuse or warn by the rule of thumb, on a CPU: a process without memory is killed there, with no error.

    On other devices the longest batch is tried, see :mod:`train.training.memory`.

    Raises:
        UserError: if a step needs clearly more than is free, unless `trainer.memory_check` only warns.
    """
    if placement.device != "cpu" or settings.trainer.memory_check == "off":
        return
    memory = device_memory("cpu")
    near = _NEAR * memory.free
    try:
        unloaded, sizes, requests = _read(settings, objective)
        # A token has a character or more, and most models fit by far: then no tokenizer is needed.
        lengths = [len(text) for text in {request.text for request in requests}]
        needed = rule_of_thumb(sizes, lengths, settings, placement).size
        if needed > near:
            needed = rule_of_thumb(sizes, unloaded.lengths(requests), settings, placement).size
    except Exception:  # a model out of reach, which a resumed run may not need
        log.debug("a step's memory cannot be estimated", exc_info=True)
        return
    if needed <= near:
        return
    message = f"a step needs about {gigabytes(needed)}{_room(placement)}. " + what_takes_less(
        settings, placement
    )
    if needed > _TOO_MUCH * memory.free + memory.swap and settings.trainer.memory_check == "stop":
        raise UserError(f"{message}\ntrainer.memory_check=warn starts the run all the same")
    log.warning(message)


def _read(settings: TrainSettings, objective: Objective) -> tuple[UnloadedModel, Sizes, Sequence[Request]]:
    """The model, its sizes, and the requests of the longest of some batches."""
    model, glossary = settings.model, named_glossary(settings.model)
    form, senses = model.glossary_form, model.glossary_senses
    meanings = None if glossary is None else meanings_of(glossary, form=form, num_senses=senses)
    unloaded = UnloadedModel(model, meanings)
    sizes = sizes_of(unloaded.config, trust_remote_code=model.trust_remote_code)
    batches = chain.from_iterable(some_steps(objective, settings.trainer.accumulation))
    return unloaded, sizes, longest(batches).requests


def _room(placement: Placement) -> str:
    """As ` of this machine's 24 GB (22 GB free)`."""
    memory = device_memory(placement.device)
    whose = "machine" if placement.device == "cpu" else "GPU"
    return f" of this {whose}'s {gigabytes(memory.total)} ({gigabytes(memory.free)} free)"


class Sizes(NamedTuple):
    """Of a transformer: numbers of parameters and of blocks, and widths.

    Attributes:
        all: its parameters.
        embeddings: of these, those that are looked up.
        linear: those by which a token is multiplied.
        widths: the inputs and outputs of all linear layers that a token passes.
        num_blocks, num_heads, width: as its configuration has them.
    """

    all: int
    embeddings: int
    linear: int
    widths: int
    num_blocks: int
    num_heads: int
    width: int


def sizes_of(config: PreTrainedConfig, *, trust_remote_code: bool = False) -> Sizes:
    """Of the encoder that has this configuration."""
    model = empty_transformer(config, trust_remote_code=trust_remote_code)
    lookups = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    embeddings = {id(p): p.numel() for p in lookups}
    matrices = [p.shape for p in model.parameters() if p.dim() > 1 and id(p) not in embeddings]
    num_experts = getattr(config, "num_experts_per_tok", None) or 1  # of each matrix of three dimensions
    times = [num_experts if len(shape) == 3 else 1 for shape in matrices]
    return Sizes(
        all=sum(p.numel() for p in model.parameters()),
        embeddings=sum(embeddings.values()),
        linear=sum(n * shape[-1] * shape[-2] for n, shape in zip(times, matrices, strict=True)),
        widths=sum(n * (shape[-1] + shape[-2]) for n, shape in zip(times, matrices, strict=True)),
        num_blocks=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        width=config.hidden_size,
    )


def rule_of_thumb(
    sizes: Sizes, lengths: Sequence[int], settings: TrainSettings, placement: Placement
) -> Needed:
    """What a step of one process needs.

    16 bytes a parameter if all are trained (weight, gradient and AdamW's two moments); and for each token the
    inputs and outputs of all linear layers, on a CPU also attention's weights.

    Args:
        lengths: of the texts of its longest micro-step, in tokens.
    """
    trainer, lora = settings.trainer, settings.retain.lora
    num_trained, times = sizes.all, 3  # the forward pass, the gradients of inputs and of weights
    of_a_token = sizes.widths * _KEPT[placement.precision]
    if trainer.freeze_encoder:
        num_trained, times = 0, 1
    elif trainer.only_idiom_tokens:
        num_trained, times, of_a_token = sizes.embeddings, 2, 0.6 * of_a_token
    elif lora.rank is not None:
        num_trained, times = lora.rank * sizes.widths, 2
    num_tokens = max(sum(lengths), 1)
    in_a_pass = min(num_tokens, settings.model.tokens_per_forward or placement.tokens_per_forward)
    if placement.device == "cpu":  # attention's weights, and these after dropout
        of_a_token += 8 * sizes.num_blocks * sizes.num_heads * max(lengths, default=1)
    kept_tokens = in_a_pass if trainer.gradient_caching else num_tokens
    kept = kept_tokens * of_a_token
    if trainer.freeze_encoder:
        kept = in_a_pass * of_a_token / sizes.num_blocks
    elif trainer.activation_checkpointing:  # each block's output, and all of one block
        kept = 4 * kept_tokens * sizes.num_blocks * sizes.width + in_a_pass * of_a_token / sizes.num_blocks
    elif placement.precision != "fp32":  # autocast's copies of weights; of frozen ones each pass has its own
        kept += 2 * sizes.linear * (1 if times == 3 else kept_tokens / in_a_pass)
    update = 4 * num_trained * (1 if placement.device == "cpu" else 2)  # on a GPU of all weights at once
    size = 4 * sizes.all + 8 * num_trained + max(4 * num_trained + kept, update)
    if num_trained:
        times += trainer.gradient_caching + trainer.activation_checkpointing
    return Needed(int(size), times * 2.0 * sizes.linear * num_tokens)
