"""Spans: their tokens in a text, and the mean of these tokens' embeddings (late chunking)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from train.encoder.reading import Tokens
from train.errors import UserError
from train.requests import Request

_MAX_SPAN_ELEMENTS = 2**26  # numbers in memory while spans are pooled: 256 MB in float32


class PooledSpan(NamedTuple):
    """A span of a text of a forward batch.

    Attributes:
        row: of the text in its batch.
        request: the request it answers, by its position in the call.
        positions: of the span's tokens in the text.
    """

    row: int
    request: int
    positions: list[int]


def pool_spans(token_embeddings: Tensor, spans: Sequence[PooledSpan]) -> Tensor:
    """(S, D), the mean of each span's token embeddings.

    Args:
        token_embeddings: (B, T, D).
        spans: S of them.
    """
    device = token_embeddings.device
    rows = torch.tensor([span.row for span in spans], device=device)  # (S,)
    weights = torch.zeros(len(spans), token_embeddings.shape[1])  # (S, T)
    for s, span in enumerate(spans):
        weights[s, span.positions] = 1.0 / len(span.positions)
    weights = weights.to(device, token_embeddings.dtype)
    # (S, T, D) · (S, T, 1) → (S, D); no matrix product, which autocast would round to bfloat16
    chunk_size = max(_MAX_SPAN_ELEMENTS // token_embeddings[0].numel(), 1)  # spans
    chunks = zip(torch.split(rows, chunk_size), torch.split(weights, chunk_size), strict=True)
    return torch.cat([(token_embeddings[r] * w[:, :, None]).sum(1) for r, w in chunks])


def find_cut_spans(
    requests: Sequence[Request],
    rendered: Sequence[tuple[str, tuple[int, int] | None]],
    tokens: Mapping[str, Tokens],
    limit: int | None,
) -> tuple[set[Request], int]:
    """The requests whose span is truncated, and how many different ones ask for a span.

    Args:
        rendered: each request's text as the model reads it, and its span's place there.
        tokens: of these texts.
        limit: the maximum length, in tokens.
    """
    spans = [
        (request, text, span)
        for request, (text, span) in zip(requests, rendered, strict=True)
        if request.pooling == "span" and span is not None
    ]
    cut = {request for request, text, span in spans if _is_cut_off(tokens[text], text, span, limit)}
    return cut, len({request for request, _, _ in spans})


def _is_cut_off(tokens: Tokens, text: str, span: tuple[int, int], limit: int | None) -> bool:
    """Whether a span continues beyond the point where its text was truncated."""
    if limit is None or len(tokens.input_ids) < limit:
        return False
    end_of_read = max((end for _, end in tokens.offsets), default=0)
    # Tokenizers skip spaces and the like, which may be between here and the span's end.
    return any(character.isalnum() for character in text[end_of_read : span[1]])


def cut_spans_note(num_cut: int, num_spans: int, limit: int | None) -> str:
    """The note on spans that :func:`find_cut_spans` finds."""
    return (
        f"{num_cut} of {num_spans} spans continue beyond the model's maximum length ({limit} tokens) and are "
        "embedded by their words within it: raise model.max_length, if the model can read longer texts"
    )


def tokens_of_span(tokens: Tokens, span: tuple[int, int] | None, request: Request) -> list[int]:
    """Positions of the tokens that overlap the span; special tokens have empty offsets."""
    if span is None or request.span is None or not 0 <= request.span[0] < request.span[1]:
        raise UserError(f"no span given to embed in {request.text!r}")
    if request.span[1] > len(request.text):
        raise UserError(f"span {request.span} ends after the text {request.text!r}")
    positions = [
        i
        for i, (start, end) in enumerate(tokens.offsets)
        if start < span[1] and end > span[0] and start < end
    ]
    if not positions:
        raise UserError(
            f"span {request.text[slice(*request.span)]!r} of {request.text[:80]!r}… has no token "
            f"within the model's maximum length ({len(tokens.input_ids)} tokens): raise "
            "model.max_length, or shorten the text"
        )
    return positions
