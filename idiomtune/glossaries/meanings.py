"""How a model reads a glossary in texts.

It reads `broke the ice (made people relax)`, or the meaning instead. From the expressions that it is trained
on the model learns to use what is in the brackets, and it does so for others, which cost a line in the
glossary and no step. A model without such training takes an added meaning for more words of the sentence: it
uses one that replaces the expression.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import normalize

from idiomtune.expressions import ExpressionIndex, Span, find_with_adjectives, move_span, rewrite
from idiomtune.io.files import write_json

log = logging.getLogger(__name__)

FILE = "glossary.json"
_FORMAT = 3
_FIELDS = ("form", "about", "senses")
_OPTIONAL = {"gate", "forms"}

GlossaryForm = Literal["append", "replace"]


class UsageClassifier(NamedTuple):
    """A linear classifier of usage: how idiomatic an expression is in a text, read without meanings.

    Attributes:
        direction: a number for each feature of the text.
        bias: what is added to the products.
        layers: the hidden layers that give the features (:func:`idiomtune.encoder.forward.layer_features`).
        bare: a number for each feature of the expression itself, read as a text of its own.
        seen: the expressions that it was fitted to.
        mean: the mean embedding, of a model whose texts all have similar ones: what is mixed is the rest.
    """

    direction: list[float]
    bias: float
    layers: tuple[int, ...]
    bare: tuple[float, ...]
    seen: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()

    def terms(self, features: Tensor) -> Tensor:
        """(N, 2): the logit's terms for a text with an expression, and for the expression by itself.

        Args:
            features: (N, F).
        """
        units = normalize(features.float(), dim=1)
        own = of_expression(units, self.layers) @ units.new_tensor(self.bare)
        return torch.stack([units @ units.new_tensor(self.direction), own], dim=1)

    def usage(self, terms: Tensor, expression_terms: Tensor) -> Tensor:
        """(N,), from 0 = literal to 1 = idiomatic.

        Args:
            terms: (N, 2), of texts.
            expression_terms: (N, 2), of their expressions.
        """
        return torch.sigmoid(terms[:, 0] + expression_terms[:, 1] + self.bias)


def of_expression(features: Tensor, layers: Sequence[int]) -> Tensor:
    """(N, L · H): the part of (N, 3 · L · H) features that describes the expression itself."""
    return features.view(len(features), len(layers), 3, -1)[:, :, 1].flatten(1)


@dataclass(frozen=True)
class GlossaryReader:
    """A glossary as a model reads it: meanings after expressions, or instead of them.

    Attributes:
        senses: expression → its meanings, of which the first is read; none for a name in a list: its text is
            unchanged, but a gate keeps its usages apart.
        form: `append` = after the expression, in brackets; `replace` = instead of it.
        dropout: share of the texts of a training step that are read without.
        about: what is known of the glossary (files, sources, licences), for records.
        gate: weighs meanings by usage (:mod:`idiomtune.glossaries.usage_gate`), if there is one.
        forms: expression → its inflected forms, where the glossary gives them.
    """

    senses: dict[str, list[str]]
    form: GlossaryForm = "append"
    dropout: float = 0.0
    about: dict[str, Any] = Field(default_factory=dict)
    gate: UsageClassifier | None = None
    forms: dict[str, list[str]] = Field(default_factory=dict)

    def override(self, **options: Any) -> GlossaryReader:
        """A copy with other options; None keeps an option."""
        return replace(self, **{name: value for name, value in options.items() if value is not None})

    def meaning(self, expression: str) -> str:
        """The meaning of an expression; "" for a name without a meaning."""
        return next(iter(self.senses[expression]), "")

    def insert(self, text: str, span: Span | None = None) -> tuple[str, Span | None]:
        """The text with meanings, and the span moved to its new offsets.

        ` (made people relax)` is inserted after an expression, or the meaning instead of it.
        A span includes the meaning right after it: pooled together it
        found half as many paraphrases again as without (docs/results/knowledge.md). Of an expression that its
        meaning replaces, a span that holds any part has the whole meaning.
        """
        matches = [(*match[:2], self.meaning(match[2])) for match in self.find(text) if self.senses[match[2]]]
        if self.form == "append":
            matches = [(end, end, f" ({meaning})") for _, end, meaning in matches]
        new, edits = rewrite(text, matches)
        return new, None if span is None else move_span(span, edits)

    def replace_expressions(self, text: str) -> tuple[str, list[tuple[Span, Span, str]]]:
        """The text with meanings instead of expressions, and each match's span before and after."""
        matches = self.find(text)
        meant = [(start, end, self.meaning(name) or text[start:end]) for start, end, name in matches]
        new, edits = rewrite(text, meant)
        return new, [(edit[:2], edit[2:], match[2]) for edit, match in zip(edits, matches, strict=True)]

    def find(self, text: str) -> Sequence[tuple[int, int, str]]:
        """(start, end, expression) of those in a text."""
        return self._index.find(text)

    def find_all(self, text: str) -> list[tuple[int, int, str]]:
        """As :meth:`find`, and those with an adjective put into them."""
        return sorted({*self.find(text), *find_with_adjectives(self._index, text)})

    @cached_property
    def _index(self) -> ExpressionIndex:
        forms = tuple((name, *forms_of) for name, forms_of in self.forms.items() if name in self.senses)
        return _index_of(tuple(self.senses), forms)

    def log_coverage(self, texts: Iterable[str], title: str) -> tuple[set[str], int]:
        """The occurring expressions and the number of texts with any; logged, as a warning if there are none.

        Args:
            title: of the texts, as `training`.
        """
        expressions = [{name for *_, name in self.find(text)} for text in dict.fromkeys(texts)]
        names, num_texts = set[str]().union(*expressions), sum(map(bool, expressions))
        message = "glossary: %d of %d expressions occur in %d texts of %s"
        level = logging.INFO if num_texts else logging.WARNING
        log.log(level, message, len(names), len(self.senses), num_texts, title)
        return names, num_texts

    def save(self, folder: str | Path) -> None:
        """Write `glossary.json`: what :func:`saved_meanings` reads."""
        content = {"format": _FORMAT} | {name: getattr(self, name) for name in _FIELDS}
        optional = {"gate": self.gate and self.gate._asdict(), "forms": self.forms}
        write_json(Path(folder) / FILE, content | {name: value for name, value in optional.items() if value})


@lru_cache(maxsize=4)
def _index_of(expressions: tuple[str, ...], forms: tuple[tuple[str, ...], ...]) -> ExpressionIndex:
    """Cached: one index for equal expressions."""
    return ExpressionIndex(expressions, {name: forms_of for name, *forms_of in forms})


def saved_meanings(content: dict[str, Any], hidden: int) -> GlossaryReader:
    """The meanings that a checkpoint was saved with.

    Args:
        content: of its file.
        hidden: dimensions of the model's hidden states.

    Raises:
        ValueError, KeyError, TypeError: if the file is damaged, or its gate is for another model.
    """
    if content["format"] != _FORMAT:
        raise ValueError(f"format {content['format']}, expected {_FORMAT}")
    meanings = GlossaryReader(**{name: content[name] for name in [*_FIELDS, *(_OPTIONAL & content.keys())]})
    meanings.find("")  # refuses expressions without a letter
    if (gate := meanings.gate) is not None:
        sizes, width = (len(gate.direction), len(gate.bare)), len(gate.layers) * hidden
        if sizes != (3 * width, width) or len(gate.mean) not in (0, hidden):
            raise ValueError(f"the gate has {sizes} numbers, this model's needs {(3 * width, width)}")
    return meanings
