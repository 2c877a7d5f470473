"""`idiomtune check`: checks a configuration and its data in seconds; every run does this first."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from idiomtune.benchmarks import Benchmark, requests_of
from idiomtune.config import TrainSettings
from idiomtune.data.user.load import user_splits
from idiomtune.encoder.device import choose_device, log_placement
from idiomtune.glossaries.build import empty_encoder
from idiomtune.io.files import list_names, printable
from idiomtune.io.tables import shown_path
from idiomtune.io.terminal import warnings_logged
from idiomtune.training.negatives import mines_negatives
from idiomtune.training.prepare import prepare

_NUM_SHOWN = 3  # rows of the user's own data


def check(settings: TrainSettings) -> None:
    """Read all data of training and scoring, and log a summary.

    Raises:
        UserError: as the run would.
    """
    with warnings_logged() as warnings:
        log_placement(choose_device(settings.device, settings.precision))
        prepared = prepare(settings)
    objective, benchmarks = prepared.objective, prepared.benchmarks
    steps = objective.epoch_steps(0, 1)
    paths = dict.fromkeys([*objective.files, *(path for b in benchmarks for path in b.files)])
    files = list(dict.fromkeys(map(shown_path, paths)))
    print(printable(f"files: {list_names(files) or 'none'}"))
    print(printable(f"objective {settings.objective.name}: {objective.describe()}"))
    print(printable(f"{len(steps)} steps an epoch, {settings.trainer.max_epochs} epochs"))
    every, keys = settings.eval.every, " + ".join(settings.trainer.monitor)
    interval = "epoch" if every == "epoch" else f"{every} steps"
    best = f"the last, scored by {keys}" if every == "end" else f"the highest {keys}, after each {interval}"
    print(printable(f"the best checkpoint: {best}"))
    if mines_negatives(settings):
        print("hard negatives are mined when training starts")
    for data in settings.objective.own_data(settings.data).values():
        examples = user_splits(data).train
        for row in np.unique(np.linspace(0, len(examples) - 1, _NUM_SHOWN).astype(int)).tolist():
            print(printable(f"trained as: {examples.describe(row)}"))
    for benchmark in benchmarks:
        print(printable(f"benchmark {benchmark.name}: {_num_texts(settings, benchmark)} texts to embed"))
    for name, reason in prepared.not_scored.items():
        print(printable(f"benchmark {name} is not scored: {reason.splitlines()[0]}"))
    apart_from = f", apart from {len(warnings)} warning{'s' * (len(warnings) > 1)} above" if warnings else ""
    print(f"the configuration and its data are in order{apart_from}")


def _num_texts(settings: TrainSettings, benchmark: Benchmark) -> int:
    """How many texts a run embeds for a benchmark; without a tokenizer, those that differ without prompts."""
    requests = requests_of(benchmark)
    with suppress(Exception):
        return empty_encoder(settings.model).reader.num_texts(requests)
    return len({request.text for request in requests})
