"""Arguments of `usage`, checked: texts with expressions as requests, labels as usages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real

from idiomtune.encoder.arguments import find_words, optional_list, requests_for, text_list, type_error
from idiomtune.errors import ArgumentValueError
from idiomtune.expressions import Span
from idiomtune.io.files import checked_text
from idiomtune.requests import LabelledUse, LayersRequest


def usage_requests(
    texts: Iterable[str], expressions: str | Iterable[str | Span]
) -> tuple[list[LayersRequest | None], list[str]]:
    """A request for the usage of each expression in its text (None where it is not in it), and their names.

    Raises:
        TypeError, ValueError, UserError: as :func:`requests_for`.
    """
    texts = text_list("texts", texts)
    if isinstance(expressions, str):
        expressions = [expressions] * len(texts)
    expressions_ = optional_list("expressions", expressions)
    if any(words is None for words in expressions_):
        raise type_error("expressions", "words, or offsets (start, end), for each text", None)
    for words in expressions_:
        if isinstance(words, str) and not checked_text(words, "expressions").strip():
            raise ArgumentValueError("is empty", option="expressions")
    pairs = list(zip(texts, expressions_, strict=False))  # of other lengths: refused below
    lacks = [all(isinstance(part, str) for part in pair) and find_words(*pair) is None for pair in pairs]
    spans = [None if is_missing else words for (_, words), is_missing in zip(pairs, lacks, strict=True)]
    requests = requests_for(texts, [*spans, *expressions_[len(spans) :]], names=("texts", "expressions"))
    names = [words if isinstance(words, str) else text[slice(*words)] for text, words in pairs]
    usages = [LayersRequest(request.text, request.span, with_meanings=False) for request in requests]
    return [None if lack else usage for lack, usage in zip(lacks, usages, strict=True)], names


def labelled_requests(
    requests: Sequence[LayersRequest | None], names: Sequence[str], labels: Sequence[bool | None]
) -> list[LabelledUse]:
    """The uses with a label, for a gate to be fitted to.

    Raises:
        ValueError: if there is not one label for each text, or no expression has both.
    """
    labels = optional_list("labels", labels)
    if len(labels) != len(requests):
        raise ArgumentValueError(f"has {len(labels)} labels for {len(requests)} texts", option="labels")
    for i, label in enumerate(labels):
        if label is not None and not (isinstance(label, Real) and label in (0, 1)):
            raise type_error("labels", "True (idiomatic), False (literal) or None", label, f"label {i}: ")
    uses = [
        LabelledUse(f"labels {i}", name, request.text, request.span, bool(label))
        for i, (request, name, label) in enumerate(zip(requests, names, labels, strict=True))
        if request is not None and label is not None
    ]
    kinds = {(use.phrase, use.is_idiomatic) for use in uses}
    if not any((phrase, not is_idiomatic) in kinds for phrase, is_idiomatic in kinds):
        raise ArgumentValueError("no expression has both a True and a False", option="labels")
    return uses
