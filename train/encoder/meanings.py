"""Meanings in texts: the model reads `broke the ice (made people relax)`, or the meaning instead.

What an expression means comes from a glossary. From the expressions that it is trained on the model learns to
use what is in the brackets, and it does so for others, which cost a line in the glossary and no step. A model
without such training takes an added meaning for more words of the sentence: it uses one that replaces the
expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import normalize

from train.encoder.rewriting import Edit, Span, moved, rewrite
from train.expressions import ExpressionIndex
from train.io.files import write_json

FILE = "glossary.json"
_FORMAT = 2  # 1 had no form, which was `beside`, and no weight
_MAX_CACHED_TEXTS = 200_000
_FIELDS = ("form", "num_senses", "weight", "about", "senses")

GlossaryForm = Literal["beside", "in_place"]


class UsageGate(NamedTuple):
    """How idiomatically a text uses its expressions, by its embedding without meanings.

    Attributes:
        direction: D numbers.
        bias: what is added to an embedding's product with them.
    """

    direction: list[float]
    bias: float

    def usage(self, embeddings: Tensor) -> Tensor:
        """(N,), from 0 = literal to 1 = idiomatic, of embeddings (N, D)."""
        direction = torch.tensor(self.direction, dtype=torch.float32, device=embeddings.device)
        products = (normalize(embeddings.float(), dim=1) * direction).sum(1)
        return torch.sigmoid(products + self.bias)


@dataclass(frozen=True)
class Meanings:
    """What a model reads of a glossary: each known expression with its meaning after it, or replaced by it.

    Attributes:
        senses: expression → its meanings, the most usual first.
        form: `beside` = after the expression, in brackets; `in_place` = instead of it.
        num_senses: how many of them are written, divided by semicolons.
        weight: of a meaning's own embedding in a sentence's (:func:`train.encoder.forward.add_meanings`).
        dropout: share of the texts of a training step that are read without.
        about: what is known of the glossary (files, sources, licences), for records.
        left_out: expressions that are left unchanged, and so are those within them.
        gate: weighs meanings by usage (:mod:`train.encoder.usage_gate`), if there is one.
    """

    senses: dict[str, Annotated[list[str], Field(min_length=1)]]
    form: GlossaryForm = "beside"
    num_senses: Annotated[int, Field(ge=1)] = 1
    weight: Annotated[float, Field(ge=0, lt=math.inf)] = 0.0
    dropout: float = 0.0
    about: dict[str, Any] = Field(default_factory=dict)
    left_out: list[str] = Field(default_factory=list)
    gate: UsageGate | None = None

    def override(self, **options: Any) -> Meanings:
        """The same with other options; those that are None stay."""
        return replace(self, **{name: value for name, value in options.items() if value is not None})

    def without(self, expressions: Iterable[str]) -> Meanings:
        """The same, but these expressions, and those within them, are left unchanged."""
        out = {name: None for name in expressions if name in self.senses}
        left_out = [*self.left_out, *out]
        return replace(
            self,
            senses={name: some for name, some in self.senses.items() if name not in out},
            left_out=left_out,
            about=self.about | ({"left_as_they_are": len(left_out)} if out else {}),
        )

    def meaning(self, expression: str) -> str:
        """What an expression means, by as many senses as are read of it."""
        return "; ".join(self.senses[expression][: self.num_senses])

    def written(self, expression: str) -> str:
        """What is written of an expression: ` (made people relax)` after it, or that alone in its place."""
        meaning = self.meaning(expression)
        return meaning if self.form == "in_place" else f" ({meaning})"

    def added(self, text: str, span: Span | None = None) -> tuple[str, Span | None]:
        """The text with its meanings, and the span's place in it.

        A span takes in the meaning right behind it, which says what its last words mean: pooled with them it
        found half as many paraphrases again as without (docs/results/knowledge.md). Of an expression that its
        meaning replaces, a span that holds any part has the whole meaning.
        """
        new, edits = self._rewritten(text)
        return new, None if span is None else moved(span, edits)

    @cached_property
    def _rewritten(self) -> Callable[[str], tuple[str, list[Edit]]]:
        return lru_cache(maxsize=_MAX_CACHED_TEXTS)(self._rewrite)

    def _rewrite(self, text: str) -> tuple[str, list[Edit]]:
        matches = self.find(text)
        if self.form == "beside":
            return rewrite(text, [(end, end, self.written(name)) for _, end, name in matches])
        return rewrite(text, [(start, end, self.written(name)) for start, end, name in matches])

    def in_place(self, text: str) -> tuple[str, list[tuple[Span, Span]]]:
        """The text with meanings instead of its expressions; of each, its place before and after."""
        new, edits = rewrite(text, [(start, end, self.meaning(name)) for start, end, name in self.find(text)])
        return new, [(edit[:2], edit[2:]) for edit in edits]

    def in_text(self, text: str) -> list[str]:
        """The distinct meanings of the expressions in a text."""
        return list(dict.fromkeys(self.meaning(name) for _, _, name in self.find(text)))

    def find(self, text: str) -> list[tuple[int, int, str]]:
        """(start, end, expression) of those in a text whose meanings are read."""
        return [match for match in self._index.find(text) if match[2] in self.senses]

    @cached_property
    def _index(self) -> ExpressionIndex:
        return _index((*self.senses, *self.left_out))

    def coverage(self, texts: Iterable[str]) -> tuple[dict[str, int], int]:
        """(expression → number of texts in which it occurs, number of texts in which any does)."""
        counts = dict.fromkeys(self.senses, 0)
        num_texts = 0
        for text in dict.fromkeys(texts):
            names = {name for _, _, name in self.find(text)}
            num_texts += bool(names)
            for name in names:
                counts[name] += 1
        return counts, num_texts

    def save(self, folder: str | Path) -> None:
        """Write `glossary.json`: what :func:`saved_meanings` reads."""
        content = {
            "format": _FORMAT,
            "form": self.form,
            "num_senses": self.num_senses,
            "weight": self.weight,
            "about": self.about,
            "senses": self.senses,
            **({"left_out": self.left_out} if self.left_out else {}),
            **({"gate": self.gate._asdict()} if self.gate else {}),
        }
        write_json(Path(folder) / FILE, content)


@lru_cache(maxsize=4)
def _index(expressions: tuple[str, ...]) -> ExpressionIndex:
    """One for all values that read the same expressions."""
    return ExpressionIndex(expressions)


def saved_meanings(content: dict[str, Any], dimension: int | None) -> Meanings:
    """The meanings that a checkpoint was saved with.

    Args:
        content: of its file.
        dimension: of the model's embeddings.

    Raises:
        ValueError, KeyError, TypeError: if the file is damaged, or its gate is for another model.
    """
    if content["format"] == 1:
        content = {"form": "beside", "weight": 0.0, **content}
    elif content["format"] != _FORMAT:
        raise ValueError(f"format {content['format']}, expected {_FORMAT}")
    more = {name: content[name] for name in ("left_out", "gate") if name in content}
    meanings = Meanings(**{name: content[name] for name in _FIELDS}, **more)
    meanings.find("")  # refuses expressions without a letter
    if meanings.gate is not None and len(meanings.gate.direction) != dimension:
        raise ValueError(f"the gate has {len(meanings.gate.direction)} numbers, embeddings have {dimension}")
    return meanings
