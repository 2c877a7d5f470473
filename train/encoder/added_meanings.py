"""Meanings that are added to the embeddings of sentences (`model.glossary_weight`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from train.encoder.forward import PooledSentence
from train.encoder.reading import Reader
from train.requests import Request


class _Meaning(NamedTuple):
    """A meaning, read alone as a text of its own."""

    input_ids: list[int]
    num_skipped: int


class AddedMeanings:
    """The meanings of the expressions in requests that are embedded as sentences; none without a weight.

    Args:
        requests: all that are embedded.
        reader: how the model reads them.
    """

    def __init__(self, requests: Sequence[Request], reader: Reader) -> None:
        meanings = reader.meanings
        self._of: dict[int, list[str]] = {}  # request, by position → its meanings
        if meanings is not None and meanings.weight:
            for i, request in enumerate(requests):
                if request.pooling == "sentence" and request.with_meanings:
                    self._of[i] = meanings.in_text(request.text)
        alone = [Request(meaning) for meaning in dict.fromkeys(m for some in self._of.values() for m in some)]
        texts = [reader.prompts.render(request)[0] for request in alone]
        self._read = {
            request.text: _Meaning(tokens.input_ids, reader.num_skipped(text, tokens, request))
            for request, text, tokens in zip(alone, texts, reader.tokenizer(texts), strict=True)
        }

    def lengths(self, rendered: Sequence[str]) -> dict[str, list[int]]:
        """Text → lengths in tokens of the meanings that are embedded with it.

        Args:
            rendered: each request's text.
        """
        return {
            rendered[i]: [len(self._read[meaning].input_ids) for meaning in some]
            for i, some in self._of.items()
        }

    def placed(
        self, sentences: Sequence[PooledSentence], first_row: int
    ) -> tuple[list[list[int]], list[PooledSentence], list[list[int]]]:
        """Token ids of a forward batch's meanings, how they are pooled, and each sentence's among them.

        Args:
            sentences: of the batch.
            first_row: of the meanings in the batch.
        """
        meant = [self._of.get(sentence.request, []) for sentence in sentences]
        position = {m: i for i, m in enumerate(dict.fromkeys(m for some in meant for m in some))}
        read = [self._read[meaning] for meaning in position]
        pooled = [PooledSentence(row, 0, one.num_skipped) for row, one in enumerate(read, first_row)]
        return [one.input_ids for one in read], pooled, [[position[m] for m in some] for some in meant]
