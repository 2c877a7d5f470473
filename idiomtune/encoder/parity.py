"""Whether plain sentence-transformers computes what this project's encoder does, on eight fixed texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from torch import Tensor
from torch.nn.functional import normalize

from idiomtune.encoder.encoder import Encoder
from idiomtune.errors import UserError
from idiomtune.requests import Request

_MAX_TWICE = 10**9
_LIMIT = 1e-3  # of a number of an embedding at unit length
_TEXTS = (
    Request("The train left the station at nine."),
    Request("The train left the station at nine.", role="query"),
    Request("The train left the station at nine.", (14, 25), pooling="span"),
    Request("Un café très élégant à São Paulo, naïve façade."),
    Request("winter " * 3000),  # beyond most maximum lengths
    Request(""),
    Request("See you there 🙂👍"),
    Request("Москва и 北京"),
)


@torch.no_grad()
def compared(encoder: Encoder, plain: SentenceTransformer, name: str) -> float:
    """The largest difference of any number of eight texts' embeddings, each of unit length.

    A span is compared where nothing but scaling follows the pooling. Texts that hold an expression of the
    encoder's glossary, or of which no token is left, are left out.

    Args:
        encoder: in evaluation mode.
        plain: the same model in memory, or loaded from the folder in which it was saved.
        name: of the model, for messages.

    Raises:
        UserError: if they differ by more than 1e-3, with the text.
    """
    worst = 0.0
    for request in _TEXTS:
        theirs = _plain(encoder, plain, request)
        if theirs is None:
            continue
        ours = encoder.forward([request])[0].float().cpu()
        difference = float((normalize(ours, dim=0) - normalize(theirs.float().cpu(), dim=0)).abs().max())
        if not difference <= _LIMIT:
            what = f"{request.text[:40]!r} ({request.role}, {request.pooling})"
            raise UserError(
                f"{name}: plain sentence-transformers embeds {what} otherwise: the embeddings differ by "
                f"{difference:.2g}. Its prompt, pooling, maximum length or weights are not those that are "
                "trained and scored here (trainer.invariants.parity=false trains all the same)"
            )
        worst = max(worst, difference)
    return worst


def compared_when_loaded(encoder: Encoder, folder: Path, *, trust_remote_code: bool) -> float | None:
    """:func:`compared`, with the saved model; None for one of more than a billion weights."""
    if sum(p.numel() for p in encoder.parameters()) > _MAX_TWICE:
        return None
    plain = SentenceTransformer(
        str(folder),
        device=encoder.device.type,
        local_files_only=True,
        trust_remote_code=trust_remote_code,
        model_kwargs={"dtype": torch.float32},
    )
    return compared(encoder, plain, f"the saved model {folder}")


def _plain(encoder: Encoder, plain: Any, request: Request) -> Tensor | None:
    """Its embedding by sentence-transformers alone; None if it is not compared."""
    meanings, text = encoder.meanings, request.text
    if (meanings is not None and meanings.find(text)) or not plain.tokenizer(text)["input_ids"]:
        return None
    if request.span is None:
        if plain is encoder.model:  # its prompts may come from options
            prompt = {"prompt": getattr(encoder.prompts, request.role)}
        else:
            prompt = {"prompt_name": request.role}
        embedding: Tensor = plain.encode(text, convert_to_tensor=True, show_progress_bar=False, **prompt)
        return embedding
    after = [module for module in plain if not isinstance(module, Normalize)]
    if encoder.raw_spans or len(after) > 2 or encoder.prompts.document or not plain.tokenizer.is_fast:
        return None
    start, end = request.span
    tokens = plain.encode(text, output_value="token_embeddings", show_progress_bar=False, prompt="")
    offsets = plain.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    inside = [t for t, (s, e) in zip(tokens, offsets, strict=False) if s < end and e > start and s < e]
    return torch.stack(inside).mean(0)
