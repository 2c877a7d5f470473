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
from idiomtune.config import TrainSettings
from idiomtune.declarations.registry import score_declaration
from idiomtune.declarations.score import read_scores
from idiomtune.encoder.build import build_encoder
from idiomtune.encoder.device import choose_device, start_processes
from idiomtune.encoder.encoder import Encoder
from idiomtune.training.loop import train_loop
from idiomtune.training.objective import build_objective
from idiomtune.training.regularization import TrainedModel
from idiomtune.training.run_folder import RunFolder
from idiomtune.training.step import RunContext, Training


class _TimedSuite(Suite):
    """Notes how long scoring takes; without benchmarks, gives the loop a score to pick the best by."""

    seconds: Time | None = None
    monitor: Sequence[str] = ()

    def run(self, encoder: Encoder, only: Sequence[str] | None = None, *, keep: bool = False) -> Scorecard:
        if not self.benchmarks:
            return Scorecard(score_declaration(read_scores(dict.fromkeys(self.monitor, 0.0), ())))
        start = Time.now()
        card = super().run(encoder, only, keep=keep)
        self.seconds = Time.now() - start
        return card


class _TimedFolder(RunFolder):
    """Takes each step's time where the loop writes the step's line."""

    def __init__(self, path: Path, steps: Steps) -> None:
        super().__init__(path)
        self._steps = steps

    def log_metrics(self, record: dict[str, Any]) -> None:
        if "loss" in record:
            self._steps.ended()
        super().log_metrics(record)


def run(workload: Workload, steps: Steps | None = None) -> Measured:
    """Train and score.

    Args:
        steps: takes the time of the steps.
    """
    settings = workload.settings()
    benchmarks = build_benchmarks(settings, ["idiolink"])[0] if workload.score else []
    suite = _TimedSuite(benchmarks)
    suite.monitor = settings.trainer.monitor
    placement = choose_device(settings.device, settings.precision)
    encoder = build_encoder(settings.model, placement)
    if not workload.dropout:
        without_dropout(encoder.model)
    if not workload.steps:
        return Measured([], dict(suite.run(encoder).scores), [], None, suite.seconds)
    return _train(settings, encoder, suite, steps or Steps())


def _train(settings: TrainSettings, encoder: Encoder, suite: _TimedSuite, steps: Steps) -> Measured:
    objective = build_objective(settings)
    placement = choose_device(settings.device, settings.precision)
    accelerator, processes = start_processes(placement)
    with tempfile.TemporaryDirectory() as folder:
        run_folder = _TimedFolder(Path(folder), steps)
        run_folder.start({}, experiment="bench")
        context = RunContext(run_folder, placement, accelerator, processes)
        parts = settings.trainer, settings.model, TrainedModel(encoder), objective, suite, settings.seed
        train_loop(Training(context, *parts, score_every=settings.eval.every))
        lines = run_folder.metrics()
    losses = [line["loss"] for line in lines if "loss" in line]
    (scores,) = (line["scores"] for line in lines if "scores" in line)
    return Measured(
        losses, dict(scores) if suite.benchmarks else {}, steps.seconds, steps.memory, suite.seconds
    )
