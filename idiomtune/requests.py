"""Requests for embeddings, as objectives and benchmarks state them; sentences whose usage is known."""

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["query", "document"]
Pooling = Literal["sentence", "span", "usage", "meaning"]


@dataclass(frozen=True, slots=True)
class Request:
    """One embedding to compute, as an objective or a benchmark states it, knowing no model.

    Attributes:
        text: the bare text, without any prompt.
        span: character offsets [start, end) in `text`; needed for the pooling `span`.
        role: of the text in retrieval; picks the model family's prompt.
        instruction: an instruction to put before a query.
        pooling: `sentence` = the checkpoint's pooling over the whole input; `span` = the mean of the last
            layer's tokens that overlap the span (late chunking); `usage` = no embedding, but
            what the gate of the model's meanings makes of the span, in the row's first two columns
            (:meth:`idiomtune.encoder.glossary.UsageClassifier.terms`); `meaning` = the sentence or, as far as a
            gate finds an expression used idiomatically, its meaning alone: to compare with texts that do
            not hold the expression, such as captions.
        with_meanings: whether a model that reads meanings beside expressions reads them in this text.
        view: requests of one text share its forward pass, and so its dropout, unless their views differ.
    """

    text: str
    span: tuple[int, int] | None = None
    role: Role = "document"
    instruction: str | None = None
    pooling: Pooling = "sentence"
    with_meanings: bool = True
    view: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Usage:
    """A sentence that uses an expression, and how.

    Attributes:
        id: file and row.
        phrase: the expression, as the table names it.
        span: its offsets in the sentence; None if it was not found.
    """

    id: str
    phrase: str
    sentence: str
    span: tuple[int, int] | None
    is_idiomatic: bool


def symmetric_request(
    text: str, span: tuple[int, int] | None = None, pooling: Pooling = "sentence"
) -> Request:
    """A text of a task in which all texts play one part, such as pairs of sentences: a query.

    That is how models with prompts are trained to read these (E5: `query: ` on both sides). The benchmark
    `epsilon` keeps its paper's protocol, which writes no prompt.
    """
    return Request(text, span, role="query", pooling=pooling)


def find_span(text: str, span: str) -> tuple[int, int] | None:
    """Offsets of the first occurrence of `span` as whole words, else anywhere, else None.

    If there is none, of one whose accents are encoded otherwise: as letters of their own, or not.
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
