"""Slots of a data set: so many texts of an expression, in a domain, of a usage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from idiomtune.data.idiolink import Document, Query

Usage = Literal["literal", "idiomatic", "sense", "simplification"]
USAGES: dict[Usage, tuple[str, int]] = {  # in the id, and how many of a domain
    "literal": ("lit", 4),
    "idiomatic": ("idiom", 2),
    "sense": ("sense", 2),
    "simplification": ("sim", 2),
}


@dataclass
class Draft:
    """A text that a model has written.

    Attributes:
        votes: of the judge: whether the text is as it should be.
    """

    text: str
    span: str
    votes: list[bool] = field(default_factory=list)

    @property
    def is_accepted(self) -> bool:
        """By more than half of the votes."""
        return 2 * sum(self.votes) > len(self.votes)


@dataclass(frozen=True)
class Slot:
    """So many texts that one question asks for.

    Attributes:
        number: of the expression, from 1.
        domain_number: from 1.
        is_query: one text to search with, by another model; else documents.
    """

    number: int
    expression: str
    domain_number: int
    domain: str
    usage: Usage
    is_query: bool = False

    @property
    def count(self) -> int:
        """How many texts it has."""
        return 1 if self.is_query else USAGES[self.usage][1]

    @property
    def has_expression(self) -> bool:
        """Whether its texts use the expression itself."""
        return self.usage in ("literal", "idiomatic")

    def id(self, position: int) -> str:
        """Of its text number `position`, from 1, as IdioLink's."""
        prefix = "q_" if self.is_query else ""
        return f"{prefix}{self.number:03}_s{self.domain_number:02}_{USAGES[self.usage][0]}_{position:02}"

    def record(self, position: int, text: str, span: str, *, is_gold: bool) -> Document:
        """The text as IdioLink has it."""
        kind: Any = Query if self.is_query else Document
        record: Document = kind(
            id=self.id(position),
            sentence=text,
            idiom=self.expression,
            span=span,
            subject=self.domain,
            usage=self.usage,
            is_gold=is_gold,
        )
        return record
