"""What is recorded of a model: checksums, and how it reads texts."""

from __future__ import annotations

import hashlib
from typing import Any

from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn


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
