"""Whether plain sentence-transformers computes what this project's encoder does, on eight fixed texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from torch import Tensor
from torch.nn.functional import normalize

from idiomtune.config import ModelSettings
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.loading import locate_checkpoint, resolve_model_path, silence_libraries
from idiomtune.errors import UserError
from idiomtune.requests import Request

_MAX_TWICE = 10**9
_LIMITS = {"cpu": 1e-4}  # of a number of an embedding at unit length
_LIMIT = 1e-3  # on other devices
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
    """:func:`compared` at the door: with the checkpoint as it is, or the loaded model if options change it.

    Raises:
        UserError: as :func:`compared`.
    """
    changed = (settings.pooling, settings.pool_prompts, settings.bidirectional, settings.max_length)
    is_whole = all(option is None for option in changed) and encoder.idiom_tokens is None
    plain = encoder.model
    if is_whole and not settings.convert_weights and _is_small(encoder):
        folder, offline = locate_checkpoint(resolve_model_path(settings.path), settings.revision)
        where = {"revision": settings.revision, "local_files_only": offline}
        plain = _load_plain(encoder, folder, settings, **where)
    return compared(encoder, plain, f"model {settings.path}", by_name=False)


def compare_saved(encoder: Encoder, folder: Path, settings: ModelSettings) -> float | None:
    """:func:`compared`, with what was saved of the encoder; None for more than a billion weights."""
    if not _is_small(encoder):
        return None
    plain = _load_plain(encoder, str(folder), settings, local_files_only=True)
    return compared(encoder, plain, f"the saved model {folder}", by_name=True)


def _is_small(encoder: Encoder) -> bool:
    """Whether it can be loaded twice."""
    return sum(p.numel() for p in encoder.parameters()) <= _MAX_TWICE


def _load_plain(encoder: Encoder, path: str, settings: ModelSettings, **where: Any) -> SentenceTransformer:
    options: dict[str, Any] = {"dtype": torch.float32, "use_safetensors": True}
    if where["local_files_only"]:  # else adapters are looked for on the Hub
        options["adapter_kwargs"] = {"local_files_only": True}
    with silence_libraries():
        return SentenceTransformer(
            path,
            device=encoder.device.type,
            trust_remote_code=settings.trust_remote_code,
            model_kwargs=options,
            **where,
        )


@torch.no_grad()
def compared(encoder: Encoder, plain: SentenceTransformer, name: str, *, by_name: bool) -> float:
    """The largest difference of any number of eight texts' embeddings, each of unit length.

    A span is compared where nothing but scaling follows the pooling. Texts that hold an expression of the
    encoder's glossary, or of which no token is left, are left out.

    Args:
        encoder: in evaluation mode.
        plain: the same model, as sentence-transformers loads it.
        name: of the model, for messages.
        by_name: prompts are those that the plain model has saved; else the encoder's, as options may change
            them.

    Raises:
        UserError: if they differ by more than 1e-3 (on a CPU 1e-4), with the text.
    """
    worst = 0.0
    for request in _TEXTS:
        theirs = _plain(encoder, plain, request, by_name=by_name)
        if theirs is None:
            continue
        ours = encoder.forward([request])[0].float().cpu()
        difference = float((normalize(ours, dim=0) - normalize(theirs.float().cpu(), dim=0)).abs().max())
        if not difference <= _LIMITS.get(encoder.device.type, _LIMIT):
            what = f"{request.text[:40]!r} ({request.role}, {request.pooling})"
            raise UserError(
                f"{name}: plain sentence-transformers embeds {what} otherwise: the embeddings differ by "
                f"{difference:.2g}. Its prompt, pooling, maximum length or weights are not those that are "
                "trained and scored here (trainer.invariants.parity=false trains all the same)"
            )
        worst = max(worst, difference)
    return worst


def _plain(encoder: Encoder, plain: Any, request: Request, *, by_name: bool) -> Tensor | None:
    """Its embedding by sentence-transformers alone; None if it is not compared."""
    meanings, text = encoder.meanings, request.text
    if (meanings is not None and meanings.find(text)) or not plain.tokenizer(text, truncation=True)[
        "input_ids"
    ]:
        return None
    if request.span is None:
        prompt = (
            {"prompt_name": request.role} if by_name else {"prompt": getattr(encoder.prompts, request.role)}
        )
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
