"""Meanings in texts: the model reads `broke the ice (made people relax)`, or the meaning instead.

What an expression means comes from a glossary. From the expressions that it is trained on the model learns to
use what stands in the brackets, and it does so for others, which cost a line in the glossary and no step. A
model without such training takes an added meaning for more words of the sentence: it uses one that stands in
the expression's place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from train.errors import UserError
from train.expressions import ExpressionIndex, is_expression
from train.io.files import write_json
from train.io.records import read_json

FILE = "glossary.json"
_FORMAT = 2  # 1 had no form, which was `beside`, and no weight
_MAX_CACHED_TEXTS = 200_000

Span = tuple[int, int]
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


class _Edit(NamedTuple):
    """A meaning written into a text: [start, end) of the old text became `length` characters."""

    start: int
    end: int
    length: int

    @property
    def shift(self) -> int:
        return self.length - (self.end - self.start)


class Meanings:
    """Writes into a text, beside or in place of each known expression, what it means.

    Args:
        senses: expression → its meanings, the most usual first.
        form: `beside` = after the expression, in brackets; `in_place` = instead of it.
        num_senses: how many of them are written, divided by semicolons.
        weight: of a meaning's own embedding in a sentence's (:func:`train.encoder.pooling.add_meanings`).
        dropout: share of the texts of a training step that are read without.
        about: what is known of the glossary (files, sources, licences), for records.
        left_out: expressions that are left as they are, and so are those within them.
        gate: weighs meanings by usage (:mod:`train.encoder.usage_gate`), if there is one.
    """

    def __init__(
        self,
        senses: Mapping[str, Sequence[str]],
        *,
        form: GlossaryForm = "beside",
        num_senses: int = 1,
        weight: float = 0.0,
        dropout: float = 0.0,
        about: Mapping[str, Any] | None = None,
        left_out: Iterable[str] = (),
        gate: UsageGate | None = None,
    ) -> None:
        self.senses = {name: list(meanings) for name, meanings in senses.items()}
        self.form: GlossaryForm = form
        self.num_senses = num_senses
        self.weight = weight
        self.dropout = dropout
        self.about = dict(about or {})
        self.left_out = list(left_out)
        self.gate = gate
        self._index = ExpressionIndex([*self.senses, *self.left_out])
        self._cache: dict[str, tuple[str, list[_Edit]]] = {}

    def leave_out(self, expressions: Iterable[str]) -> None:
        """Leave these expressions, and those within them, as they are; `about` says how many."""
        left = [name for name in dict.fromkeys(expressions) if name in self.senses]
        for name in left:
            del self.senses[name]
        self.left_out += left
        self.about |= {"left_as_they_are": len(self.left_out)} if left else {}
        self._index = ExpressionIndex([*self.senses, *self.left_out])
        self._cache.clear()

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
        if text not in self._cache:
            if len(self._cache) >= _MAX_CACHED_TEXTS:
                self._cache.clear()
            self._cache[text] = self._add(text)
        new, edits = self._cache[text]
        if span is None:
            return new, None
        start, end = new_start, new_end = span
        for edit in edits:
            if edit.start < start < edit.end:
                new_start -= start - edit.start
            elif edit.end <= start:
                new_start += edit.shift
            if edit.start < end < edit.end:
                new_end += edit.end - end
            if edit.start < end or edit.end <= end:
                new_end += edit.shift
        return new, (new_start, new_end)

    def in_place(self, text: str) -> tuple[str, list[tuple[Span, Span]]]:
        """The text with meanings instead of its expressions; of each, its place before and after."""
        parts: list[str] = []
        places: list[tuple[Span, Span]] = []
        read = length = 0
        for start, end, expression in self._found(text):
            meaning = self.meaning(expression)
            length += start - read
            places.append(((start, end), (length, length + len(meaning))))
            parts += [text[read:start], meaning]
            length, read = length + len(meaning), end
        return "".join([*parts, text[read:]]), places

    def in_text(self, text: str) -> list[str]:
        """The distinct meanings of the expressions in a text."""
        return list(dict.fromkeys(self.meaning(name) for _, _, name in self._found(text)))

    def _found(self, text: str) -> list[tuple[int, int, str]]:
        """(start, end, expression) of those in a text whose meanings are read."""
        return [found for found in self._index.find(text) if found[2] in self.senses]

    def _add(self, text: str) -> tuple[str, list[_Edit]]:
        """The text with its meanings, and where they were written."""
        parts, edits, read = [], [], 0
        for start, end, expression in self._found(text):
            written = self.written(expression)
            place = start if self.form == "in_place" else end
            parts += [text[read:place], written]
            edits.append(_Edit(place, end, len(written)))
            read = end
        return "".join([*parts, text[read:]]), edits

    def coverage(self, texts: Iterable[str]) -> tuple[dict[str, int], int]:
        """(expression → number of texts in which it stands, number of texts in which any does)."""
        counts = dict.fromkeys(self.senses, 0)
        num_texts = 0
        for text in dict.fromkeys(texts):
            found = {name for _, _, name in self._found(text)}
            num_texts += bool(found)
            for name in found:
                counts[name] += 1
        return counts, num_texts

    def save(self, folder: str | Path) -> None:
        """Write `glossary.json`: what :func:`read_meanings` reads."""
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


def read_meanings(path: Path) -> Meanings:
    """The meanings that a checkpoint was saved with.

    Raises:
        UserError: if the file is damaged.
    """
    content = read_json(path)
    if isinstance(content, dict) and content.get("format") == 1:
        content = content | {"format": _FORMAT, "form": "beside", "weight": 0.0}
    if isinstance(content, dict):
        content = {"left_out": [], "gate": None} | content  # are only there if any are
    problem = _problem(content)
    if problem is not None:
        raise UserError(f"{path}: {problem}. Bring the file back as it was saved with the model")
    return Meanings(
        content["senses"],
        form=content["form"],
        num_senses=content["num_senses"],
        weight=content["weight"],
        about=content["about"],
        left_out=content["left_out"],
        gate=None if content["gate"] is None else UsageGate(**content["gate"]),
    )


def _problem(content: Any) -> str | None:
    """What is wrong with the content of the file."""
    fields = ("format", "form", "num_senses", "weight", "about", "senses", "left_out", "gate")
    if not isinstance(content, dict) or content.keys() != set(fields):
        return f"is damaged: expected an object with the fields {', '.join(fields)}"
    if content["format"] != _FORMAT:
        return f"field 'format': expected {_FORMAT}, got {content['format']!r}"
    if content["form"] not in get_args(GlossaryForm):
        return f"field 'form': expected beside or in_place, got {content['form']!r}"
    number, senses = content["num_senses"], content["senses"]
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        return f"field 'num_senses': expected a whole number above 0, got {number!r}"
    weight = content["weight"]
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 <= weight < math.inf:
        return f"field 'weight': expected a number from 0, got {weight!r}"
    if not isinstance(content["about"], dict):
        return "field 'about': expected an object"
    if not isinstance(senses, dict):
        return "field 'senses': expected expressions with their meanings"
    for name, meanings in senses.items():
        if not is_expression(name):
            return f"field 'senses': {name!r} is no expression"
        if not isinstance(meanings, list) or not meanings or not all(isinstance(m, str) for m in meanings):
            return f"field 'senses', {name!r}: expected a list of meanings, got {json.dumps(meanings)[:60]}"
    left_out = content["left_out"]
    if not isinstance(left_out, list) or not all(
        isinstance(name, str) and is_expression(name) for name in left_out
    ):
        return f"field 'left_out': expected a list of expressions, got {json.dumps(left_out)[:60]}"
    gate = content["gate"]
    if gate is not None and not _is_gate(gate):
        return f"field 'gate': expected a direction and a bias, got {json.dumps(gate)[:60]}"
    return None


def _is_gate(content: Any) -> bool:
    if not isinstance(content, dict) or content.keys() != set(UsageGate._fields):
        return False
    direction, bias = content["direction"], content["bias"]
    numbers = [*direction, bias] if isinstance(direction, list) and direction else [None]
    return all(isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n) for n in numbers)
