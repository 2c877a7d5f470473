"""What a run checks before it starts: its data, its options together, its texts."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from idiomtune.benchmarks import Benchmark, build_benchmarks
from idiomtune.benchmarks.suite import check_width
from idiomtune.config import ModelSettings, TrainerSettings, TrainSettings
from idiomtune.data.usages import labelled_usages
from idiomtune.encoder.device import DeviceAndPrecision
from idiomtune.encoder.reading import Rendered, is_truncated
from idiomtune.errors import UserError
from idiomtune.glossaries.build import check_model_options, empty_encoder, saved_pooling
from idiomtune.glossaries.records import glossary_files
from idiomtune.glossaries.tables import GLOSSARIES, read_glossary
from idiomtune.objectives import Batch, Objective
from idiomtune.objectives.mixture import in_section
from idiomtune.plugins.models import model_names, model_values
from idiomtune.requests import LabelledUse
from idiomtune.training.forgetting import check_remedies
from idiomtune.training.loop import check_monitor
from idiomtune.training.negatives import mines_negatives
from idiomtune.training.objective import build_objective

log = logging.getLogger(__name__)

_NUM_STEPS = 6  # of the first epoch, evenly spread, whose texts are looked at
_MANY = 0.1  # warn of a larger share of texts that are read like others
_RANK = 16  # of the adapters that are proposed


@dataclass(frozen=True)
class Prepared:
    """The data of a run, read and checked.

    Attributes:
        usages: that a glossary's gate is fitted to.
        not_scored: benchmark → why it is left out.
    """

    objective: Objective
    usages: Sequence[LabelledUse]
    benchmarks: list[Benchmark]
    not_scored: Mapping[str, str]


def prepare(settings: TrainSettings, folder: Path | None = None) -> Prepared:
    """Read all data of a run, and do every check that needs no weights.

    Args:
        folder: the run's, where hard negatives are kept; None: they are not mined.

    Raises:
        UserError: for everything that the user can fix.
    """
    glossary_files(settings.model)  # an error there is reported before anything is downloaded
    objective = build_objective(settings, folder)
    check_remedies(settings.forgetting, objective)
    lacks_negatives = folder is None and mines_negatives(settings)
    if not lacks_negatives:
        _check_can_learn(objective, settings.trainer)
    usages = gate_usages(settings, objective)
    benchmarks, not_scored = build_benchmarks(settings.benchmark, settings.inputs)
    check_monitor(settings.trainer, not_scored)
    _check_texts(settings, objective)
    check_pooling(settings.model)
    if dimensions := [*(settings.trainer.matryoshka or []), *settings.truncated_dimensions]:
        check_width(dimensions, empty_encoder(settings.model).dimension)
    steps = objective.epoch_steps(0, settings.trainer.accumulation)
    requests = (objective.batch(0, steps[0][0]).requests, *(benchmark.requests for benchmark in benchmarks))
    check_model_options(settings.model, settings.forgetting.lora, requests, objective.special_tokens)
    num_steps = min(len(steps) * settings.trainer.max_epochs, settings.trainer.max_steps or 2**31)
    _warn_of_scoring(settings, num_steps * len(steps[0]) * len(requests[0]), benchmarks)
    return Prepared(objective, usages, benchmarks, not_scored)


def _warn_of_scoring(settings: TrainSettings, num_trained: int, benchmarks: Sequence[Benchmark]) -> None:
    """Log how to leave out slow benchmarks that only the untrained and the best model are scored on.

    Args:
        num_trained: texts of all steps, each about three times the work of one that is scored.
    """
    chosen = {key.partition("/")[0] for key in settings.trainer.monitor}
    others = [benchmark for benchmark in benchmarks if benchmark.name not in chosen]
    num_scored = sum(len({request.text for request in benchmark.requests}) for benchmark in others)
    if 2 * num_scored > 3 * num_trained:
        log.info(
            "scoring will take longer than training: the untrained and the best model embed %d texts for %s; "
            "benchmark=[%s] leaves these out",
            *(num_scored, ", ".join(benchmark.name for benchmark in others), ",".join(sorted(chosen))),
        )


def _check_can_learn(objective: Objective, trainer: TrainerSettings, section: str = "objective") -> None:
    """Check that some batch has anything to learn from, in a mixture of each part.

    In the first epoch and in the second one: either may be of pairs.

    Looks no further than the first such step, or than the steps after which a run would end with an error
    (`trainer.max_empty_steps`). An objective that says nothing of its batches can learn.

    Args:
        section: where the objective's options are.

    Raises:
        UserError: with the reason, and the option that cures it.
    """
    for part in objective.parts.values():
        _check_can_learn(part.objective, trainer, part.section)
    if objective.parts:
        return
    for epoch in range(min(2, trainer.max_epochs)):
        whys: list[str] = []
        for step in objective.epoch_steps(epoch, trainer.accumulation)[: trainer.max_empty_steps]:
            whys += [objective.batch(epoch, anchors).skip_reason for anchors in step]
            if not all(whys):
                break
        if whys and all(whys):
            raise UserError(f"{section}: no batch has anything to learn from: {in_section(whys[0], section)}")


def _some_batches(settings: TrainSettings, objective: Objective) -> Iterator[Batch]:
    """The micro-steps of some steps of the first epoch, evenly spread."""
    steps = objective.epoch_steps(0, settings.trainer.accumulation)
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(_NUM_STEPS, len(steps))).round().astype(int))
    for number in chosen.tolist():
        yield from (objective.batch(0, anchors) for anchors in steps[number])


def _check_texts(settings: TrainSettings, objective: Objective) -> None:
    """Report texts that are truncated, and different texts that the model reads as the same tokens.

    By the texts of some steps. Nothing is checked if the model cannot be reached or has no tokenizer; loading
    it reports why.

    Raises:
        UserError: if it reads most anchors as their positives, though they differ, or most texts as others.
    """
    read: dict[Rendered, tuple[object, ...]] = {}  # as rendered, with the span that is pooled → tokens, span
    are_equal: dict[tuple[Rendered, Rendered], bool] = {}  # each anchor and positive whose texts differ
    truncated: set[str] = set()
    limit = 0
    with suppress(Exception):
        reader = empty_encoder(settings.model).reader
        limit = reader.limit or 0
        for batch in _some_batches(settings, objective):
            texts = [request.text for request in batch.requests]
            rendered = [
                (text, span if request.pooling == "span" else None)
                for request, (text, span) in zip(batch.requests, reader.render(batch.requests), strict=True)
            ]
            tokens = reader.tokenizer([text for text, _ in rendered])
            read |= {key: (*ids, key[1]) for key, (ids, _) in zip(rendered, tokens, strict=True)}
            texts_read = zip(rendered, tokens, strict=True)
            truncated |= {text for (text, _), ids in texts_read if is_truncated(text, ids, reader.limit)}
            pairs = [(rendered[a], rendered[b]) for a, b in batch.pairs if texts[a] != texts[b]]
            are_equal |= {pair: read[pair[0]] == read[pair[1]] for pair in pairs}
    num_truncated, num_lost = len(truncated), len(read) - len(set(read.values()))
    num_texts = len({text for text, _ in read})
    num_equal = sum(are_equal.values())
    message = (
        f"{num_truncated} of {num_texts} training texts are truncated at {limit} tokens (model.max_length), "
    )
    message += f"{num_lost} are read as the same tokens as others"
    if num_lost > len(read) / 2 or num_equal > len(are_equal) / 2:
        raise UserError(
            f"{message}, and {num_equal} of {len(are_equal)} anchors as their positives: raise "
            "model.max_length, remove what all texts begin with, or take a model that reads case and blanks"
        )
    if num_truncated or num_lost:
        log.log(logging.WARNING if num_lost > _MANY * len(read) else logging.INFO, "%s", message)


def check_pooling(model: ModelSettings) -> None:
    """Warn of a pooling that differs from the checkpoint's.

    A file in `conf/model` chooses its pooling on purpose. So does `last<n>`: no checkpoint can name it.
    """
    if model.pooling is None or re.fullmatch(r"last\d+", model.pooling):
        return
    with suppress(Exception):  # the model cannot be reached
        own = saved_pooling(model)
        chosen = [(values["path"], values["pooling"]) for values in map(model_values, model_names())]
        if own not in (None, model.pooling) and (model.path, model.pooling) not in chosen:
            log.warning("model.pooling=%s: the checkpoint was trained with %s pooling", model.pooling, own)


def memory_advice(settings: TrainSettings, placement: DeviceAndPrecision) -> str:
    """Options that reduce a step's memory, without those already set."""
    trainer, forgetting, model = settings.trainer, settings.forgetting, settings.model
    tokens = model.tokens_per_forward or placement.tokens_per_forward
    takes_adapters = (
        forgetting.lora.rank is None and forgetting.weight_interpolation == 1.0 and model.idiom_tokens is None
    )
    options = {
        "trainer.gradient_caching=true": not trainer.gradient_caching,
        "trainer.activation_checkpointing=true": not trainer.activation_checkpointing,
        f"model.tokens_per_forward={tokens // 2}": trainer.gradient_caching and tokens > 512,
        "precision=bf16": placement.precision == "fp32",
        f"forgetting.lora.rank={_RANK} trainer.learning_rate=2e-4": takes_adapters,
        f"trainer.accumulation={2 * trainer.accumulation} (fewer in-batch negatives)": (
            trainer.batch_size % (2 * trainer.accumulation) == 0
        ),
    }
    lines = [f"  - {option}" for option, helps in options.items() if helps]
    return "\n".join(["What takes less, about half as much each (docs/speed.md):", *lines])


def gate_usages(settings: TrainSettings, objective: Objective) -> list[LabelledUse]:
    """The sentences that `model.glossary_gate` is fitted to: the objective's, MAGPIE's and our own.

    The sample has only the objective's.

    Raises:
        UserError: if they do not have both usages, or MAGPIE is missing; if meanings replace expressions.
    """
    model = settings.model
    if not model.glossary_gate:
        return []
    if model.glossary_form == "replace":
        raise UserError(
            "in training, a gate is for meanings that are read after expressions: leave it out, or give "
            "model.glossary_gate=false",
            option="model.glossary_form=replace",
        )
    usages = [LabelledUse("", "", text, None, is_idiomatic) for text, is_idiomatic in objective.usages]
    if not settings.data.sample:
        usages += labelled_usages(
            read_glossary([GLOSSARIES / "idiolink.tsv"]).senses, settings.inputs, whole=True
        )
    if len({usage.is_idiomatic for usage in usages}) < 2:
        raise UserError(
            "model.glossary_gate=true: it is learned from sentences that are labelled literal and idiomatic, "
            "as IdioLink's are, and this training data does not have both: give model.glossary_gate=false"
        )
    return usages
