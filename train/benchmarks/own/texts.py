"""Texts and queries of users' own benchmarks, by whole sentences and by spans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from train.benchmarks.own import Mode
from train.data.own.table import Record
from train.requests import Request, Role


@dataclass(frozen=True)
class Query:
    """A query, and the documents or candidates that were judged for it.

    Attributes:
        grades: position of a document, or text of a candidate → its grade.
        group: what it belongs to in a resample; None if it is by itself.
        relevant_above: documents with a greater grade are relevant.
        left_out: positions of documents that it does not search.
    """

    id: str
    text: Request
    grades: dict[Any, float]
    group: str | None = None
    relevant_above: float = 0.0
    left_out: Sequence[int] = ()


def request_of(
    record: Record,
    text: str = "text",
    span: str = "span",
    instruction: str | None = None,
    role: Role = "query",
) -> Request:
    """A text with its row's instruction, else the given one. Raises FieldError.

    Args:
        text, span: roles of columns.
    """
    return Request(*record.marked(text, span), role, record.optional_text("instruction") or instruction)


def modes_of(requests: Iterable[Request]) -> list[Mode]:
    """By whole sentences, and by spans if one of the texts has a span."""
    return ["sentence", "span"] if any(request.span for request in requests) else ["sentence"]


def in_mode(requests: Iterable[Request], mode: Mode) -> Iterator[Request]:
    """In the mode `span`, a text without a span is embedded whole."""
    return (replace(r, pooling="span") if mode == "span" and r.span else r for r in requests)


def span_note(requests: Iterable[Request], key: str) -> list[str]:
    """How many texts the mode `span` embeds whole; nothing if all do, or none does, have a span."""
    have = [request.span is not None for request in requests]
    if all(have) or not any(have):
        return []
    return [f"{key}: {have.count(False)} of {len(have)} texts have no span and are embedded as a whole"]
