"""Gates of meanings for models that were never trained with one: shipped, or fitted once."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from idiomtune.config import ModelSettings
from idiomtune.data.astitch import Usage
from idiomtune.data.external import ExternalIdioms
from idiomtune.encoder.forward import having
from idiomtune.encoder.glossary import GLOSSARIES, Meanings, UsageGate, read_glossary
from idiomtune.encoder.usage_gate import alone, fit_usage_gate
from idiomtune.errors import UserError
from idiomtune.io.cache import get
from idiomtune.io.files import first_of, read_json, write_json
from idiomtune.requests import Request

log = logging.getLogger(__name__)

GATES = Path(__file__).parent / "gates"  # made by runs/gate.py

_VERSION = 3  # of what is fitted: kept gates of others are not read

Labelled = Callable[[Iterable[str]], list[Usage]]  # from idioms that it leaves out


def weighed(encoder: Any, model: ModelSettings, labelled: Labelled, *, is_trained: bool) -> Meanings | None:
    """The meanings that an encoder was given, weighed by usage if `model.glossary_gate` says so.

    By default if a gate is shipped for an untrained model and no other way of reading is chosen.

    Args:
        encoder: a :class:`~idiomtune.encoder.encoder.Encoder`.
        labelled: what a gate is fitted to where none is shipped.
        is_trained: the model was trained to read meanings.

    Raises:
        UserError: if a gate cannot be fitted, because the data is missing or the model has no hidden layers.
    """
    meanings: Meanings | None = encoder.meanings
    asked = model.glossary_gate
    if meanings is None or meanings.gate is not None or asked is False:
        return meanings
    if asked is None and (is_trained or model.glossary_form or model.glossary_weight):
        return meanings
    gate = shipped_gate(encoder)
    if gate is None and not asked:
        return meanings
    form = meanings.form if is_trained else model.glossary_form or "in_place"
    if not asked:
        log.info("glossary: its meanings are weighed by usage (model.glossary_gate=false: they are not)")
    return replace(meanings, form=form, gate=gate or fitted_gate(encoder, labelled))


def gate_of(encoder: Any, labelled: Labelled) -> UsageGate:
    """The gate of an encoder's meanings, else the shipped one, else one that is fitted."""
    own = encoder.meanings and encoder.meanings.gate
    return own if own and own.layers else shipped_gate(encoder) or fitted_gate(encoder, labelled)


def shipped_gate(encoder: Any) -> UsageGate | None:
    """The gate that comes with the project for a model of these weights."""
    num_parameters = sum(p.numel() for p in encoder.parameters())
    for file in sorted(GATES.glob("*.json")):
        content = read_json(file)
        if content["parameters"] == num_parameters and content["weights"] == encoder.weights_digest():
            return _read(content["gate"])
    return None


def _read(content: dict[str, Any]) -> UsageGate:
    return UsageGate(**content | {name: tuple(content[name]) for name in ("layers", "alone", "seen")})


def fit_without(encoder: Any, labelled: Labelled, held_out: Callable[[], Iterable[str]]) -> None:
    """Exchange a shipped gate that was fitted to idioms that are held out; warn of a trained one.

    Args:
        held_out: gives idioms that are scored as unseen; which expressions are among them is told as in
            :class:`~idiomtune.data.external.ExternalIdioms`.
    """
    gate = encoder.meanings and encoder.meanings.gate
    if not gate or not gate.seen:
        return
    corpus = ExternalIdioms("gate", (), held_out(), ())
    seen = [name for name in gate.seen if corpus.excludes(name)]
    if seen and gate == shipped_gate(encoder):
        log.info(
            "the shipped gate of meanings knows scored idioms (%s): one is fitted without", first_of(seen)
        )
        encoder.meanings = encoder.meanings.override(gate=fitted_gate(encoder, labelled))
    elif seen:
        log.warning(
            "the model's gate of meanings was fitted to uses of idioms held out (%s): its scores are not of "
            "unseen idioms; fit it where that split of IdioLink's is on disk, so that they are left out",
            first_of(seen),
        )


def fitted_gate(encoder: Any, labelled: Labelled) -> UsageGate:
    """A gate that is fitted without IdioLink's idioms; kept in the user's cache."""
    usages = labelled(read_glossary([GLOSSARIES / "idiolink.tsv"]).senses)

    def fit(file: Path) -> None:
        log.info("fitting the gate of meanings to %d labelled sentences, once for this model", len(usages))
        start = time.monotonic()
        write_json(file, fit_gate(encoder, usages)._asdict())
        log.info("fitted in %.0f s", time.monotonic() - start)

    facts = [(usage.sentence, usage.span, usage.is_idiomatic) for usage in usages]
    with having(encoder, meanings=None):
        key = [_VERSION, encoder.digest(), facts]
        return _read(read_json(get("gates", key, fit, suffix=".json")))


def fit_gate(encoder: Any, usages: Sequence[Usage]) -> UsageGate:
    """A gate on the encoder's hidden layers, as it reads these sentences without meanings.

    Args:
        encoder: in evaluation mode.
        usages: where one has no span, every expression in it that the encoder's meanings have counts.

    Raises:
        UserError: if no expression is left in both usages.
    """
    return fit_usage_gate(*gate_examples(encoder, usages))


def gate_examples(
    encoder: Any, usages: Sequence[Usage]
) -> tuple[Tensor, Sequence[bool], Sequence[str], list[int], Tensor, int]:
    """What :func:`~idiomtune.encoder.usage_gate.fit_usage_gate` takes, as :func:`fit_gate` has it.

    Last come idiomatic uses with their context cut off: without any, a glossary's meaning holds.
    """
    uses: list[tuple[Request, bool, str]] = []
    for usage in usages:
        text = usage.sentence
        places = [(*usage.span, usage.phrase)] if usage.span is not None else encoder.meanings.find(text)
        for start, end, name in places:
            request = Request(text, (start, end), pooling="usage", with_meanings=False)
            uses.append((request, usage.is_idiomatic, name))
    are_cut = encoder.reader.are_cut([request for request, _, _ in uses])
    uses = [use for use, is_cut in zip(uses, are_cut, strict=True) if not is_cut]
    kinds = {(name, is_idiomatic) for _, is_idiomatic, name in uses}
    if not any((name, not is_idiomatic) in kinds for name, is_idiomatic in kinds):
        raise UserError(
            "model.glossary_gate=true: it is learnt from sentences that are labelled literal and idiomatic, "
            f"and hold an expression of the glossary; {len(usages)} of them have none in both: give "
            "model.glossary_gate=false"
        )
    bare = dict.fromkeys(
        (_cut_out(request, num_words), True, name)
        for request, is_idiomatic, name in uses
        if is_idiomatic
        for num_words in range(3)
    )
    requests, labels, names = zip(*uses, *bare, strict=True)
    # All but the embeddings of tokens and the last: layers 1 to 5 of 6; 2, 4, …, 10 of 12.
    depth = encoder.transformer.config.num_hidden_layers
    layers = sorted({math.ceil(depth * sixth / 6) for sixth in range(1, 6)})
    distinct = list(dict.fromkeys(names))
    rows = encoder.usage_features([*requests, *map(alone, distinct)], layers)  # (N + distinct, F)
    of_names = dict(zip(distinct, rows[len(requests) :], strict=True))
    features, apart = rows[: len(requests)], torch.stack([of_names[name] for name in names])
    return features, labels, names, layers, apart, len(bare)


def _cut_out(request: Request, num_words: int) -> Request:
    """The request's span as a sentence, with so many of the words before it."""
    assert request.span is not None
    start, end = request.span
    words = request.text[:start].split()
    text = " ".join([*words[max(0, len(words) - num_words) :], request.text[start:end]])
    return replace(
        request, text=f"{text[:1].upper()}{text[1:]}.", span=(len(text) - (end - start), len(text))
    )
