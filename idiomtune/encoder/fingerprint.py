"""What tells one model from another: of its weights, and of all that decides its embeddings."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from torch import nn

from idiomtune.encoder.idiom_tokens import TokenModel

_OF_MEANINGS = ("form", "num_senses", "weight", "left_out", "gate")


def weights_digest(encoder: nn.Module) -> str:
    """SHA-256 of all weights and their names, to check that a base model is the same as before."""
    digest = hashlib.sha256()
    for name, p in encoder.named_parameters():
        digest.update(name.encode())
        digest.update(p.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def model_digest(encoder: Any) -> str:
    """SHA-256 of what decides embeddings: weights, modules, tokenizer, prompts, expressions, spans.

    Args:
        encoder: an :class:`~idiomtune.encoder.encoder.Encoder`.
    """
    tokenizer = json.loads(encoder.model.tokenizer.backend_tokenizer.to_str())
    modules: list[Any] = list(encoder.model)
    exported = isinstance(modules[0], TokenModel)
    config = {} if exported else modules[0].auto_model.config.to_dict()
    idioms, meanings = encoder.idiom_tokens, encoder.meanings
    facts: list[Any] = [
        weights_digest(encoder),
        [(type(module).__name__, module.get_config_dict()) for module in modules],
        {name: value for name, value in config.items() if name != "_name_or_path"},
        {part: value for part, value in tokenizer.items() if part not in ("truncation", "padding")},
        *(asdict(encoder.prompts), encoder.model.max_seq_length, encoder.raw_spans),
        idioms and (idioms.expressions, idioms.replace),
        # In their order: of two expressions that fit a text alike, the first is read.
        meanings and [list(meanings.senses.items()), *(getattr(meanings, name) for name in _OF_MEANINGS)],
    ]
    # Only where they are not as usual, so that the sums of other models stay as they were.
    if encoder.model.tokenizer.truncation_side != "right":
        facts.append(["cut on the left"])
    if exported and modules[0].do_lower_case:
        facts.append(["in lower case"])
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
