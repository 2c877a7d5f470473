"""Checks a configuration with its data: everything that a run reads, before a model is loaded."""

from __future__ import annotations

from train.config import TrainSettings
from train.distributed.device import place
from train.factory import build_benchmarks, build_objective, without_mining
from train.io.text import first_of, printable
from train.recipes.knowledge import gate_usages, glossary_files
from train.recipes.memory import describe_memory
from train.training.early_stopping import check_monitor
from train.training.regularization import check_remedies


def check_data(settings: TrainSettings) -> None:
    """Read all data that training and scoring need, and say what there is.

    Raises:
        UserError: as the run would.
    """
    glossary_files(settings.model)
    plain = without_mining(settings)
    objective = build_objective(plain)
    check_remedies(settings.retain, objective)
    gate_usages(settings.model, objective)
    benchmarks, not_scored = build_benchmarks(plain)
    check_monitor(settings.trainer, not_scored)
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
        print(printable(f"benchmark {benchmark.name}: {len(set(benchmark.requests))} texts to embed"))
    for line in describe_memory(settings, objective, place(settings.device, settings.precision)):
        print(printable(line))
    for name, reason in not_scored.items():
        print(printable(f"benchmark {name} is not scored: {reason}"))
    print(printable("the configuration and its data are in order"))
