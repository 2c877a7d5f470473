"""How a model family wants its inputs written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from train.config import ModelSettings
from train.requests import Request


@dataclass(frozen=True, slots=True)
class Prompts:
    """How one model family writes its inputs.

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


def prompts_of(own: Mapping[str, str | None] | None, settings: ModelSettings | None = None) -> Prompts:
    """A model's own prompts, except those that its settings give.

    Raises:
        ValueError: if the template of instructions is malformed.
    """
    prompts = own or {}

    def first(*names: str) -> str:
        """The first of these prompts that the model has: the order of sentence-transformers."""
        return next((prompt for name in names if (prompt := prompts.get(name))), "")

    query, document, instruction = (
        getattr(settings, f"{name}_prompt", None) for name in ("query", "document", "instruction")
    )
    return Prompts(
        query=first("query") if query is None else query,
        document=first("document", "passage", "corpus") if document is None else document,
        instruction=instruction or first("instruction") or Prompts().instruction,
    )
