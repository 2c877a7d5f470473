"""Parity of this project's encoder with plain sentence-transformers, on eight fixed texts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor
from torch.nn.functional import normalize

from idiomtune.config import ModelSettings
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.loading import load_plain, locate_checkpoint
from idiomtune.errors import UserError
from idiomtune.requests import Request

_MAX_TWICE = 10**9  # weights: more are not loaded twice
_LIMIT = 1e-3  # of a number of an embedding at unit length; on a CPU a tenth of it
_TEXTS = (
    Request("The train left the station at nine."),
    Request("The train left the station at nine.", role="query"),
    Request("The train left the station at nine.", (14, 25), pooling="span"),
    Request("Un café très élégant à São Paulo, naïve façade."),
    Request("winter " * 600),  # beyond many a maximum length
    Request(""),
    Request("See you there 🙂👍"),
    Request("Москва и 北京"),
)


def compare_loaded(encoder: Encoder, settings: ModelSettings) -> float:
    """:func:`compare_texts` with the saved checkpoint, or with the loaded model if options change it.

    Raises:
        UserError: as :func:`compare_texts`.
    """
    changed = (settings.pooling, settings.pool_prompts, settings.bidirectional, settings.max_length)
    is_whole = changed == (None,) * 4 and encoder.idiom_tokens is None
    plain, prompts = encoder.model, {"query": encoder.prompts.query, "document": encoder.prompts.document}
    if is_whole and _fits_twice(encoder):
        folder, offline = locate_checkpoint(settings.path, settings.revision)
        plain = load_plain(folder, settings, device=encoder.device.type, local_files_only=offline)
        # A checkpoint may promise more positions than it has, which ends in an error.
        plain.max_seq_length = encoder.model.max_seq_length
    return compare_texts(encoder, plain, f"model {settings.path}", prompts)


def compare_saved(encoder: Encoder, folder: Path, settings: ModelSettings) -> float | None:
    """:func:`compare_texts` with the saved encoder; None for more than a billion weights."""
    if not _fits_twice(encoder):
        return None
    saved = settings.model_copy(update={"revision": None})
    plain = load_plain(str(folder), saved, device=encoder.device.type, local_files_only=True)
    return compare_texts(encoder, plain, f"the saved model {folder}", plain.prompts)


def _fits_twice(encoder: Encoder) -> bool:
    return sum(p.numel() for p in encoder.parameters()) <= _MAX_TWICE


@torch.no_grad()
def compare_texts(
    encoder: Encoder, plain: SentenceTransformer, name: str, prompts: Mapping[str, str | None]
) -> float:
    """The largest difference between any numbers of eight texts' unit embeddings.

    Texts that hold an expression of the encoder's glossary, or of which no token is left, and a span that is
    embedded past the modules after the pooling are left out (:func:`texts_to_compare`).

    Args:
        encoder: in evaluation mode.
        plain: the same model, as sentence-transformers loads it.
        name: of the model, for messages.
        prompts: that the plain model is given, by role: those that it has saved, or the encoder's, as options
            may change them.

    Raises:
        UserError: if they differ by more than 1e-3 (on a CPU 1e-4), with the text.
    """
    worst, limit = 0.0, _LIMIT / 10 if encoder.device.type == "cpu" else _LIMIT
    for request in texts_to_compare(encoder):
        reference = _reload_plain(plain, request, prompts[request.role] or "")
        vector = encoder.forward([request])[0].float().cpu()
        difference = float((normalize(vector, dim=0) - normalize(reference.float().cpu(), dim=0)).abs().max())
        if not difference <= limit:
            text = f"{request.text[:40]!r} ({request.role}, {request.pooling})"
            raise UserError(
                f"{name}: plain sentence-transformers embeds {text} otherwise: the embeddings differ by "
                f"{difference:.2g}. Its prompt, pooling, maximum length or weights are not those that are "
                "trained and scored here (trainer.invariants=false trains without this check)"
            )
        worst = max(worst, difference)
    return worst


def texts_to_compare(encoder: Encoder) -> list[Request]:
    """The texts that sentence-transformers alone can embed like the encoder."""
    return [
        request
        for request in _TEXTS
        if not (encoder.meanings is not None and encoder.meanings.find(request.text))
        if not (encoder.raw_spans and request.span)
        if encoder.model.tokenizer(request.text, truncation=True)["input_ids"]
    ]


def _reload_plain(plain: Any, request: Request, prompt: str) -> Tensor:
    """The embedding by sentence-transformers alone; of a span by the code on the model card."""
    if request.span is None:
        options = {"convert_to_tensor": True, "show_progress_bar": False, "prompt": prompt}
        embedding: Tensor = plain.encode(request.text, **options)
        return embedding
    text, start, end = prompt + request.text, *(len(prompt) + offset for offset in request.span)
    tokens = plain.encode(text, output_value="token_embeddings", show_progress_bar=False, prompt="")
    offsets = plain.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    inside = [t for t, (s, e) in zip(tokens, offsets, strict=False) if s < end and e > start and s < e]
    ((at, pooling),) = ((n, module) for n, module in enumerate(plain) if isinstance(module, Pooling))
    count = pooling.pooling_output_dimension // pooling.embedding_dimension
    features = {"sentence_embedding": torch.stack(inside).mean(0).repeat(count)[None]}
    for module in list(plain)[at + 1 :]:
        features = module(features)
    return features["sentence_embedding"][0]
