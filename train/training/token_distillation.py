"""Knowledge in a token: it is moved until a text with it embeds as the text with the meaning.

The encoder is frozen, so every text without such an expression keeps its embedding bit for bit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from train.encoder.encoder import Encoder
from train.encoder.meanings import Meanings
from train.requests import Request

Span = tuple[int, int]


@dataclass(frozen=True)
class Carrier:
    """A sentence that an expression stands in.

    Attributes:
        text: the sentence.
        span: of the expression.
        expression: as the glossary lists it.
    """

    text: str
    span: Span
    expression: str


@dataclass(frozen=True)
class Teaching:
    """How tokens are learnt.

    Attributes:
        steps: of the optimizer.
        learning_rate: of Adam.
        literal: share of the sentence as it is in what a token learns; the rest is the meaning's. Without it
            a token takes on its meaning where it is used literally too.
        never_literal: expressions that are not used literally: there is no such use to keep, and the share
            is 0.
        in_place: the meaning replaces the expression in what a token learns; else it stands beside it, for
            encoders that were trained to read it there.
    """

    steps: int
    learning_rate: float
    literal: float
    in_place: bool
    never_literal: Collection[str] = ()


def as_they_are(carriers: Sequence[Carrier]) -> list[Request]:
    """2C requests, without meanings: each carrier's sentence, then each expression in it."""
    return [
        *(Request(carrier.text) for carrier in carriers),
        *(Request(carrier.text, carrier.span, pooling="span") for carrier in carriers),
    ]


def targets(encoder: Encoder, carriers: Sequence[Carrier], meanings: Meanings, teaching: Teaching) -> Tensor:
    """(2C, D), of unit length: what each carrier's sentence, then each expression in it, is to embed as."""
    plain = taught = as_they_are(carriers)
    if teaching.in_place:
        replaced = [_in_place(c, meanings.meaning(c.expression)) for c in carriers]
        taught = [Request(text) for text, _ in replaced]
        taught += [Request(text, span, pooling="span") for text, span in replaced]
    with torch.no_grad(), _reading(encoder, meanings=None if teaching.in_place else meanings):
        told = nn.functional.normalize(encoder(taught).float(), dim=1)
    shares = [0.0 if c.expression in teaching.never_literal else teaching.literal for c in carriers]
    if not any(shares):
        return told
    with torch.no_grad(), _reading(encoder, meanings=None):
        bare = nn.functional.normalize(encoder(plain).float(), dim=1)
    weights = torch.tensor([*shares, *shares], device=told.device)[:, None]  # (2C, 1)
    return nn.functional.normalize(torch.lerp(told, bare, weights), dim=1)


def distil(encoder: Encoder, carriers: Sequence[Carrier], goal: Tensor, teaching: Teaching) -> Tensor:
    """Learn the tokens of the carriers' expressions; they are in the encoder afterwards.

    Other expressions in a carrier, with tokens of their own, stay what they are.

    Args:
        encoder: has an idiom token for each of the expressions, and replaces them.
        goal: (2C, D), from :func:`targets`.

    Returns:
        (C,), the cosine that each carrier's sentence and expression reach with their goal, on average.
    """
    assert encoder.idiom_tokens is not None
    tokens = sorted({encoder.idiom_tokens.token_of(c.expression) for c in carriers})
    embedder: Any = encoder.model[0]
    vocabulary = embedder.tokenizer.get_vocab()
    ids = torch.tensor([vocabulary[token] for token in tokens], device=encoder.device)  # (T,)
    matrix: nn.Embedding = embedder.auto_model.get_input_embeddings()
    rows = nn.Parameter(matrix.weight.detach()[ids].clone())  # (T, d)
    optimizer = torch.optim.Adam([rows], lr=teaching.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, teaching.steps)
    requests = as_they_are(carriers)
    goal = goal.to(encoder.device)
    with _reading(encoder, meanings=None), _rows_in_place(matrix, ids, rows):
        for _ in range(teaching.steps):
            optimizer.zero_grad()
            loss = 1 - nn.functional.cosine_similarity(encoder(requests).float(), goal).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            reached = nn.functional.cosine_similarity(encoder(requests).float(), goal)  # (2C,)
    with torch.no_grad():
        matrix.weight[ids] = rows
    return reached.view(2, -1).mean(0).cpu()


def _in_place(carrier: Carrier, meaning: str) -> tuple[str, Span]:
    """The sentence with the meaning in the expression's place, and where it stands."""
    start, end = carrier.span
    return carrier.text[:start] + meaning + carrier.text[end:], (start, start + len(meaning))


@contextmanager
def _reading(encoder: Encoder, meanings: Meanings | None) -> Iterator[None]:
    """With these meanings beside expressions, or none, in evaluation mode."""
    before, was_training = encoder.meanings, encoder.training
    encoder.meanings = meanings
    encoder.eval()
    try:
        yield
    finally:
        encoder.meanings = before
        encoder.train(was_training)


@contextmanager
def _rows_in_place(matrix: nn.Embedding, ids: Tensor, rows: nn.Parameter) -> Iterator[None]:
    """The token embeddings with these rows for these tokens: only they are trained, and cost no more."""
    position = torch.full((matrix.num_embeddings,), -1, dtype=torch.long, device=ids.device)
    position[ids] = torch.arange(len(ids), device=ids.device)

    def replace(_: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
        places = position[arguments[0]]  # (B, T), -1 for other tokens
        learnt = rows[places.clamp(min=0)].to(output.dtype)  # (B, T, d)
        return torch.where((places >= 0)[..., None], learnt, output.detach())

    handle = matrix.register_forward_hook(replace)
    try:
        yield
    finally:
        handle.remove()
