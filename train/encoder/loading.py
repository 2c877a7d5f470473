"""Checkpoints from a folder or the Hugging Face Hub."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, WeightedLayerPooling
from sentence_transformers.util import load_file_path
from tokenizers import processors
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.utils import logging as transformers_logging

from train.config import ModelSettings
from train.declarations.models import near_model_names
from train.encoder.checks import (
    check_length,
    check_report,
    check_vocabulary,
    check_weights,
    loading_reports,
)
from train.encoder.kernels import use_short_attention
from train.encoder.pooling_modules import is_sum, pooling_modules
from train.encoder.token_models import TokenModel, is_onnx_export, load_onnx_export, with_token_table
from train.errors import UserError
from train.io.hub import first_line, is_cached, is_network_error, why_unavailable, without_secrets
from train.io.paths import expanded

log = logging.getLogger(__name__)

_MAX_REASON = 400  # characters


def locate_checkpoint(path: str, revision: str | None = None) -> tuple[str, bool]:
    """The local folder or the name on the Hub, and whether only what was downloaded before is available.

    Raises:
        UserError: if there is no such model, or it cannot be reached.
    """
    local = expanded(path, "model")
    if local.is_dir():
        if not any((local / name).is_file() for name in ("modules.json", "config.json")):
            best = f"; the run's model is {local / 'best'}" if (local / "best").is_dir() else ""
            raise UserError(
                f"model folder {path} holds neither modules.json (sentence-transformers) nor "
                f"config.json (transformers): give the folder that a model was saved to{best}"
            )
        return str(local), False
    if local.exists() or path.startswith((".", "/", "~")) or path.count("/") > 1:
        raise UserError(f"model {path} is not a folder; give a model folder or a name on the Hub")
    reason = why_unavailable(path, "model", revision)
    if reason is None:
        return path, False
    if is_cached(path, revision):
        log.info("the Hub does not answer (%s): using the copy of %s downloaded before", reason, path)
        return path, True
    near = near_model_names(path)
    raise UserError(
        f"model {path} is not a local folder, and the Hugging Face Hub did not give it (offline? "
        f"misspelt? private: log in with `hf auth login`){': ' + near if near else ''}. Reason: {reason}"
    )


def fetch_file(path: str, name: str, revision: str | None, *, local_files_only: bool) -> Path | None:
    """A file of a checkpoint, downloaded if the checkpoint is on the Hub; None if there is no such file.

    Raises:
        UserError: if it could not be downloaded.
    """
    try:
        file = load_file_path(path, name, revision=revision, local_files_only=local_files_only)
    except Exception as error:
        if not is_network_error(error):
            raise
        raise UserError(f"model {path}: {name} could not be downloaded: {first_line(error)}") from error
    return None if file is None else Path(file)


def load_model(
    path: str, settings: ModelSettings, *, device: str | None = None, local_files_only: bool = False
) -> SentenceTransformer:
    """A sentence-transformers or plain transformers checkpoint, weights in float32.

    What checkpoints leave open is fixed here, and saved with the model: texts are truncated at its number of
    positions, and a tokenizer whose configuration promises an end token adds it.

    Only safetensors are read: pickles of untrusted files are never opened. Weights are in float32 whatever
    the file stores, because bfloat16 master weights lose small updates.

    Args:
        path: from :func:`locate_checkpoint`.
        settings: what of the model is read in another way than its files say.

    Raises:
        UserError: if it cannot be loaded, is incomplete, or an option does not fit it.
    """
    model, tokenizer_config = _load(path, settings, device, local_files_only)
    transformer = model[0]
    is_whole = isinstance(transformer, Transformer)
    if isinstance(transformer, Transformer | TokenModel):
        check_vocabulary(path, transformer.tokenizer, transformer.auto_model if is_whole else None)
    for option in ("pooling", "bidirectional"):
        value = getattr(settings, option)
        if value is not None and not is_whole:
            raise UserError(
                f"model.{option}={str(value).lower()}: the model {path} has no transformer to read in "
                "another way: leave it out"
            )
    if isinstance(transformer, Transformer) and settings.pooling is not None:
        dimension = transformer.get_embedding_dimension()
        after = pooling_modules(transformer.auto_model, transformer.tokenizer, dimension, settings.pooling)
        prompts = {name: prompt for name, prompt in model.prompts.items() if prompt is not None}
        model = SentenceTransformer(modules=[transformer, *after], prompts=prompts, device=device)
    for module in model:
        if isinstance(module, Pooling) and settings.pool_prompts is not None:
            module.include_prompt = settings.pool_prompts
        if isinstance(module, WeightedLayerPooling):
            module.layer_weights.requires_grad_(False)  # a plain mean of layers
        elif isinstance(module, Dense) and is_sum(module):
            module.requires_grad_(False)
    if isinstance(transformer, Transformer):
        if settings.bidirectional is not None:
            transformer.auto_model.config.is_causal = not settings.bidirectional
        if _is_bidirectional(model):
            transformer.auto_model.set_attn_implementation("eager")
        with silence_libraries():  # a class that does not support it keeps its attention, with a warning
            use_short_attention(transformer.auto_model)
        _ensure_eos(model, tokenizer_config)
    _limit_length(path, model, settings.max_length)
    if not settings.trust_remote_code and "AutoModel" in (_config_value(model, "auto_map") or {}):
        log.warning(
            "model %s comes with its own code, which is not run: the library's class of this architecture is "
            "used. model.trust_remote_code=true runs the code; read it first",
            path,
        )
    return model


def _load(
    path: str, settings: ModelSettings, device: str | None, local_files_only: bool
) -> tuple[SentenceTransformer, Mapping[str, Any]]:
    """The checkpoint as sentence-transformers loads it, and its tokenizer_config.json."""
    if is_onnx_export(path):
        with silence_libraries():
            return load_onnx_export(path), {}
    options: dict[str, Any] = {"use_safetensors": True, "dtype": torch.float32}
    if local_files_only:  # adapters are looked up separately, with many retries if the Hub does not answer
        options["adapter_kwargs"] = {"local_files_only": True}
    where: dict[str, Any] = {"revision": settings.revision, "local_files_only": local_files_only}
    with silence_libraries(), loading_reports() as reports:
        model = SentenceTransformer(
            path,
            device=device,
            trust_remote_code=settings.trust_remote_code,
            model_kwargs=options,
            **where,
        )
        tokenizer_config = get_tokenizer_config(path, **where)
    for transformer, report in reports:
        check_report(path, transformer, report)
    check_weights(path, model)
    if isinstance(model[0], StaticEmbedding):
        with silence_libraries():
            model = with_token_table(model)
    return model, tokenizer_config


@contextmanager
def loading_explained(path: str) -> Iterator[None]:
    """Whatever the libraries raise for a checkpoint in this context becomes a message in one line.

    A damaged file, or a value of a wrong type in it, makes them fail in any way (a TypeError, say).

    Raises:
        UserError: with the library's own reason.
    """
    try:
        yield
    except (UserError, torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        raise UserError(f"could not load model {path}: {why_not_loaded(error)}") from error


def why_not_loaded(error: Exception) -> str:
    """A library's error in one line, with what to do about it."""
    message = f"{type(error).__name__}: {without_secrets(' '.join(str(error).split()))}"
    text = message if len(message) <= _MAX_REASON else message[: _MAX_REASON - 1] + "…"
    if is_network_error(error):
        return f"it could not be downloaded ({text}): try again when the Hub can be reached"
    if "trust_remote_code" in message:
        return (
            "it cannot be loaded without the Python code that comes with it: read the code, then "
            "model.trust_remote_code=true runs it"
        )
    if "safetensors" in message and (
        "does not appear to have a file" in message or "no file named" in message
    ):
        return (
            "it has no safetensors file at this revision, and other files may run code when opened. "
            "model.convert_weights=true converts a pytorch_model.bin, by a process that reads nothing but "
            "weights. Or leave model.revision unset (the Hub then converts the main branch), or name a "
            "converted one, such as model.revision=refs/pr/1"
        )
    if "sentencepiece" in message:
        return f"its tokenizer needs a package: pip install 'idiomtune[sentencepiece]' ({text})"
    return f"{text} (one of its files is missing, damaged, or for other versions of the libraries)"


def num_positions(model: Any) -> int | None:
    """How many token positions a transformer of transformers has; None if it sets no limit."""
    limit: int = getattr(model.config, "max_position_embeddings", None) or -1
    for name, module in model.named_modules():
        # RoBERTa and its relatives count positions from the padding token's id + 1.
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            limit -= module.padding_idx + 1
    return limit if limit > 0 else None


def check_positions(path: str, limit: int | None, max_length: int | None) -> None:
    """Raises UserError if texts are to be longer than the model's number of positions, `limit`."""
    if max_length is not None and limit is not None and max_length > limit:
        raise UserError(f"model.max_length={max_length}: the model {path} has {limit} positions")


def _limit_length(path: str, model: SentenceTransformer, max_length: int | None) -> None:
    """Truncate texts after `max_length` tokens; by default at the checkpoint's limit, or where that is
    greater or missing, at its number of positions."""
    first: Any = model[0]
    limit = num_positions(first.auto_model) if isinstance(first, Transformer) else first.max_seq_length
    check_positions(path, limit, max_length)
    if isinstance(first, TokenModel | Transformer):
        check_length(path, model, max_length)
    own = model.max_seq_length
    if max_length is None and limit is not None and (own is None or own > limit):
        max_length = limit
    if max_length is not None:
        model.max_seq_length = max_length


def special_tokens_around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The ids of the special tokens before and after any text."""
    bare, whole = (tokenizer("a", add_special_tokens=special)["input_ids"] for special in (False, True))
    first = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
    return whole[:first], whole[first + len(bare) :]


def _ensure_eos(model: SentenceTransformer, tokenizer_config: Mapping[str, Any]) -> None:
    """Have the tokenizer add the promised end token, if the last token is pooled.

    E5-Mistral's `tokenizer_config.json` says `add_eos_token`, but its `tokenizer.json` adds none.
    Transformers followed the former up to version 4 and follows the latter since, so the last word would be
    pooled.
    """
    pooled = [mode for module in model if isinstance(module, Pooling) for mode in _modes(module)]
    tokenizer: Any = model.tokenizer
    if "lasttoken" not in pooled or not tokenizer_config.get("add_eos_token") or not tokenizer.is_fast:
        return
    before, after = special_tokens_around(tokenizer)
    if tokenizer.eos_token is None or tokenizer.eos_token_id in after[-1:]:
        return
    # A single template: with two processors in sequence, truncation counts the tokens of only one.
    after = [*after, tokenizer.eos_token_id]
    head, tail = (list(map(str, tokenizer.convert_ids_to_tokens(ids))) for ids in (before, after))
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=[*head, "$A", *tail],
        pair=[*head, "$A", *tail, "$B", *tail],
        special_tokens=list(dict(zip([*head, *tail], [*before, *after], strict=True)).items()),
    )


def _modes(pooling: Pooling) -> tuple[str, ...]:
    mode = pooling.pooling_mode
    return (mode,) if isinstance(mode, str) else tuple(mode)


def keep_attention(model: SentenceTransformer, folder: Path) -> None:
    """Make sentence-transformers load a bidirectional decoder with attention that is so in any batch.

    For a batch without padding transformers passes no mask, and PyTorch's fused attention then treats a
    decoder's layers as causal (transformers 5.23); the plain implementation does not.
    """
    if _is_bidirectional(model):
        path = folder / "sentence_bert_config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        config["model_kwargs"] = {"attn_implementation": "eager"}
        path.write_text(json.dumps(config, indent=4), encoding="utf-8")


def _is_bidirectional(model: SentenceTransformer) -> bool:
    """Whether it is a decoder whose tokens attend to later ones."""
    return _config_value(model, "is_causal") is False


def _config_value(model: SentenceTransformer, name: str) -> Any:
    return getattr(model[0].auto_model.config, name, None) if isinstance(model[0], Transformer) else None


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Hide the libraries' progress bars and messages while a model is loaded or saved, which is quick."""
    level = logging.getLogger("sentence_transformers").level
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)
    try:
        yield
    finally:
        logging.getLogger("sentence_transformers").setLevel(level)
        if shown:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
