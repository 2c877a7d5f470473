"""The encoder, and what is trained of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch.nn.functional import cosine_similarity

from train.config import ModelSettings, TrainSettings
from train.config.learning import TaughtModel
from train.distributed.device import Placement, place
from train.distributed.processes import Processes
from train.encoder.encoder import Encoder
from train.encoder.fingerprint import weights_digest
from train.encoder.glossary_files import GLOSSARIES, Glossary, meanings_of, read_glossary
from train.encoder.idiom_tokens import read_expressions
from train.encoder.lora import Adapters
from train.encoder.meanings import Meanings
from train.errors import UserError
from train.evaluation.suite import too_few_dimensions
from train.factory.unloaded import UnloadedModel
from train.io.paths import expanded
from train.io.text import first_of
from train.objectives import Objective
from train.objectives.mixture import MixtureObjective
from train.training.regularization import Distillation, Retention, compared_requests

log = logging.getLogger(__name__)

# Options that decide which meanings are made of a glossary's file, with their values where none is given.
_HOW_MADE: dict[str, Any] = {"glossary_brief": False, "glossary_max_similarity": 1.0}
_HOW_READ = ("glossary_form", "glossary_senses", "glossary_weight", "glossary_gate", "glossary_dropout")
_IN_SAVED = ("revision", "pooling", "pool_prompts", "bidirectional")  # a saved model has these in its files


def build_encoder(
    model: ModelSettings,
    placement: Placement,
    saved: Path | None = None,
    *,
    expressions: Iterable[str] = (),
    seed: int = 0,
) -> Encoder:
    """The encoder, on its device, weights in float32; those of the checkpoint `saved`, if given.

    Args:
        expressions: those that get idiom tokens; a saved checkpoint already has its tokens.
        seed: of the start of idiom tokens, where it is drawn.

    Raises:
        UserError: if the checkpoint cannot be loaded, or its glossary cannot be read as the options say.
    """
    changes: dict[str, Any] = {
        "tokens_per_forward": model.tokens_per_forward or placement.tokens_per_forward,
        # The tokens may only be added below, so there may be nothing yet to replace expressions by.
        "replace_expressions": model.replace_expressions if model.idiom_tokens is None else None,
    }
    if saved is not None:
        changes |= {"path": str(saved), "convert_weights": False, **dict.fromkeys(_IN_SAVED)}
    encoder = Encoder.load(model.model_copy(update=changes), device=placement.device)
    encoder.meanings = _meanings(encoder, model, is_saved=saved is not None)
    if saved is None and (wanted := list(expressions)):
        encoder.add_idiom_tokens(wanted, start=model.idiom_tokens_start, seed=seed)
    if encoder.idiom_tokens is not None and model.replace_expressions is not None:
        encoder.idiom_tokens.replace = model.replace_expressions
    if not isinstance(model, TaughtModel):
        _check_tokens_are_read(encoder)
    return encoder


def _meanings(encoder: Encoder, model: ModelSettings, *, is_saved: bool) -> Meanings | None:
    """What the encoder reads of a glossary: the checkpoint's meanings, or those of a named one, with the
    options that are given.

    A checkpoint that was trained with the named files keeps its own meanings, which are what it learnt to
    read: measured with the trained encoder, other expressions might be left out than were in training.

    Args:
        is_saved: the encoder is a checkpoint of this run, which holds what is read of the named glossary.

    Raises:
        UserError: if options do not go together, or say how a glossary is read, and there is none.
    """
    own = None if model.glossary == [] else encoder.meanings
    about = own.about if own else {}
    made = {name: about.get(name.removeprefix("glossary_"), default) for name, default in _HOW_MADE.items()}
    given = {name: value for name in made if (value := getattr(model, name)) is not None}
    glossary = None if is_saved and own else named_glossary(model)
    is_own = own is not None and (glossary is None or (made == made | given and _was_made_of(own, glossary)))
    if not is_saved and not isinstance(model, TaughtModel) and (is_own or glossary is None):
        _check_options(model, [name for name in given if given[name] != made[name]], has_own=is_own)
    if own is None and glossary is None:
        return None
    meanings = (own or Meanings({})).override(
        form=model.glossary_form,
        num_senses=model.glossary_senses,
        weight=model.glossary_weight,
        dropout=model.glossary_dropout,
    )
    if model.glossary_gate is False:
        meanings = replace(meanings, gate=None)
    _check_gate(model, meanings)
    if is_own or glossary is None:
        return meanings
    brief, limit = (made | given).values()
    named = meanings_of(glossary, brief=brief)
    meanings = replace(meanings, senses=named.senses, about=named.about, left_out=[])
    return without_transparent(encoder, meanings, limit if limit < 1 else None)


def _check_gate(model: ModelSettings, meanings: Meanings) -> None:
    """Refuse what a gate cannot be used with.

    Raises:
        UserError: if there is a gate, or one is to be learnt, and meanings are read in another way.
    """
    if meanings.gate is None and not model.glossary_gate:
        return
    if meanings.form != "beside" or meanings.weight:
        clash = "model.glossary_form=in_place" if meanings.form != "beside" else "model.glossary_weight"
        raise UserError(
            f"{clash}: does not go with a gate, which is for models that read meanings beside expressions, "
            "and itself says how much these count: give model.glossary_gate=false with it"
        )


def _was_made_of(meanings: Meanings, glossary: Glossary) -> bool:
    """Whether the glossary's files are those that the meanings come from, by their content."""
    sums, named = meanings.about.get("sums"), glossary.describe()["sums"]
    return isinstance(sums, dict) and sorted(sums.values()) == sorted(named.values())


def _check_options(model: ModelSettings, remade: Sequence[str], *, has_own: bool) -> None:
    """Refuse options that would do nothing, as they need a glossary's file.

    Args:
        remade: options that ask for other meanings than the model comes with.
        has_own: the model comes with meanings.
    """
    if has_own:
        idle, why = remade, "the model has what was read of its glossary, but not the file: name that"
    else:
        idle = [option for option in (*_HOW_MADE, *_HOW_READ) if getattr(model, option)]
        why = "the model reads no glossary: name one"
    if idle:
        value = str(getattr(model, idle[0])).lower()
        raise UserError(f"model.{idle[0]}={value}: {why} with model.glossary=")


def _check_tokens_are_read(encoder: Encoder) -> None:
    """Refuse meanings that are written over expressions before these become their tokens.

    Raises:
        UserError: if there are any; it names some.
    """
    meanings, tokens = encoder.meanings, encoder.idiom_tokens
    if meanings is None or meanings.form != "in_place" or tokens is None or not tokens.replace:
        return
    hidden = [
        name
        for names in tokens.expressions.values()
        for name in names
        if tokens.token_of(name) in tokens.in_text(name) - tokens.in_text(meanings.added(name)[0])
    ]
    if hidden:
        raise UserError(
            "model.glossary_form=in_place: a meaning would take the place of expressions that have an idiom "
            f"token, so that their tokens are never read: {first_of(hidden, 5)}. Take these out of the "
            "glossary, or give model.glossary_form=beside, model.glossary=[] or "
            "model.replace_expressions=false"
        )


def without_transparent(encoder: Encoder, meanings: Meanings, max_similarity: float | None) -> Meanings:
    """The meanings without expressions whose own words already say to the encoder what they mean.

    A definition in the place of "birth rate" tells the encoder nothing new, and is longer.

    Args:
        max_similarity: of an expression and its meaning, each embedded alone: a cosine; None = no limit.
    """
    if max_similarity is None or not meanings.senses:
        return meanings
    before, encoder.meanings = encoder.meanings, None
    names = list(meanings.senses)
    words, said = (encoder.encode(texts) for texts in (names, [meanings.meaning(name) for name in names]))
    encoder.meanings = before
    similarity = cosine_similarity(words, said, dim=1).tolist()  # (N,)
    out = [name for name, value in zip(names, similarity, strict=True) if value > max_similarity]
    if out:
        log.info(
            "glossary: %d of %d expressions are left unchanged, as their own words say what they mean: %s",
            *(len(out), len(names), first_of(out)),
        )
    meanings = meanings.without(out)
    return replace(meanings, about=meanings.about | {"max_similarity": max_similarity})


def named_glossary(model: ModelSettings) -> Glossary | None:
    """The glossary that `model.glossary` names, read once.

    Raises:
        UserError: if a file is not there or damaged.
    """
    if not model.glossary:
        return None
    paths = [glossary_path(named, "model.glossary") for named in model.glossary]
    return _read_glossary(tuple((path, path.stat().st_mtime_ns) for path in paths))


@lru_cache(maxsize=4)
def _read_glossary(files: tuple[tuple[Path, int], ...]) -> Glossary:
    """Read once as long as the files keep their times, however many models of a program read them."""
    return read_glossary([path for path, _ in files])


def glossary_path(named: str, option: str) -> Path:
    """The file that is named, or the one of that name that comes with the project.

    Raises:
        UserError: if there is neither.
    """
    path = expanded(named, option)
    shipped = sorted(GLOSSARIES.glob("*.tsv"))
    if not path.exists():
        path = next((one for one in shipped if one.stem == named), path)
    if not path.exists():
        names = ", ".join(one.stem for one in shipped)
        raise UserError(
            f"{option}={named}: there is no such file; give one, or a glossary that comes with the project "
            f"({names})"
        )
    return path


def embedding_width(model: ModelSettings) -> int:
    """The width D of the embeddings of :func:`build_encoder`, from the checkpoint's configuration alone.

    If the configuration does not give it (with the checkpoint's code, say), the encoder is built to tell.
    """
    return UnloadedModel(model).width or build_encoder(model, place("cpu", "fp32")).dimension


def check_dimensions(model: ModelSettings, dimensions: Sequence[int]) -> None:
    """Check, before anything is computed, that the embeddings can be cut to so many dimensions.

    Raises:
        UserError: if they have no more.
    """
    if dimensions and max(dimensions) >= (width := embedding_width(model)):
        raise too_few_dimensions(max(dimensions), width)


def idiom_expressions(
    model: ModelSettings, objective: Objective | None = None
) -> tuple[list[str], list[Path]]:
    """The expressions that are to get idiom tokens, and the file that names them, if one does.

    Raises:
        UserError: if the file cannot be read or names none, or the training data names none.
    """
    named = model.idiom_tokens
    if isinstance(named, list):
        return named, []
    if named is not None and named.partition("/")[0] == "train":
        assert objective is not None  # an evaluation's settings refuse it
        sentences = _part(objective, named).idiom_sentences
        expressions = list(dict.fromkeys(expression for expression, _ in sentences))
        if not expressions:
            raise UserError(f"model.idiom_tokens={named}: the training data names no expression")
        return expressions, []
    if named is None:
        return [], []
    path = expanded(named, "model.idiom_tokens")
    if not path.is_file():
        raise UserError(
            f"model.idiom_tokens={named}: there is no such file; give train, a list of expressions, or a "
            "text file with one a line"
        )
    return read_expressions(path), [path]


def _part(objective: Objective, named: str) -> Objective:
    """The objective that `train`, or `train/<part of a mixture>`, names."""
    name = named.partition("/")[2]
    if not name:
        return objective
    parts = objective.parts if isinstance(objective, MixtureObjective) else {}
    if name not in parts:
        raise UserError(
            f"model.idiom_tokens={named}: the objective has no part {name}"
            + (f", but {' and '.join(parts)}" if parts else ": it is no mixture; give train")
        )
    return parts[name]


def build_retention(
    settings: TrainSettings,
    placement: Placement,
    objective: Objective,
    checkpoint: Path | None,
    expressions: Sequence[str] = (),
    processes: Processes | None = None,
    *,
    untrained: Encoder | None = None,
) -> Retention:
    """The encoder to train, with the base model's or the checkpoint's weights, and the remedies around it.

    Args:
        expressions: those that get idiom tokens; the base model then has these tokens, untrained.
        processes: among which the texts that the base model or a teacher embeds are divided.
        untrained: the base model, if it is loaded already; not with a checkpoint or idiom tokens.
    """
    retain = settings.retain
    # With a remedy the base model, also for a run that is resumed.
    saved = None if retain.is_on else checkpoint
    encoder = untrained or build_encoder(
        settings.model, placement, saved, expressions=expressions, seed=settings.seed
    )
    _ = encoder.transformer  # an export has none, and says that it cannot be trained
    if not retain.is_on:
        return Retention(encoder)
    base = weights_digest(encoder)
    distillation, teacher = None, None
    if retain.distillation:
        follows = encoder
        if retain.teacher_model is not None:
            follows = build_encoder(retain.teacher_model, placement)
            teacher = weights_digest(follows)
        texts = retain.teacher_texts
        requests = compared_requests(objective, settings.trainer, texts)
        distillation = Distillation(follows, requests, retain.distillation, processes, texts=texts)
    if checkpoint is not None and not retain.moves_back:
        encoder = build_encoder(settings.model, placement, checkpoint)
    adapters = None
    if retain.lora.rank is not None:
        adapters = Adapters(encoder, retain.lora, seed=settings.seed, base_model=settings.model.path)
    retention = Retention(
        encoder,
        interpolation=retain.interpolation,
        adapters=adapters,
        distillation=distillation,
        base=base,
        teacher=teacher,
    )
    if checkpoint is not None and retain.moves_back:
        retention.load(checkpoint)
    return retention
