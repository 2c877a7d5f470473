"""The model card of an export: what it is, what it lost, how it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from huggingface_hub import ModelCardData

from train.hub.card import template
from train.reports.export_screen import Comparison


@dataclass(frozen=True)
class Reading:
    """What a program has to know that reads an export without this project.

    Attributes:
        max_tokens: of a text, special tokens included; None = all.
        pad_id: of the token that fills up batches.
        query_prompt, document_prompt: put before texts; "" for none.
        instruction_prompt: how a query is written that has an instruction.
        pools_prompts: whether their tokens are pooled.
        idiom_tokens: expressions are tokens of their own.
        glossary: meanings are written into texts: `beside` expressions, or `in_place` of them.
        tokenizer_does: the saved tokenizer does both by itself.
        only_encoder: what only `Encoder` does, in words; "" for nothing.
    """

    max_tokens: int | None
    pad_id: int
    query_prompt: str
    document_prompt: str
    instruction_prompt: str
    pools_prompts: bool
    idiom_tokens: bool
    glossary: Literal["", "beside", "in_place"]
    tokenizer_does: bool
    only_encoder: str


def export_card(
    compared: Comparison,
    reading: Reading,
    notes: Sequence[str],
    *,
    base: str | None,
    licence: str | None,
    command: str,
) -> str:
    """The card of an export.

    Args:
        notes: on the scores, a sentence each.
        base: the model's name on the Hub, where it has one.
        licence: of the model, where it is known.
        command: that made it.
    """
    metadata = ModelCardData(
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "sentence-similarity", compared.format],
        license=licence,
        base_model=base,
    )
    return template("export_card.md.j2").render(
        metadata=metadata.to_yaml(),
        compared=compared,
        reading=reading,
        notes=notes,
        command=command,
        is_static=compared.format == "static",
    )
