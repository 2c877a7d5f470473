"""The scorecard of a model, without training."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from train.benchmarks import Benchmark
from train.config import EvaluateSettings
from train.distributed.device import Placement, log_placement, place, start_processes
from train.errors import UserError
from train.evaluation.suite import Scorecard, Suite
from train.factory import (
    build_benchmarks,
    build_encoder,
    check_dimensions,
    idiom_expressions,
    module_benchmarks,
    own_revisions,
    resolve_model_path,
    saved_modules,
)
from train.hub.licences import base_model
from train.io.claims import claimed
from train.io.files import fingerprints, write_json, write_jsonl, write_text
from train.io.paths import expanded
from train.recipes.knowledge import (
    benchmark_texts,
    check_has_gate,
    describe_glossary,
    glossary_files,
    glossary_note,
    learnt_glossaries,
)
from train.recipes.texts import check_pooling
from train.reports.runs import SAMPLE_NOTE
from train.runs.folder import code_version, package_versions

log = logging.getLogger(__name__)

# Option → record, see `claimed`: two files, and two folders that are never replaced.
_OUTPUTS = {"output": None, "per_query": None, "predictions": "", "plots": ""}


def score_model(settings: EvaluateSettings, config: dict[str, Any]) -> dict[str, float]:
    """Score the model; print the table, and write the files that the settings name.

    Returns:
        The scores.

    Raises:
        UserError: for everything that the user can fix.
    """
    glossary_files(settings.model)  # a slip there is told before anything is downloaded
    placement = place(settings.device, settings.precision)
    log_placement(placement)
    accelerator, processes = start_processes(placement)
    with contextlib.ExitStack() as held:
        settings = settings.model_copy(update=processes.from_main(lambda: _claim(settings, held)))
        with accelerator.local_main_process_first():  # so that each file is downloaded once
            benchmarks, not_scored = build_benchmarks(settings, settings.benchmarks)
        if settings.predictions is None:
            _check_something_is_scored(settings, benchmarks)
        with accelerator.local_main_process_first():
            path = resolve_model_path(settings.model.path)
            modules = saved_modules(path, placement, settings.model.revision)
        check_pooling(settings.model)
        check_dimensions(settings.model, settings.cut_dimensions)
        benchmarks += module_benchmarks(settings, modules, benchmarks)
        suite = Suite(benchmarks, processes, settings.cut_dimensions, keep_stores=True)
        expressions, naming = idiom_expressions(settings.model)
        with accelerator.local_main_process_first():
            encoder = build_encoder(settings.model, placement, expressions=expressions)
        check_has_gate(settings.model, encoder)
        glossary = describe_glossary(settings.model, encoder, benchmark_texts(suite.benchmarks))
        dtype = placement.autocast_dtype
        autocast = torch.autocast(placement.device, dtype) if dtype else contextlib.nullcontext()
        with autocast:
            card = suite.run(encoder)
        log.info(
            "%d texts in %.1f s, of which the model took %.0f%%",
            card.num_texts,
            card.seconds,
            100 * card.encoder_seconds / card.seconds,
        )
        naming += glossary_files(settings.model)
        files = [*naming, *(path for benchmark in suite.benchmarks for path in benchmark.files)]
        if processes.is_main:
            _show(settings, card, glossary)
            names = [benchmark.name for benchmark in benchmarks]
            _write(settings, config, card, placement, not_scored, names, files, glossary)
        return card.scores


def _claim(settings: EvaluateSettings, held: contextlib.ExitStack) -> dict[str, str]:
    """Option → the file or folder to write for it, which `held` then puts in its place."""
    claims = {
        option: claimed(option, expanded(path, option), record=record, overwrite=settings.overwrite)
        for option, record in _OUTPUTS.items()
        if (path := getattr(settings, option)) is not None
    }
    return {option: str(held.enter_context(claim)) for option, claim in claims.items()}


def _show(settings: EvaluateSettings, card: Scorecard, glossary: dict[str, Any] | None) -> None:
    notes = [SAMPLE_NOTE] * settings.data.sample
    notes += glossary_note(glossary, learnt_glossaries(settings.model))
    if card.scores:
        name = base_model({"model": settings.model.model_dump()}).name
        from train.reports.screens import show_scores  # with pandas, which takes half a second

        show_scores(card.scores, name, notes, all_scores=settings.scores == "all")
    for note in card.notes:
        log.info("%s", note)


def _write(
    settings: EvaluateSettings,
    config: dict[str, Any],
    card: Scorecard,
    placement: Placement,
    not_scored: Mapping[str, str],
    names: Sequence[str],
    files: Sequence[Path],
    glossary: dict[str, Any] | None,
) -> None:
    if settings.output is not None:
        learnt = learnt_glossaries(settings.model)
        scored = SAMPLE_NOTE if settings.data.sample else ", ".join(names)
        meta = {
            "model": settings.model.path,
            "data": "; ".join([scored, *glossary_note(glossary, learnt)]),
            "glossary": glossary,
            **({"glossary_learnt": learnt} if learnt else {}),
            "not_scored": not_scored,
            "notes": card.notes,
            "files": fingerprints(files) | own_revisions(settings),
            "device": placement.device,
            "precision": placement.precision,
            "code": code_version(),
            "packages": package_versions(),
            "num_texts": card.num_texts,
            "seconds": round(card.seconds, 3),
            "encoder_seconds": round(card.encoder_seconds, 3),
            "config": config,
        }
        write_json(Path(settings.output), {"scores": card.scores, "baseline": {}, "meta": meta})
    if settings.per_query is not None:
        rows = [{"benchmark": n, **row} for n, rows in card.per_query.items() for row in rows]
        write_jsonl(Path(settings.per_query), rows)
    if settings.predictions is not None:
        for name, text in card.predictions.items():
            write_text(Path(settings.predictions) / name, text)
    if settings.plots is not None:
        from train.reports.plots import violins  # matplotlib takes a second to start

        for name, distributions in card.plots.items():
            violins(distributions, Path(settings.plots) / f"{name}.png")


def _check_something_is_scored(settings: EvaluateSettings, benchmarks: Sequence[Benchmark]) -> None:
    if all(b.without_gold and set(settings.splits(b.name)) <= set(b.without_gold) for b in benchmarks):
        named = "; ".join(f"{b.name} has no gold on {', '.join(b.without_gold)}" for b in benchmarks)
        raise UserError(
            f"there are no scores: {named}. Give predictions=<folder> to write predictions in the task's "
            "submission format, or another split="
        )
