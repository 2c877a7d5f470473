"""Meanings that count by how a text uses its expressions, literally or not (`model.glossary_gate`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from train.encoder.meanings import Meanings, UsageGate
from train.encoder.reading import Reader
from train.requests import Request

# Chosen on four folds over IdioLink's training idioms (docs/results/knowledge.md).
_WEIGHT = 0.6
_PENALTY = 0.5


def fit_usage_gate(embeddings: Tensor, is_idiomatic: Sequence[bool]) -> UsageGate:
    """A gate by logistic regression: both usages weigh the same, directions have an L2 penalty.

    Args:
        embeddings: (N, D) of sentences with expressions, read without meanings.
        is_idiomatic: of each of them. There must be some of both.
    """
    scale = math.sqrt(embeddings.shape[1])
    inputs = normalize(embeddings.double().cpu(), dim=1) * scale  # (N, D)
    labels = torch.tensor(is_idiomatic, dtype=torch.float64)  # (N,)
    share = labels.mean()
    weights = torch.where(labels > 0, 0.5 / share, 0.5 / (1 - share))  # (N,)
    direction = torch.zeros(inputs.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([direction, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        fit = binary_cross_entropy_with_logits(inputs @ direction + bias, labels, weights)
        value: Tensor = fit + 0.5 * _PENALTY * direction.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad(), torch.autocast("cpu", enabled=False):
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    return UsageGate((direction.detach() * scale).tolist(), float(bias.detach()))


class _Gated(NamedTuple):
    """A request with a gate: the rows of its readings, its own first."""

    row: int
    bare: int
    sentence: int
    meanings: list[int]


class GatedRequests:
    """Requests, with the further readings of texts with expressions that a gate weighs; none without a gate.

    Such a text is also read without meanings, which tells how it uses its expressions, and with the meanings
    in place of the expressions. Spans that hold no part of an expression stay as they are, and so do texts
    that would be cut short.

    Args:
        requests: R embeddings that are asked for.
        reader: how the model reads them.
        is_on: whether the gate is used: not in training.

    Attributes:
        requests: these, then the further readings, each once.
    """

    def __init__(self, requests: Sequence[Request], reader: Reader, *, is_on: bool) -> None:
        self.requests = list(requests)
        self._num_asked = len(self.requests)
        self._gated: list[_Gated] = []
        meanings = reader.meanings
        self._gate = meanings.gate if meanings is not None and is_on else None
        if meanings is None or self._gate is None:
            return
        rows: dict[Request, int] = {}

        def row_of(request: Request) -> int:
            if request not in rows:
                rows[request] = len(self.requests)
                self.requests.append(request)
            return rows[request]

        for row, request in enumerate(requests):
            readings = in_place(request, meanings) if request.with_meanings else []
            if readings and not _is_cut(readings[0], reader):
                sentence, *spans = map(row_of, readings)
                bare = row_of(Request(request.text, with_meanings=False))
                self._gated.append(_Gated(row, bare, sentence, spans))

    def combined(self, rows: Tensor) -> Tensor:
        """(R, D), from the embeddings of `requests`: those with a gate as :func:`apply_gate` has them."""
        if not self._gated or self._gate is None:
            return rows[: self._num_asked]
        asked = rows[: self._num_asked].clone()  # (R, D)
        at, bare, sentences = (
            torch.tensor([gated[field] for gated in self._gated], device=rows.device) for field in range(3)
        )
        pairs = [(i, row) for i, gated in enumerate(self._gated) for row in gated.meanings]
        owners, spans = torch.tensor(pairs, device=rows.device).T
        units = normalize(rows[spans].float(), dim=1)
        meanings = torch.zeros(len(at), rows.shape[1], device=rows.device).index_add(0, owners, units)
        usage = self._gate.usage(rows[bare].float())  # (G,)
        asked[at] = apply_gate(asked[at].float(), rows[sentences].float(), meanings, usage).to(asked.dtype)
        return asked


def in_place(request: Request, meanings: Meanings) -> list[Request]:
    """The sentence with meanings in place of its expressions, then each of these meanings in that sentence.

    Empty if the request has no expression. Of a span, only the expressions that it holds a part of count.
    """
    text, places = meanings.in_place(request.text)
    if request.span is not None and request.pooling == "span":
        start, end = request.span
        places = [place for place in places if place[0][0] < end and start < place[0][1]]
    if not places:
        return []
    sentence = replace(request, text=text, span=None, pooling="sentence", with_meanings=False)
    return [sentence, *(replace(sentence, span=span, pooling="span") for _, span in places)]


def _is_cut(request: Request, reader: Reader) -> bool:
    """Whether a text reaches the maximum length."""
    (text, _), *_ = reader.render([request])
    return reader.limit is not None and len(reader.tokenizer([text])[0].input_ids) >= reader.limit


def apply_gate(embeddings: Tensor, sentences: Tensor, meanings: Tensor, usage: Tensor) -> Tensor:
    """(G, D): e + w · (g · (m - e) - (1 - g) · s), of unit vectors, at the length of e.

    An idiomatic use goes towards the meaning, a literal one away from what the sentence would say with it.

    Args:
        embeddings: (G, D), of which each is an e.
        sentences: (G, D), with meanings in place of expressions: s.
        meanings: (G, D), these meanings as they stand there: m.
        usage: (G,), from 0 = literal to 1 = idiomatic: g.
    """
    e, s, m = (normalize(rows, dim=1) for rows in (embeddings, sentences, meanings))
    g = usage[:, None]  # (G, 1)
    mixed: Tensor = normalize(e + _WEIGHT * (g * (m - e) - (1 - g) * s), dim=1)
    lengths: Tensor = embeddings.norm(dim=1, keepdim=True)  # (G, 1)
    return mixed * lengths
