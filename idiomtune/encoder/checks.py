"""Completeness of a loaded checkpoint: problems that the libraries load silently.

They also load incomplete checkpoints: layers without weights get random ones, a tokenizer without files knows
no words, and both could be trained and scored for days.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from idiomtune.errors import UserError
from idiomtune.io.files import list_names

_BUFFERS = ("position_ids", "inv_freq", "masked_bias", "num_batches_tracked", "cos_cached", "sin_cached")
_POOLER = "pooler"  # on [CLS], for classification: embeddings do not use it
_MAX_NAMED = 4  # weights in a message
_MAX_BARE_PIECES = 1  # what a SentencePiece tokenizer without its file has: the space

LoadingReport = dict[str, Any]  # transformers' own, of weights that were not in a model's files


def check_complete(
    path: str,
    model: nn.Module,
    report: LoadingReport | None,
    tokenizer: PreTrainedTokenizerBase | None,
    transformer: PreTrainedModel | None = None,
) -> None:
    """Check weights and tokenizer for problems that the libraries load silently.

    Weights that embeddings do not use may be missing (a pooler) or extra (the head of another task, the
    decoder next to an encoder). A missing pooler is set to zero, since a random one would differ each time.

    Args:
        model: with all that was loaded.
        report: of the weights of the transformer, or of the whole model.
        tokenizer: has to know words (without its files, transformers makes one that knows none).
        transformer: it, or the model's table of token vectors, has to have an embedding for each token.

    Raises:
        UserError: naming all that is wrong.
    """
    problems = [] if report is None else list(_weight_problems(transformer or model, report))
    # By the largest absolute value, without a copy in memory; NaN and infinity stay what they are.
    weights = {name: p.detach() for name, p in model.named_parameters() if p.numel()}
    norms = {name: torch.linalg.vector_norm(weight, ord=float("inf")) for name, weight in weights.items()}
    if broken := sorted(name for name, norm in norms.items() if not norm.isfinite()):
        problems.append(f"its weights are NaN or infinite in {list_names(broken, _MAX_NAMED)}")
    if tokenizer is not None:
        vocabulary = tokenizer.get_vocab()
        tables = (module for module in model.modules() if isinstance(module, nn.Embedding))
        matrix = transformer.get_input_embeddings() if transformer is not None else next(tables, None)
        if len(vocabulary.keys() - set(tokenizer.all_special_tokens)) <= _MAX_BARE_PIECES:
            files = dict.fromkeys(("tokenizer.json", *getattr(tokenizer, "vocab_files_names", {}).values()))
            problems.append(f"its tokenizer knows no words: {', '.join(files)} are missing or empty")
        elif matrix is not None and (needed := max(vocabulary.values()) + 1) > (rows := len(matrix.weight)):
            mismatch = f"its tokenizer has {needed} tokens, and the model embeddings for {rows}"
            problems.append(f"{mismatch} (vocab_size in config.json)")
    if problems:
        raise UserError(f"model {path}: {'; '.join(problems)}. Get config.json and its other files again")


def _weight_problems(model: PreTrainedModel, report: LoadingReport) -> Iterator[str]:
    """Missing weights, wrong sizes and unexpected weights; sets a missing pooler to zero."""
    parts = {name for name, _ in model.named_children()}
    buffers = {name for name, _ in model.named_buffers()}  # older versions saved some, as GPT-Neo's masks
    inside = {name: name.removeprefix(f"{model.base_model_prefix}.") for name in report["unexpected_keys"]}
    problems = {
        "its weights file lacks": [name for name in report["missing_keys"] if not _is_of_pooler(name)],
        "config.json disagrees with its weights file about": [
            f"{name} ({_size(stored)} in the file, {_size(expected)} by config.json)"
            for name, stored, expected in report["mismatched_keys"]
        ],
        # Weights outside the encoder, such as `lm_head`, are a head's; those inside are a part of it.
        "config.json does not mention what its weights file has": [
            name
            for name, own in inside.items()
            if own.split(".")[0] in parts and own not in buffers
            if not _is_of_pooler(name) and not name.endswith(_BUFFERS)
        ],
    }
    for problem, names in problems.items():
        if names:
            yield f"{problem} {list_names(sorted(names), _MAX_NAMED)}"
    for name, parameter in model.named_parameters():
        if _is_of_pooler(name) and name in report["missing_keys"]:
            nn.init.zeros_(parameter)


def check_special_token(tokenizer: PreTrainedTokenizerBase, text: str, option: str) -> None:
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


def _size(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


def _is_of_pooler(name: str) -> bool:
    return _POOLER in name.split(".")


def check_embedding(path: str, embedding: Tensor, dimension: int) -> None:
    """Check the embedding (D',) of a text, whose D the model's files promise.

    Raises:
        UserError: if it has another width.
    """
    if len(embedding) != dimension:
        problem = f"its embeddings have {len(embedding)} numbers, and by its files {dimension}"
        raise UserError(f"model {path}: {problem}: get it again, or correct its pooling")
