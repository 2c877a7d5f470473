"""Whether a training step fits into memory: tried before the first one; and what takes less."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import chain

import torch

from train.config import TrainSettings
from train.distributed.device import Placement
from train.io.hub import first_line
from train.objectives import Batch
from train.training.run_end import is_out_of_memory
from train.training.setup import Training
from train.training.step import compute_gradients

log = logging.getLogger(__name__)

_MAX_DRAWN = 1000  # batches of an epoch, evenly spread, of which the longest is tried
_RANK = 16  # of the adapters that are proposed


def longest(batches: Iterable[Batch]) -> Batch:
    """The batch with the most characters, each distinct text counted once."""
    return max(batches, key=lambda batch: sum(map(len, {request.text for request in batch.requests})))


def is_tried(training: Training) -> bool:
    """Whether the longest batch is to be tried: not on a CPU, where too much memory ends in no error."""
    trainer = training.trainer
    on_cpu = training.encoder.device.type == "cpu"
    return not (on_cpu or trainer.memory_check == "off" or trainer.freeze_encoder)


def try_longest_batch(training: Training) -> None:
    """Compute the gradients of the epoch's longest batch and discard them; the run is the same without.

    Meanwhile as much memory is taken as later steps need besides: for the optimizer's moments, and for the
    gradients of earlier micro-steps.

    Raises:
        RuntimeError: if memory does not suffice, unless `trainer.memory_check` only warns of it. With several
            processes in any case: the others would wait for this one.
    """
    trainer, objective, device = training.trainer, training.objective, training.encoder.device
    epoch = training.state.epoch
    micro_steps = list(chain.from_iterable(objective.epoch_steps(epoch, trainer.accumulation)))
    drawn = micro_steps[:: -(-len(micro_steps) // _MAX_DRAWN)]
    batch = longest(objective.batch(epoch, anchors) for anchors in drawn)
    log.info("trying the longest of the epoch's batches: %d texts", len({r.text for r in batch.requests}))
    trained = [p for group in training.optimizer.param_groups for p in group["params"]]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)  # the untrained model was scored before
    training.encoder.train()
    objective.modules.train()
    try:
        later = [torch.empty_like(p) for p in 2 * trained] if training.state.step == 0 else []
        if trainer.accumulation > 1:
            for p in trained:
                p.grad = torch.zeros_like(p)
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            compute_gradients(training, batch)
        later += [torch.empty_like(p) for p in trained]  # what AdamW computes on a GPU, of all at once
    except RuntimeError as error:
        if not is_out_of_memory(error) or trainer.memory_check == "stop" or training.processes.count > 1:
            raise
        log.warning("the longest batch does not fit into memory: %s", first_line(error))
    else:
        if device.type == "cuda":
            most, total = torch.cuda.max_memory_allocated(device), torch.cuda.mem_get_info(device)[1]
            log.info("it fits: %s of this GPU's %s", gigabytes(most), gigabytes(total))
    finally:
        training.optimizer.zero_grad(set_to_none=True)


def what_takes_less(settings: TrainSettings, placement: Placement) -> str:
    """The options with which a step takes less memory, without those that the settings already have."""
    trainer, lora = settings.trainer, settings.retain.lora
    tokens = settings.model.tokens_per_forward or placement.tokens_per_forward
    options = {
        "trainer.gradient_caching=true": not trainer.gradient_caching,
        "trainer.activation_checkpointing=true": not trainer.activation_checkpointing,
        f"model.tokens_per_forward={tokens // 2}": trainer.gradient_caching and tokens > 512,
        "precision=bf16": placement.precision == "fp32",
        f"retain.lora.rank={_RANK} trainer.learning_rate=2e-4": lora.rank is None
        and settings.retain.interpolation == 1.0
        and settings.model.idiom_tokens is None,
        f"trainer.accumulation={2 * trainer.accumulation} (fewer in-batch negatives)": trainer.batch_size
        % (2 * trainer.accumulation)
        == 0,
    }
    lines = [f"  - {option}" for option, helps in options.items() if helps]
    return "\n".join(["What takes less, about half as much each (docs/cluster.md):", *lines])


def gigabytes(size: float) -> str:
    """As `24 GB`, `3.1 GB` or `0.021 GB`, of 10^9 bytes."""
    number = size / 1e9
    return f"{number:.0f} GB" if number >= 9.95 else f"{number:.2g} GB"
