"""What is recorded of a model: checksums, and how it reads texts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from idiomtune.encoder.idiom_tokens import IdiomTokens
from idiomtune.encoder.static import StaticTokens


def weights_digest(model: nn.Module, dimensions: int | None = None) -> str:
    """SHA-256 of all weights and their names, to check that a base model is the same as before.

    Args:
        model: an :class:`~idiomtune.encoder.encoder.Encoder`, whose names are hashed.
        dimensions: only parameters of so many.
    """
    digest = hashlib.sha256()
    for name, p in model.named_parameters():
        if dimensions is None or p.dim() == dimensions:
            digest.update(name.encode())
            digest.update(p.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def model_digest(
    encoder: nn.Module, model: SentenceTransformer, idioms: IdiomTokens | None, others: Iterable[Any]
) -> str:
    """SHA-256 of all that an encoder's embeddings depend on.

    Args:
        model: of the encoder.
        others: facts besides weights, modules, tokenizer and idiom tokens.
    """
    tokenizer = json.loads(model.tokenizer.backend_tokenizer.to_str())
    modules: list[Any] = list(model)
    config = {} if isinstance(modules[0], StaticTokens) else modules[0].auto_model.config.to_dict()
    facts: list[Any] = [
        weights_digest(encoder),
        [(type(module).__name__, module.get_config_dict()) for module in modules],
        {name: value for name, value in config.items() if name != "_name_or_path"},
        {part: value for part, value in tokenizer.items() if part not in ("truncation", "padding")},
        idioms and (idioms.expressions, idioms.replace, idioms.forms),
        model.tokenizer.truncation_side,
        *others,
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def describe_reading(encoder: Any) -> dict[str, Any]:
    """For a model card: prompts, and modules after the pooling, which spans pass too.

    Args:
        encoder: an :class:`~idiomtune.encoder.encoder.Encoder`.
    """
    modules = list(encoder.model)
    ((at, pooling),) = ((n, module) for n, module in enumerate(modules) if isinstance(module, Pooling))
    return {
        "query": encoder.prompts.query,
        "document": encoder.prompts.document,
        "has_default_prompt": bool(encoder.model.prompts.get(encoder.model.default_prompt_name or "")),
        "pooling_at": at,
        "num_poolings": pooling.pooling_output_dimension // pooling.embedding_dimension,
        "after": [type(module).__name__ for module in modules[at + 1 :]],
        "raw_spans": encoder.raw_spans,
    }
