"""One fine-tuning run: build, score untrained, train, report."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import set_seed

from train.build import build_benchmarks, build_encoder, build_objective
from train.card import model_card
from train.device import place
from train.errors import UserError
from train.loop import Outcome, monitored, train_loop
from train.plots import learning_curve
from train.runfolder import RunFolder, fingerprints, write_json, write_jsonl
from train.settings import TrainSettings
from train.suite import Scorecard, Suite
from train.tables import SAMPLE_NOTE, print_comparison

log = logging.getLogger(__name__)


def fine_tune(
    settings: TrainSettings, config: dict[str, Any], experiment: str, folder: Path
) -> float:
    """Train, and leave a complete run folder.

    Args:
        settings: the checked configuration.
        config: the same as plain containers, for the record.
        experiment: its name, for the record.
        folder: the run folder.

    Returns:
        The monitored score of the best checkpoint.

    Raises:
        UserError: for everything that the user can mend; `run.json` then says `failed`.
    """
    run = RunFolder(folder)
    if (folder / "run.json").exists():
        raise UserError(f"the run folder {folder} already holds a run: name another with run_dir=")
    placement = place(settings.device, settings.precision)
    log.info(placement.reason)
    run.start(
        config,
        experiment=experiment,
        seed=settings.seed,
        device=placement.device,
        precision=placement.precision,
        reason=placement.reason,
    )
    try:
        outcome, baseline = _run(settings, experiment, run, placement)
    except KeyboardInterrupt:
        run.end("interrupted")
        raise
    except BaseException as error:
        run.end("failed", error=f"{type(error).__name__}: {error}")
        raise
    _report(settings, run, outcome, baseline)
    run.end("finished", best_step=outcome.state.best_step, steps=outcome.state.step)
    return monitored(outcome.best, settings.trainer)


def _run(settings: TrainSettings, experiment: str, run: RunFolder, placement: Any) -> tuple[Outcome, Scorecard]:
    objective = build_objective(settings)
    suite = Suite(build_benchmarks(settings))
    files = [*objective.files, *(path for b in suite.benchmarks for path in b.files)]
    run.update(data=fingerprints(files), sample=settings.data.sample)

    set_seed(settings.seed)
    # In a sweep one process makes several runs; accelerate keeps the first one's choices for ever.
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(
        mixed_precision="no" if placement.precision == "fp32" else placement.precision,
        cpu=placement.device == "cpu",
    )
    if accelerator.num_processes > 1:
        raise UserError("several processes are not supported: start with python -m train")
    encoder = build_encoder(settings.model, placement)
    log.info("objective %s: %s", settings.objective.name, objective.describe())

    baseline = suite.run(encoder)
    log.info(
        "untrained: %s %.4f (%d texts scored in %.1f s)",
        *(" + ".join(settings.trainer.monitor), monitored(baseline, settings.trainer)),
        *(baseline.num_texts, baseline.seconds),
    )
    card = model_card(settings.model.path, experiment, sample=settings.data.sample)
    outcome = train_loop(
        encoder,
        objective,
        suite,
        accelerator,
        run,
        settings.trainer,
        settings.eval,
        seed=settings.seed,
        baseline=baseline,
        card=card,
    )
    return outcome, baseline


def _report(settings: TrainSettings, run: RunFolder, outcome: Outcome, baseline: Scorecard) -> None:
    """`scores.json`, plots, the table, and in words whether training helped."""
    best, trainer = outcome.best, settings.trainer
    write_json(
        run.path / "scores.json",
        {
            "scores": best.scores,
            "baseline": baseline.scores,
            "meta": {
                "checkpoint": f"step_{outcome.state.best_step}",
                "model": settings.model.path,
                "seed": settings.seed,
                "monitor": trainer.monitor,
                "data": SAMPLE_NOTE if settings.data.sample else "public",
                "num_texts": best.num_texts,
                "seconds": round(best.seconds, 3),
                "encoder_seconds": round(best.encoder_seconds, 3),
            },
        },
    )
    if settings.eval.per_query:
        for name, records in best.per_query.items():
            write_jsonl(run.path / "per_query" / f"{name}.jsonl", records)
    learning_curve(
        run.metrics(),
        baseline.scores,
        [k for k in best.scores if k.endswith("/ndcg@10") and "/bm25" not in k],
        run.path.name,
        run.path / "plots" / "learning_curve.png",
    )
    title = f"untrained → best checkpoint (step {outcome.state.best_step})"
    print_comparison(
        baseline.scores, best.scores, f"{title} {SAMPLE_NOTE}" if settings.data.sample else title
    )
    before, after = monitored(baseline, trainer), monitored(best, trainer)
    verdict = "beats" if after > before else "does NOT beat"
    log.info("the best trained checkpoint %s the untrained model: %.4f, was %.4f", verdict, after, before)
