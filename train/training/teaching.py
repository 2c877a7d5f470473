"""A glossary into a model: idiom tokens, or all weights, are trained until texts embed as their meanings do.

Where tokens are taught, the encoder is frozen: every text without such an expression keeps its embedding bit
for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize

from train.config import LearnSettings
from train.encoder.encoder import Encoder
from train.encoder.meanings import Meanings
from train.errors import UserError
from train.requests import Request
from train.training.checkpoint import optimizer_tensors, restore_optimizer

Span = tuple[int, int]

_BATCH_SIZE = 64
_WARMUP = 0.1
_MAX_NORM = 1.0
_EPOCH, _WEIGHT = "epoch", "weight/"  # saved for resuming: epochs done; before a weight's name


@dataclass(frozen=True)
class Carrier:
    """A sentence that contains an expression.

    Attributes:
        text: the sentence.
        span: of the expression.
        expression: as the glossary lists it.
    """

    text: str
    span: Span
    expression: str


# ------------------------------------------------------------------ what is taught


def as_they_are(carriers: Sequence[Carrier]) -> list[Request]:
    """2C requests, without meanings: each carrier's sentence, then each expression in it."""
    return [
        *(Request(carrier.text) for carrier in carriers),
        *(Request(carrier.text, carrier.span, pooling="span") for carrier in carriers),
    ]


def targets(
    encoder: Encoder,
    carriers: Sequence[Carrier],
    meanings: Meanings,
    literal: Mapping[str, float],
    *,
    in_place: bool,
) -> Tensor:
    """(2C, D), of unit length: what each carrier's sentence, then each expression in it, is to embed as.

    Args:
        literal: expression → share of the unchanged sentence in it; the rest is the meaning's. Without it
            a token takes on its meaning where it is used literally too.
        in_place: the meaning replaces the expression; else it is read after it, by encoders that were
            trained to read it there.
    """
    plain = taught = as_they_are(carriers)
    if in_place:
        replaced = [_in_place(c, meanings.meaning(c.expression)) for c in carriers]
        taught = [Request(text) for text, _ in replaced]
        taught += [Request(text, span, pooling="span") for text, span in replaced]
    with torch.no_grad(), _reading(encoder, meanings=None if in_place else meanings):
        with_meanings = normalize(encoder(taught).float(), dim=1)
    shares = [literal[c.expression] for c in carriers]
    if not any(shares):
        return with_meanings
    with torch.no_grad(), _reading(encoder, meanings=None):
        bare = normalize(encoder(plain).float(), dim=1)
    weights = torch.tensor([*shares, *shares], device=bare.device)[:, None]  # (2C, 1)
    return normalize(torch.lerp(with_meanings, bare, weights), dim=1)


def _in_place(carrier: Carrier, meaning: str) -> tuple[str, Span]:
    """The sentence with the meaning in the expression's place, and where it is."""
    start, end = carrier.span
    return carrier.text[:start] + meaning + carrier.text[end:], (start, start + len(meaning))


@contextmanager
def _reading(encoder: Encoder, meanings: Meanings | None) -> Iterator[None]:
    """With these meanings after expressions, or none, in evaluation mode."""
    before, was_training = encoder.meanings, encoder.training
    encoder.meanings = meanings
    encoder.eval()
    try:
        yield
    finally:
        encoder.meanings = before
        encoder.train(was_training)


# ------------------------------------------------------------------ tokens


def teach_tokens(
    encoder: Encoder, carriers: Sequence[Carrier], goal: Tensor, settings: LearnSettings
) -> Tensor:
    """Learn the tokens of the carriers' expressions; they are in the encoder afterwards.

    Other expressions in a carrier, with tokens of their own, stay what they are.

    Args:
        encoder: has an idiom token for each of the expressions, and replaces them.
        goal: (2C, D), from :func:`targets`.
        settings: its `steps` and `learning_rate`, of Adam.

    Returns:
        (C,), the cosine that each carrier's sentence and expression reach with their goal, on average.
    """
    assert settings.learning_rate is not None
    matrix = embedding_matrix(encoder)
    distinct = sorted(set(token_ids(encoder, [c.expression for c in carriers])))
    ids = torch.tensor(distinct, device=encoder.device)  # (T,)
    rows = nn.Parameter(matrix.weight.detach()[ids].clone())  # (T, d)
    optimizer = torch.optim.Adam([rows], lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    requests = as_they_are(carriers)
    goal = goal.to(encoder.device)
    with _reading(encoder, meanings=None), _rows_in_place(matrix, ids, rows):
        for _ in range(settings.steps):
            optimizer.zero_grad()
            loss = 1 - cosine_similarity(encoder(requests).float(), goal).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            reached = cosine_similarity(encoder(requests).float(), goal)  # (2C,)
    with torch.no_grad():
        matrix.weight[ids] = rows
    return reached.view(2, -1).mean(0).cpu()


def token_ids(encoder: Encoder, expressions: Sequence[str]) -> list[int]:
    """The number of each expression's token in the model's vocabulary."""
    assert encoder.idiom_tokens is not None
    embedder: Any = encoder.model[0]
    vocabulary = embedder.tokenizer.get_vocab()
    return [vocabulary[encoder.idiom_tokens.token_of(name)] for name in expressions]


def embedding_matrix(encoder: Encoder) -> nn.Embedding:
    """The embeddings of the model's tokens."""
    embedder: Any = encoder.model[0]
    matrix: nn.Embedding = embedder.auto_model.get_input_embeddings()
    return matrix


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


# ------------------------------------------------------------------ weights


def teach_weights(
    encoder: Encoder,
    requests: Sequence[Request],
    goal: Tensor,
    settings: LearnSettings,
    saved: dict[str, Tensor],
    *,
    autocast: AbstractContextManager[object],
    save: Callable[[], None],
    advance: Callable[[int], object],
) -> None:
    """Train the encoder, without dropout, by 1 - cosine.

    Token embeddings stay as they are, and so does what is frozen already, such as the mean of some layers.

    Args:
        requests: N of them.
        goal: (N, D), what each is to embed as.
        settings: its `epochs`, passes over the requests, and `learning_rate`, of AdamW at its highest: it
            rises over a tenth of the steps, then falls to 0.
        saved: what an interrupted start of the same saved, or nothing; filled after each epoch. With it the
            weights end the same, bit for bit.
        autocast: what the encoder computes in.
        save: called after each epoch.
        advance: called with how many more requests are done.

    Raises:
        UserError: if a gradient is not finite.
    """
    epochs, learning_rate = settings.epochs, settings.learning_rate
    assert learning_rate is not None
    encoder.eval()
    embedding_matrix(encoder).requires_grad_(False)
    weights = {name: weight for name, weight in encoder.named_parameters() if weight.requires_grad}
    optimizer = torch.optim.AdamW(weights.values(), lr=learning_rate, weight_decay=0.0)
    steps_per_epoch = -(-len(requests) // _BATCH_SIZE)
    num_steps = steps_per_epoch * epochs
    warmup = max(1, round(_WARMUP * num_steps))
    first = _restore(weights, optimizer, saved)
    advance(first * len(requests))
    goal = goal.to(encoder.device)
    for epoch in range(first, epochs):
        order = torch.randperm(len(requests), generator=torch.Generator().manual_seed(epoch))
        for number, rows in enumerate(torch.split(order, _BATCH_SIZE)):
            step = epoch * steps_per_epoch + number
            share = min((step + 1) / warmup, (num_steps - step) / max(1, num_steps - warmup), 1.0)
            optimizer.param_groups[0]["lr"] = learning_rate * share
            with autocast:
                embeddings = encoder([requests[row] for row in rows.tolist()])  # (B, D)
            loss = 1 - cosine_similarity(embeddings.float(), goal[rows.to(goal.device)]).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(weights.values(), _MAX_NORM)
            if not norm.isfinite():
                raise UserError(
                    f"the gradient norm is {norm.item()} in epoch {epoch + 1}. Usual causes: too high a "
                    f"learning_rate (it is {learning_rate:g}), or a model with weights that are not "
                    "finite. Start again with another output="
                )
            optimizer.step()
            advance(len(rows))
        saved |= {f"{_WEIGHT}{name}": weight.detach().cpu().clone() for name, weight in weights.items()}
        saved |= {_EPOCH: torch.tensor(epoch + 1), **optimizer_tensors(optimizer)}
        save()
    encoder.requires_grad_(False)


def _restore(
    weights: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer, saved: Mapping[str, Tensor]
) -> int:
    """The number of epochs that are done."""
    if _EPOCH not in saved:
        return 0
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(saved[f"{_WEIGHT}{name}"])
    others = (_EPOCH, _WEIGHT)
    restore_optimizer(optimizer, {name: t for name, t in saved.items() if not name.startswith(others)})
    return int(saved[_EPOCH])
