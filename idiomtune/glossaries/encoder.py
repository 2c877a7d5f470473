"""An encoder that reads a glossary, and tells how expressions are used."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from idiomtune.config import ModelSettings
from idiomtune.data.usages import labelled_usages
from idiomtune.encoder.arguments import requests_for, type_error
from idiomtune.encoder.checks import check_embedding
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.forward import ForwardBatch, overlapping_tokens
from idiomtune.encoder.loading import explaining_loading, load_arguments, load_settings
from idiomtune.encoder.reading import Prompts, Reader
from idiomtune.encoder.saved_expressions import record_file
from idiomtune.errors import ArgumentTypeError, UserError
from idiomtune.expressions import Span
from idiomtune.glossaries.choose import choose_meanings
from idiomtune.glossaries.meanings import FILE, GlossaryReader, saved_meanings
from idiomtune.glossaries.usage_gate import GatedRequests, bare_expression, fit_gate, gate_of, shipped_gate
from idiomtune.glossaries.usages import labelled_requests, usage_requests
from idiomtune.io.files import cache_folder, list_names, path_text
from idiomtune.io.tables import inputs_in, write_tables
from idiomtune.requests import EmbeddingRequest, LayersRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An expression in a text, found by :meth:`GlossaryEncoder.find`.

    Attributes:
        expression: as the glossary lists it.
        text: its number among the texts.
        span: character offsets in the text.
        sentence: of the text, with the expression.
        meaning: that the encoder reads; "" for a name without one.
        usage: from 0 = literal to 1 = idiomatic; NaN for a model without a gate, and beyond the model's
            maximum length.
    """

    expression: str
    text: int
    span: Span
    sentence: str
    meaning: str
    usage: float


def _sentence(text: str, start: int, end: int) -> str:
    """The sentence (or the line) around a span."""
    ends = [match.end() for match in re.finditer(r"[.!?…。！？]+[\"'”’)\]]*\s+|\n+", text)]
    first = max((at for at in ends if at <= start), default=0)
    last = min((at for at in ends if at >= end), default=len(text))
    return text[first:last].strip()


class GlossaryEncoder(Encoder):
    """An encoder that reads meanings of expressions, and weighs them by usage: `it.Encoder`.

    Args:
        model: a sentence-transformers model; or what :meth:`from_pretrained` takes, with its options:
            `Encoder("minilm", glossary={...})`.
        prompts: of a sentence-transformers model, see :class:`~idiomtune.encoder.encoder.Encoder`.
        meanings: what the model reads after the expressions of a glossary, or instead of them.
        device, empty: see :meth:`from_pretrained`.
        options: of the loaded model; or, of one in memory, those of `Encoder`.

    Raises:
        UserError, TypeError: as :meth:`from_pretrained`.
    """

    _has_logged_coverage = False

    def __init__(
        self,
        model: SentenceTransformer | str | os.PathLike[str] | ModelSettings,
        prompts: Prompts | None = None,
        *,
        meanings: GlossaryReader | None = None,
        device: str | None = None,
        empty: bool = False,
        **options: Any,
    ) -> None:
        if isinstance(model, SentenceTransformer):
            if others := options.keys() - {"tokens_per_forward", "idiom_tokens", "raw_spans"}:
                message = f"{', '.join(others)}: only for a model that is loaded by its name or folder"
                raise ArgumentTypeError(message, option=min(others))
            if not isinstance(meanings, GlossaryReader | None):
                raise type_error("meanings", "GlossaryReader or None", meanings)
            super().__init__(model, prompts, **options)
            self.meanings = meanings
            return
        if prompts is not None or meanings is not None:
            message = "prompts and meanings are those of the checkpoint"
            raise ArgumentTypeError(message, option="model")
        is_section = isinstance(model, ModelSettings)
        settings = model if isinstance(model, ModelSettings) else _settings(model, options)
        with explaining_loading(settings.path):
            checkpoint, arguments = load_arguments(settings, device, empty=empty)
            super().__init__(**arguments)
            first: Any = self.model[0]
            hidden = first.get_embedding_dimension()
            self.meanings = checkpoint.read(FILE, lambda content: saved_meanings(content, hidden))
            if not empty:
                with torch.no_grad():
                    check_embedding(settings.path, self([EmbeddingRequest("a")])[0], self.dimension)
        if not is_section:
            self.meanings = choose_meanings(self, settings, labelled=labelled_usages)

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str] | ModelSettings,
        *,
        device: str | None = None,
        empty: bool = False,
        **options: Any,
    ) -> Self:
        """Load a sentence-transformers or plain transformers checkpoint, in float32, with its glossary.

        Args:
            path: a local folder, a model on the Hugging Face Hub, or a name that `model=` takes on the
                command line, such as `e5_base`: where no option is given here, that of `conf/model/` holds.
                Or the section `model` of a configuration, whose options `glossary*` are not followed: see
                :func:`idiomtune.glossaries.choose.choose_meanings`.
            device: `cpu`, `cuda` or `mps`; by default the fastest available.
            empty: read no weights: it can read requests and refuse options, but embed nothing.
            options: those of the section `model` (:doc:`/docs/reference/options`), as `max_length=64` or
                `span_from="last_hidden_state"`; None = by default. `glossary` also takes tables in memory:
                expression → meaning.

        Raises:
            UserError: if there is no such model, it cannot be reached, or its kind is not supported; for an
                argument that is not among the options; if expressions should be replaced, but the model has
                no idiom tokens.
        """
        if not isinstance(path, ModelSettings):
            path_text(path, "path")
        return cls(path, device=device, empty=empty, **options)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """As :meth:`Encoder.save`, with the glossary, which only this class reads."""
        super().save(folder, overwrite=overwrite)
        (Path(folder) / FILE).unlink(missing_ok=True)
        if self.meanings is not None:
            log.info("the glossary is read by Encoder alone: other libraries embed texts without meanings")
            self.meanings.save(folder)
            record_file(Path(folder), FILE)

    def reading(self, meanings: GlossaryReader | None) -> GlossaryEncoder:
        """A second encoder of the same model with these meanings; this encoder keeps its own."""
        encoder = GlossaryEncoder(
            self.model,
            self.prompts,
            meanings=meanings,
            tokens_per_forward=self.tokens_per_forward,
            idiom_tokens=self.idiom_tokens,
            raw_spans=self.raw_spans,
        )
        encoder.train(self.training)
        return encoder

    def digest(self) -> str:
        """As :meth:`Encoder.digest`, with the glossary."""
        if (meanings := self.meanings) is None:
            return super().digest()
        # In their order: of two expressions that fit a text alike, the first is read.
        facts = [*meanings.senses.items()], meanings.form, meanings.gate, meanings.forms
        return hashlib.sha256(json.dumps([super().digest(), facts], default=str).encode()).hexdigest()

    # ---------------------------------------------------------------- for users

    def _encode(self, name: str, requests: Sequence[EmbeddingRequest], **options: Any) -> Tensor:
        self._log_coverage(requests)
        return super()._encode(name, requests, **options)

    def _compare(self, sides: Mapping[str, Tensor | list[EmbeddingRequest]]) -> Tensor:
        distinct = {id(side): side for side in sides.values() if not isinstance(side, Tensor)}
        self._log_coverage([request for side in distinct.values() for request in side])
        return super()._compare(sides)

    def _log_coverage(self, requests: Sequence[EmbeddingRequest]) -> None:
        """Log once how many of the glossary's expressions occur in the texts that are embedded first."""
        if self.meanings is not None and not self._has_logged_coverage and requests:
            self._has_logged_coverage = True
            texts = [request.text for request in requests]
            self.meanings.log_coverage(texts, "the texts that are embedded first")

    def usage(
        self,
        texts: Iterable[str],
        expressions: str | Sequence[str | Span],
        labels: Sequence[bool | None] | None = None,
    ) -> list[float]:
        """How idiomatically each text uses an expression, from 0 = literal to 1 = idiomatic.

        By the gate of the model's meanings, the one that comes with the project (`minilm`), or one that is
        fitted once, which takes minutes.

        Args:
            texts: N texts.
            expressions: one for each text, as `spans` of :meth:`encode`; or one for all.
            labels: N, True for an idiomatic use, False for a literal one, None for an unknown one. A second
                gate is fitted to these, and its logits are added to the first gate's.

        Returns:
            (N,); NaN where the expression is not in its text, or is beyond the model's maximum length.

        Raises:
            TypeError, ValueError, UserError: as :meth:`encode`; if a gate cannot be fitted, such as to labels
                that are of one kind for each expression.

        >>> encoder = it.Encoder("minilm")
        >>> texts = ["The boy broke the ice on the pond.", "A joke broke the ice."]
        >>> literal, idiomatic = encoder.usage(texts, "break the ice")
        >>> assert literal < 0.5 < idiomatic
        """
        return self.usages(*usage_requests(texts, expressions), labels)

    def usages(
        self,
        requests: Sequence[LayersRequest | None],
        names: Sequence[str],
        labels: Sequence[bool | None] | None = None,
        locations: Sequence[str] | None = None,
    ) -> list[float]:
        """As :meth:`usage`, of the requests from :func:`usage_requests`.

        Args:
            locations: where each text is, for a warning; by default its number.
        """
        pairs = enumerate(zip(requests, names, strict=True))
        uses = [(i, request, name) for i, (request, name) in pairs if request is not None]
        if missing := len(requests) - len(uses):
            first = names[requests.index(None)]
            log.warning("%d of %d texts lack their expression, as %r: NaN", missing, len(requests), first)
        positions = list(map(overlapping_tokens, self.reader.read([request for _, request, _ in uses])))
        if not all(positions):
            beyond = [i for (i, *_), tokens in zip(uses, positions, strict=True) if not tokens]
            texts_beyond = dict.fromkeys(locations[i] if locations else f"text {i}" for i in beyond)
            message = "beyond the model's maximum length (%d tokens) an expression has no usage: %s"
            log.warning(message, self.model.max_seq_length, list_names([*texts_beyond], 5))
        uses = [use for use, tokens in zip(uses, positions, strict=True) if tokens]
        usages = [math.nan] * len(requests)
        if not uses:
            return usages
        gates = [gate_of(self, labelled_usages)]
        if labels is not None:
            gates.append(fit_gate(self.reading(None), labelled_requests(requests, names, labels)))
        texts = [request for _, request, _ in uses] + [bare_expression(name) for *_, name in uses]
        logits = torch.zeros(len(uses))
        for gate in gates:
            features = self.hidden_layers(texts, gate.layers)
            logits += gate.usage(*gate.terms(features).chunk(2)).cpu().logit()
        for (i, *_), usage in zip(uses, logits.sigmoid().tolist(), strict=True):
            usages[i] = usage
        return usages

    def find(self, texts: Iterable[str], *, locations: Sequence[str] | None = None) -> list[Occurrence]:
        """Every occurrence of the glossary's expressions in texts, with meaning and usage.

        Also where a word is put between a verb's article and object ("broke the thick ice"), which
        :meth:`encode` does not read with its meaning.

        Args:
            texts: N texts.
            locations: where each is, such as `a.txt, line 3`, for a warning; by default its number.

        Returns:
            A row for each expression in a text, in the order of the texts; `pd.DataFrame(rows)` is a
            concordance.

        Raises:
            UserError: if the encoder has no glossary.
            TypeError, ValueError: as :meth:`encode`.

        >>> encoder = it.Encoder("minilm", glossary={"break the ice": "make people relax"})
        >>> (row,) = encoder.find(["It is cold. A joke broke the ice."])
        >>> assert (row.span, row.sentence) == ((19, 32), "A joke broke the ice.")
        """
        if self.meanings is None:
            message = "has none to find expressions of: Encoder(…, glossary=<table or name>)"
            raise UserError(message, option="glossary")
        texts = [request.text for request in requests_for(texts)]
        matches = [(i, *match) for i, text in enumerate(texts) for match in self.meanings.find_all(text)]
        usages = [math.nan] * len(matches)
        if matches and (self.meanings.gate or shipped_gate(self)):
            requests = [
                LayersRequest(texts[i], (start, end), with_meanings=False) for i, start, end, _ in matches
            ]
            occurring = [locations[i] if locations else f"text {i}" for i, *_ in matches]
            usages = self.usages(requests, [name for *_, name in matches], locations=occurring)
        return [
            Occurrence(
                name, i, (start, end), _sentence(texts[i], start, end), self.meanings.meaning(name), usage
            )
            for (i, start, end, name), usage in zip(matches, usages, strict=True)
        ]

    # ---------------------------------------------------------------- the forward path

    @property
    def reader(self) -> Reader:
        """How the model reads requests, with meanings."""
        return super().reader._replace(meanings=self.meanings)

    @property
    def averages_tokens(self) -> bool:
        """As of `Encoder`; never with a gate."""
        return super().averages_tokens and (self.meanings is None or self.meanings.gate is None)

    def readings(
        self, requests: Sequence[EmbeddingRequest]
    ) -> tuple[Sequence[EmbeddingRequest], Callable[[Tensor], Tensor]]:
        """As :meth:`Encoder.readings`; when scoring, with those by which a gate weighs meanings."""
        if self.training or self.meanings is None or self.meanings.gate is None:
            return super().readings(requests)
        gated = GatedRequests(requests, self.reader, self.meanings, self.meanings.gate)
        return gated.requests, gated.combine

    def _layer_rows(self, batch: ForwardBatch, features: dict[str, Any]) -> Tensor:
        """The gate's terms, which fill the first two places of a row."""
        assert self.meanings is not None
        assert self.meanings.gate is not None
        gate = self.meanings.gate
        terms = gate.terms(self._layer_features(batch, features, gate.layers))  # (U, 2)
        return nn.functional.pad(terms, (0, self.dimension - 2))


def _settings(path: str | os.PathLike[str], options: dict[str, Any]) -> ModelSettings:
    """The section `model` of arguments; tables in memory become files."""
    path_text(path, "model")
    if (glossary := options.get("glossary")) is not None:
        with inputs_in(cache_folder() / "inputs"):
            options = options | {"glossary": write_tables(glossary, "glossary")}
    return load_settings(path, options)
