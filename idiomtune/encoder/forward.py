"""From requests to forward batches, and from token embeddings to those of sentences and spans."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from idiomtune.encoder.reading import Read
from idiomtune.errors import UserError
from idiomtune.requests import EmbeddingRequest

SHORT_ATTENTION = "sdpa_short_on_cpu"
_MAX_LENGTH = 256  # tokens: memory grows with their square, and the gain shrinks
_MODES = threading.RLock()
_evaluated: WeakKeyDictionary[nn.Module, tuple[int, bool]] = WeakKeyDictionary()  # by how many threads


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Within this context a model is in evaluation mode; afterwards in its former mode.

    Several threads may be in it: the last one that leaves it brings the mode back.
    """
    with _MODES:
        count, was_training = _evaluated.get(model, (0, model.training))
        _evaluated[model] = count + 1, was_training
        model.eval()
    try:
        yield
    finally:
        with _MODES:
            count, was_training = _evaluated.pop(model)
            if count > 1:
                _evaluated[model] = count - 1, was_training
            else:
                model.train(was_training)


def use_short_attention(transformer: PreTrainedModel) -> None:
    """Replace PyTorch's attention by :func:`attend` in a model on a CPU; other devices keep it."""
    if transformer.device.type == "cpu" and transformer.config._attn_implementation == "sdpa":
        transformer.set_attn_implementation(SHORT_ATTENTION)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """transformers' `sdpa_attention_forward`, faster for short texts; long texts go to the original.

    Only the length decides, so that a pass is computed in the same way with and without a graph.

    Args:
        query: (B, H, T, D); `key` and `value` with as many heads or a divisor of H.
        attention_mask: bool (B, 1, T, T), true where a token attends; None: to all, or to earlier ones if
            causal.

    Returns:
        (B, T, H, D).
    """
    length = query.shape[2]
    is_plain = attention_mask is None or attention_mask.dtype == torch.bool
    is_short = length <= _MAX_LENGTH and length == key.shape[2]
    if not is_short or not is_plain or others.get("position_bias") is not None:
        options = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal, **others}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)  # type: ignore[no-any-return]
    groups = getattr(module, "num_key_value_groups", 1)
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    if attention_mask is None and (getattr(module, "is_causal", True) if is_causal is None else is_causal):
        attention_mask = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    with torch.autocast(query.device.type, enabled=False):  # scores in float32, as the fused kernel has them
        scores = (query.float() * scale) @ key.float().transpose(2, 3)
        if attention_mask is not None:
            unseen = torch.zeros_like(attention_mask, dtype=scores.dtype)
            scores = scores + unseen.masked_fill_(~attention_mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1).to(value.dtype)
        if dropout:  # not 0 in training only
            weights = nn.functional.dropout(weights, dropout)
        return (weights @ value).transpose(1, 2).contiguous(), None


AttentionInterface.register(SHORT_ATTENTION, attend)
AttentionMaskInterface.register(SHORT_ATTENTION, sdpa_mask)


_MIN_TOKENS_PER_FORWARD = 512  # smaller batches are not worth dividing among processes
_MAX_SPAN_ELEMENTS = 2**26  # numbers in memory while spans are pooled: 256 MB in float32


class PooledSentence(NamedTuple):
    """A text of a forward batch that is embedded as a whole.

    Attributes:
        row: of the text in its batch.
        request: the request it answers, by its position in the call.
        num_skipped: tokens at the text's start that are not pooled.
    """

    row: int
    request: int
    num_skipped: int = 0


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


class ForwardBatch(NamedTuple):
    """Texts that go through the transformer together, and what is pooled from them.

    Attributes:
        texts: the token ids of each text, the longest first.
        sentences: what is embedded as a whole.
        spans: what is embedded by its tokens in a text.
        layer_spans: whose hidden layers are asked for.
        is_dummy: the embeddings are thrown away.
    """

    texts: list[list[int]]
    sentences: list[PooledSentence]
    spans: list[PooledSpan]
    layer_spans: list[PooledSpan]
    is_dummy: bool = False

    @property
    def requests(self) -> list[int]:
        """The request that each row of the batch answers: of sentences, spans, then those of layers."""
        return [pooled.request for pooled in self._pooled]

    @property
    def _pooled(self) -> list[PooledSentence | PooledSpan]:
        return [] if self.is_dummy else [*self.sentences, *self.spans, *self.layer_spans]

    @property
    def num_tokens(self) -> int:
        """Padding included."""
        return len(self.texts) * max(map(len, self.texts))

    @property
    def num_texts(self) -> int:
        """The number of texts."""
        return 0 if self.is_dummy else len(self.texts)

    def num_texts_of(self, num_requests: int) -> int:
        """The number of texts with a request among the call's first `num_requests`."""
        return len({pooled.row for pooled in self._pooled if pooled.request < num_requests})

    def dummy(self) -> ForwardBatch:
        """A short batch with zero gradient, for a process without batches: processes stay in step."""
        return ForwardBatch([self.texts[-1]], [PooledSentence(row=0, request=0)], [], [], is_dummy=True)


def split_batches(
    lengths: Sequence[int], tokens_per_forward: int, min_batches: int, batch_size: int | None
) -> list[list[int]]:
    """Numbers of texts, the longest first, in batches whose padded size stays within the budget.

    Args:
        lengths: of each text, in tokens.
        min_batches: make at least this many, as long as each has `_MIN_TOKENS_PER_FORWARD` or more.
        batch_size: the most texts in one piece; None = as many as the budget holds.
    """
    longest_first = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    budget = tokens_per_forward
    if min_batches > 1:
        even_size = -(-sum(lengths) // min_batches)
        budget = min(budget, max(even_size, _MIN_TOKENS_PER_FORWARD))
    chunks: list[list[int]] = []
    longest = 0
    for number in longest_first:
        if not chunks or (len(chunks[-1]) + 1) * longest > budget or len(chunks[-1]) == batch_size:
            chunks.append([])
            longest = lengths[number]
        chunks[-1].append(number)
    return chunks


def tokens_of_span(read: Read, request: EmbeddingRequest) -> list[int]:
    """Positions of the tokens that overlap the span; special tokens have empty offsets.

    Args:
        read: the request as the model reads it.

    Raises:
        UserError: if there is no span, it is not in the text, or is beyond the maximum length.
    """
    if request.span is None or not 0 <= request.span[0] < request.span[1]:
        raise UserError(f"no span given to embed in {request.text!r}")
    if request.span[1] > len(request.text):
        raise UserError(f"span {request.span} ends after the text {request.text!r}")
    if not (positions := overlapping_tokens(read)):
        words = f"{request.text[slice(*request.span)]!r} of {request.text[:80]!r}…"
        limit = f"({len(read.tokens.input_ids)} tokens): raise model.max_length, or shorten the text"
        raise UserError(f"span {words} has no token within the model's maximum length {limit}")
    return positions


def overlapping_tokens(read: Read) -> list[int]:
    """As :func:`tokens_of_span`; none for a span beyond the maximum length."""
    first, last = read.span or (0, 0)
    offsets = enumerate(read.tokens.offsets)
    return [i for i, (start, end) in offsets if start < last and end > first and start < end]


def truncation_note(
    num_truncated: int, number: int, kind: Literal["texts", "spans"], limit: int | None
) -> str:
    """The note on texts, or spans, that continue beyond the maximum length."""
    part = f"are truncated to {limit} tokens"
    if kind == "spans":
        part = f"continue beyond the maximum length, and are embedded by their words within {limit} tokens"
    advice = "raise model.max_length, if the model reads longer texts"
    return f"{num_truncated} of {number} {kind} {part}: {advice}"


def in_request_order(rows: Tensor, order: Sequence[int]) -> Tensor:
    """(R, D), row i for request i.

    Args:
        rows: (R, D), row j for request `order[j]`.
    """
    position = torch.tensor(order, dtype=torch.long).argsort()  # (R,), request → its row in `rows`
    return rows[position.to(rows.device)]  # (R, D)


def pool_sentences(
    pooling: nn.Module, features: dict[str, Any], sentences: Sequence[PooledSentence]
) -> list[Tensor]:
    """Pieces (n, D') that together have a row for each of the sentences, in their order.

    Args:
        pooling: the model's own module; D' is D times its number of poolings side by side.
        features: with `token_embeddings` (B, T, D) and `attention_mask` (B, T).
    """
    if any(sentence.num_skipped for sentence in sentences):
        tokens, mask = features["token_embeddings"], features["attention_mask"]
        return [
            pooling(
                {
                    "token_embeddings": tokens[row : row + 1],  # (1, T, D)
                    "attention_mask": mask[row : row + 1],  # (1, T)
                    "prompt_length": num_skipped,
                }
            )["sentence_embedding"]
            for row, _, num_skipped in sentences
        ]
    if not sentences:
        return []
    pooled: Tensor = pooling(features)["sentence_embedding"]  # (B, D')
    rows = torch.tensor([sentence.row for sentence in sentences], device=pooled.device)  # (n,)
    return [pooled[rows]]  # (n, D')


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


def layer_features(layers: Sequence[Tensor], batch: ForwardBatch) -> Tensor:
    """(U, 3 · L · H): what hidden layers say of the batch's U `layer_spans`.

    Of each layer the mean over the text, over the span and over what surrounds it, as unit vectors. A
    sentence model's last layer has lost much of how its words are used; the layers before it have it still.

    Args:
        layers: L hidden states, (B, T, H) each.
    """
    rows = torch.tensor([span.row for span in batch.layer_spans], device=layers[0].device)  # (U,)
    masks = torch.zeros(len(rows), 3, layers[0].shape[1])  # (U, 3, T)
    for u, (row, _, positions) in enumerate(batch.layer_spans):
        masks[u, 0, : len(batch.texts[row])] = 1
        masks[u, 1, positions] = 1
    masks[:, 2] = masks[:, 0] - masks[:, 1]
    masks = masks.to(rows.device)
    with torch.autocast(rows.device.type, enabled=False):
        sums = [masks @ hidden[rows].float() for hidden in layers]  # (U, 3, H) each
        return normalize(torch.cat(sums, dim=1), dim=2).flatten(1)
