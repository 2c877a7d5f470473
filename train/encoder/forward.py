"""What a forward pass of the transformer holds: texts as token ids, cut into passes of about equal length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from sentence_transformers import SentenceTransformer

from train.errors import UserError
from train.requests import Request

_MAX_CACHED_TEXTS = 200_000
_MIN_TOKENS_PER_FORWARD = 512  # shorter passes are not worth a process of their own
_NO_LIMIT = 10**9  # tokens; tokenizers without a maximum length give 10^30


class Tokens(NamedTuple):
    """One text as the model reads it: special tokens included, truncated, not padded."""

    input_ids: list[int]
    offsets: list[tuple[int, int]]


class Pass(NamedTuple):
    """One pass of the transformer, and what is pooled of it.

    Attributes:
        texts: the token ids of each text, the longest first.
        rows: the texts that are embedded as a whole.
        spans: (text, positions of its tokens), pooled each.
        requests: the request that each embedding is of: first the `rows`', then the `spans`'.
        skipped: of each of the `rows`, how many tokens at its start are not pooled.
    """

    texts: list[list[int]]
    rows: list[int]
    spans: list[tuple[int, list[int]]]
    requests: list[int]
    skipped: Sequence[int] = ()

    @property
    def size(self) -> int:
        """Tokens, padding included."""
        return len(self.texts) * len(self.texts[0])

    @property
    def num_texts(self) -> int:
        """Of those that anything is asked of."""
        return len(self.texts) if self.requests else 0

    def for_company(self) -> Pass:
        """A short pass whose output nobody uses, where a process has one too few; its gradient is zero."""
        return Pass([self.texts[-1]], [0], [], [], [0])


class Tokenizer:
    """A model's tokenizer, which reads no text twice.

    Attributes:
        own: the tokenizer itself.

    Raises:
        UserError: if it gives no character offsets.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        self._model = model
        self.own: Any = model.tokenizer
        if not getattr(self.own, "is_fast", False):
            raise UserError(
                f"{type(self.own).__name__} gives no character offsets, which span embeddings "
                "need: save the model with its fast tokenizer (tokenizer.json)"
            )
        self._cache: dict[str, Tokens] = {}

    def forget(self) -> None:
        """What was read before is read anew: the tokenizer has changed."""
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
            encoded = self.own(
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
        """Token ids of equally many places, with their mask, as the transformer takes them."""
        features = self.own.pad(
            {
                "input_ids": batch,
                "attention_mask": [[1] * len(ids) for ids in batch],
                # Every text is one segment, and its type is 0 in each family that has types.
                **(
                    {"token_type_ids": [[0] * len(ids) for ids in batch]}
                    if "token_type_ids" in self.own.model_input_names
                    else {}
                ),
            },
            padding=True,
            # On the right whatever the tokenizer prefers: a text's tokens then have the positions
            # 0, 1, … in every batch, and in a causal model none of them sees the padding.
            padding_side="right",
            return_tensors="pt",
            verbose=False,
        )
        return {name: values.to(device) for name, values in features.items()}


def cut(
    texts: Sequence[str], tokens: dict[str, Tokens], tokens_per_forward: int, at_least: int
) -> list[list[str]]:
    """Texts by length, longest first, cut where the padded size would pass the budget.

    Args:
        at_least: into so many, if the texts give passes that are worth it.
    """
    texts = sorted(texts, key=lambda text: len(tokens[text].input_ids), reverse=True)
    budget = tokens_per_forward
    if at_least > 1:
        share = -(-sum(len(tokens[text].input_ids) for text in texts) // at_least)
        budget = min(budget, max(share, _MIN_TOKENS_PER_FORWARD))
    chunks: list[list[str]] = []
    for text in texts:
        longest = len(tokens[chunks[-1][0]].input_ids) if chunks else 0
        if not chunks or (len(chunks[-1]) + 1) * longest > budget:
            chunks.append([])
        chunks[-1].append(text)
    return chunks


def is_cut_off(tokens: Tokens, text: str, span: tuple[int, int], limit: int | None) -> bool:
    """Whether a span goes on where its text was cut at the maximum length.

    Args:
        text: as the model reads it.
        limit: the maximum length, in tokens.
    """
    if limit is None or len(tokens.input_ids) < limit:
        return False
    read = max((end for _, end in tokens.offsets), default=0)
    # A tokenizer passes over spaces and the like.
    return any(character.isalnum() for character in text[read : span[1]])


def cut_spans_note(num_cut: int, num_spans: int, limit: int | None) -> str:
    """What is said of spans that :func:`is_cut_off` tells of."""
    return (
        f"{num_cut} of {num_spans} spans go on beyond the model's maximum length ({limit} tokens) and are "
        "embedded by the words before it: raise model.max_length, if the model can read longer texts"
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
