"""Meanings that count by how a text uses its expressions, literally or not (`model.glossary_gate`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from idiomtune.encoder.glossary import Meanings, UsageGate
from idiomtune.encoder.reading import Reader
from idiomtune.requests import Request

# Chosen on folds over MAGPIE's expressions and on IdioLink's training idioms (docs/results/knowledge.md).
_WEIGHTS = {"beside": 0.6, "in_place": 0.8}
_PENALTY = 1.0
_DIGITS = 6  # of a gate's numbers: a third of the file


def fit_usage_gate(
    features: Tensor,
    is_idiomatic: Sequence[bool],
    expressions: Sequence[str] | None = None,
    layers: Sequence[int] = (),
) -> UsageGate:
    """A gate by logistic regression with an L2 penalty.

    Both usages of each expression weigh the same, as much as the rarer one has sentences: an expression that
    has only one would teach its name.

    Args:
        features: (N, F) of sentences with expressions, read without meanings.
        is_idiomatic: of each of them. Some expression must have both.
        expressions: of each of them; None: one for all.
        layers: that the features are of.
    """
    scale = math.sqrt(features.shape[1])
    inputs = normalize(features.cpu().float(), dim=1) * scale  # (N, F)
    labels = torch.tensor(is_idiomatic, dtype=torch.float32)  # (N,)
    names = expressions or [""] * len(labels)
    counts = Counter(zip(names, is_idiomatic, strict=True))
    rarer = {name: min(counts[name, False], counts[name, True]) for name in set(names)}
    shares = [rarer[name] / counts[name, use] for name, use in zip(names, is_idiomatic, strict=True)]
    weights = torch.tensor(shares) / sum(shares)  # (N,)
    direction = torch.zeros(inputs.shape[1], requires_grad=True)
    bias = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.LBFGS([direction, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        losses = binary_cross_entropy_with_logits(inputs @ direction + bias, labels, reduction="none")
        value: Tensor = losses @ weights + 0.5 * _PENALTY * direction.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad(), torch.autocast("cpu", enabled=False):
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    numbers = [float(f"{number:.{_DIGITS}g}") for number in (direction.detach() * scale).tolist()]
    return UsageGate(numbers, float(bias.detach()), tuple(layers))


class GatedRequests:
    """Requests, with the further readings of texts with expressions that a gate weighs; none without a gate.

    Spans that hold no part of an expression stay unchanged, and so do texts near the maximum length. A model
    that was not trained to read meanings (`in_place`) reads the texts themselves without.

    Args:
        requests: R embeddings to compute.
        reader: how the model reads them.
        is_on: whether the gate is used: not in training.

    Attributes:
        requests: these, then the further readings, each once.
    """

    def __init__(self, requests: Sequence[Request], reader: Reader, *, is_on: bool) -> None:
        self.requests = list(requests)
        self._num_asked = len(self.requests)
        self._rows: dict[int, list[list[int]]] = {}  # request → of each kind of its readings
        meanings = reader.meanings
        self._gate = meanings.gate if meanings is not None and is_on else None
        if meanings is None or self._gate is None:
            return
        self._weight = _WEIGHTS[meanings.form]
        if meanings.form == "in_place":
            self.requests = [replace(request, with_meanings=False) for request in requests]
        readings = {
            row: kinds
            for row, request in enumerate(requests)
            if request.with_meanings and (kinds := _readings(request, meanings))
        }
        # Also the requests themselves: a prompt may leave no room for an expression that is read in them.
        complete = {
            row: [replace(requests[row], with_meanings=False), *bare, *replaced]
            for row, (bare, _, replaced, _) in readings.items()
        }
        distinct = list(dict.fromkeys(chain.from_iterable(complete.values())))
        is_cut = dict(zip(distinct, reader.are_cut(distinct), strict=True))
        rows: dict[Request, int] = {}
        for row, kinds in readings.items():
            if not any(is_cut[request] for request in complete[row]):
                self._rows[row] = [
                    [rows.setdefault(one, self._num_asked + len(rows)) for one in kind] for kind in kinds
                ]
        self.requests += rows

    def combined(self, rows: Tensor) -> Tensor:
        """(R, D), from the embeddings of `requests`: those with a gate as :func:`apply_gate` has them."""
        asked = rows[: self._num_asked]
        if not self._rows or self._gate is None:
            return asked
        asked = asked.clone()  # (R, D)
        at = torch.tensor(list(self._rows), device=rows.device)  # (G,)
        units = normalize(rows.float(), dim=1)
        bare, *others = zip(*self._rows.values(), strict=True)
        other, replaced, meanings = (_means(units, members) for members in others)  # (G, D) each
        if self._gate.layers:
            usages = rows[:, 0].tolist()
            usage = rows.new_tensor([sum(usages[i] for i in members) / len(members) for members in bare])
        else:
            usage = self._gate.usage(_means(units, bare))
        own = normalize(units[at] + other, dim=1)
        mixed = apply_gate(own, replaced, meanings, usage.float(), self._weight)
        asked[at] = (mixed * rows[at].float().norm(dim=1, keepdim=True)).to(asked.dtype)
        return asked


def _means(units: Tensor, members: Sequence[Sequence[int]]) -> Tensor:
    """(G, D): of each of G groups of rows their mean, as unit vectors."""
    pairs = [(group, row) for group, rows in enumerate(members) for row in rows]
    groups, rows = torch.tensor(pairs, device=units.device).T
    sums = torch.zeros(len(members), units.shape[1], device=units.device).index_add(0, groups, units[rows])
    return normalize(sums, dim=1)


def _readings(request: Request, meanings: Meanings) -> list[list[Request]]:
    """What else a gate needs of a text, of four kinds; nothing if it, or its span, holds no expression.

    Returns:
        Its expressions without meanings, which tells how they are used; the expressions, with their meanings
        if the model reads these beside them (of a span: the sentence); the sentence with meanings in place of
        its expressions; these meanings, where they are there.
    """
    text, places = meanings.in_place(request.text)
    sentence = replace(request, span=None, pooling="sentence")
    assert meanings.gate is not None
    is_span = request.pooling == "span"
    if is_span and (span := request.span) is not None:
        places = [place for place in places if place[0][0] < span[1] and span[0] < place[0][1]]
    if not places:
        return []
    replaced = replace(sentence, text=text, with_meanings=False)
    bare, own = (
        Request(request.text, with_meanings=False),
        replace(request, with_meanings=meanings.form == "beside"),
    )
    return [
        [replace(bare, span=old, pooling="usage") for old, _ in places] if meanings.gate.layers else [bare],
        [replace(own, span=None, pooling="sentence")]
        if is_span
        else [replace(own, span=old, pooling="span") for old, _ in places],
        [replaced],
        [replace(replaced, span=new, pooling="span") for _, new in places],
    ]


def apply_gate(
    embeddings: Tensor, replaced: Tensor, meanings: Tensor, usage: Tensor, weight: float
) -> Tensor:
    """(G, D), unit vectors: e + w · (g · (m - e) - (1 - g) · s).

    An idiomatic use goes towards the meaning, a literal one away from what the sentence would say with it.

    Args:
        embeddings: (G, D), unit vectors as all here, of which each is an e.
        replaced: (G, D), of sentences with meanings in place of their expressions: s.
        meanings: (G, D), these meanings in those sentences: m.
        usage: (G,), from 0 = literal to 1 = idiomatic: g.
        weight: w.
    """
    g = usage[:, None]  # (G, 1)
    return normalize(embeddings + weight * (g * (meanings - embeddings) - (1 - g) * replaced), dim=1)
