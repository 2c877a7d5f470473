"""The memory that a run's steps need: said before anything long happens, or refused."""

from __future__ import annotations

import logging

from train.config import TrainSettings
from train.distributed.device import Placement
from train.distributed.limits import Memory, device_memory
from train.distributed.processes import Processes
from train.errors import UserError
from train.objectives import Objective
from train.recipes.forecast import Forecast
from train.training.memory import StepMemory

log = logging.getLogger(__name__)

_TOO_MUCH = 1.2  # of what is free: then a run does not start
_NEAR = 0.85  # likewise: then it is warned of
_LITTLE = 0.25  # likewise: then, on a CPU, nothing is computed or said


def check_memory(
    settings: TrainSettings, objective: Objective, placement: Placement, processes: Processes
) -> None:
    """Say what a step needs of the device's memory; on a CPU only where that is not clearly little.

    Raises:
        UserError: if it needs clearly more than is free, unless `trainer.memory_check` lets it go on.
    """
    memory = device_memory(placement.device)
    if settings.trainer.memory_check == "off" or memory is None:
        return
    found = _forecast(settings, objective, placement, processes, enough=_LITTLE * memory.free)
    if found is None:
        return
    forecast, needed = found
    said = _needs(needed, placement, memory)
    if needed.total <= _NEAR * memory.free:
        log.info(said)
        return
    said += _advice(forecast, memory)
    if needed.total > _TOO_MUCH * memory.free and settings.trainer.memory_check == "stop":
        raise UserError(f"{said}\ntrainer.memory_check=warn starts the run all the same")
    log.warning(said)


def describe_memory(settings: TrainSettings, objective: Objective, placement: Placement) -> list[str]:
    """What a step needs here, and on a GPU where this machine has none: lines for a terminal."""
    found = _forecast(settings, objective, placement, Processes())
    if found is None:
        return ["a step's memory cannot be predicted for this model"]
    forecast, needed = found
    memory = device_memory(placement.device)
    lines = [f"{_needs(needed, placement, memory)}: {_parts(needed)}"]
    if memory is not None and needed.total > _NEAR * memory.free:
        lines[0] += _advice(forecast, memory)
    if placement.device == "cpu":
        elsewhere = _forecast(settings, objective, Placement("cuda", "bf16", "as asked"), Processes())
        if elsewhere is not None:
            lines.append(
                f"on a GPU in bfloat16 about {gigabytes(elsewhere[1].total)}: {_parts(elsewhere[1])}"
            )
    return [*lines, f"a step computes about {needed.operations / 1e12:.2g} · 10^12 operations"]


def _forecast(
    settings: TrainSettings,
    objective: Objective,
    placement: Placement,
    processes: Processes,
    *,
    enough: float = 0.0,
) -> tuple[Forecast, StepMemory] | None:
    """What a step needs; None if that is little, or cannot be predicted, which must not stop a run.

    Args:
        enough: bytes below which, on a CPU, a rough guess is believed.
    """
    try:
        forecast = Forecast(settings, objective, placement, processes)
        if placement.device == "cpu" and forecast.rough_guess() < enough:
            return None
        return forecast, forecast.step()
    except UserError:
        raise
    except Exception as error:  # an architecture that cannot be run without data, say
        log.info("a step's memory cannot be predicted for this model (%s)", type(error).__name__)
        log.debug("why", exc_info=True)
        return None


def _needs(needed: StepMemory, placement: Placement, memory: Memory | None) -> str:
    """As `a step needs about 3.1 GB of this GPU's 24 GB (22 GB free)`."""
    said = f"a step needs about {gigabytes(needed.total)}"
    if memory is None:
        return said
    whose = "this machine's" if placement.device == "cpu" else "this GPU's"
    return f"{said} of {whose} {gigabytes(memory.total)} ({gigabytes(memory.free)} free)"


def _parts(needed: StepMemory) -> str:
    named = {"weights": needed.weights, "gradients": needed.gradients, "moments": needed.moments}
    named |= {"passes": needed.passes, "other": needed.others}
    return ", ".join(f"{name} {gigabytes(size)}" for name, size in named.items() if size)


def _advice(forecast: Forecast, memory: Memory) -> str:
    """What would fit, an option a line."""
    found = forecast.what_would_fit(_NEAR * memory.free)
    if not found:
        return ". No option would make it fit: take a smaller model or a larger device (docs/cluster.md)"
    lines = [f"  - {options}: about {gigabytes(needed.total)}" for options, needed in found]
    return ". What would fit:\n" + "\n".join(lines)


def gigabytes(size: float) -> str:
    """As `24 GB`, `3.1 GB` or `0.021 GB`, of 10^9 bytes."""
    number = size / 1e9
    return f"{number:.0f} GB" if number >= 9.95 else f"{number:.2g} GB"
