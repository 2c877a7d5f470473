"""One fine-tuning run: build, score untrained, train, score the best, report."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from train.benchmarks import Benchmark
from train.config import TrainSettings
from train.distributed.device import log_placement, place, start_processes
from train.encoder.checks import check_special_token
from train.evaluation.suite import Scorecard, Suite
from train.factory import (
    build_encoder,
    build_retention,
    idiom_expressions,
    module_benchmarks,
    named_glossary,
    own_revisions,
    saved_modules,
)
from train.hub.card import model_card
from train.hub.push import check_can_push, push_or_warn
from train.io.files import fingerprints, write_text
from train.objectives import Objective, UsesSpecialTokens
from train.recipes.knowledge import benchmark_texts, describe_glossary, glossary_files
from train.recipes.learning import not_learnt, sample_weights
from train.recipes.memory import check_memory
from train.recipes.prepare import prepare
from train.recipes.run_report import report_run
from train.recipes.untrained import score_untrained
from train.runs.folder import RunFolder
from train.runs.resume import check_same_data, check_same_weights
from train.runs.tracking import tracked
from train.training.checkpoint import TrainerState, read_state
from train.training.loop import train_loop
from train.training.memory import what_takes_less
from train.training.regularization import Retention
from train.training.run_end import recorded_end, system_errors_explained
from train.training.run_start import start_or_resume
from train.training.setup import OnScores, RunContext, Training
from train.training.signals import stopped_by_sigterm

log = logging.getLogger(__name__)


def fine_tune(
    settings: TrainSettings,
    config: dict[str, Any],
    experiment: str,
    run: RunFolder,
    *,
    record_start: Callable[[Path], None] | None = None,
    on_scores: OnScores | None = None,
) -> float:
    """Train, and leave a complete run folder.

    Args:
        settings: the checked configuration.
        config: the same as plain containers, for the record.
        experiment: its name, for the record.
        run: the run folder; with `settings.resume` it already holds the run to resume. With several
            processes, the main one's folder is used.
        record_start: writes how the run was started into its folder, once that is claimed.
        on_scores: called with the scores of each evaluation except the last.

    Returns:
        The monitored score of the best checkpoint.

    Raises:
        UserError: for everything that the user can fix; `run.json` then says `failed`.
        KeyboardInterrupt: at SIGINT or SIGTERM; `run.json` then says `interrupted`.
        Pruned: if `on_scores` does; `run.json` then says `pruned`.
    """
    placement = place(settings.device, settings.precision)
    accelerator, processes = start_processes(placement)
    run.writes = processes.is_main
    context = RunContext(settings, run, placement, accelerator, processes)
    takes_less = what_takes_less(settings, placement)
    with (
        system_errors_explained(run, processes, takes_less),
        stopped_by_sigterm(),
        contextlib.ExitStack() as held,
    ):

        def start() -> tuple[Path, Path | None, dict[str, Any]]:
            resume = settings.resume is not None
            held.enter_context(run.claimed(resume=resume, record_start=record_start))
            log_placement(placement)
            glossary = named_glossary(settings.model) if settings.hub.push is not None else None
            check_can_push(settings.hub, config, None if glossary is None else glossary.describe())
            checkpoint = start_or_resume(settings, config, experiment, run, placement)
            return run.path, checkpoint, dict(run.record)

        run.path, checkpoint, record = processes.from_main(start)
        step = read_state(checkpoint).step if checkpoint else 0
        with recorded_end(run), tracked(run, settings.tracking, config, experiment, step):
            state = _run(context, record, checkpoint, on_scores)
        run.end("finished", best_step=state.best_step, steps=state.step)
        if processes.is_main:  # the others need not wait
            from train.reports.screens import show_finished_run  # with pandas, for which no step should wait

            show_finished_run(run.path, all_scores=settings.scores == "all")
            if settings.hub.push is not None:
                push_or_warn(settings.hub, run.path)
    assert state.best_score is not None
    return state.best_score


def _run(
    context: RunContext, record: dict[str, Any], checkpoint: Path | None, on_scores: OnScores | None
) -> TrainerState:
    """The run itself, while its record is open.

    Args:
        record: what `run.json` says so far.
        checkpoint: to resume from.
    """
    settings, run, processes = context.settings, context.run, context.processes
    with context.accelerator.local_main_process_first():  # so that each file is downloaded once
        prepared = prepare(settings)
    objective, benchmarks = prepared.objective, prepared.benchmarks
    suite = Suite(
        [*benchmarks, *module_benchmarks(settings, objective.modules, benchmarks)],
        processes,
        settings.cut_dimensions,
    )
    expressions, named_in = idiom_expressions(settings.model, objective)
    named_in += glossary_files(settings.model)
    data = fingerprints([*objective.files, *named_in, *(path for b in suite.benchmarks for path in b.files)])
    data |= own_revisions(settings)
    if checkpoint is not None:
        check_same_data(record.get("data", {}), data)
    run.update(
        data=data,
        sample=settings.data.sample,
        not_scored=prepared.not_scored,
        trained_on=objective.describe(),
    )
    log.info("objective %s: %s", settings.objective.name, objective.describe())
    if processes.count > 1:
        log.info("%d processes share each step's texts; the batch is the same as in one", processes.count)

    processes.from_main(lambda: check_memory(settings, objective, context.placement))
    baseline, untrained = score_untrained(context, Suite(benchmarks, processes, settings.cut_dimensions))
    if checkpoint is not None or expressions:
        untrained = None  # not what is trained, so its memory is freed
    retention = build_retention(
        settings, context.placement, objective, checkpoint, expressions, processes, untrained=untrained
    )
    objective.modules.to(context.placement.device)
    _check_base(run, record, retention, resumed=checkpoint is not None)
    _check_tokens(objective, retention)
    if (meanings := retention.encoder.meanings) is not None and not prepared.usages:
        retention.encoder.meanings = replace(meanings, gate=None)  # of other weights than are trained here
    texts = {"training": [text for _, text in objective.idiom_sentences], **benchmark_texts(suite.benchmarks)}
    run.update(glossary=describe_glossary(settings.model, retention.encoder, texts))
    has_tokens = retention.encoder.idiom_tokens is not None
    new_modules = sample_weights(objective.modules)  # before they have the checkpoint's weights
    training = Training(
        context,
        retention,
        objective,
        suite,
        card=processes.from_main(lambda: _card(context, has_tokens)),
        checkpoint=checkpoint,
        usages=prepared.usages,
        on_saved=_push_each(settings) if settings.hub.push == "every" else None,
        on_scores=on_scores,
    )
    state = train_loop(training)
    best, trained = _score_best(context, benchmarks)
    trained += sample_weights(objective.modules)

    def report() -> None:
        known = [*run.record.get("untrained_weights", ()), *new_modules]  # none of an old run
        is_same = len(known) == len(trained) and np.allclose(known, trained, rtol=1e-6, atol=0)
        report_run(
            context,
            state,
            best=best,
            baseline=baseline,
            suite_names=[benchmark.name for benchmark in benchmarks],
            warnings=not_learnt(settings, state, is_same=is_same, untrained=baseline, trained=best.scores),
        )
        write_text(run.path / "best" / "README.md", _card(context, has_tokens, with_scores=True))
        for tracker in run.trackers:
            tracker.keep_model(run.path / "best", best.scores)

    processes.from_main(report)
    return state


def _check_base(run: RunFolder, record: dict[str, Any], retention: Retention, *, resumed: bool) -> None:
    """Record the weights of the models that remedies need; in a resumed run they must be the same."""
    needed = [
        ("base_weights", retention.base, "the base model (model.path)"),
        ("teacher_weights", retention.teacher, "the teacher (retain.teacher)"),
    ]
    for name, digest, model in needed:
        if digest is not None:
            if resumed:
                check_same_weights(record.get(name), digest, model)
            run.update(**{name: digest})


def _check_tokens(objective: Objective, retention: Retention) -> None:
    """Check the special tokens that the objective puts into texts, and log the idiom tokens."""
    encoder = retention.encoder
    if encoder.idiom_tokens is not None:
        for line in encoder.idiom_tokens.describe(objective.idiom_sentences):
            log.info(line)
    if isinstance(objective, UsesSpecialTokens):
        for option, text in objective.special_tokens.items():
            check_special_token(encoder.model.tokenizer, text, option)


def _score_best(context: RunContext, benchmarks: list[Benchmark]) -> tuple[Scorecard, list[float]]:
    """Score the saved model, loaded as a user loads it: what is reported is what was saved.

    Returns:
        The scores, and a sample of the weights.
    """
    settings, saved = context.settings, context.run.path / "best"
    modules = saved_modules(str(saved), context.placement)
    scored = [*benchmarks, *module_benchmarks(settings, modules, benchmarks)]
    suite = Suite(scored, context.processes, settings.cut_dimensions)
    encoder = build_encoder(settings.model, context.placement, saved)
    return suite.run(encoder), sample_weights(encoder)


def _card(context: RunContext, has_tokens: bool, *, with_scores: bool = False) -> str:
    folder = context.run.path
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8")) if with_scores else None
    return model_card(folder, scores=scores, licence=context.settings.hub.license, idiom_tokens=has_tokens)


def _push_each(settings: TrainSettings) -> Callable[[Path], None]:
    """Push each checkpoint to a branch with its name."""
    return lambda saved: push_or_warn(settings.hub, saved, saved.name)
