"""Checks a configuration with its data: everything that a run reads, before a model is loaded."""

from __future__ import annotations

from train.benchmarks import requests_of
from train.config import TrainSettings
from train.encoder.device import log_placement, place
from train.factory import without_mining
from train.io.text import first_of, printable
from train.programs.prepare import describe_memory, prepare


def check_data(settings: TrainSettings) -> None:
    """Read all data that training and scoring need, and say what there is.

    Raises:
        UserError: as the run would.
    """
    placement = place(settings.device, settings.precision)
    log_placement(placement)
    plain = without_mining(settings)
    prepared = prepare(plain, has_negatives=plain == settings)
    objective, benchmarks = prepared.objective, prepared.benchmarks
    steps = objective.epoch_steps(0, 1)
    files = [
        str(path) for path in dict.fromkeys([*objective.files, *(p for b in benchmarks for p in b.files)])
    ]
    print(printable(f"files: {first_of(files) or 'none'}"))
    print(printable(f"objective {settings.objective.name}: {objective.describe()}"))
    print(printable(f"{len(steps)} steps an epoch, {settings.trainer.max_epochs} epochs"))
    if plain != settings:
        print("hard negatives are mined when training starts")
    for benchmark in benchmarks:
        print(printable(f"benchmark {benchmark.name}: {len(set(requests_of(benchmark)))} texts to embed"))
    for line in describe_memory(settings, objective, placement):
        print(printable(line))
    for name, reason in prepared.not_scored.items():
        print(printable(f"benchmark {name} is not scored: {reason}"))
    print(printable("the configuration and its data are in order"))
