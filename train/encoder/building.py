"""An encoder as the sections `model` and `retain` describe it, and what its options ask for in vain."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cosine_similarity

from train.config import ModelSettings
from train.config.sections import LoraSettings
from train.config.settings import TaughtModel
from train.encoder.device import Placement
from train.encoder.encoder import Encoder
from train.encoder.forward import tokens_of_span
from train.encoder.glossary import Meanings, named_glossary
from train.encoder.idiom_tokens import read_expressions
from train.encoder.loading import fetch_file, locate_checkpoint, resolve_model_path
from train.encoder.trained_parts import add_adapters
from train.errors import UserError
from train.io.files import expanded, first_of, is_folder
from train.requests import Request

log = logging.getLogger(__name__)

# Options that decide which meanings are made of a glossary's file, with their values where none is given.
_MADE_BY: dict[str, Any] = {"brief": False, "max_similarity": 1.0}
_READ_BY = ("form", "senses", "weight", "gate", "dropout")
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
    changes: dict[str, Any] = {"tokens_per_forward": model.tokens_per_forward or placement.tokens_per_forward}
    if saved is not None:
        changes |= {"path": str(saved), "convert_weights": False, **dict.fromkeys(_IN_SAVED)}
    encoder = Encoder.load(_loadable(model, **changes), device=placement.device)
    encoder.meanings = _meanings(encoder, model, is_saved=saved is not None)
    if saved is None and (names := list(expressions)):
        encoder.add_idiom_tokens(names, start=model.idiom_tokens_start, seed=seed)
    if encoder.idiom_tokens is not None and model.replace_expressions is not None:
        encoder.idiom_tokens.replace = model.replace_expressions
    if not isinstance(model, TaughtModel):
        _check_tokens_are_read(encoder)
    return encoder


def empty_encoder(model: ModelSettings) -> Encoder:
    """The encoder without weights, for checks: it reads requests as the model does, but embeds nothing.

    Raises:
        UserError: if the model cannot be reached, or not be read as its options say.
    """
    folder = Path(resolve_model_path(model.path))
    changed = folder.stat().st_mtime_ns if is_folder(folder) else 0
    return _empty_encoder(model.model_dump_json(), type(model), changed)


@lru_cache(maxsize=2)
def _empty_encoder(model_json: str, kind: type[ModelSettings], _: int) -> Encoder:
    """Read once for several checks, as long as the model's folder keeps its time."""
    model = kind.model_validate_json(model_json)
    encoder = Encoder.load(_loadable(model), empty=True)
    encoder.meanings = _meanings(encoder, model)
    return encoder


def _loadable(model: ModelSettings, **changes: Any) -> ModelSettings:
    """The section without what may need idiom tokens, which may only be added to the loaded model."""
    tokens = {} if model.idiom_tokens is None else {"replace_expressions": None}
    return model.model_copy(update=changes | tokens)


def embedding_width(model: ModelSettings) -> int:
    """The width D of the embeddings of :func:`build_encoder`, found without the weights."""
    return empty_encoder(model).dimension


def saved_pooling(model: ModelSettings) -> str | None:
    """The pooling that a checkpoint's files name; None if they name none."""
    path, offline = locate_checkpoint(resolve_model_path(model.path), model.revision)
    if fetch_file(path, "modules.json", model.revision, local_files_only=offline) is None:
        return None
    return empty_encoder(model.model_copy(update={"pooling": None})).pooling_mode


def check_model_options(
    model: ModelSettings, lora: LoraSettings, requests: Iterable[Iterable[Request]]
) -> None:
    """Check the options that loading the model, or the first step, would refuse.

    A model that is out of reach, or cannot be read, is not checked: a check of data may not need it, and
    loading it reports why.

    Args:
        requests: of the first step, and of each benchmark.

    Raises:
        UserError: naming the option.
    """
    try:
        encoder = empty_encoder(model) if lora.rank is None else Encoder.load(_loadable(model), empty=True)
    except Exception as error:
        if isinstance(error, UserError) and error.option is not None:
            raise
        log.debug("the model's options are not checked", exc_info=True)
        return
    if lora.rank is not None:
        with torch.device("meta"):
            add_adapters(encoder.transformer, lora)
    for some in requests:
        _check_spans(encoder, some)


def _check_spans(encoder: Encoder, requests: Iterable[Request]) -> None:
    """Refuse spans that all begin beyond the maximum length."""
    problem = None
    for request in requests:
        if request.pooling == "span":
            ((text, span),) = encoder.reader.render([request])
            try:
                tokens_of_span(encoder.reader.tokenizer([text])[0], span, request)
            except UserError as error:
                problem = problem or error
            else:
                return
    if problem is not None:
        raise problem


# ---------------------------------------------------------------- meanings


def _meanings(encoder: Encoder, model: ModelSettings, *, is_saved: bool = False) -> Meanings | None:
    """What the encoder reads of a glossary: the checkpoint's meanings, or those of `model.glossary`, with
    the given options.

    A checkpoint that was trained with the same files keeps its own meanings, which are what it learnt to
    read: measured with the trained encoder, other expressions might be left out than were in training.

    Args:
        is_saved: the encoder is a checkpoint of this run, which holds what is read of the glossary.

    Raises:
        UserError: if options do not go together, or say how to read a glossary that is missing.
    """
    own = None if model.glossary == [] else encoder.meanings
    glossary = None if is_saved and own else named_glossary(model)
    options = {name: getattr(model, f"glossary_{name}") for name in (*_MADE_BY, *_READ_BY)}
    made_by = _MADE_BY | {name: own.about[name] for name in _MADE_BY if own and name in own.about}
    make_by = made_by | {name: options[name] for name in _MADE_BY if options[name] is not None}
    files = sorted(own.about.get("sums", {}).values()) if own else []
    is_own = own is not None and (
        glossary is None or (make_by == made_by and files == sorted(glossary.describe()["sums"].values()))
    )
    if not is_saved and not isinstance(model, TaughtModel) and (is_own or glossary is None):
        needs_file = [name for name in options if options[name]]
        if is_own:
            needs_file = [name for name in _MADE_BY if make_by[name] != made_by[name]]
        if needs_file:
            option = f"model.glossary_{needs_file[0]}={str(options[needs_file[0]]).lower()}"
            raise UserError("needs a glossary's file: name it with model.glossary=", option=option)
    if own is None and glossary is None:
        return None
    meanings = (own or Meanings({})).override(
        form=options["form"],
        num_senses=options["senses"],
        weight=options["weight"],
        dropout=options["dropout"],
    )
    if options["gate"] is False:
        meanings = replace(meanings, gate=None)
    if (meanings.gate is not None or options["gate"]) and (meanings.form != "beside" or meanings.weight):
        raise UserError(
            "cannot be combined with a gate, which is for models that read meanings after expressions and "
            "weighs them itself: give model.glossary_gate=false with it",
            option="model.glossary_form=in_place" if meanings.form != "beside" else "model.glossary_weight",
        )
    if is_own or glossary is None:
        return meanings
    made = glossary.meanings(brief=make_by["brief"])
    meanings = replace(meanings, senses=made.senses, about=made.about, left_out=[])
    limit = make_by["max_similarity"]
    return without_transparent(encoder, meanings, limit if limit < 1 else None)


def without_transparent(encoder: Encoder, meanings: Meanings, max_similarity: float | None) -> Meanings:
    """The meanings without expressions whose own words already say to the encoder what they mean.

    A definition in the place of "birth rate" tells the encoder nothing new, and is longer.

    Args:
        max_similarity: of an expression and its meaning, each embedded alone: a cosine; None = no limit.
    """
    if max_similarity is None or not meanings.senses or encoder.device.type == "meta":
        return meanings
    before, encoder.meanings = encoder.meanings, None
    names = list(meanings.senses)
    words, definitions = (
        encoder.encode(texts) for texts in (names, [meanings.meaning(name) for name in names])
    )
    encoder.meanings = before
    similarity = cosine_similarity(words, definitions, dim=1).tolist()  # (N,)
    out = [name for name, value in zip(names, similarity, strict=True) if value > max_similarity]
    if out:
        log.info(
            "glossary: %d of %d expressions are left unchanged, as their own words say what they mean: %s",
            *(len(out), len(names), first_of(out)),
        )
    meanings = meanings.without(out)
    return replace(meanings, about=meanings.about | {"max_similarity": max_similarity})


# ---------------------------------------------------------------- idiom tokens


def idiom_expressions(model: ModelSettings, objective: Any = None) -> tuple[list[str], list[Path]]:
    """The expressions that are to get idiom tokens, and the file that names them, if one does.

    Args:
        objective: an `Objective`, whose sentences name their expressions; an evaluation has none, and its
            settings refuse `train`.

    Raises:
        UserError: if the file cannot be read or names none, or the training data names none.
    """
    value = model.idiom_tokens
    if value is None or isinstance(value, list):
        return value or [], []
    option = f"model.idiom_tokens={value}"
    source, _, part = value.partition("/")
    if source == "train" and objective is not None:
        if part:
            parts: Mapping[str, Any] = getattr(objective, "parts", {})
            if part not in parts:
                known = f"its parts are {', '.join(parts)}" if parts else "it is not a mixture; give train"
                raise UserError(f"the objective has no part {part}: {known}", option=option)
            objective = parts[part].objective
        expressions = list(dict.fromkeys(expression for expression, _ in objective.idiom_sentences))
        if not expressions:
            raise UserError("the training data names no expression", option=option)
        return expressions, []
    path = expanded(value, "model.idiom_tokens")
    if not path.is_file():
        raise UserError(
            "there is no such file; give train, a list of expressions, or a text file with one per line",
            option=option,
        )
    return read_expressions(path), [path]


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
        for token, names in tokens.expressions.items()
        for name in names
        if token in tokens.in_text(name) - tokens.in_text(meanings.added(name)[0])
    ]
    if hidden:
        raise UserError(
            "a meaning would replace expressions that have an idiom token, so their tokens would never be "
            f"read: {first_of(hidden, 5)}. Take these out of the glossary, or give "
            "model.glossary_form=beside, model.glossary=[] or model.replace_expressions=false",
            option="model.glossary_form=in_place",
        )
