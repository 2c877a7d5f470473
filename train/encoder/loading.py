"""Checkpoints from a folder or the Hugging Face Hub, with errors that say what to do."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, WeightedLayerPooling
from tokenizers import processors
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.utils import logging as transformers_logging

from train.declarations.models import near_model_names
from train.encoder.checks import (
    check_length,
    check_report,
    check_vocabulary,
    check_vocabulary_size,
    check_weights,
    check_widths,
    loading_reports,
)
from train.encoder.files import damaged_setting, has_sentencepiece_alone, is_load_error
from train.encoder.kernels import use_short_attention
from train.encoder.pooling_modules import is_sum, pooling_modules
from train.encoder.token_models import TokenModel, is_onnx_export, load_onnx_export, with_token_table
from train.errors import UserError
from train.io.hub import first_line, is_cached, is_network_error, why_unavailable
from train.io.paths import expanded

log = logging.getLogger(__name__)


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
        f"model {path} is no local folder, and the Hugging Face Hub did not give it (offline? "
        f"misspelt? private: log in with `hf auth login`){': ' + near if near else ''}. Reason: {reason}"
    )


def load_model(
    path: str,
    *,
    revision: str | None = None,
    device: str | None = None,
    pooling: str | None = None,
    pool_prompts: bool | None = None,
    bidirectional: bool | None = None,
    trust_remote_code: bool = False,
    local_files_only: bool = False,
) -> SentenceTransformer:
    """A sentence-transformers or plain transformers checkpoint, weights in float32.

    What checkpoints leave open is fixed here, and saved with the model: texts are truncated at its number of
    positions, and a tokenizer whose configuration promises an end token adds it.

    Only safetensors are read: pickles of untrusted files are never opened. Weights are in float32 whatever
    the file stores, because bfloat16 master weights lose small updates.

    Args:
        path: from :func:`locate_checkpoint`.

    Raises:
        UserError: if it cannot be loaded.
    """
    if Path(path).is_dir() and (problem := damaged_setting(path)) is not None:
        raise UserError(f"could not load model {path}: {problem}: get the file again, or correct it")
    model, tokenizer_config = _load(path, revision, device, trust_remote_code, local_files_only)
    transformer = model[0]
    if isinstance(transformer, Transformer | TokenModel):
        check_vocabulary(path, transformer.tokenizer)
    if isinstance(transformer, Transformer):
        check_vocabulary_size(path, transformer.tokenizer, transformer.auto_model)
    if pooling is not None:
        if not isinstance(transformer, Transformer):
            raise UserError(
                f"model.pooling={pooling}: the model {path} has no transformer whose tokens could be pooled"
            )
        dimension = transformer.get_embedding_dimension()
        replaced = pooling_modules(transformer.auto_model, transformer.tokenizer, dimension, pooling)
        prompts = {name: prompt for name, prompt in model.prompts.items() if prompt is not None}
        model = SentenceTransformer(modules=[transformer, *replaced], prompts=prompts, device=device)
    if bidirectional is not None and not isinstance(transformer, Transformer):
        raise UserError(
            f"model.bidirectional={str(bidirectional).lower()}: the model {path} has no transformer whose "
            "attention could be changed: leave it out"
        )
    check_widths(path, list(model))
    for module in model:
        if isinstance(module, Pooling) and pool_prompts is not None:
            module.include_prompt = pool_prompts
        if isinstance(module, WeightedLayerPooling):
            module.layer_weights.requires_grad_(False)  # a plain mean of layers
        elif isinstance(module, Dense) and is_sum(module):
            module.requires_grad_(False)
    if isinstance(transformer, Transformer):
        if bidirectional is not None:
            transformer.auto_model.config.is_causal = not bidirectional
        if _is_bidirectional(model):
            transformer.auto_model.set_attn_implementation("eager")
        with silence_libraries():  # a class that does not support it keeps its attention, with a warning
            use_short_attention(transformer.auto_model)
        _limit_to_positions(model)
        _ensure_eos(model, tokenizer_config)
    if not trust_remote_code and _has_code(model):
        log.warning(
            "model %s comes with its own code, which is not run: the library's class of this architecture is "
            "used. model.trust_remote_code=true runs the code; read it first",
            path,
        )
    return model


def _load(
    path: str, revision: str | None, device: str | None, trust_remote_code: bool, local_files_only: bool
) -> tuple[SentenceTransformer, Mapping[str, Any]]:
    """The checkpoint as sentence-transformers loads it, with all its weights, and its tokenizer_config.json.

    Raises:
        UserError: if it is damaged, incomplete, or could not be downloaded.
    """
    options: dict[str, Any] = {"use_safetensors": True, "dtype": torch.float32}
    if local_files_only:  # adapters are looked up separately, with many retries if the Hub does not answer
        options["adapter_kwargs"] = {"local_files_only": True}
    if is_onnx_export(path):
        with silence_libraries():
            return load_onnx_export(path), {}
    with silence_libraries(), loading_reports() as reports:
        model = SentenceTransformer(
            path,
            revision=revision,
            device=device,
            trust_remote_code=trust_remote_code,
            local_files_only=local_files_only,
            model_kwargs=options,
        )
        tokenizer_config = get_tokenizer_config(path, revision=revision, local_files_only=local_files_only)
    for transformer, report in reports:
        check_report(path, transformer, report)
        check_weights(path, transformer)
    for module in list(model)[1:]:
        check_weights(path, module)
    if isinstance(model[0], StaticEmbedding):
        check_weights(path, model[0])
        with silence_libraries():
            model = with_token_table(model)
    return model, tokenizer_config


@contextmanager
def loading_explained(path: str, revision: str | None = None) -> Iterator[None]:
    """Whatever the libraries raise for a checkpoint in this context becomes a message in one line.

    Raises:
        UserError: see :func:`why_not_loaded`.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = why_not_loaded(path, revision, error)
        if reason is None:
            raise
        raise UserError(f"could not load model {path}: {reason}") from error


def why_not_loaded(path: str, revision: str | None, error: Exception) -> str | None:
    """Why a checkpoint could not be loaded, in one line; None if the checkpoint is not at fault.

    A value of a wrong type in a settings file makes the libraries fail in any way (a TypeError, say).
    """
    if is_network_error(error):
        return f"it could not be downloaded ({first_line(error)}): try again when the Hub can be reached"
    if (problem := damaged_setting(path, revision)) is not None:
        return f"{problem}: get the file again, or correct it"
    if not is_load_error(error):
        return None
    if (
        "safetensors" not in str(error)
        and find_spec("sentencepiece") is None
        and has_sentencepiece_alone(path, revision)
    ):
        return (
            "its tokenizer is a SentencePiece model without a tokenizer.json, which needs the package "
            "sentencepiece: pip install 'idiomtune[sentencepiece]', or save a tokenizer.json beside the model"
        )
    return _advice(error)


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


def limit_length(path: str, model: SentenceTransformer, max_length: int | None) -> None:
    """Truncate texts after `max_length` tokens; None keeps the checkpoint's limit.

    Raises:
        UserError: if the model has fewer positions, or the limit leaves no room for a text.
    """
    first: Any = model[0]
    is_whole = isinstance(first, Transformer)
    check_positions(path, num_positions(first.auto_model) if is_whole else first.max_seq_length, max_length)
    check_length(path, model, max_length)
    if max_length is not None:
        model.max_seq_length = max_length


def _limit_to_positions(model: SentenceTransformer) -> None:
    """Truncate texts at the number of positions, if the checkpoint's limit is greater or missing."""
    transformer: Any = model[0]
    limit, max_length = num_positions(transformer.auto_model), model.max_seq_length
    if limit is not None and (max_length is None or max_length > limit):
        model.max_seq_length = limit


def _ensure_eos(model: SentenceTransformer, tokenizer_config: Mapping[str, Any]) -> None:
    """Have the tokenizer add the promised end token, if the last token is pooled.

    E5-Mistral's `tokenizer_config.json` says `add_eos_token`, but its `tokenizer.json` adds none.
    Transformers followed the former up to version 4 and follows the latter since, so the last word would be
    pooled.
    """
    pooled = [
        mode
        for module in model
        if isinstance(module, Pooling)
        for mode in ([module.pooling_mode] if isinstance(module.pooling_mode, str) else module.pooling_mode)
    ]
    tokenizer: Any = model.tokenizer
    if "lasttoken" not in pooled or not tokenizer_config.get("add_eos_token") or not tokenizer.is_fast:
        return
    end, number = tokenizer.eos_token, tokenizer.eos_token_id
    if end is None or tokenizer("a")["input_ids"][-1] == number:
        return
    ids, bare = tokenizer("a")["input_ids"], tokenizer("a", add_special_tokens=False)["input_ids"]
    first = next(i for i in range(len(ids)) if ids[i : i + len(bare)] == bare)
    before, after = ids[:first], [*ids[first + len(bare) :], number]
    # A single template: with two processors in sequence, truncation counts the tokens of only one.
    names = {str(tokenizer.convert_ids_to_tokens(i)): i for i in (*before, *after)}
    head, tail = ([str(tokenizer.convert_ids_to_tokens(i)) for i in ids] for ids in (before, after))
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=[*head, "$A", *tail],
        pair=[*head, "$A", *tail, "$B", *tail],
        special_tokens=list(names.items()),
    )


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
    return getattr(_transformer_config(model), "is_causal", None) is False


def _has_code(model: SentenceTransformer) -> bool:
    """Whether the checkpoint names Python code for its transformer."""
    return "AutoModel" in (getattr(_transformer_config(model), "auto_map", None) or {})


def _transformer_config(model: SentenceTransformer) -> Any:
    return model[0].auto_model.config if isinstance(model[0], Transformer) else None


def _advice(error: Exception) -> str:
    """A library's error in one line, with what to do, if that is known."""
    text = str(error)
    if "trust_remote_code" in text:
        return (
            "it cannot be loaded without the Python code that comes with it: read the code, then "
            "model.trust_remote_code=true runs it"
        )
    if "safetensors" in text and ("does not appear to have a file" in text or "no file named" in text):
        return (
            "it has no safetensors file at this revision, and other files may run code when opened. "
            "model.convert_weights=true converts a pytorch_model.bin, by a process that reads nothing but "
            "weights. Or leave model.revision unset (the Hub then converts the main branch), or name a "
            "converted one, such as model.revision=refs/pr/1"
        )
    if "Unrecognized processing class" in text or "Missing [UNK] token" in text:
        return (
            "it has no tokenizer, or one that cannot be read: save the tokenizer's files (tokenizer.json, "
            "tokenizer_config.json) beside the model"
        )
    if isinstance(error, KeyError):
        return f"config.json, or another settings file, names {error}, which is unknown"
    if isinstance(error, OSError | ValueError | RuntimeError | ImportError) or type(error) is Exception:
        return first_line(error)
    return (
        f"{type(error).__name__}: {first_line(error)} (one of its files is damaged, or made for other "
        "versions of the libraries)"
    )


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
