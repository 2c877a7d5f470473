"""Meanings beside expressions: the model reads `broke the ice (made people relax)`.

What an expression means comes from a glossary. From the expressions that it is trained on the model learns to
use what stands in the brackets, and it does so for others, which cost a line in the glossary and no step.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from train.errors import UserError
from train.expressions import ExpressionIndex
from train.io.files import write_json
from train.io.records import read_json

FILE = "glossary.json"
_FORMAT = 1
_MAX_CACHED_TEXTS = 200_000

Span = tuple[int, int]


class Meanings:
    """Writes into a text, after each known expression, what it means.

    Args:
        senses: expression → its meanings, the most usual first.
        num_senses: how many of them are written, divided by semicolons.
        dropout: share of the texts of a training step that are read without.
        about: what is known of the glossary (files, sources, licences), for records.
    """

    def __init__(
        self,
        senses: Mapping[str, Sequence[str]],
        *,
        num_senses: int = 1,
        dropout: float = 0.0,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.senses = {name: list(meanings) for name, meanings in senses.items()}
        self.num_senses = num_senses
        self.dropout = dropout
        self.about = dict(about or {})
        self._index = ExpressionIndex(self.senses)
        self._cache: dict[str, tuple[str, list[tuple[int, int]]]] = {}

    def meaning(self, expression: str) -> str:
        """What an expression means, by as many senses as are read of it."""
        return "; ".join(self.senses[expression][: self.num_senses])

    def gloss(self, expression: str) -> str:
        """What is written after an expression: ` (made people relax)`."""
        return f" ({self.meaning(expression)})"

    def added(self, text: str, span: Span | None = None) -> tuple[str, Span | None]:
        """The text with its meanings, and the span's place in it.

        A span takes in the meaning right behind it, which says what its last words mean: pooled with them it
        found half as many paraphrases again as without (docs/results/knowledge.md).
        """
        if text not in self._cache:
            if len(self._cache) >= _MAX_CACHED_TEXTS:
                self._cache.clear()
            self._cache[text] = self._add(text)
        new, added = self._cache[text]
        if span is None:
            return new, None
        start, end = span
        return new, (
            start + sum(length for place, length in added if place <= start),
            end + sum(length for place, length in added if place <= end),
        )

    def _add(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        """The text with its meanings, and (where in the old text, how many characters) of each."""
        parts, added, read = [], [], 0
        for _, end, expression in self._index.find(text):
            gloss = self.gloss(expression)
            parts += [text[read:end], gloss]
            added.append((end, len(gloss)))
            read = end
        return "".join([*parts, text[read:]]), added

    def coverage(self, texts: Iterable[str]) -> tuple[dict[str, int], int]:
        """(expression → number of texts in which it stands, number of texts in which any does)."""
        counts = dict.fromkeys(self.senses, 0)
        num_texts = 0
        for text in dict.fromkeys(texts):
            found = {name for _, _, name in self._index.find(text)}
            num_texts += bool(found)
            for name in found:
                counts[name] += 1
        return counts, num_texts

    def save(self, folder: str | Path) -> None:
        """Write `glossary.json`: what :func:`read_meanings` reads."""
        content = {
            "format": _FORMAT,
            "num_senses": self.num_senses,
            "about": self.about,
            "senses": self.senses,
        }
        write_json(Path(folder) / FILE, content)


def read_meanings(path: Path) -> Meanings:
    """The meanings that a checkpoint was saved with.

    Raises:
        UserError: if the file is damaged.
    """
    content = read_json(path)
    problem = _problem(content)
    if problem is not None:
        raise UserError(f"{path}: {problem}. Bring the file back as it was saved with the model")
    return Meanings(content["senses"], num_senses=content["num_senses"], about=content["about"])


def _problem(content: Any) -> str | None:
    """What is wrong with the content of the file."""
    if not isinstance(content, dict) or content.keys() != {"format", "num_senses", "about", "senses"}:
        return "is damaged: expected an object with the fields format, num_senses, about and senses"
    if content["format"] != _FORMAT:
        return f"field 'format': expected {_FORMAT}, got {content['format']!r}"
    number, senses = content["num_senses"], content["senses"]
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        return f"field 'num_senses': expected a whole number above 0, got {number!r}"
    if not isinstance(content["about"], dict):
        return "field 'about': expected an object"
    if not isinstance(senses, dict):
        return "field 'senses': expected expressions with their meanings"
    for name, meanings in senses.items():
        if not any(c.isalnum() for c in name):
            return f"field 'senses': {name!r} is no expression"
        if not isinstance(meanings, list) or not meanings or not all(isinstance(m, str) for m in meanings):
            return f"field 'senses', {name!r}: expected a list of meanings, got {json.dumps(meanings)[:60]}"
    return None
