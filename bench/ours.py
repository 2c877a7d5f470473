"""Our way: the real training loop, with checkpoint and suite, in a run folder of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.measure import Measured, Steps, Time
from bench.workload import Workload, without_dropout
from idiomtune.benchmarks import build_benchmarks
from idiomtune.benchmarks.suite import Scorecard, Suite
from idiomtune.encoder.device import choose_device, start_processes
from idiomtune.encoder.encoder import Encoder
from idiomtune.glossaries.build import build_encoder
from idiomtune.plugins.registry import score_declaration
from idiomtune.plugins.score import read_scores
from idiomtune.training.forgetting import Remedies
from idiomtune.training.loop import train_loop
from idiomtune.training.objective import build_objective
from idiomtune.training.run_folder import RunFolder
from idiomtune.training.step import Trainer


class _FirstSuite(Suite):
    """Without benchmarks: gives the loop a score to pick the best by."""

    def __init__(self, monitor: Sequence[str]) -> None:
        super().__init__([])
        self._monitor = monitor

    def run(self, encoder: Encoder, only: Sequence[str] | None = None, *, keep: bool = False) -> Scorecard:  # noqa: ARG002
        return Scorecard(score_declaration(read_scores(dict.fromkeys(self._monitor, 0.0), ())))


class _TimedFolder(RunFolder):
    """Takes each step's time where the loop writes the step's line."""

    def __init__(self, path: Path, steps: Steps) -> None:
        super().__init__(path)
        self._steps = steps

    def log_metrics(self, record: dict[str, Any]) -> None:
        if "loss" in record:
            self._steps.ended()
        super().log_metrics(record)


def run(workload: Workload) -> Measured:
    """Train, or score."""
    settings = workload.settings()
    placement = choose_device(settings.device, settings.precision)
    encoder = build_encoder(settings.model, placement)
    if not workload.is_training:
        start = Time.now()
        benchmarks, _ = build_benchmarks(settings.benchmark, settings.inputs, ["idiolink"])
        scores = dict(Suite(benchmarks).run(encoder).scores)
        return Measured([Time.now() - start], scores=scores)
    if not workload.dropout:
        without_dropout(encoder.model)
    accelerator, processes = start_processes(placement)
    suite, steps = _FirstSuite(settings.trainer.monitor), Steps()
    with tempfile.TemporaryDirectory() as folder:
        run_folder = _TimedFolder(Path(folder), steps)
        run_folder.start({}, experiment="bench")
        objective = build_objective(settings)
        parts = settings.trainer, Remedies(encoder), objective, suite, settings.seed
        train_loop(Trainer(run_folder, accelerator, processes, *parts, score_every=settings.eval.every))
        losses = [line["loss"] for line in run_folder.metrics() if "loss" in line]
    return Measured(steps.times, losses)
