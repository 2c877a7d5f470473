"""The choice of a model's glossary and its form: by its own record, and by the options `model.glossary*`."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from idiomtune.config import ModelSettings
from idiomtune.config.settings import LearnedModel
from idiomtune.errors import UserError
from idiomtune.glossaries.meanings import GlossaryReader
from idiomtune.glossaries.tables import named_glossary
from idiomtune.glossaries.usage_gate import LoadUsages, fitted_gate, shipped_gate

log = logging.getLogger(__name__)


def choose_meanings(
    encoder: Any, model: ModelSettings, *, is_saved: bool = False, labelled: LoadUsages | None = None
) -> GlossaryReader | None:
    """The checkpoint's meanings or those of `model.glossary`, with the options applied; None without any.

    A checkpoint that was trained with the same files keeps its own meanings.

    Args:
        encoder: a :class:`~idiomtune.glossaries.encoder.GlossaryEncoder`, with the checkpoint's own meanings.
        is_saved: the encoder is a checkpoint of this run, which holds what is read of the glossary.
        labelled: the sentences for a gate, if none is shipped; None: only the checkpoint's gate, as in
            training.

    Raises:
        UserError: if options do not go together, or say how to read a glossary that is missing; if a gate
            cannot be fitted.
    """
    meanings = _chosen_meanings(encoder, model, is_saved=is_saved)
    if meanings is None or labelled is None:
        return meanings
    return with_gate(encoder, meanings, model, labelled, is_trained=encoder.meanings is not None)


def _chosen_meanings(encoder: Any, model: ModelSettings, *, is_saved: bool) -> GlossaryReader | None:
    own = None if model.glossary == [] else encoder.meanings
    glossary = None if is_saved and own else named_glossary(model)
    options = {name: getattr(model, f"glossary_{name}") for name in ("form", "gate", "dropout")}
    files = sorted(own.about.get("sums", {}).values()) if own else []
    is_own = own is not None and (glossary is None or files == sorted(glossary.describe()["sums"].values()))
    if own is None and glossary is None:
        named = [name for name in options if options[name]]
        if named and not is_saved and not isinstance(model, LearnedModel):
            option = f"model.glossary_{named[0]}={str(options[named[0]]).lower()}"
            raise UserError("needs a glossary's file: name it with model.glossary=", option=option)
        return None
    meanings = (own or GlossaryReader({})).override(form=options["form"], dropout=options["dropout"])
    if options["gate"] is False:
        meanings = replace(meanings, gate=None)
    if own is not None and meanings.gate is not None and meanings.form != own.form:
        raise UserError(
            "cannot be combined with the model's gate, which weighs meanings in the form that it was made "
            "for: give model.glossary_gate=false with it",
            option=f"model.glossary_form={meanings.form}",
        )
    if is_own or glossary is None:
        return meanings
    chosen = glossary.meanings()
    if own is not None and not chosen.senses.keys() >= own.senses.keys():
        names = ", ".join(own.about.get("files", [])) or f"{len(own.senses)} expressions"
        log.info("glossary: it replaces the model's own (%s); name both to have both read", names)
    return replace(meanings, senses=chosen.senses, about=chosen.about, forms=chosen.forms)


def with_gate(
    encoder: Any, meanings: GlossaryReader, model: ModelSettings, labelled: LoadUsages, *, is_trained: bool
) -> GlossaryReader:
    """An encoder's meanings, with a gate if `model.glossary_gate` asks for one.

    By default if a gate is shipped for an untrained model and no other way of reading is chosen.

    Args:
        encoder: a :class:`~idiomtune.glossaries.encoder.GlossaryEncoder`.
        labelled: the sentences for a gate, if none is shipped.
        is_trained: the model was trained to read meanings.

    Raises:
        UserError: if a gate cannot be fitted, because the data is missing or the model has no hidden layers.
    """
    wanted = model.glossary_gate
    stays = wanted is False or (wanted is None and (is_trained or model.glossary_form))
    if meanings.gate is not None or stays:
        return meanings
    gate = shipped_gate(encoder)
    if gate is None and not wanted:
        return meanings
    form = meanings.form if is_trained else model.glossary_form or "replace"
    if not wanted:
        log.info("glossary: its meanings are weighed by usage (model.glossary_gate=false: they are not)")
    return replace(meanings, form=form, gate=gate or fitted_gate(encoder, labelled))
