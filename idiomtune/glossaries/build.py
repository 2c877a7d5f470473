"""Builds the encoder from settings; refuses options that cannot apply."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from idiomtune.config import ModelSettings
from idiomtune.config.sections import LoraSettings
from idiomtune.encoder.checks import check_special_token
from idiomtune.encoder.device import DeviceAndPrecision
from idiomtune.encoder.forward import tokens_of_span
from idiomtune.encoder.idiom_tokens import read_expressions
from idiomtune.encoder.loading import fetch_file, locate_checkpoint, resolve_model_path
from idiomtune.encoder.trained_parts import add_adapters
from idiomtune.errors import UserError
from idiomtune.glossaries.choose import choose_meanings
from idiomtune.glossaries.encoder import GlossaryEncoder
from idiomtune.glossaries.usage_gate import LoadUsages
from idiomtune.io.files import is_folder, user_path
from idiomtune.objectives import Objective
from idiomtune.requests import EmbeddingRequest

log = logging.getLogger(__name__)

_IN_SAVED = ("revision", "pooling", "include_prompt", "bidirectional")  # a saved model has these in its files


def build_encoder(
    model: ModelSettings,
    placement: DeviceAndPrecision,
    saved: Path | None = None,
    *,
    expressions: Iterable[str] = (),
    seed: int = 0,
    labelled: LoadUsages | None = None,
) -> GlossaryEncoder:
    """The encoder, on its device, weights in float32; those of the checkpoint `saved`, if given.

    Args:
        expressions: those that get idiom tokens; a saved checkpoint already has its tokens.
        seed: of the start of idiom tokens, where it is drawn.
        labelled: where a gate of meanings may come from; None: only from the checkpoint, as in training.

    Raises:
        UserError: if the checkpoint cannot be loaded, or its glossary cannot be read as the options say.
    """
    changes: dict[str, Any] = {} if saved is None else {"path": str(saved), **dict.fromkeys(_IN_SAVED)}
    changes["tokens_per_forward"] = model.tokens_per_forward or placement.tokens_per_forward
    encoder = GlossaryEncoder(_check_loadable(model, **changes), device=placement.device)
    encoder.meanings = choose_meanings(encoder, model, is_saved=saved is not None, labelled=labelled)
    if saved is None and (names := list(expressions)):
        encoder.add_idiom_tokens(names, start=model.idiom_tokens_start, seed=seed)
    if encoder.idiom_tokens is not None and model.replace_expressions is not None:
        encoder.idiom_tokens.replace = model.replace_expressions
    return encoder


def empty_encoder(model: ModelSettings) -> GlossaryEncoder:
    """The encoder without weights, for checks: it reads requests as the model does, but embeds nothing.

    Raises:
        UserError: if the model cannot be reached, or not be read as its options say.
    """
    folder = Path(resolve_model_path(model.path))
    changed = folder.stat().st_mtime_ns if is_folder(folder) else 0
    return _empty_encoder(model.model_dump_json(), type(model), changed)


@lru_cache(maxsize=2)
def _empty_encoder(model_json: str, kind: type[ModelSettings], _: int) -> GlossaryEncoder:
    """Cached for several checks, until the model's folder changes."""
    model = kind.model_validate_json(model_json)
    encoder = GlossaryEncoder(_check_loadable(model), empty=True)
    encoder.meanings = choose_meanings(encoder, model)
    return encoder


def _check_loadable(model: ModelSettings, **changes: Any) -> ModelSettings:
    """The section without options that need idiom tokens, which only a loaded model can get."""
    tokens = {} if model.idiom_tokens is None else {"replace_expressions": None}
    return model.model_copy(update=changes | tokens)


def saved_pooling(model: ModelSettings) -> str | None:
    """The pooling that a checkpoint's files name; None if they name none."""
    path, offline = locate_checkpoint(model.path, model.revision)
    if fetch_file(path, "modules.json", model.revision, local_files_only=offline) is None:
        return None
    return empty_encoder(model.model_copy(update={"pooling": None})).pooling_mode


def check_model_options(
    model: ModelSettings,
    lora: LoraSettings,
    requests: Iterable[Iterable[EmbeddingRequest]],
    special_tokens: Mapping[str, str],
) -> None:
    """Check the options that loading the model, or the first step, would refuse.

    A model that is out of reach, or cannot be read, is not checked: a check of data may not need it, and
    loading it reports why.

    Args:
        requests: of the first step, and of each benchmark.
        special_tokens: that the objective puts into texts, by the option that names them.

    Raises:
        UserError: naming the option.
    """
    try:
        encoder = (
            empty_encoder(model) if lora.rank is None else GlossaryEncoder(_check_loadable(model), empty=True)
        )
    except Exception as error:
        if isinstance(error, UserError) and error.option is not None:
            raise
        log.debug("the model's options are not checked", exc_info=True)
        return
    if lora.rank is not None:
        with torch.device("meta"):
            add_adapters(encoder.transformer, lora)
    for option, text in special_tokens.items():
        check_special_token(encoder.model.tokenizer, text, option)
    for group in requests:
        _check_spans(encoder, group)


def _check_spans(encoder: GlossaryEncoder, requests: Iterable[EmbeddingRequest]) -> None:
    """Refuse spans that all begin beyond the maximum length."""
    problem = None
    for request in requests:
        if request.pooling == "span":
            (read,) = encoder.reader.read([request])
            try:
                tokens_of_span(read, request)
                return
            except UserError as error:
                problem = problem or error
    if problem is not None:
        raise problem


# ---------------------------------------------------------------- idiom tokens


def idiom_expressions(
    model: ModelSettings, objective: Objective | None = None
) -> tuple[list[str], list[Path]]:
    """The expressions for idiom tokens, and the file with them, if any.

    Args:
        objective: its sentences name their expressions; an evaluation has none, and its settings refuse
            `train`.

    Raises:
        UserError: if the file cannot be read or names none, or the training data names none.
    """
    value = model.idiom_tokens
    if value is None or isinstance(value, list):
        return value or [], []
    option = f"model.idiom_tokens={value}"
    source, _, part = value.partition("/")
    if source == "train" and objective is not None:
        parts = objective.parts
        if part and part not in parts:
            choices = f"its parts are {', '.join(parts)}" if parts else "it is not a mixture; give train"
            raise UserError(f"the objective has no part {part}: {choices}", option=option)
        sentences = (parts[part].objective if part else objective).idiom_sentences
        expressions = list(dict.fromkeys(expression for expression, _ in sentences))
        if not expressions:
            raise UserError("the training data names no expression", option=option)
        return expressions, []
    path = user_path(value, "model.idiom_tokens")
    if not path.is_file():
        message = "there is no such file; give train, a list of expressions, or a text file with one per line"
        raise UserError(message, option=option)
    return read_expressions(path), [path]
