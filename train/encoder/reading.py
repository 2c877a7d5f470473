"""What a model reads of a request: its text with prompt, meanings and idiom tokens, and its span's place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from train.encoder.forward import Tokenizer, Tokens
from train.encoder.idiom_tokens import IdiomTokens
from train.encoder.meanings import Meanings
from train.encoder.prompts import Prompts
from train.errors import UserError
from train.requests import Request

Span = tuple[int, int]
Rendered = tuple[str, Span | None]


class Read(NamedTuple):
    """A request as a model reads it.

    Attributes:
        text: with prompt, meanings and idiom tokens.
        tokens: of the text.
        num_skipped: tokens at its start that are not pooled.
    """

    text: str
    tokens: Tokens
    num_skipped: int


class Reader(NamedTuple):
    """How a model reads requests.

    Attributes:
        tokenizer: of the model.
        limit: the model's maximum length in tokens, if it has one.
        prompts: how this model family writes queries and documents.
        pools_prompts: whether their tokens are pooled.
        idiom_tokens: replace expressions in texts.
        meanings: are written beside expressions.
    """

    tokenizer: Tokenizer
    limit: int | None
    prompts: Prompts
    pools_prompts: bool
    idiom_tokens: IdiomTokens | None
    meanings: Meanings | None

    def render(self, requests: Sequence[Request]) -> list[Rendered]:
        """Each request's text as the model reads it, and its span's place there."""
        bare = [self.prompts.render(request) for request in requests]
        meanings = self.meanings
        if meanings is None:
            return [self._with_tokens(text, span) for text, span in bare]
        rendered = [
            self._with_tokens(*(meanings.added(text, span) if request.with_meanings else (text, span)))
            for request, (text, span) in zip(requests, bare, strict=True)
        ]
        # Near the maximum length a text loses its meanings before it loses words of its own.
        texts = list(dict.fromkeys(text for text, _ in rendered))
        full = {
            text
            for text, tokens in zip(texts, self.tokenizer(texts), strict=True)
            if self.limit is not None and len(tokens.input_ids) >= self.limit
        }
        return [
            self._with_tokens(*short) if long[0] in full else long
            for long, short in zip(rendered, bare, strict=True)
        ]

    def are_cut(self, requests: Sequence[Request]) -> list[bool]:
        """Whether each request's text, as it is read, reaches the maximum length."""
        texts = [text for text, _ in self.render(requests)]
        return [
            self.limit is not None and len(tokens.input_ids) >= self.limit for tokens in self.tokenizer(texts)
        ]

    def num_skipped(self, text: str, tokens: Tokens, request: Request) -> int:
        """How many prompt tokens a request's pooling leaves out, for models that do not pool prompts.

        Counted on the prompt alone, as sentence-transformers does.

        Args:
            text: as the model reads it: near the maximum length without meanings.
            tokens: its tokens.

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
        read = self._with_tokens(prompt, None)[0]
        if self.meanings is not None:
            with_meanings = self._with_tokens(self.meanings.added(prompt)[0], None)[0]
            read = with_meanings if text.startswith(with_meanings) else read
        ids = self.tokenizer([read])[0].input_ids
        special = self.tokenizer.wrapped.all_special_ids
        num_tokens = len(ids) - (ids[-1] in special)
        if request.text and num_tokens >= len(tokens.input_ids) - (tokens.input_ids[-1] in special):
            raise UserError(
                f"the prompt before {request.text[:80]!r} leaves no room within the model's maximum length "
                f"({len(tokens.input_ids)} tokens): raise model.max_length, or shorten the instruction"
            )
        return num_tokens

    def _with_tokens(self, text: str, span: Span | None) -> Rendered:
        return (text, span) if self.idiom_tokens is None else self.idiom_tokens.replaced(text, span)
