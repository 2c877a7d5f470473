"""Texts of users' own benchmarks, with their spans and instructions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from train.benchmarks.own import Mode
from train.data.own.table import Record
from train.requests import Request, Role


@dataclass(frozen=True, slots=True)
class OwnText:
    """A text to embed.

    Attributes:
        span: offsets [start, end) of what its row marks, if anything.
        instruction: its row's, else that of the options.
    """

    text: str
    span: tuple[int, int] | None = None
    instruction: str | None = None

    @classmethod
    def of(
        cls, record: Record, role: str = "text", span: str = "span", instruction: str | None = None
    ) -> OwnText:
        """That of a role, with the row's instruction, else the given one. Raises FieldError."""
        return cls(*record.marked(role, span), record.optional_text("instruction") or instruction)

    def request(self, mode: Mode, role: Role = "document") -> Request:
        """In the mode `span`, a text without a span is embedded whole."""
        if self.span is None or mode == "sentence":
            return Request(self.text, self.span, role, self.instruction)
        return Request(self.text, self.span, role, self.instruction, pooling="span")


def span_note(texts: Iterable[OwnText], key: str) -> list[str]:
    """How many texts the mode `span` embeds whole, for want of a span; none if all are, or have one."""
    have = [text.span is not None for text in texts]
    if all(have) or not any(have):
        return []
    return [f"{key}: {have.count(False)} of {len(have)} texts have no span: there, they are embedded whole"]
