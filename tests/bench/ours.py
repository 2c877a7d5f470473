"""Our way: the real training loop, with checkpoint and suite, in a run folder of its own."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.bench.measure import Measured
from tests.bench.workload import Workload, without_dropout
from train.build import build_benchmarks, build_encoder, build_objective
from train.device import place, start_processes
from train.loop import train_loop
from train.retention import Retention
from train.runfolder import RunFolder
from train.suite import Suite


def run(workload: Workload) -> Measured:
    """Train and score; the time of training includes saving the checkpoint and `best/`."""
    settings = workload.settings()
    objective = build_objective(settings)
    benchmarks, _ = build_benchmarks(settings, ["idiolink"])
    suite = Suite(benchmarks)
    placement = place(settings.device, settings.precision)
    encoder = build_encoder(settings.model, placement)
    if not workload.dropout:
        without_dropout(encoder.model)
    accelerator, processes = start_processes(placement)
    scored: list[float] = []
    suite_run = suite.run

    def timed_run(*arguments: object, **options: object) -> object:
        card = suite_run(*arguments, **options)  # type: ignore[arg-type]
        scored.append(card.seconds)
        return card

    suite.run = timed_run  # type: ignore[assignment,method-assign]
    with tempfile.TemporaryDirectory() as folder:
        run_folder = RunFolder(Path(folder))
        run_folder.start({}, experiment="bench")
        start = time.perf_counter()
        train_loop(
            Retention(encoder),
            objective,
            suite,
            accelerator,
            processes,
            run_folder,
            settings.trainer,
            settings.eval,
            seed=settings.seed,
            card="",
        )
        seconds = time.perf_counter() - start
        lines = run_folder.metrics()
    (scores,) = (line["scores"] for line in lines if "scores" in line)
    losses = [line["loss"] for line in lines if "loss" in line]
    return Measured(losses, scores, seconds - sum(scored), sum(scored))
