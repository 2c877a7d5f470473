"""`idiomtune train`: a run, from checked settings to a folder with the best model and its scores."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from idiomtune.benchmarks import texts_of
from idiomtune.config import TrainSettings
from idiomtune.encoder.device import choose_device, log_placement, start_processes
from idiomtune.glossaries.build import idiom_expressions
from idiomtune.glossaries.records import describe_glossary, glossary_files
from idiomtune.glossaries.tables import named_glossary
from idiomtune.hub.push import check_can_push, push_or_warn
from idiomtune.io.files import fingerprints
from idiomtune.training.checkpoint import read_state
from idiomtune.training.finish import (
    RunContext,
    check_model,
    have_changed,
    make_suite,
    model_card_now,
    report,
    sample_weights,
    score_best,
    score_untrained,
)
from idiomtune.training.forgetting import build_trained_model
from idiomtune.training.interrupts import explaining_system_errors, recording_end, stopping_at_sigterm
from idiomtune.training.loop import train_loop
from idiomtune.training.objective import user_revisions
from idiomtune.training.prepare import memory_advice, prepare
from idiomtune.training.resume import check_same_data, saved_record, start_or_resume
from idiomtune.training.run_folder import RunFolder
from idiomtune.training.step import Trainer
from idiomtune.training.sweeper import score_reporter
from idiomtune.training.tracking import start_tracking

log = logging.getLogger(__name__)


def train(settings: TrainSettings, run: RunFolder) -> float:
    """Train, and leave a complete run folder.

    Args:
        settings: with `settings.resume`, the folder already holds the run to resume.
        run: its folder. With several processes, the main one's is used.

    Returns:
        The monitored score of the best checkpoint.

    Raises:
        UserError: for everything that the user can fix; `run.json` then says `failed`.
        KeyboardInterrupt: at SIGINT or SIGTERM; `run.json` then says `interrupted`.
        Pruned: if a search gives the run up; `run.json` then says `pruned`.
    """
    precision = saved_record(Path(settings.resume))["run"].get("precision") if settings.resume else None
    placement = choose_device(settings.device, settings.precision, precision)
    accelerator, processes = start_processes(placement)
    context = RunContext(settings, run, placement, accelerator, processes)
    with _opened_run(context) as checkpoint:
        step = read_state(checkpoint).step if checkpoint else 0
        with recording_end(run), start_tracking(run, settings, run.record["experiment"], step):
            # ---- all data: objective, benchmarks
            with accelerator.local_main_process_first():  # so that each file is downloaded once
                prepared = prepare(settings, run.path)
            objective, benchmarks = prepared.objective, prepared.benchmarks
            suite = make_suite(context, benchmarks, objective.head)
            expressions, token_files = idiom_expressions(settings.model, objective)
            files = [*objective.files, *token_files, *glossary_files(settings.model)]
            data = fingerprints([*files, *(path for b in suite.benchmarks for path in b.files)])
            data |= user_revisions(settings.inputs)
            if checkpoint is not None:
                check_same_data(run.record.get("data", {}), data)
            facts = {"sample": settings.data.sample, "not_scored": prepared.not_scored}
            run.update(data=data, trained_on=objective.describe(), **facts)
            log.info("objective %s: %s", settings.objective.name, objective.describe())
            if processes.count > 1:
                log.info(
                    "%d processes share each step's texts; the batch is the same as in one", processes.count
                )

            # ---- the untrained model's scores
            # Without the objective's modules, which have no scores yet.
            baseline, untrained = score_untrained(context, make_suite(context, benchmarks))
            if checkpoint is not None or expressions:
                untrained = None  # not what is trained, so its memory is freed

            # ---- the training: data is drawn by seed and epoch, dropout by seed and step
            remedies = build_trained_model(
                settings, placement, objective, checkpoint, expressions, processes, untrained=untrained
            )
            encoder = remedies.encoder
            objective.head.to(placement.device)
            check_model(context, prepared, remedies, resumed=checkpoint is not None)
            texts: dict[str, Iterable[str]] = {"training": [text for _, text in objective.idiom_sentences]}
            texts |= texts_of(suite.benchmarks)
            run.update(glossary=describe_glossary(settings.model, encoder, texts))
            new_modules = sample_weights(objective.head)  # before they have the checkpoint's weights
            has_tokens = encoder.idiom_tokens is not None

            def push(saved: Path) -> None:
                push_or_warn(settings.hub, saved, saved.name)  # to a branch of that name

            trainer = Trainer(
                run,
                accelerator,
                processes,
                settings.trainer,
                remedies,
                objective,
                suite,
                settings.seed,
                score_every=settings.eval.every,
                scored=settings.checkpoint_benchmarks,
                dropout=not settings.trainer.freeze_encoder,
                card=processes.broadcast(lambda: model_card_now(context, has_tokens)),
                checkpoint=checkpoint,
                usages=prepared.usages,
                on_saved=push if settings.hub.push == "every" else None,
                on_score=score_reporter(),
            )
            state = train_loop(trainer)

            # ---- the best model's: what is scored is what was saved
            best, weights = score_best(context, benchmarks, suite, state)
            weights += sample_weights(objective.head)
            has_changed = have_changed([*run.record.get("untrained_weights", ()), *new_modules], weights)
            processes.broadcast(
                lambda: report(
                    context, state, baseline, best, prepared, has_changed=has_changed, has_tokens=has_tokens
                )
            )
        run.end("finished", best_step=state.best_step, steps=state.step)
        if processes.is_main:  # the others need not wait
            # Imports pandas: no step waits for it.
            from idiomtune.reports.screens import show_finished_run

            show_finished_run(run.path, all_scores=settings.scores == "all")
            if settings.hub.push is not None:
                push_or_warn(settings.hub, run.path)
    assert state.best_score is not None
    return state.best_score


@contextlib.contextmanager
def _opened_run(context: RunContext) -> Iterator[Path | None]:
    """The run's folder, reserved, with a record of this start; yields the checkpoint to resume from."""
    settings, run, processes = context.settings, context.run, context.processes
    run.writes = processes.is_main
    takes_less = memory_advice(settings, context.placement)
    with (
        explaining_system_errors(run, processes, takes_less),
        stopping_at_sigterm(),
        contextlib.ExitStack() as held,
    ):

        def start() -> tuple[Path, Path | None, dict[str, Any]]:
            resume, overwrite = settings.resume is not None, settings.overwrite
            claim = run.reserve(resume=resume, overwrite=overwrite)
            held.enter_context(claim)
            log_placement(context.placement)
            if run.experiment == "default" and not resume:
                log.info("no +experiment= given: training with the defaults of conf/train.yaml")
            glossary = named_glossary(settings.model) if settings.hub.push is not None else None
            check_can_push(settings, None if glossary is None else glossary.describe())
            placed = {name: getattr(context.placement, name) for name in ("device", "precision", "reason")}
            checkpoint = start_or_resume(run, settings.record, run.experiment, resume=resume, **placed)
            return run.path, checkpoint, dict(run.record)

        run.path, checkpoint, run.record = processes.broadcast(start)
        yield checkpoint
