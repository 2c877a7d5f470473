"""Texts as token ids, cut into forward batches of about equal length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from train.errors import UserError

_MAX_CACHED_TEXTS = 200_000
_MIN_TOKENS_PER_FORWARD = 512  # smaller batches are not worth dividing among processes
_NO_LIMIT = 10**9  # tokens; tokenizers without a maximum length give 10^30


class Tokens(NamedTuple):
    """One text as the model reads it: special tokens included, truncated, not padded."""

    input_ids: list[int]
    offsets: list[tuple[int, int]]


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
        texts: the token ids of each text, the longest first, then those of `meanings`.
        sentences: what is embedded as a whole.
        spans: what is embedded by its tokens in a text.
        meanings: what is embedded as a whole, and added to sentences.
        meanings_of: of each of the sentences, the meanings that are added to it, by position.
        is_dummy: the embeddings are thrown away.
    """

    texts: list[list[int]]
    sentences: list[PooledSentence]
    spans: list[PooledSpan]
    meanings: Sequence[PooledSentence] = ()
    meanings_of: Sequence[Sequence[int]] = ()
    is_dummy: bool = False

    @property
    def requests(self) -> list[int]:
        """The request that each embedding of the batch answers: the sentences' first, then the spans'."""
        if self.is_dummy:
            return []
        return [sentence.request for sentence in self.sentences] + [span.request for span in self.spans]

    @property
    def num_tokens(self) -> int:
        """Padding included."""
        return len(self.texts) * max(map(len, self.texts))

    @property
    def num_texts(self) -> int:
        """Texts whose embeddings are asked for."""
        return 0 if self.is_dummy else len(self.texts) - len(self.meanings)

    def num_texts_of(self, num_requests: int) -> int:
        """Of these texts, those whose embeddings answer one of the call's first `num_requests` requests."""
        if self.is_dummy:
            return 0
        rows = {sentence.row for sentence in self.sentences if sentence.request < num_requests}
        return len(rows | {span.row for span in self.spans if span.request < num_requests})

    def dummy(self) -> ForwardBatch:
        """A short batch for a process that has none left while others run theirs; its gradient is zero."""
        return ForwardBatch([self.texts[-1]], [PooledSentence(row=0, request=0)], [], is_dummy=True)


class Tokenizer:
    """A model's tokenizer with a cache: it reads no text twice.

    Attributes:
        wrapped: the tokenizer itself.

    Raises:
        UserError: if it gives no character offsets, or has no padding token.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        self._model = model
        self.wrapped: Any = model.tokenizer
        if not getattr(self.wrapped, "is_fast", False):
            raise UserError(
                f"{type(self.wrapped).__name__} gives no character offsets, which span embeddings "
                "need: save the model with its fast tokenizer (tokenizer.json)"
            )
        if self.wrapped.pad_token_id is None:
            raise UserError(
                f"{type(self.wrapped).__name__} has no padding token, which batches of texts need: name one "
                'in the model\'s tokenizer_config.json ("pad_token"; its "eos_token" serves)'
            )
        self._cache: dict[str, Tokens] = {}

    def forget(self) -> None:
        """Clear the cache, because the tokenizer has changed, or its texts do not come again."""
        self._cache.clear()

    def __call__(self, texts: Sequence[str]) -> list[Tokens]:
        """Each text as the model reads it."""
        new = [text for text in texts if text not in self._cache]
        if len(self._cache) + len(new) > _MAX_CACHED_TEXTS:
            self._cache.clear()
            new = list(texts)
        if new:
            lower = getattr(self._model[0], "do_lower_case", False)
            limit = self._model.max_seq_length
            is_limited = limit is not None and limit < _NO_LIMIT
            encoded = self.wrapped(
                [text.lower() for text in new] if lower else new,
                truncation=is_limited,
                max_length=limit if is_limited else None,
                return_offsets_mapping=True,
                return_attention_mask=False,
            )
            for text, ids, offsets in zip(new, encoded["input_ids"], encoded["offset_mapping"], strict=True):
                self._cache[text] = Tokens(ids, offsets)
        return [self._cache[text] for text in texts]

    def pad(self, batch: list[list[int]], device: torch.device) -> dict[str, Any]:
        """Token ids padded to equal length, with their mask, as the transformer takes them: (B, T) each."""
        lengths = np.fromiter(map(len, batch), np.int64)  # (B,)
        # On the right whatever the tokenizer prefers: a text's tokens then have positions 0, 1, … in every
        # batch, and in a causal model none of them sees the padding.
        is_token = np.arange(lengths.max()) < lengths[:, None]  # (B, T)
        input_ids = np.full(is_token.shape, self.wrapped.pad_token_id, np.int64)
        input_ids[is_token] = np.fromiter(chain.from_iterable(batch), np.int64, lengths.sum())
        features = {"input_ids": input_ids, "attention_mask": is_token.astype(np.int64)}
        if "token_type_ids" in self.wrapped.model_input_names:
            # Every text is one segment, whose type is 0 in each family that has types.
            features["token_type_ids"] = np.where(is_token, 0, self.wrapped.pad_token_type_id)
        return {name: torch.from_numpy(values).to(device) for name, values in features.items()}


def cut(
    texts: Sequence[str],
    tokens: Mapping[str, Tokens],
    tokens_per_forward: int,
    min_batches: int,
    beside: Mapping[str, Sequence[int]] | None = None,
    batch_size: int | None = None,
) -> list[list[str]]:
    """Texts sorted by length, longest first, cut where the padded size would exceed the budget.

    Args:
        min_batches: make at least so many, as long as each has `_MIN_TOKENS_PER_FORWARD` or more.
        beside: of some texts, the lengths in tokens of what is embedded with them, in rows of their own.
        batch_size: the most texts in one piece; None = as many as the budget holds.
    """
    lengths = {text: [len(tokens[text].input_ids), *(beside or {}).get(text, ())] for text in texts}
    texts = sorted(texts, key=lambda text: max(lengths[text]), reverse=True)
    budget = tokens_per_forward
    if min_batches > 1:
        even_size = -(-sum(sum(lengths[text]) for text in texts) // min_batches)
        budget = min(budget, max(even_size, _MIN_TOKENS_PER_FORWARD))
    chunks: list[list[str]] = []
    num_rows = longest = 0
    for text in texts:
        num_rows += len(lengths[text])
        if not chunks or num_rows * longest > budget or len(chunks[-1]) == batch_size:
            chunks.append([])
            num_rows, longest = len(lengths[text]), max(lengths[text])
        chunks[-1].append(text)
    return chunks


def in_request_order(rows: Tensor, order: Sequence[int]) -> Tensor:
    """(R, D), row i for request i.

    Args:
        rows: (R, D), row j for request `order[j]`.
    """
    position = torch.empty(len(order), dtype=torch.long)  # (R,), request → its row in `rows`
    position[torch.tensor(order, dtype=torch.long)] = torch.arange(len(order))
    return rows[position.to(rows.device)]  # (R, D)
