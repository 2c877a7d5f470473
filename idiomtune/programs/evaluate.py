"""`idiomtune evaluate`: the scorecard of a model, without training."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from idiomtune.benchmarks import build_benchmarks, texts_of
from idiomtune.benchmarks.suite import Scorecard, Suite, check_width
from idiomtune.config import EvaluateSettings
from idiomtune.data.locations import held_out_idioms
from idiomtune.data.usages import labelled_usages
from idiomtune.encoder.device import choose_device, log_placement, start_processes
from idiomtune.errors import UserError
from idiomtune.glossaries.build import build_encoder, empty_encoder, idiom_expressions
from idiomtune.glossaries.records import (
    describe_glossary,
    glossary_files,
    glossary_note,
    learned_glossaries,
)
from idiomtune.glossaries.usage_gate import exclude_scored_idioms
from idiomtune.hub.model_card import base_model
from idiomtune.io.files import (
    code_version,
    fingerprints,
    package_versions,
    user_path,
    write_json,
    write_jsonl,
    write_text,
)
from idiomtune.io.outputs import reserved_output
from idiomtune.plugins.score import score_card
from idiomtune.reports.runs import SAMPLE_NOTE
from idiomtune.training.objective import module_benchmarks, saved_modules, user_revisions
from idiomtune.training.prepare import check_pooling

log = logging.getLogger(__name__)


def evaluate(settings: EvaluateSettings) -> dict[str, float]:
    """Score the model; print the table, and write the files that the settings name.

    Returns:
        The scores.

    Raises:
        UserError: for everything that the user can fix.
    """
    inputs = settings.inputs
    glossary_paths = glossary_files(settings.model)  # a typo is reported before anything is downloaded
    placement = choose_device(settings.device, settings.precision)
    log_placement(placement)
    accelerator, processes = start_processes(placement)
    with contextlib.ExitStack() as held:
        outputs = processes.broadcast(lambda: _claim(settings, held))
        with accelerator.local_main_process_first():  # so that each file is downloaded once
            benchmarks, not_scored = build_benchmarks(settings.benchmark, inputs, settings.benchmarks)
        named = ((b.name, ", ".join(settings.splits(b.name))) for b in benchmarks)
        log.info("scored on %s", "; ".join(f"{name} ({on})" if on else name for name, on in named))
        if "predictions" not in outputs and all(
            b.without_gold and set(settings.splits(b.name)) <= set(b.without_gold) for b in benchmarks
        ):
            gold = "; ".join(f"{b.name} has no gold on {', '.join(b.without_gold)}" for b in benchmarks)
            raise UserError(
                f"there are no scores: {gold}. Give predictions=<folder> to write predictions in the task's "
                "submission format, or another split="
            )
        with accelerator.local_main_process_first():
            modules = saved_modules(settings.model.path, placement, settings.model.revision)
        check_pooling(settings.model)
        if settings.truncated_dimensions:
            check_width(settings.truncated_dimensions, empty_encoder(settings.model).dimension)
        benchmarks += module_benchmarks(inputs, modules, benchmarks)
        suite = Suite(benchmarks, processes, settings.truncated_dimensions)
        expressions, token_files = idiom_expressions(settings.model)
        with accelerator.local_main_process_first():
            load_usages = partial(labelled_usages, inputs=inputs)
            encoder = build_encoder(settings.model, placement, expressions=expressions, labelled=load_usages)
            exclude_scored_idioms(encoder, load_usages, partial(held_out_idioms, inputs))
        glossary = describe_glossary(settings.model, encoder, texts_of(suite.benchmarks))
        with placement.autocast():
            card = suite.run(encoder, keep=settings.cache)
        share = 100 * card.encoder_seconds / card.seconds
        log.info("%d texts in %.1f s, of which the model took %.0f%%", card.num_texts, card.seconds, share)
        if processes.is_main:
            files = [
                *token_files,
                *glossary_paths,
                *(path for benchmark in benchmarks for path in benchmark.files),
            ]
            facts = {
                "glossary": glossary,
                "scored": [benchmark.name for benchmark in benchmarks],
                "not_scored": not_scored,
                "files": fingerprints(files) | user_revisions(inputs) if "output" in outputs else {},
                "device": placement.device,
                "precision": placement.precision,
                "config": settings.record,
            }
            _report(settings, card, outputs, facts)
        return card.scores


def _claim(settings: EvaluateSettings, held: contextlib.ExitStack) -> dict[str, Path]:
    """Output → the file or folder to write, which `held` moves to its path at the end."""
    outputs = {}
    for name in ("output", "per_query", "predictions"):
        if (output := getattr(settings, name)) is not None:
            path, record = user_path(output, name), "" if name == "predictions" else None  # a folder
            claim = reserved_output(name, path, record=record, overwrite=settings.overwrite)
            outputs[name] = held.enter_context(claim)
    return outputs


def _report(
    settings: EvaluateSettings, card: Scorecard, outputs: Mapping[str, Path], facts: dict[str, Any]
) -> None:
    """Print the table, and write the requested files."""
    learned = learned_glossaries(settings.model)
    notes = glossary_note(facts["glossary"], learned)
    name = base_model({"model": settings.model.model_dump()}).name
    if card.scores:
        from idiomtune.reports.screens import show_scores  # pandas takes half a second to import

        sample = [SAMPLE_NOTE] * settings.data.sample
        show_scores(card.scores, name, [*sample, *notes], all_scores=settings.scores == "all")
    for note in card.notes:
        log.info("%s", note)
    if "output" in outputs:
        names = facts.pop("scored")
        scored = SAMPLE_NOTE if settings.data.sample else ", ".join(names)
        meta = {
            "model": name if settings.model.path.startswith("package:") else settings.model.path,
            "data": "; ".join([scored, *notes]),
            **({"glossary_learned": learned} if learned else {}),
            **facts,
            "notes": card.notes,
            "code": code_version(),
            "packages": package_versions(),
            "num_texts": card.num_texts,
            "seconds": round(card.seconds, 3),
            "encoder_seconds": round(card.encoder_seconds, 3),
        }
        write_json(outputs["output"], score_card(card.scores, {}, meta))
    if "per_query" in outputs:
        rows = [{"benchmark": name, **row} for name, rows in card.per_query.items() for row in rows]
        write_jsonl(outputs["per_query"], rows)
    for name, text in card.predictions.items() if "predictions" in outputs else ():
        write_text(outputs["predictions"] / name, text)
