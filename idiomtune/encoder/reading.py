"""From a request to token ids: the text with prompt, meanings and idiom tokens."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers import PreTrainedTokenizerBase

from idiomtune.config import ModelSettings
from idiomtune.encoder.idiom_tokens import IdiomTokens
from idiomtune.errors import ArgumentValueError, UserError
from idiomtune.expressions import Span
from idiomtune.requests import EmbeddingRequest

_MAX_CACHED_TEXTS = 200_000
_TOKENIZING = threading.Lock()  # a call may change how a tokenizer truncates, which no other may read then
NO_LIMIT = 10**9  # tokens; tokenizers without a maximum length give 10^30

Rendered = tuple[str, Span | None]


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of a model family.

    Attributes:
        query: put before every query without an instruction, such as `query: ` for E5.
        document: put before every document.
        instruction: template of a query with an instruction; contains `{query}` and, except for models with
            a single instruction, `{instruction}`.
    """

    query: str = ""
    document: str = ""
    instruction: str = "Instruct: {instruction}\nQuery: {query}"

    def __post_init__(self) -> None:
        if self.instruction.count("{query}") != 1 or self.instruction.count("{instruction}") > 1:
            must = "must hold {query} exactly once, and {instruction} at most once"
            raise ArgumentValueError(f"{self.instruction!r} {must}", option="instruction_prompt")

    def render(self, request: EmbeddingRequest) -> Rendered:
        """The text with prompts, and the request's span moved to its new offsets."""
        before, after = self.query if request.role == "query" else self.document, ""
        if request.role == "query" and request.instruction is not None:
            # Not str.format: texts and instructions may hold braces.
            parts = self.instruction.split("{query}")
            before, after = (part.replace("{instruction}", request.instruction) for part in parts)
        span = request.span
        moved = None if span is None else (span[0] + len(before), span[1] + len(before))
        return before + request.text + after, moved


def prompts_of(own: Mapping[str, str | None], settings: ModelSettings | None = None) -> Prompts:
    """A model's own prompts, except those that its settings give.

    Raises:
        ValueError: if the template of instructions is malformed.
    """

    query, document, instruction = (
        getattr(settings, f"{name}_prompt", None) for name in ("query", "document", "instruction")
    )
    if query is None:
        query = own.get("query") or ""
    if document is None:  # the first that the model has: the order of sentence-transformers
        document = own.get("document") or own.get("passage") or own.get("corpus") or ""
    return Prompts(query, document, instruction or own.get("instruction") or Prompts().instruction)


class Tokens(NamedTuple):
    """One text as the model reads it: special tokens included, truncated, not padded."""

    input_ids: list[int]
    offsets: list[tuple[int, int]]


def is_truncated(text: str, tokens: Tokens, limit: int | None) -> bool:
    """Whether a text is truncated to `limit` tokens.

    Tokenizers skip blanks, combining marks and control characters.
    """
    if limit is None or len(tokens.input_ids) < limit:
        return False
    rest = text[max((end for _, end in tokens.offsets), default=0) :]
    return any(unicodedata.category(character)[0] not in "CMZ" for character in rest)


class Tokenizer:
    """A model's tokenizer with a cache: it reads no text twice.

    Attributes:
        tokenizer: the library's.

    Raises:
        UserError: if it gives no character offsets, or has no padding token.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        self._model = model
        self.tokenizer: PreTrainedTokenizerBase = model.tokenizer
        name = type(self.tokenizer).__name__
        if not getattr(self.tokenizer, "is_fast", False):
            raise UserError(f"{name} gives no character offsets: save the model with its tokenizer.json")
        if self.tokenizer.pad_token_id is None:
            raise UserError(f'{name} has no padding token: name one in tokenizer_config.json ("pad_token")')
        self._cache: dict[str, Tokens] = {}

    def forget(self) -> None:
        """Clear the cache, after a change of the tokenizer or for new texts."""
        self._cache.clear()

    def __call__(self, texts: Sequence[str]) -> list[Tokens]:
        """Each text as the model reads it."""
        read = {text: self._cache.get(text) for text in texts}
        new = [text for text, tokens in read.items() if tokens is None]
        if len(self._cache) + len(new) > _MAX_CACHED_TEXTS:
            self._cache.clear()
        if new:
            lower = getattr(self._model[0], "do_lower_case", False)
            limit = self._model.max_seq_length
            is_limited = limit is not None and limit < NO_LIMIT
            with _TOKENIZING:
                encoded = self.tokenizer(
                    [text.lower() for text in new] if lower else new,
                    truncation=is_limited,
                    max_length=limit if is_limited else None,
                    return_offsets_mapping=True,
                    return_attention_mask=False,
                )
            for text, ids, offsets in zip(new, encoded["input_ids"], encoded["offset_mapping"], strict=True):
                read[text] = self._cache[text] = Tokens(ids, offsets)
        return [tokens for text in texts if (tokens := read[text]) is not None]

    def pad(self, batch: list[list[int]], device: torch.device) -> dict[str, Any]:
        """Token ids padded to equal length, with their mask, as the transformer takes them: (B, T) each."""
        lengths = np.fromiter(map(len, batch), np.int64)  # (B,)
        # On the right whatever the tokenizer prefers: a text's tokens then have positions 0, 1, … in every
        # batch, and in a causal model none of them sees the padding.
        is_token = np.arange(lengths.max()) < lengths[:, None]  # (B, T)
        input_ids = np.full(is_token.shape, self.tokenizer.pad_token_id, np.int64)
        input_ids[is_token] = np.fromiter(chain.from_iterable(batch), np.int64, lengths.sum())
        features = {"input_ids": input_ids, "attention_mask": is_token.astype(np.int64)}
        if "token_type_ids" in self.tokenizer.model_input_names:
            # Every text is one segment, whose type is 0 in each family that has types.
            features["token_type_ids"] = np.where(is_token, 0, self.tokenizer.pad_token_type_id)
        return {name: torch.from_numpy(values).to(device) for name, values in features.items()}


def special_tokens_around(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """The ids of the special tokens before and after any text."""
    with _TOKENIZING:
        bare, full = (tokenizer("a", add_special_tokens=special)["input_ids"] for special in (False, True))
    first = next(i for i in range(len(full)) if full[i : i + len(bare)] == bare)
    return full[:first], full[first + len(bare) :]


class Read(NamedTuple):
    """A request as a model reads it.

    Attributes:
        text: with prompt, meanings and idiom tokens.
        span: the request's, moved to its new offsets.
        tokens: of the text.
    """

    text: str
    span: Span | None
    tokens: Tokens


class InsertedMeanings(Protocol):
    """What is written into texts before they are read."""

    def insert(self, text: str, span: Span | None = None) -> tuple[str, Span | None]:
        """The text with meanings, and the span moved to its new offsets."""


class Reader(NamedTuple):
    """How a model reads requests.

    Attributes:
        tokenizer: of the model.
        limit: the model's maximum length in tokens, if it has one.
        prompts: how this model family writes queries and documents.
        pools_prompts: whether their tokens are pooled.
        idiom_tokens: replace expressions in texts.
        meanings: are written into texts.
    """

    tokenizer: Tokenizer
    limit: int | None
    prompts: Prompts
    pools_prompts: bool
    idiom_tokens: IdiomTokens | None
    meanings: InsertedMeanings | None = None

    def num_texts(self, requests: Iterable[EmbeddingRequest]) -> int:
        """The number of distinct texts in these requests."""
        return len({self.prompts.render(request)[0] for request in requests})

    def render(self, requests: Sequence[EmbeddingRequest]) -> list[Rendered]:
        """Each request's text as the model reads it, and its span moved to the new offsets."""
        bare = [self.prompts.render(request) for request in requests]
        meanings = self.meanings
        if meanings is None:
            return [self._with_tokens(text, span) for text, span in bare]
        rendered = [
            self._with_tokens(*(meanings.insert(text, span) if request.with_meanings else (text, span)))
            for request, (text, span) in zip(requests, bare, strict=True)
        ]
        # Near the maximum length a text loses its meanings before it loses words of its own.
        return [
            self._with_tokens(*short) if is_full else long
            for long, short, is_full in zip(rendered, bare, self._are_full(rendered), strict=True)
        ]

    def read(self, requests: Sequence[EmbeddingRequest]) -> list[Read]:
        """Each request's text as the model reads it, and its tokens."""
        rendered = self.render(requests)
        tokens = self.tokenizer([text for text, _ in rendered])
        return [Read(text, span, ids) for (text, span), ids in zip(rendered, tokens, strict=True)]

    def are_truncated(self, requests: Sequence[EmbeddingRequest]) -> list[bool]:
        """Whether each request's text reaches the maximum length."""
        return self._are_full(self.render(requests))

    def _are_full(self, rendered: Sequence[Rendered]) -> list[bool]:
        tokens = self.tokenizer([text for text, _ in rendered])
        return [self.limit is not None and len(ids) >= self.limit for ids, _ in tokens]

    def num_skipped(self, tokens: Tokens, request: EmbeddingRequest) -> int:
        """The number of prompt tokens outside the pooling, for models that do not pool prompts.

        Counted on the prompt alone, as sentence-transformers does.

        Args:
            tokens: of the text as the model reads it.

        Raises:
            UserError: if the prompt leaves no room for the request's own text.
        """
        if self.pools_prompts:
            return 0
        rendered, start = self.prompts.render(replace(request, span=(0, 0)))
        assert start is not None
        prompt = rendered[: start[0]]
        if not prompt:
            return 0
        read, _ = self._with_tokens(prompt, None)
        ids = self.tokenizer([read])[0].input_ids
        special = self.tokenizer.tokenizer.all_special_ids
        num_tokens = len(ids) - (ids[-1] in special)
        if request.text and num_tokens >= len(tokens.input_ids) - (tokens.input_ids[-1] in special):
            length = f"{len(tokens.input_ids)} tokens: raise model.max_length, or shorten the instruction"
            raise UserError(f"the prompt before {request.text[:80]!r} leaves no room within {length}")
        return num_tokens

    def _with_tokens(self, text: str, span: Span | None) -> Rendered:
        idioms = self.idiom_tokens
        return (text, span) if idioms is None else idioms.replace_expressions(text, span)
