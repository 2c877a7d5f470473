"""The gate: meanings count as far as a text uses the expression idiomatically (`model.glossary_gate`).

A gate is the checkpoint's, or for models that were never trained with one: shipped, or fitted once.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from idiomtune.encoder.facts import weights_digest
from idiomtune.encoder.reading import Reader
from idiomtune.errors import UserError
from idiomtune.expressions import is_among
from idiomtune.glossaries.meanings import GlossaryReader, UsageClassifier, of_expression
from idiomtune.glossaries.tables import GLOSSARIES, read_glossary
from idiomtune.io.cache import cached_file
from idiomtune.io.files import list_names, read_json, write_json
from idiomtune.io.terminal import progress_bar
from idiomtune.requests import EmbeddingRequest, LabelledUse, LayersRequest

log = logging.getLogger(__name__)

GATES = Path(__file__).parent / "gates"  # made by runs/gate.py
_VERSION = 6  # of what is fitted: kept gates of others are not read
# Chosen on folds over MAGPIE's expressions and on IdioLink's training idioms (docs/results/knowledge.md).
_WEIGHTS = {"append": 0.6, "replace": 0.8}
_EXPRESSION_SHARE = 0.5  # of a meaning as a text of its own, beside 1 for the meaning in the sentence
_PENALTY = 1.0
_DIFFERENCE = 1.5  # weight of how an expression differs from itself alone, among the features
_BARE_WEIGHT = 0.2  # of all uses without context, beside 1 for all others
_NUM_AVERAGED = 256  # sentences whose mean embedding tells what all texts share
_ALIKE = 0.3  # mean cosine of two sentences from which on that is much: e5's have .8, all-MiniLM's .09
_SHALLOW = 6  # layers of a model of which a gate reads nearly all, and which all sentences are read by
_DIGITS = 6  # of a gate's numbers: a third of the file

LoadUsages = Callable[[Iterable[str]], list[LabelledUse]]  # from idioms that it leaves out


def fit_usage_gate(
    features: Tensor,
    is_idiomatic: Sequence[bool],
    names: Sequence[str],
    layers: Sequence[int],
    bare_features: Tensor,
    num_bare: int = 0,
) -> UsageClassifier:
    """A gate by logistic regression with an L2 penalty.

    The inputs are a text's features, and the difference of its expression's features from those of the
    expression as a text of its own. Both usages of an expression weigh the same, as much as the rarer one has
    sentences: an expression with one usage only would let the gate learn its name.

    Args:
        features: (N, F) of sentences with expressions, read without meanings.
        is_idiomatic: (N,) labels. Some expression must have both.
        names: (N,) expressions.
        layers: of the features.
        bare_features: (N, F), the features of each expression as a text of its own.
        num_bare: the last `num_bare` examples have no context, and the dictionary's meaning holds; together
            they weigh a fifth of the rest.
    """
    scale, num_features = math.sqrt(features.shape[1]), features.shape[1]
    inputs = normalize(features.cpu().float(), dim=1) * scale  # (N, F)
    difference = inputs - normalize(bare_features.cpu().float(), dim=1) * scale
    inputs = torch.cat([inputs, _DIFFERENCE * of_expression(difference, layers)], dim=1)
    labels = torch.tensor(is_idiomatic, dtype=torch.float32)  # (N,)
    num_used = len(names) - num_bare
    uses, bare = list(zip(names, is_idiomatic, strict=True))[:num_used], names[num_used:]
    counts, num_of_bare = Counter(uses), Counter(bare)
    rarer = {name: min(counts[name, False], counts[name, True]) for name in set(names)}
    shares = torch.tensor([rarer[name] / counts[name, use] for name, use in uses])
    bare_shares = torch.tensor([1 / num_of_bare[name] for name in bare])
    bare_shares *= _BARE_WEIGHT / max(1, len(num_of_bare))
    weights = torch.cat([shares / shares.sum(), bare_shares])  # (N,)
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
    numbers = direction.detach() * scale
    text, own = numbers[:num_features], _DIFFERENCE * numbers[num_features:]
    # The difference: the use in the text minus the expression by itself.
    text.view(len(layers), 3, -1)[:, 1] += own.view(len(layers), -1)
    seen = tuple(sorted(set(names)))
    return UsageClassifier(
        _round_numbers(text), float(bias.detach()), tuple(layers), tuple(_round_numbers(-own)), seen
    )


def _round_numbers(numbers: Tensor) -> list[float]:
    return [float(f"{number:.{_DIGITS}g}") for number in numbers.tolist()]


class GatedRequests:
    """Requests, and the further readings of their texts that a gate needs.

    Spans without a part of an expression, and texts near the maximum length, stay unchanged. A model that was
    not trained to read meanings (`replace`) reads the texts without them.

    Args:
        requests: R embeddings to compute.
        reader: how the model reads them.
        meanings, gate: what the model reads, and what weighs it.

    Attributes:
        requests: the given requests, then the further readings, each once.
    """

    def __init__(
        self,
        requests: Sequence[EmbeddingRequest],
        reader: Reader,
        meanings: GlossaryReader,
        gate: UsageClassifier,
    ) -> None:
        self.requests = list(requests)
        self._num_asked = len(requests)
        self._rows: dict[int, list[list[int]]] = {}  # request → of each kind of its readings
        self._is_named: list[bool] = []  # of these: only names, without meanings
        self._gate, self._weight = gate, _WEIGHTS[meanings.form]
        if meanings.form == "replace":
            self.requests = [replace(request, with_meanings=False) for request in requests]
        readings = {
            row: kinds
            for row, request in enumerate(requests)
            if request.with_meanings and (kinds := _readings(request, meanings))
        }
        # Also the requests themselves: a prompt may leave no room for an expression that is read in them.
        complete = {
            row: [replace(requests[row], with_meanings=False), *bare, *replaced]
            for row, (bare, _, replaced, *_) in readings.items()
        }
        distinct = list(dict.fromkeys(chain.from_iterable(complete.values())))
        is_truncated = dict(zip(distinct, reader.are_truncated(distinct), strict=True))
        rows: dict[EmbeddingRequest, int] = {}
        for row, kinds in readings.items():
            if not any(is_truncated[request] for request in complete[row]):
                self._rows[row] = [
                    [rows.setdefault(part, self._num_asked + len(rows)) for part in kind] for kind in kinds
                ]
                self._is_named.append(kinds[2][0].text == requests[row].text)  # no meaning replaces it
        self.requests += rows

    def combine(self, rows: Tensor) -> Tensor:
        """(R, D), from the embeddings of `requests`, mixed by :func:`apply_gate` where the gate applies."""
        embeddings = rows[: self._num_asked]
        if not self._rows:
            return embeddings
        embeddings = embeddings.clone()  # (R, D)
        at = torch.tensor(list(self._rows), device=rows.device)  # (G,)
        units = normalize(rows.float(), dim=1)
        bare, *others = zip(*self._rows.values(), strict=True)
        other, replaced, inside, own = (_means(units, members) for members in others)  # (G, D) each
        pairs = [  # of each text: its expressions in the text, then by themselves
            (group, *pair)
            for group, members in enumerate(bare)
            for pair in zip(members[: len(members) // 2], members[len(members) // 2 :], strict=True)
        ]
        groups, uses, bare_rows = torch.tensor(pairs, device=rows.device).T
        usages = self._gate.usage(rows[uses], rows[bare_rows])
        usage = (usages.new_zeros(len(bare)).index_add(0, groups, usages) / groups.bincount()).float()  # (G,)
        sentences = normalize(units[at] + other, dim=1)
        meaning = normalize(inside + _EXPRESSION_SHARE * own, dim=1)
        mean = units.new_tensor(self._gate.mean) if self._gate.mean else None
        mixed = apply_gate(sentences, replaced, meaning, usage, self._weight, mean)
        named = separate_usages(sentences, own, usage)
        mixed = torch.where(torch.tensor(self._is_named, device=rows.device)[:, None], named, mixed)  # (G, D)
        embeddings[at] = (mixed * rows[at].float().norm(dim=1, keepdim=True)).to(embeddings.dtype)
        return embeddings


def _means(units: Tensor, members: Sequence[Sequence[int]]) -> Tensor:
    """(G, D), unit vectors: the mean of each group of rows."""
    pairs = [(group, row) for group, rows in enumerate(members) for row in rows]
    groups, rows = torch.tensor(pairs, device=units.device).T
    sums = torch.zeros(len(members), units.shape[1], device=units.device).index_add(0, groups, units[rows])
    return normalize(sums, dim=1)


def _readings(request: EmbeddingRequest, meanings: GlossaryReader) -> list[list[EmbeddingRequest]]:
    """The further readings of a text for a gate, of five kinds; empty without an expression in text or span.

    Returns:
        The expressions without meanings, in the text and by themselves (for the usage); the expressions,
        with meanings if the model reads them beside (for a span: the sentence); the sentence with meanings
        instead of expressions; the meanings in that sentence, and by themselves.
    """
    text, matches = meanings.replace_expressions(request.text)
    sentence = replace(request, span=None, pooling="sentence")
    is_span = request.pooling == "span"
    if is_span and (span := request.span) is not None:
        matches = [match for match in matches if match[0][0] < span[1] and span[0] < match[0][1]]
    # Where one of them has a meaning, that counts.
    matches = [match for match in matches if meanings.senses[match[2]]] or matches
    if not matches:
        return []
    replaced = replace(sentence, text=text, with_meanings=False)
    bare = LayersRequest(request.text, with_meanings=False)
    own = replace(sentence, with_meanings=meanings.form == "append")
    return [
        [
            *(replace(bare, span=old) for old, _, _ in matches),
            *(bare_expression(name) for *_, name in matches),
        ],
        [own] if is_span else [replace(own, span=old, pooling="span") for old, _, _ in matches],
        [replaced],
        [replace(replaced, span=new, pooling="span") for _, new, _ in matches],
        [replace(replaced, text=meanings.meaning(name) or name) for *_, name in matches],
    ]


def bare_expression(expression: str) -> LayersRequest:
    """The expression as a text of its own, with which a gate compares its uses."""
    return LayersRequest(expression, (0, len(expression)), with_meanings=False)


def apply_gate(
    vectors: Tensor,
    replaced: Tensor,
    meanings: Tensor,
    usage: Tensor,
    weight: float,
    mean: Tensor | None = None,
) -> Tensor:
    """(G, D), unit vectors: e + w · (g · (m - e) - (1 - g)² · s).

    An idiomatic use goes towards the meaning, a literal one away from what the sentence would say with it. In
    doubt (g = ½) it goes half of the way to the meaning, and a quarter away.

    Where all texts share much, the unit vectors of the rest are mixed, and what is shared is added again:
    otherwise a literal use would lose it, and be far from every other text.

    Args:
        vectors: (G, D), unit vectors as all here, of which each is an e.
        replaced: (G, D), of sentences with meanings in place of their expressions: s.
        meanings: (G, D), these meanings in those sentences and alone: m.
        usage: (G,), from 0 = literal to 1 = idiomatic: g.
        weight: w.
        mean: (D,), of a gate (:class:`~idiomtune.glossaries.meanings.UsageClassifier`).
    """
    if mean is not None:
        rest = [part - mean for part in (vectors, replaced, meanings)]
        own, other, meant = (normalize(part, dim=1) for part in rest)
        mixed = apply_gate(own, other, meant, usage, weight)
        return normalize(mean + rest[0].norm(dim=1, keepdim=True) * mixed, dim=1)
    g = usage[:, None]  # (G, 1)
    mixed = vectors + weight * (g * (meanings - vectors) - (1 - g).square() * replaced)
    return normalize(mixed, dim=1)


def separate_usages(embeddings: Tensor, names: Tensor, usage: Tensor) -> Tensor:
    """(G, D), unit vectors, of texts with a name without a meaning: e + n / 2 + (g - 1/2) · u.

    Texts with a name come together, those of its other usage apart, along u = (1, -1, 1, ...) / sqrt(D), to
    which embeddings are close to orthogonal. This finds form, not meaning.

    Args:
        embeddings: (G, D), unit vectors, of which each is an e.
        names: (G, D), of the names alone: n.
        usage: (G,): g.
    """
    u = torch.ones(embeddings.shape[1], device=embeddings.device)
    u[1::2] = -1
    shift = (usage - 0.5)[:, None] * normalize(u, dim=0)
    return normalize(embeddings + 0.5 * names + shift, dim=1)


# ---------------------------------------------------------------- which gate a model gets


def gate_of(encoder: Any, labelled: LoadUsages) -> UsageClassifier:
    """The gate of an encoder's meanings, else the shipped one, else one that is fitted."""
    own = encoder.meanings and encoder.meanings.gate
    return own or shipped_gate(encoder) or fitted_gate(encoder, labelled)


def shipped_gate(encoder: Any) -> UsageClassifier | None:
    """The gate that comes with the project for a model of these weights.

    A gate that was fitted to weights of four bits is recognised by the parameters that were not rounded.
    """
    num_parameters = sum(p.numel() for p in encoder.parameters())
    for file in sorted(GATES.glob("*.json")):
        content = read_json(file)
        if content["parameters"] != num_parameters:
            continue
        if content["weights"] == weights_digest(encoder):
            return _read(content["gate"])
        if content.get("vectors") == weights_digest(encoder, dimensions=1):
            message = (
                "the gate of %s is used: its weights of four bits have the biases and norms of this model"
            )
            log.info(f"{message} (fine-tuned by adapters, it needs one of its own)", content["model"])
            return _read(content["gate"])
    return None


def _read(content: dict[str, Any]) -> UsageClassifier:
    tuples: dict[str, Any] = {
        name: tuple(content[name]) for name in ("layers", "bare", "seen", "mean") if name in content
    }
    return UsageClassifier(**content | tuples)


def exclude_scored_idioms(encoder: Any, labelled: LoadUsages, held_out: Callable[[], Iterable[str]]) -> None:
    """Replace a shipped gate that was fitted to scored idioms by one without them; warn of a trained one.

    Args:
        held_out: gives idioms that are scored as unseen; which expressions are among them, see
            :func:`~idiomtune.expressions.is_among`.
    """
    gate = encoder.meanings and encoder.meanings.gate
    if not gate or not gate.seen:
        return
    idioms = list(held_out())
    seen = [name for name in gate.seen if is_among(name, idioms)]
    if seen and gate == shipped_gate(encoder):
        names = list_names(seen)
        log.info("the shipped gate of meanings knows scored idioms (%s): one is fitted without", names)
        encoder.meanings = encoder.meanings.override(gate=fitted_gate(encoder, labelled))
    elif seen:
        log.warning(
            "the model's gate of meanings was fitted to uses of idioms held out (%s): its scores are not of "
            "unseen idioms; fit it where that split of IdioLink's is on disk, so that they are left out",
            list_names(seen),
        )


def fitted_gate(encoder: Any, labelled: LoadUsages) -> UsageClassifier:
    """A gate fitted without IdioLink's idioms, cached."""
    usages = labelled(read_glossary([GLOSSARIES / "idiolink.tsv"]).senses)
    bare = encoder.reading(None)

    def fit(file: Path) -> None:
        log.warning("a gate is fitted to this model, once; it takes minutes")
        write_json(file, fit_gate(bare, enough_usages(bare, usages))._asdict())

    facts = [(usage.sentence, usage.span, usage.is_idiomatic) for usage in usages]
    return _read(read_json(cached_file("gates", [_VERSION, bare.digest(), facts], fit, suffix=".json")))


def enough_usages(encoder: Any, usages: Sequence[LabelledUse]) -> Sequence[LabelledUse]:
    """Those that a gate needs: all, or for a deep model one sentence of each expression in each usage.

    A fifth of the sentences fits a deep model as well. They are drawn by their texts; those without a span,
    which are the user's training data, stay.
    """
    if _depth(encoder) <= _SHALLOW:
        return usages
    drawn: dict[tuple[str, bool], LabelledUse] = {}
    for usage in sorted(usages, key=lambda usage: _digest(usage.sentence)):
        if usage.span is not None:
            drawn.setdefault((usage.phrase, usage.is_idiomatic), usage)
    return [*(usage for usage in usages if usage.span is None), *drawn.values()]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _depth(encoder: Any) -> int:
    depth: int = encoder.transformer.config.num_hidden_layers
    return depth


def fit_gate(encoder: Any, usages: Sequence[LabelledUse]) -> UsageClassifier:
    """A gate on the encoder's hidden layers, fitted to these sentences, read without meanings.

    Args:
        encoder: in evaluation mode.
        usages: for a usage without a span, every expression of the encoder's glossary in it counts.

    Raises:
        UserError: if no expression is left in both usages.
    """
    log.info("fitting the gate of meanings to %d labelled sentences", len(usages))
    start = time.monotonic()
    gate = fit_usage_gate(*gate_examples(encoder, usages))._replace(mean=mean_embedding(encoder, usages))
    log.info("fitted in %.0f s", time.monotonic() - start)
    return gate


def mean_embedding(encoder: Any, usages: Sequence[LabelledUse]) -> tuple[float, ...]:
    """The mean embedding of some of these sentences, if their cosines are high; else ()."""
    texts = sorted({usage.sentence for usage in usages}, key=_digest)[:_NUM_AVERAGED]
    with torch.no_grad():
        rows = encoder([EmbeddingRequest(text, with_meanings=False) for text in texts]).float()
    mean = normalize(rows, dim=1).mean(0)  # (D,)
    return tuple(_round_numbers(mean)) if float(mean.square().sum()) > _ALIKE else ()


def gate_examples(
    encoder: Any, usages: Sequence[LabelledUse]
) -> tuple[Tensor, Sequence[bool], Sequence[str], list[int], Tensor, int]:
    """The arguments of :func:`fit_usage_gate` for these sentences.

    The last examples are idiomatic uses without context, where the glossary's meaning holds.
    """
    uses: list[tuple[LayersRequest, bool, str]] = []
    for usage in usages:
        text = usage.sentence
        matches = [(*usage.span, usage.phrase)] if usage.span is not None else encoder.meanings.find(text)
        for start, end, name in matches:
            request = LayersRequest(text, (start, end), with_meanings=False)
            uses.append((request, usage.is_idiomatic, name))
    are_truncated = encoder.reader.are_truncated([request for request, _, _ in uses])
    uses = [use for use, is_truncated in zip(uses, are_truncated, strict=True) if not is_truncated]
    kinds = {(name, is_idiomatic) for _, is_idiomatic, name in uses}
    if not any((name, not is_idiomatic) in kinds for name, is_idiomatic in kinds):
        raise UserError(
            "model.glossary_gate=true: it is learned from sentences that are labelled literal and idiomatic, "
            f"and hold an expression of the glossary; {len(usages)} of them have none in both: give "
            "model.glossary_gate=false"
        )
    bare = dict.fromkeys(
        (excerpt(request, num_words), True, name)
        for request, is_idiomatic, name in uses
        if is_idiomatic
        for num_words in range(3)
    )
    requests, labels, names = zip(*uses, *bare, strict=True)
    # Layers 1 to 5 of 6; of a deeper model 2, 4, 6 and 8 of 12, which tell usages as well as later ones.
    depth = _depth(encoder)
    layers = sorted({math.ceil(depth * sixth / 6) for sixth in range(1, 6 if depth <= _SHALLOW else 5)})
    distinct = list(dict.fromkeys(names))
    read = [*requests, *map(bare_expression, distinct)]
    with progress_bar("fitting the gate of meanings", encoder.reader.num_texts(read)) as advance:
        rows = encoder.hidden_layers(read, layers, advance)  # (N + distinct, F)
    of_names = dict(zip(distinct, rows[len(requests) :], strict=True))
    bare_features = torch.stack([of_names[name] for name in names])
    return rows[: len(requests)], labels, names, layers, bare_features, len(bare)


def excerpt(request: LayersRequest, num_words: int) -> LayersRequest:
    """The request's span as a text, with `num_words` words before it."""
    assert request.span is not None
    start, end = request.span
    words = request.text[:start].split()
    text = " ".join([*words[max(0, len(words) - num_words) :], request.text[start:end]])
    span = len(text) - (end - start), len(text)
    return replace(request, text=f"{text[:1].upper()}{text[1:]}.", span=span)
