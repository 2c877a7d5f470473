"""What tells the sense of an expression that was never seen: its span, its context and its words, apart."""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn import functional

from train.expressions import expression_pattern
from train.requests import Request

SenseFeatures = Literal["sentence", "usage"]
NUM_USAGE_REQUESTS = 3


def usage_requests(phrase: str, sentence: str, span: tuple[int, int] | None, mask: str) -> list[Request]:
    """The expression's span in its sentence, the sentence with the expression hidden, and it alone.

    The whole sentence stands for what is missing: the span where the expression was not found, and the rest
    where there is nothing else.

    Args:
        span: offsets of the expression's first occurrence.
        mask: hides it, wherever the sentence has it.
    """
    in_sentence = hidden = Request(sentence)
    if span is not None:
        start, end = span
        in_sentence = Request(sentence, span, pooling="span")
        if end - start < len(sentence):
            hidden = Request(expression_pattern(phrase).sub(lambda _: mask, sentence))
    return [in_sentence, hidden, Request(phrase)]


def usage_features(embeddings: Tensor) -> Tensor:
    """(N, 3 D) from the embeddings (N, 3, D) of :func:`usage_requests`, each scaled to length sqrt(D)."""
    scaled: Tensor = functional.normalize(embeddings, dim=2) * embeddings.shape[2] ** 0.5
    return scaled.flatten(1)
