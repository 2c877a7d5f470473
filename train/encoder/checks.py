"""Whether a checkpoint that could be loaded is complete: weights, vocabulary, lengths, sizes.

The libraries also load incomplete checkpoints: layers without weights get random ones, a tokenizer without
files knows no words, and both could be trained and scored for days.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn
from transformers import PreTrainedModel

from train.errors import UserError

log = logging.getLogger(__name__)

_MAX_NAMED = 4  # weights in a message
# Buffers that older versions saved, and that are computed, not learnt.
_BUFFERS = ("position_ids", "inv_freq", "masked_bias", "num_batches_tracked", "cos_cached", "sin_cached")
_POOLER = "pooler"  # on [CLS], for classification: embeddings do not use it
_MAX_BARE_PIECES = 1  # what a SentencePiece tokenizer without its file has: the space
_NO_LIMIT = 10**9  # tokens; tokenizers without a maximum length give 10^30

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

    logger = logging.getLogger("transformers.modeling_utils")
    logger.addFilter(_is_no_table)
    patched: Any = PreTrainedModel
    patched.from_pretrained = classmethod(reporting)
    try:
        yield reports
    finally:
        patched.from_pretrained = plain
        logger.removeFilter(_is_no_table)


def _is_no_table(record: logging.LogRecord) -> bool:
    return "LOAD REPORT" not in record.getMessage()


def check_report(path: str, model: PreTrainedModel, report: Report) -> None:
    """Check that the files hold exactly the weights that the configuration needs.

    Weights that embeddings do not use may be missing (a pooler) or extra (the head of another task, the
    decoder beside an encoder). A missing pooler is set to zero, since a random one would differ each time.

    Raises:
        UserError: naming the weights.
    """
    missing = [name for name in report["missing_keys"] if not _is_of_pooler(name)]
    if missing:
        raise UserError(
            f"model {path}: its weights file lacks {_listed(missing)}, which would be random numbers. The "
            "file is incomplete, or config.json is another model's: get both again"
        )
    if report["mismatched_keys"]:
        named = [
            f"{name} (in the file {_size(found)}, by config.json {_size(wanted)})"
            for name, found, wanted in report["mismatched_keys"]
        ]
        raise UserError(
            f"model {path}: config.json does not fit the weights file in {_listed(named)}: get both again"
        )
    # Weights outside the encoder, such as `lm_head`, are a head's; those inside are a part of it.
    parts = {name for name, _ in model.named_children()}
    prefix = f"{model.base_model_prefix}."
    computed = {name for name, _ in model.named_buffers()}  # older versions saved some, as GPT-Neo's masks
    more = [
        name
        for name in report["unexpected_keys"]
        if name.removeprefix(prefix).split(".")[0] in parts
        and not _is_of_pooler(name)
        and not name.endswith(_BUFFERS)
        and name.removeprefix(prefix) not in computed
    ]
    if more:
        raise UserError(
            f"model {path}: its weights file holds {_listed(more)}, which config.json knows nothing of: "
            "without these it would be another model. Get both files again, or save a cut-down model anew"
        )
    _zero_missing_pooler(model, report["missing_keys"])


def check_weights(path: str, model: nn.Module) -> None:
    """Check that the weights are usable numbers.

    A single matrix may be zero, such as the segment types of RoBERTa.

    Raises:
        UserError: if some are NaN or infinite, all matrices or the word embeddings are zero, or the word
            embeddings are whole numbers.
    """
    # The largest absolute values, without a copy in memory; NaN and infinity stay what they are.
    largest = {
        name: torch.linalg.vector_norm(parameter.detach(), ord=float("inf"))
        for name, parameter in model.named_parameters()
        if parameter.numel()
    }
    broken = [name for name, value in largest.items() if not value.isfinite()]
    matrices = [
        name
        for name, parameter in model.named_parameters()
        if name in largest and parameter.dim() > 1 and not _is_of_pooler(name)
    ]
    empty = [name for name in matrices if largest[name] == 0]
    if broken:
        raise UserError(
            f"model {path}: its weights are not finite (NaN or infinite) in {_listed(broken)}: the file is "
            "damaged, or was saved by a training that failed. Take another checkpoint"
        )
    words = _word_embeddings(model)
    name, weight = words if words is not None else ("", None)
    if empty and (empty == matrices or name in empty):
        raise UserError(
            f"model {path}: its weights are all zero in {_listed([name] if name in empty else empty)}: the "
            "file is incomplete: get it again"
        )
    if weight is not None and bool((weight == weight.round()).all()):
        raise UserError(
            f"model {path}: its weights are whole numbers ({name}), as a quantised model has them, which "
            "cannot be trained or scored here: take the checkpoint with its numbers in full"
        )


def check_vocabulary(path: str, tokenizer: Any) -> None:
    """Check that the tokenizer knows words: without its files, transformers makes one that knows none.

    Raises:
        UserError: naming the files.
    """
    special = set(tokenizer.all_special_tokens)
    words = [token for token in tokenizer.get_vocab() if token not in special]
    if len(words) <= _MAX_BARE_PIECES:
        names = dict.fromkeys(("tokenizer.json", *getattr(tokenizer, "vocab_files_names", {}).values()))
        raise UserError(
            f"model {path}: its tokenizer knows no words, since none of its files "
            f"({', '.join(names)}) is there, or they are empty: save the tokenizer beside the model, or copy "
            "its files there"
        )


def check_vocabulary_size(path: str, tokenizer: Any, transformer: PreTrainedModel) -> None:
    """Check that each token has a row in the embedding matrix.

    Raises:
        UserError: naming both sizes.
    """
    matrix: Any = transformer.get_input_embeddings()
    rows: int = matrix.weight.shape[0]
    needed: int = max(tokenizer.get_vocab().values(), default=-1) + 1
    if needed > rows:
        raise UserError(
            f"model {path}: its tokenizer has {needed} tokens, and the model embeddings for {rows} "
            "(vocab_size in config.json): the tokenizer is another model's, or gained tokens that the model "
            "was not resized for"
        )


def check_length(path: str, model: SentenceTransformer, max_length: int | None) -> None:
    """Check that the maximum length leaves room for a token beside the special ones.

    Args:
        max_length: the option; None if the checkpoint's limit counts.

    Raises:
        UserError: naming the option, or the files that hold the checkpoint's limit.
    """
    limit = model.max_seq_length if max_length is None else max_length
    if limit is None or limit >= _NO_LIMIT:
        return
    tokenizer: Any = model.tokenizer
    special: int = tokenizer.num_special_tokens_to_add()
    if limit > special:
        return
    why = f"a text needs {special} special tokens and at least one other"
    if max_length is not None:
        raise UserError(f"model.max_length={max_length}: {why}; give {special + 1} or more")
    raise UserError(
        f"model {path}: its maximum length is {limit} tokens (max_seq_length in sentence_bert_config.json, "
        f"or model_max_length in tokenizer_config.json), and {why}: correct it there, or give "
        "model.max_length"
    )


def check_special_token(tokenizer: Any, text: str, option: str) -> None:
    """Check that a model has a text that an objective puts among words as a special token.

    Args:
        text: a token in brackets, or plain words, which are always accepted.
        option: the objective's option that names it; its last part is what it stands for, as in `mask`.

    Raises:
        UserError: if it looks like the special token of another model.
    """
    in_brackets = text[0] + text[-1] in ("[]", "<>")
    if not in_brackets or text in tokenizer.all_special_tokens:
        return
    is_mask = option.rpartition(".")[2] == "mask"
    token, words = (tokenizer.mask_token, "something") if is_mask else (tokenizer.sep_token, ":")
    advice = f"its own is objective.{option}='{token}'" if token else f"it has none; use words, as '{words}'"
    raise UserError(f"objective.{option}={text!r} is no token of this model: {advice}")


def check_widths(path: str, modules: Sequence[nn.Module]) -> None:
    """Check that each module takes the width that the one before it gives.

    Raises:
        UserError: naming the module and both numbers.
    """
    first = modules[0]
    width = first.get_embedding_dimension() if isinstance(first, Transformer) else None
    for number, module in enumerate(modules[1:], 1):
        takes: int | None = None
        gives = width
        if isinstance(module, Pooling):
            takes, gives = module.embedding_dimension, module.pooling_output_dimension
            if not gives:
                raise UserError(f"model {path}: its pooling (1_Pooling/config.json) names no pooling_mode")
        elif isinstance(module, Dense):
            takes, gives = module.in_features, module.out_features
        if takes is not None and width is not None and takes != width:
            raise UserError(
                f"model {path}: its module {number} ({type(module).__name__}, see modules.json) takes "
                f"embeddings of {takes} numbers, and gets {width}: correct the config.json in its folder"
            )
        width = gives


def _is_of_pooler(name: str) -> bool:
    return _POOLER in name.split(".")


def _zero_missing_pooler(model: PreTrainedModel, missing: Sequence[str]) -> None:
    names = {name for name in missing if _is_of_pooler(name)}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in names:
                parameter.zero_()


def _word_embeddings(model: nn.Module) -> tuple[str, Tensor] | None:
    """The name and the matrix of the input embeddings."""
    if not isinstance(model, PreTrainedModel):
        return None
    try:
        weight = getattr(model.get_input_embeddings(), "weight", None)
    except NotImplementedError:  # of a model of texts and images
        return None
    if weight is None:
        return None
    name = next((name for name, p in model.named_parameters() if p is weight), "the word embeddings")
    return name, weight.detach()


def _size(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


def _listed(names: Sequence[str]) -> str:
    """The first few names in order, and how many more there are."""
    ordered = sorted(names)
    shown = ", ".join(ordered[:_MAX_NAMED])
    rest = len(ordered) - _MAX_NAMED
    return shown + (f" and {rest} more" if rest > 0 else "")
