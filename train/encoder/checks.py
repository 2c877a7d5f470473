"""Whether a checkpoint that could be loaded is complete: what the libraries do not complain about.

They also load incomplete checkpoints: layers without weights get random ones, a tokenizer without files knows
no words, and both could be trained and scored for days.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import PreTrainedModel

from train.errors import UserError
from train.io.text import first_of

_BUFFERS = ("position_ids", "inv_freq", "masked_bias", "num_batches_tracked", "cos_cached", "sin_cached")
_POOLER = "pooler"  # on [CLS], for classification: embeddings do not use it
_MAX_NAMED = 4  # weights in a message
_MAX_BARE_PIECES = 1  # what a SentencePiece tokenizer without its file has: the space

Report = dict[str, Any]


@contextmanager
def loading_reports() -> Iterator[list[tuple[PreTrainedModel, Report]]]:
    """What transformers reports for each model loaded in this context: which weights were not in its files.

    sentence-transformers loads the model itself and does not pass the report on, so it is taken from
    `PreTrainedModel.from_pretrained`, by its public option. The library's table in the log, where nobody
    reads "newly initialized" as "random", is left out. Not thread-safe.
    """
    reports: list[tuple[PreTrainedModel, Report]] = []
    plain: Any = PreTrainedModel.__dict__["from_pretrained"]

    def reporting(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("output_loading_info"):
            return plain.__func__(cls, *args, **kwargs)
        kwargs["ignore_mismatched_sizes"] = True  # they are reported by name instead
        model, report = plain.__func__(cls, *args, output_loading_info=True, **kwargs)
        reports.append((model, report))
        return model

    def is_no_table(record: logging.LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    logger = logging.getLogger("transformers.modeling_utils")
    logger.addFilter(is_no_table)
    patched: Any = PreTrainedModel
    patched.from_pretrained = classmethod(reporting)
    try:
        yield reports
    finally:
        patched.from_pretrained = plain
        logger.removeFilter(is_no_table)


def check_report(path: str, model: PreTrainedModel, report: Report) -> None:
    """Check that the files hold exactly the weights that the configuration needs.

    Weights that embeddings do not use may be missing (a pooler) or extra (the head of another task, the
    decoder next to an encoder). A missing pooler is set to zero, since a random one would differ each time.

    Raises:
        UserError: naming the weights.
    """
    parts = {name for name, _ in model.named_children()}
    buffers = {name for name, _ in model.named_buffers()}  # older versions saved some, as GPT-Neo's masks
    inside = {name: name.removeprefix(f"{model.base_model_prefix}.") for name in report["unexpected_keys"]}
    problems = {
        "its weights file lacks": [name for name in report["missing_keys"] if not _is_of_pooler(name)],
        "config.json disagrees with its weights file about": [
            f"{name} ({_size(stored)} in the file, {_size(wanted)} by config.json)"
            for name, stored, wanted in report["mismatched_keys"]
        ],
        # Weights outside the encoder, such as `lm_head`, are a head's; those inside are a part of it.
        "config.json does not mention what its weights file has": [
            name
            for name, own in inside.items()
            if own.split(".")[0] in parts
            and not _is_of_pooler(name)
            and own not in buffers
            and not name.endswith(_BUFFERS)
        ],
    }
    for problem, names in problems.items():
        if names:
            raise UserError(
                f"model {path}: {problem} {first_of(sorted(names), _MAX_NAMED)}: it would be another model, "
                "with random weights for what is missing. Get config.json and the weights again"
            )
    missing = {name for name in report["missing_keys"] if _is_of_pooler(name)}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in missing:
                parameter.zero_()


def check_weights(path: str, model: nn.Module) -> None:
    """Check that the weights are usable numbers.

    Raises:
        UserError: if some are NaN or infinite, or all matrices are of whole numbers.
    """
    # By the largest absolute value, without a copy in memory; NaN and infinity stay what they are.
    broken = [
        name
        for name, parameter in model.named_parameters()
        if parameter.numel() and not torch.linalg.vector_norm(parameter.detach(), ord=float("inf")).isfinite()
    ]
    if broken:
        raise UserError(
            f"model {path}: its weights are not finite (NaN or infinite) in "
            f"{first_of(sorted(broken), _MAX_NAMED)}: the file is damaged, or was saved by a training that "
            "failed. Take another checkpoint"
        )
    matrices = [p.detach() for p in model.parameters() if p.dim() > 1]
    if matrices and all(bool((weight == weight.round()).all()) for weight in matrices):
        raise UserError(
            f"model {path}: all its weights are zero or other whole numbers, as in an incomplete or a "
            "quantised model: take the checkpoint with its numbers in full"
        )


def check_vocabulary(path: str, tokenizer: Any, transformer: PreTrainedModel | None = None) -> None:
    """Check that the tokenizer knows words (without its files, transformers makes one that knows none).

    Args:
        transformer: has to have an embedding for each of its tokens.

    Raises:
        UserError: naming the files, or both sizes.
    """
    vocabulary = tokenizer.get_vocab()
    if len(vocabulary.keys() - set(tokenizer.all_special_tokens)) <= _MAX_BARE_PIECES:
        files = dict.fromkeys(("tokenizer.json", *getattr(tokenizer, "vocab_files_names", {}).values()))
        raise UserError(
            f"model {path}: its tokenizer knows no words, because its files ({', '.join(files)}) are missing "
            "or empty: save the tokenizer next to the model, or copy its files there"
        )
    if transformer is None:
        return
    matrix: Any = transformer.get_input_embeddings()
    if (needed := max(vocabulary.values()) + 1) > len(matrix.weight):
        raise UserError(
            f"model {path}: its tokenizer has {needed} tokens, and the model embeddings for "
            f"{len(matrix.weight)} (vocab_size in config.json): the tokenizer belongs to another model, or "
            "gained tokens that the model was not resized for"
        )


def check_length(path: str, model: SentenceTransformer, max_length: int | None) -> None:
    """Check that the maximum length leaves room for a token between the special ones.

    Args:
        max_length: the option; None if the checkpoint's limit counts.

    Raises:
        UserError: naming the option, or the files that hold the checkpoint's limit.
    """
    limit = model.max_seq_length if max_length is None else max_length
    tokenizer: Any = model.tokenizer
    needed: int = tokenizer.num_special_tokens_to_add() + 1
    if limit is None or needed <= limit:
        return
    whose = "model.max_length"
    if max_length is None:
        whose = (
            f"model {path}: max_seq_length in sentence_bert_config.json, or model_max_length in "
            "tokenizer_config.json, "
        )
    raise UserError(
        f"{whose}={limit}: a text needs {needed - 1} special tokens and at least one other: give "
        f"model.max_length={needed} or more"
    )


def check_embeddings(path: str, embeddings: Tensor, dimension: int) -> None:
    """Check that a model tells texts apart.

    Args:
        embeddings: (N, D') of different texts.
        dimension: D, that the model's files promise.

    Raises:
        UserError: if they are all equal, have another width, or are not numbers.
    """
    problem = None
    if embeddings.shape[1] != dimension:
        problem = f"have {embeddings.shape[1]} numbers, and by its modules' config.json files {dimension}"
    elif not embeddings.isfinite().all():
        problem = "are not finite"
    elif len(embeddings) > 1 and bool((embeddings == embeddings[0]).all()):
        problem = "are the same for different texts (all zero, or pooled from tokens that see no other)"
    if problem is not None:
        raise UserError(
            f"model {path}: its embeddings {problem}: get the model again, or correct its pooling"
        )


def check_special_token(tokenizer: Any, text: str, option: str) -> None:
    """Check that a model has a text that an objective puts among words as a special token.

    Args:
        text: a token in brackets, or plain words, which are always accepted.
        option: the objective's option that names it; its last part is what it stands for, as in `mask`.

    Raises:
        UserError: if it looks like the special token of another model.
    """
    if text[0] + text[-1] not in ("[]", "<>") or text in tokenizer.all_special_tokens:
        return
    is_mask = option.rpartition(".")[2] == "mask"
    token, words = (tokenizer.mask_token, "something") if is_mask else (tokenizer.sep_token, ":")
    advice = f"its own is objective.{option}='{token}'" if token else f"it has none; use words, as '{words}'"
    raise UserError(f"objective.{option}={text!r} is not a token of this model: {advice}")


def _is_of_pooler(name: str) -> bool:
    return _POOLER in name.split(".")


def _size(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))
