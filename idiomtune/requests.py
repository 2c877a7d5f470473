"""Requests for embeddings, from objectives and benchmarks; sentences with labelled usage."""

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["query", "document"]
Pooling = Literal["sentence", "span"]


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """One embedding to compute. Objectives and benchmarks make it; it says nothing of a model.

    Attributes:
        text: the bare text, without any prompt.
        span: character offsets [start, end) in `text`; needed for the pooling `span`.
        role: of the text in retrieval; picks the model family's prompt.
        instruction: an instruction to put before a query.
        pooling: the vector to compute.
            `sentence`: the checkpoint's pooling over the whole input.
            `span`: the mean of the last layer's tokens that overlap the span (late chunking).
        with_meanings: False: a model with a glossary reads this text without meanings.
        dropout_pass: requests with equal text and number share a forward pass, and so its dropout.
    """

    text: str
    span: tuple[int, int] | None = None
    role: Role = "document"
    instruction: str | None = None
    pooling: Pooling = "sentence"
    with_meanings: bool = True
    dropout_pass: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class LayersRequest(EmbeddingRequest):
    """A span whose hidden layers are asked for, in place of an embedding.

    See :meth:`idiomtune.encoder.encoder.Encoder.hidden_layers`.
    """


@dataclass(frozen=True)
class LabelledUse:
    """A sentence with an expression, labelled idiomatic or literal.

    Attributes:
        id: file and row.
        phrase: the expression, as the table names it.
        span: the expression's offsets in the sentence; None if it does not occur.
    """

    id: str
    phrase: str
    sentence: str
    span: tuple[int, int] | None
    is_idiomatic: bool


def symmetric_query(
    text: str, span: tuple[int, int] | None = None, pooling: Pooling = "sentence"
) -> EmbeddingRequest:
    """A text of a symmetric task (all texts play one part, such as pairs of sentences): a query.

    Models with prompts are trained so (E5: `query: ` on both sides). The benchmark `epsilon` follows its
    paper's protocol instead, which has no prompt.
    """
    return EmbeddingRequest(text, span, role="query", pooling=pooling)


def find_span(text: str, span: str) -> tuple[int, int] | None:
    """Offsets of the first occurrence of `span` as whole words, else anywhere, else None.

    If `span` does not occur, another Unicode form of it counts (composed or decomposed accents).
    """
    first = start = text.find(span)
    if first < 0 and not (text.isascii() or span.isascii()):
        letters = unicodedata.normalize("NFC", span)
        either = (f"(?:{re.escape(c)}|{re.escape(unicodedata.normalize('NFD', c))})" for c in letters)
        match = re.search("".join(either), text)
        return match and match.span()
    while span and start >= 0:
        end = start + len(span)
        before, after = text[start - 1 : start], text[end : end + 1]
        if not (before.isalnum() and span[0].isalnum()) and not (after.isalnum() and span[-1].isalnum()):
            return start, end
        start = text.find(span, start + 1)
    return (first, first + len(span)) if span and first >= 0 else None
