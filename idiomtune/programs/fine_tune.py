"""One fine-tuning run: prepare, score untrained, train, score the best, report."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from idiomtune.benchmarks import Benchmark
from idiomtune.benchmarks.suite import Scorecard, Suite
from idiomtune.config import TrainSettings
from idiomtune.encoder.building import build_encoder, idiom_expressions
from idiomtune.encoder.device import log_placement, place, start_processes
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.glossary import named_glossary
from idiomtune.encoder.parity import compare_loaded
from idiomtune.errors import InvariantError, UserError
from idiomtune.factory import module_benchmarks, own_revisions, saved_modules
from idiomtune.hub.card import model_card
from idiomtune.hub.push import check_can_push, push_or_warn
from idiomtune.io.files import fingerprints, write_json, write_jsonl, write_text
from idiomtune.programs import knowledge
from idiomtune.programs.prepare import Prepared, prepare, what_takes_less
from idiomtune.reports.runs import SAMPLE_NOTE, read_run
from idiomtune.training.checkpoint import TrainerState, read_state
from idiomtune.training.ending import recorded_end, stopped_by_sigterm, system_errors_explained
from idiomtune.training.loop import monitor_name, monitored, train_loop
from idiomtune.training.regularization import Retention, build_retention
from idiomtune.training.resume import check_same_data, saved_record, start_or_resume
from idiomtune.training.run_folder import BASELINE, RunFolder
from idiomtune.training.step import OnScore, RunContext, Training, num_warmup_steps
from idiomtune.training.tracking import tracked

log = logging.getLogger(__name__)

_SCORED_ALIKE = 0.01  # how far scores of one model may be apart, by rounding and approximate search

Scores = dict[str, float]


def fine_tune(
    settings: TrainSettings,
    config: dict[str, Any],
    experiment: str,
    run: RunFolder,
    *,
    record_start: Callable[[Path], None] | None = None,
    on_score: OnScore | None = None,
) -> float:
    """Train, and leave a complete run folder.

    Args:
        settings: the checked configuration.
        config: the same as plain containers, for the record.
        experiment: its name, for the record.
        run: the run folder; with `settings.resume` it already holds the run to resume. With several
            processes, the main one's folder is used.
        record_start: writes how the run was started into its folder, once that is claimed.
        on_score: called with the monitored score of each evaluation except the last.

    Returns:
        The monitored score of the best checkpoint.

    Raises:
        UserError: for everything that the user can fix; `run.json` then says `failed`.
        KeyboardInterrupt: at SIGINT or SIGTERM; `run.json` then says `interrupted`.
        Pruned: if `on_score` does; `run.json` then says `pruned`.
    """
    before = saved_record(Path(settings.resume))["run"].get("precision") if settings.resume else None
    placement = place(settings.device, settings.precision, before)
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
            held.enter_context(
                run.claimed(resume=resume, overwrite=settings.overwrite, record_start=record_start)
            )
            log_placement(placement)
            glossary = named_glossary(settings.model) if settings.hub.push is not None else None
            check_can_push(settings.hub, config, None if glossary is None else glossary.describe())
            facts = {"device": placement.device, "precision": placement.precision, "reason": placement.reason}
            checkpoint = start_or_resume(settings, config, experiment, run, **facts)
            return run.path, checkpoint, dict(run.record)

        run.path, checkpoint, record = processes.from_main(start)
        step = read_state(checkpoint).step if checkpoint else 0
        with recorded_end(run), tracked(run, settings.tracking, config, record["experiment"], step):
            state = _run(context, record, checkpoint, on_score)
        run.end("finished", best_step=state.best_step, steps=state.step)
        if processes.is_main:  # the others need not wait
            # With pandas, for which no step should wait.
            from idiomtune.reports.screens import show_finished_run

            show_finished_run(run.path, all_scores=settings.scores == "all")
            if settings.hub.push is not None:
                push_or_warn(settings.hub, run.path)
    assert state.best_score is not None
    return state.best_score


def _run(
    context: RunContext, record: dict[str, Any], checkpoint: Path | None, on_score: OnScore | None
) -> TrainerState:
    """The run itself, while its record is open.

    Args:
        record: what `run.json` says so far.
        checkpoint: to resume from.
    """
    settings, run, processes = context.settings, context.run, context.processes

    # ---- prepare
    with context.accelerator.local_main_process_first():  # so that each file is downloaded once
        prepared = prepare(settings, run.path)
    objective, benchmarks = prepared.objective, prepared.benchmarks
    suite = _suite(context, benchmarks, objective.modules)
    expressions, expressions_files = idiom_expressions(settings.model, objective)
    files = [*objective.files, *expressions_files, *knowledge.glossary_files(settings.model)]
    data = fingerprints([*files, *(path for b in suite.benchmarks for path in b.files)])
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

    # ---- score untrained
    baseline, untrained = _score_untrained(context, _suite(context, benchmarks))
    if checkpoint is not None or expressions:
        untrained = None  # not what is trained, so its memory is freed

    # ---- train
    retention = build_retention(
        settings, context.placement, objective, checkpoint, expressions, processes, untrained=untrained
    )
    objective.modules.to(context.placement.device)
    _check_model(context, record, prepared, retention, resumed=checkpoint is not None)
    texts: dict[str, Iterable[str]] = {"training": [text for _, text in objective.idiom_sentences]}
    texts |= knowledge.benchmark_texts(suite.benchmarks)
    run.update(glossary=knowledge.describe_glossary(settings.model, retention.encoder, texts))
    has_tokens = retention.encoder.idiom_tokens is not None
    new_modules = _sample_weights(objective.modules)  # before they have the checkpoint's weights

    def push(checkpoint: Path) -> None:
        push_or_warn(settings.hub, checkpoint, checkpoint.name)  # to a branch of that name

    training = Training(
        context,
        retention,
        objective,
        suite,
        card=processes.from_main(lambda: _card(context, has_tokens)),
        checkpoint=checkpoint,
        usages=prepared.usages,
        on_saved=push if settings.hub.push == "every" else None,
        on_score=on_score,
    )
    state = train_loop(training)

    # ---- score the best and report
    best, trained = _score_best(context, benchmarks, suite)
    trained += _sample_weights(objective.modules)
    if settings.trainer.checks("scoring"):
        again = monitored(best.scores, settings.trainer) or 0.0
        kept = state.best_score or 0.0
        if abs(again - kept) > _SCORED_ALIKE:
            raise InvariantError(
                f"best/ was scored {kept:.4f} when it was saved, and {again:.4f} when it was loaded: it is "
                "not the checkpoint that was the best, or scoring depends on more than the model "
                "(trainer.invariants=[-scoring] ends the run all the same)"
            )

    def report() -> None:
        known = [*run.record.get("untrained_weights", ()), *new_modules]
        is_same = len(known) == len(trained) and np.allclose(known, trained, rtol=1e-6, atol=0)
        warnings = _not_learnt(settings, state, baseline, best.scores, is_same=is_same)
        _report(context, state, best, baseline, [benchmark.name for benchmark in benchmarks], warnings)
        write_text(run.path / "best" / "README.md", _card(context, has_tokens, with_scores=True))
        run.seal("best", "config.yaml", "scores.json", "metrics.jsonl", "per_query")
        run.track(lambda tracker: tracker.keep_model(run.path / "best", best.scores))

    processes.from_main(report)
    return state


def _suite(context: RunContext, benchmarks: list[Benchmark], modules: nn.Module | None = None) -> Suite:
    """The benchmarks, and those of an objective's modules."""
    settings = context.settings
    if modules is not None:
        benchmarks = [*benchmarks, *module_benchmarks(settings, modules, benchmarks)]
    return Suite(benchmarks, context.processes, settings.cut_dimensions)


def _check_model(
    context: RunContext, record: dict[str, Any], prepared: Prepared, retention: Retention, *, resumed: bool
) -> None:
    """Check and record the models that are loaded: gate, parity, weights that remedies need.

    Raises:
        UserError: if the base model or the teacher of a resumed run has other weights than at its start.
    """
    encoder, objective = retention.encoder, prepared.objective
    for name, digest in (("base_weights", retention.base), ("teacher_weights", retention.teacher)):
        if resumed and None not in (digest, record.get(name)) and digest != record[name]:
            raise UserError(
                f"the {name.partition('_')[0]} model (model.path, retain.teacher) has other weights than "
                "at the start of the run, and retain.* depends on them: restore it (on the Hub, a revision "
                "names a commit), or start a new run without resume="
            )
        context.run.update(**({name: digest} if digest is not None else {}))
    if encoder.idiom_tokens is not None:
        for line in encoder.idiom_tokens.describe(objective.idiom_sentences):
            log.info(line)
    if not resumed and context.settings.trainer.checks("parity"):
        context.run.update(parity=compare_loaded(encoder, context.settings.model))
    context.run.update(reading=encoder.describe_reading())
    if encoder.meanings is not None and not prepared.usages:
        encoder.meanings = replace(encoder.meanings, gate=None)  # of other weights than are trained here


def _card(context: RunContext, has_tokens: bool, *, with_scores: bool = False) -> str:
    folder = context.run.path
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8")) if with_scores else None
    return model_card(folder, scores=scores, licence=context.settings.hub.license, idiom_tokens=has_tokens)


# ------------------------------------------------------------------ the untrained model and the best one


def _score_untrained(context: RunContext, suite: Suite) -> tuple[Scores, Encoder | None]:
    """The scores of the untrained model, kept in `baseline.json` for when the run is resumed.

    Returns:
        The scores, and the model as it was loaded; None if its scores were known.
    """
    settings, processes, trainer = context.settings, context.processes, context.settings.trainer
    path = context.run.path / BASELINE[0]
    if known := processes.from_main(context.run.baseline):
        return known, None
    with context.accelerator.local_main_process_first():
        encoder = build_encoder(settings.model, context.placement)
    context.run.update(untrained_weights=_sample_weights(encoder))
    scorecard = suite.run(encoder, keep=settings.eval.cache)
    scores = scorecard.scores
    # An untrained model has no scores of experts.
    score = monitored(scores, trainer) if all(key in scores for key in trainer.monitor) else None
    log.info(
        "untrained: %s %s (%d texts scored in %.1f s)",
        monitor_name(trainer),
        "none" if score is None else f"{score:.4f}",
        scorecard.num_texts,
        scorecard.seconds,
    )

    def write() -> None:
        if settings.eval.per_query:  # first, since baseline.json marks this as done
            _write_per_query(context.run.path / "per_query_baseline", scorecard)
        write_json(path, scores)
        context.run.seal(*BASELINE)

    processes.from_main(write)
    encoder.cut_spans.clear()  # so that training tells of its own
    encoder.truncated.clear()
    return scores, encoder


def _score_best(
    context: RunContext, benchmarks: list[Benchmark], before: Suite
) -> tuple[Scorecard, list[float]]:
    """Score the saved model, loaded as a user loads it: what is reported is what was saved.

    Args:
        before: has scored the last checkpoint, whose embeddings count if the saved model is the same.

    Returns:
        The scores, and a sample of the weights.
    """
    saved = context.run.path / "best"
    suite = _suite(context, benchmarks, saved_modules(str(saved), context.placement))
    suite.known = before.remembered
    encoder = build_encoder(context.settings.model, context.placement, saved)
    return suite.run(encoder), _sample_weights(encoder)


def _sample_weights(model: nn.Module) -> list[float]:
    """Projections of a sample of a model's weights, by which they are recognised later.

    Rows that are added at the end of a matrix (idiom tokens) do not change it.
    """
    sampled = [p.detach().flatten()[: 256 * 97 : 97].double().cpu() for p in model.parameters()]
    sample = torch.cat([torch.zeros(1, dtype=torch.double), *sampled])
    directions = torch.empty(8, len(sample), dtype=torch.double)
    return (directions.normal_(generator=torch.Generator().manual_seed(0)) @ sample).tolist()


# ------------------------------------------------------------------ the report


def _not_learnt(
    settings: TrainSettings, state: TrainerState, untrained: Scores, trained: Scores, *, is_same: bool
) -> list[str]:
    """A warning if training has changed nothing, with the option that is likely why.

    Not if the untrained model already has the full monitored score: the run's verdict then says that this
    score cannot choose a checkpoint.

    Args:
        state: at the run's end.
        untrained, trained: scores of the models.
        is_same: whether the weights are the untrained ones.
    """
    trainer = settings.trainer
    compared = untrained.keys() & trained.keys()
    is_full = all(untrained.get(key, 0.0) >= 1 - 1e-9 for key in trainer.monitor)
    if is_same and not trainer.only_idiom_tokens:
        what = "the weights of the best checkpoint are the untrained ones"
    elif (
        not compared or trainer.freeze_encoder or is_full or any(untrained[k] != trained[k] for k in compared)
    ):
        return []
    else:
        what = "every score is the untrained model's, in all digits"
    causes = {
        "retain.interpolation=0 saves the base model's weights": not settings.retain.interpolation,
        "that was still in the warm-up: lower trainer.warmup_steps or trainer.warmup_ratio": (
            num_warmup_steps(trainer, state.step) >= (state.best_step or 0)
        ),
        f"trainer.clip_norm={trainer.clip_norm} is very small": (trainer.clip_norm or 1.0) < 1e-3,
        f"trainer.learning_rate={trainer.learning_rate:g} is very small": trainer.learning_rate < 1e-7,
        "raise trainer.learning_rate, train for more steps, or score on harder data": True,
    }
    return [f"{what}: {next(cause for cause, holds in causes.items() if holds)}"]


def _report(
    context: RunContext,
    state: TrainerState,
    best: Scorecard,
    baseline: Scores,
    suite_names: Sequence[str],
    warnings: Sequence[str],
) -> None:
    """Write the run's results: `scores.json`, per-query files, plots, the page.

    Args:
        state: the run's progress at its end.
        best: the scores of the best checkpoint.
        baseline: those of the untrained model.
        suite_names: the benchmarks that both are scored on.
        warnings: that readers need before they use the model.
    """
    settings, run = context.settings, context.run
    data_notes = [SAMPLE_NOTE] if settings.data.sample else []
    learnt, glossary = knowledge.learnt_glossaries(settings.model), run.record.get("glossary")
    data_notes += knowledge.glossary_note(glossary, learnt)
    empty = [f"{n} of {state.step} steps learnt nothing: {why}" for why, n in state.empty_steps.items()]
    notes = [*best.notes, *empty]
    meta = {
        "checkpoint": f"step_{state.best_step}",
        "model": settings.model.path,
        "seed": settings.seed,
        "monitor": settings.trainer.monitor,
        "data": "; ".join([", ".join(suite_names), *data_notes]),
        "not_scored": run.record.get("not_scored", {}),
        "trained_on": run.record.get("trained_on"),
        "glossary": glossary,
        **({"glossary_learnt": learnt} if learnt else {}),
        "notes": notes,
        "warnings": list(warnings),
        "files": run.record.get("data", {}),
        "num_texts": best.num_texts,
        "seconds": round(best.seconds, 3),
        "encoder_seconds": round(best.encoder_seconds, 3),
    }
    write_json(run.path / "scores.json", {"scores": best.scores, "baseline": baseline, "meta": meta})
    run.track(lambda tracker: tracker.summarise(best.scores, state.best_step or 0))
    if settings.eval.per_query:
        _write_per_query(run.path / "per_query", best)
    if settings.eval.predictions:
        for name, text in best.predictions.items():
            write_text(run.path / "predictions" / name, text)
    # With matplotlib and pandas, which no step should wait for.
    from idiomtune.reports.plots import draw_figures, violins

    for name, distributions in best.plots.items():
        violins(distributions, run.path / "plots" / f"{name}.png")
    draw_figures(read_run(run.path, run.path.name))
    for note in notes:
        log.info("%s", note)


def _write_per_query(folder: Path, scorecard: Scorecard) -> None:
    """Write each benchmark's records by query, and next to them the positions of its texts on a map."""
    for name, records in scorecard.per_query.items():
        write_jsonl(folder / f"{name}.jsonl", records)
    for name, records in scorecard.maps.items():
        if records:
            write_jsonl(folder / f"{name}.map.jsonl", records)
