"""The memory of a real training step on a CPU beside the predicted one: `python -m tests.bench.step_memory`.

With the options of `python -m train`. Two steps are taken, since the optimizer's moments come with the first.
"""

from __future__ import annotations

import resource
import sys

import torch
from torch import nn

from tests.allocations import allocated
from tests.tiny_runs import composed
from train.config import TrainSettings, check
from train.distributed.device import place, start_processes
from train.distributed.processes import Processes
from train.encoder.kernels import use_byte_dropout
from train.factory import build_encoder, build_objective
from train.recipes.forecast import Forecast
from train.recipes.memory import gigabytes
from train.training.embedder import TrainableEmbedder
from train.training.setup import parameter_groups


def resident() -> int:
    """The largest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(options: list[str]) -> None:
    settings: TrainSettings = check(TrainSettings, composed("config", *options))
    placement = place("cpu", "fp32" if settings.precision == "auto" else settings.precision)
    accelerator, processes = start_processes(placement)
    objective = build_objective(settings)
    forecast = Forecast(settings, objective, placement, processes)
    predicted = forecast.step()
    before = resident()
    encoder = build_encoder(settings.model, placement)
    if settings.trainer.activation_checkpointing:
        encoder.checkpoint_activations()
    use_byte_dropout(encoder, encoder.transformer)
    encoder.train()
    embed = TrainableEmbedder(
        encoder, accelerator, Processes(), seed=1, caching=settings.trainer.gradient_caching
    )
    optimizer = torch.optim.AdamW(parameter_groups(encoder, nn.Module(), settings.trainer), fused=True)

    def two_steps() -> None:
        for step in range(2):
            for micro, batch in enumerate(forecast.largest_step):
                embedded = embed(batch.requests, step, micro)
                embedded.backward(objective.loss(embedded.rows, batch).loss)
            optimizer.step()
            optimizer.zero_grad()

    if "--allocations" in sys.argv:  # which the profiler's own memory is not among
        weights = sum(p.nbytes for p in encoder.parameters())
        measured, how = weights + allocated(two_steps), "allocated"
    else:
        two_steps()
        measured, how = resident() - before, "more resident memory than before the model was loaded"
    ratio = predicted.total / measured
    print(f"predicted {gigabytes(predicted.total)}; {gigabytes(measured)} {how}: {ratio:.3f}")


if __name__ == "__main__":
    main([option for option in sys.argv[1:] if option != "--allocations"])
