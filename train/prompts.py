"""What is to be embedded, and how a model family wants it written."""

from dataclasses import dataclass
from typing import Literal

Role = Literal["query", "document"]
Pooling = Literal["sentence", "span"]


@dataclass(frozen=True, slots=True)
class Request:
    """One embedding to compute, as an objective or a benchmark states it, knowing no model.

    Attributes:
        text: the bare text, without any prompt.
        span: character offsets [start, end) in `text`; needed for the pooling `span`.
        role: what the text is in retrieval: picks the model family's prompt.
        instruction: an instruction to put before a query.
        pooling: `sentence` = the checkpoint's own pooling over the whole input; `span` = the mean of
            the last layer's tokens that overlap the span (late chunking).
    """

    text: str
    span: tuple[int, int] | None = None
    role: Role = "document"
    instruction: str | None = None
    pooling: Pooling = "sentence"


@dataclass(frozen=True, slots=True)
class Prompts:
    """How one model family writes its inputs.

    Attributes:
        query: put before every query without an instruction, as `query: ` for E5.
        document: put before every document.
        instruction: template of a query with an instruction; holds `{query}`, and `{instruction}` but for
            models that know one instruction alone.
    """

    query: str = ""
    document: str = ""
    instruction: str = "Instruct: {instruction}\nQuery: {query}"

    def __post_init__(self) -> None:
        if self.instruction.count("{query}") != 1 or self.instruction.count("{instruction}") > 1:
            raise ValueError(
                f"instruction prompt {self.instruction!r} must hold {{query}} exactly once, and "
                "{instruction} at most once"
            )

    def render(self, request: Request) -> tuple[str, tuple[int, int] | None]:
        """The text as the model reads it, and the request's span moved to its place there."""
        if request.role == "query" and request.instruction is not None:
            # Not str.format: texts and instructions may hold braces.
            head, tail = self.instruction.split("{query}")
            before = head.replace("{instruction}", request.instruction)
            after = tail.replace("{instruction}", request.instruction)
        else:
            before, after = self.query if request.role == "query" else self.document, ""
        span = request.span
        moved = None if span is None else (span[0] + len(before), span[1] + len(before))
        return before + request.text + after, moved


def find_span(text: str, span: str) -> tuple[int, int] | None:
    """Offsets of the first occurrence of `span` as whole words, else anywhere, else None."""
    first = start = text.find(span)
    while span and start >= 0:
        end = start + len(span)
        before, after = text[start - 1 : start], text[end : end + 1]
        if not (before.isalnum() and span[0].isalnum()) and not (after.isalnum() and span[-1].isalnum()):
            return start, end
        start = text.find(span, start + 1)
    return (first, first + len(span)) if span and first >= 0 else None
