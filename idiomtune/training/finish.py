"""What a run scores and writes beside training: the untrained model first, the best one last."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn

from idiomtune.benchmarks import Benchmark
from idiomtune.benchmarks.suite import Scorecard, Suite
from idiomtune.config import TrainSettings
from idiomtune.data.locations import held_out_idioms
from idiomtune.data.usages import labelled_usages
from idiomtune.encoder.device import DeviceAndPrecision
from idiomtune.encoder.facts import describe_reading
from idiomtune.errors import UserError
from idiomtune.glossaries.build import build_encoder
from idiomtune.glossaries.encoder import GlossaryEncoder
from idiomtune.glossaries.records import glossary_note, learned_glossaries
from idiomtune.glossaries.usage_gate import exclude_scored_idioms
from idiomtune.hub.model_card import model_card
from idiomtune.io.files import write_json, write_jsonl, write_text
from idiomtune.io.processes import Processes
from idiomtune.plugins.score import score_card
from idiomtune.reports.runs import SAMPLE_NOTE, read_run
from idiomtune.training.checkpoint import TrainerState
from idiomtune.training.forgetting import Remedies
from idiomtune.training.loop import monitor_name, monitored_scores
from idiomtune.training.objective import module_benchmarks, saved_modules
from idiomtune.training.optimizer import num_warmup_steps
from idiomtune.training.prepare import Prepared
from idiomtune.training.run_folder import BASELINE, RunFolder

log = logging.getLogger(__name__)

Scores = dict[str, float]

_SCORED_ALIKE = 0.01  # how far scores of one model may be apart, by rounding and approximate search


@dataclass(frozen=True)
class RunContext:
    """The shared parts of a run of `idiomtune train`.

    Attributes:
        settings: checked.
        run: its folder, claimed and with a record.
        placement: device and precision.
        accelerator: the same, for training.
        processes: of the launch; all train, the main one writes.
    """

    settings: TrainSettings
    run: RunFolder
    placement: DeviceAndPrecision
    accelerator: Accelerator
    processes: Processes


def make_suite(context: RunContext, benchmarks: list[Benchmark], modules: nn.Module | None = None) -> Suite:
    """The benchmarks, and those of an objective's modules."""
    settings = context.settings
    if modules is not None:
        benchmarks = [*benchmarks, *module_benchmarks(settings.inputs, modules, benchmarks)]
    return Suite(benchmarks, context.processes, settings.truncated_dimensions)


def check_model(context: RunContext, prepared: Prepared, remedies: Remedies, *, resumed: bool) -> None:
    """Check and record the models that are loaded: gate, weights that remedies need.

    Raises:
        UserError: if a remedy needs the base model of a resumed run, and it has other weights than then.
    """
    encoder, objective, record = remedies.encoder, prepared.objective, context.run.record
    if remedies.base is not None:
        if resumed and record.get("base_weights", remedies.base) != remedies.base:
            raise UserError(
                "the base model (model.path) has other weights than at the start of the run, and "
                "forgetting.* depends on them: restore it (on the Hub, a revision names a commit), or start "
                "a new run without resume="
            )
        context.run.update(base_weights=remedies.base)
    if encoder.idiom_tokens is not None:
        for line in encoder.idiom_tokens.describe(objective.idiom_sentences):
            log.info(line)
    context.run.update(reading=describe_reading(encoder))
    if encoder.meanings is not None and not prepared.usages:
        encoder.meanings = replace(encoder.meanings, gate=None)  # of other weights than are trained here


# ------------------------------------------------------------------ the untrained model and the best one


def score_untrained(context: RunContext, suite: Suite) -> tuple[Scores, GlossaryEncoder | None]:
    """The scores of the untrained model, stored in `baseline.json` for resuming.

    It reads a glossary as its users would, by a gate (but for the sample, which fits none).

    Returns:
        The scores, and the model as it was loaded; None if its scores were known, or it reads a glossary.
    """
    settings, processes, trainer = context.settings, context.processes, context.settings.trainer
    path = context.run.path / BASELINE[0]
    if recorded := processes.broadcast(context.run.baseline):
        return recorded, None
    with context.accelerator.local_main_process_first():
        load_usages = None if settings.data.sample else partial(labelled_usages, inputs=settings.inputs)
        encoder = build_encoder(settings.model, context.placement, labelled=load_usages)
        if load_usages is not None:
            exclude_scored_idioms(encoder, load_usages, partial(held_out_idioms, settings.inputs))
    context.run.update(untrained_weights=sample_weights(encoder))
    scorecard = suite.run(encoder, keep=settings.eval.cache)
    scores = scorecard.scores
    # An untrained model has no scores of experts.
    score = monitored_scores(scores, trainer) if all(key in scores for key in trainer.monitor) else None
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

    processes.broadcast(write)
    encoder.truncated_spans.clear()  # so that training reports its own
    encoder.truncated.clear()
    return scores, encoder if encoder.meanings is None else None


def score_best(
    context: RunContext, benchmarks: list[Benchmark], before: Suite, state: TrainerState
) -> tuple[Scorecard, list[float]]:
    """Score the saved model, loaded as a user loads it.

    Args:
        before: has scored the last checkpoint, whose embeddings count if the saved model is the same.

    Returns:
        The scores, and a sample of the weights.

    Raises:
        UserError: if it does not score as it did when it was saved.
    """
    saved = context.run.path / "best"
    suite = make_suite(context, benchmarks, saved_modules(str(saved), context.placement))
    suite.reusable = before.last_embeddings
    encoder = build_encoder(context.settings.model, context.placement, saved)
    best = suite.run(encoder)
    rescored = monitored_scores(best.scores, context.settings.trainer) or 0.0
    recorded = state.best_score or 0.0
    if abs(rescored - recorded) > _SCORED_ALIKE:
        raise UserError(
            f"best/ was scored {recorded:.4f} when it was saved, and {rescored:.4f} when it was loaded: "
            "it is not the checkpoint that was the best, or scoring depends on more than the model (which is "
            f"complete: idiomtune evaluate model={saved})"
        )
    return best, sample_weights(encoder)


def sample_weights(model: nn.Module) -> list[float]:
    """Projections of a sample of a model's weights, to recognise changes later.

    Rows that are added at the end of a matrix (idiom tokens) do not change it.
    """
    sampled = [p.detach().flatten()[: 256 * 97 : 97].double().cpu() for p in model.parameters()]
    sample = torch.cat([torch.zeros(1, dtype=torch.double), *sampled])
    directions = torch.empty(8, len(sample), dtype=torch.double)
    return (directions.normal_(generator=torch.Generator().manual_seed(0)) @ sample).tolist()


def have_changed(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether weights have changed, by their samples."""
    return len(before) != len(after) or not np.allclose(before, after, rtol=1e-6, atol=0)


# ------------------------------------------------------------------ the report


def model_card_now(context: RunContext, has_tokens: bool, *, with_scores: bool = False) -> str:
    """The model card of the run's present state."""
    folder = context.run.path
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8")) if with_scores else None
    return model_card(folder, scores=scores, licence=context.settings.hub.license, idiom_tokens=has_tokens)


def _unchanged_notes(
    settings: TrainSettings, state: TrainerState, untrained: Scores, trained: Scores, *, is_same: bool
) -> list[str]:
    """A warning if training has changed nothing, with the likely option.

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
        symptom = "the weights of the best checkpoint are the untrained ones"
    elif (
        not compared or trainer.freeze_encoder or is_full or any(untrained[k] != trained[k] for k in compared)
    ):
        return []
    else:
        symptom = "every score is the untrained model's, in all digits"
    share = settings.forgetting.weight_interpolation
    causes = {
        "forgetting.weight_interpolation=0 saves the base model's weights": share == 0,
        "that was still in the warm-up: lower trainer.warmup_steps or trainer.warmup_ratio": (
            num_warmup_steps(trainer, state.step) >= (state.best_step or 0)
        ),
        f"trainer.clip_norm={trainer.clip_norm} is very small": (trainer.clip_norm or 1.0) < 1e-3,
        f"trainer.learning_rate={trainer.learning_rate:g} is very small": trainer.learning_rate < 1e-7,
        "raise trainer.learning_rate, train for more steps, or score on harder data": True,
    }
    return [f"{symptom}: {next(cause for cause, holds in causes.items() if holds)}"]


def report(
    context: RunContext,
    state: TrainerState,
    baseline: Scores,
    best: Scorecard,
    prepared: Prepared,
    *,
    has_changed: bool,
    has_tokens: bool,
) -> None:
    """Write the run's results: `scores.json`, per-query files, plots, the card.

    Args:
        state: the run's progress at its end.
        baseline: the scores of the untrained model.
        best: those of the best checkpoint.
        has_changed: whether its weights differ from the untrained ones.
        has_tokens: whether it has idiom tokens.
    """
    settings, run = context.settings, context.run
    warnings = _unchanged_notes(settings, state, baseline, best.scores, is_same=not has_changed)
    data_notes = [SAMPLE_NOTE] if settings.data.sample else []
    learned, glossary = learned_glossaries(settings.model), run.record.get("glossary")
    data_notes += glossary_note(glossary, learned)
    empty = [f"{n} of {state.step} steps learned nothing: {cause}" for cause, n in state.empty_steps.items()]
    warnings += empty
    meta = {
        "checkpoint": f"step_{state.best_step}",
        "model": settings.model.path,
        "seed": settings.seed,
        "monitor": settings.trainer.monitor,
        "data": "; ".join([", ".join(benchmark.name for benchmark in prepared.benchmarks), *data_notes]),
        "not_scored": run.record.get("not_scored", {}),
        "trained_on": run.record.get("trained_on"),
        "glossary": glossary,
        **({"glossary_learned": learned} if learned else {}),
        "notes": best.notes,
        "warnings": warnings,
        "files": run.record.get("data", {}),
        "num_texts": best.num_texts,
        "seconds": round(best.seconds, 3),
        "encoder_seconds": round(best.encoder_seconds, 3),
    }
    write_json(run.path / "scores.json", score_card(best.scores, baseline, meta))
    run.track(lambda tracker: tracker.summarise(best.scores, state.best_step or 0))
    if settings.eval.per_query:
        _write_per_query(run.path / "per_query", best)
    if settings.eval.predictions:
        for name, text in best.predictions.items():
            write_text(run.path / "predictions" / name, text)
    # With matplotlib and pandas, which no step should wait for.
    from idiomtune.reports.plots import draw_figures

    draw_figures(read_run(run.path, run.path.name))
    for note in best.notes:
        log.info("%s", note)
    for note in empty:
        log.warning("%s", note)
    write_text(run.path / "best" / "README.md", model_card_now(context, has_tokens, with_scores=True))
    run.seal("best", "config.yaml", "scores.json", "metrics.jsonl", "per_query")
    run.track(lambda tracker: tracker.keep_model(run.path / "best", best.scores))


def _write_per_query(folder: Path, scorecard: Scorecard) -> None:
    """Write each benchmark's records by query."""
    for name, records in scorecard.per_query.items():
        write_jsonl(folder / f"{name}.jsonl", records)
