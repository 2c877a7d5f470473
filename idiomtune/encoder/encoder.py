"""Text, or a span in it → embedding: the one forward path of training and scoring."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import math
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from copy import copy, deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack, get_type_hints, overload

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn

from idiomtune.config import ModelSettings
from idiomtune.config.validation import nearest
from idiomtune.data.usages import labelled_usages
from idiomtune.encoder.arguments import (
    Spans,
    check_finite,
    checked_texts,
    embeddings_or_requests,
    labelled_requests,
    requests_for,
    type_error,
    usage_requests,
)
from idiomtune.encoder.checks import check_embeddings
from idiomtune.encoder.choose_glossary import choose_meanings
from idiomtune.encoder.forward import (
    ForwardBatch,
    PooledSentence,
    WithLayers,
    evaluation_mode,
    first_layers,
    in_request_order,
    plan_batches,
    pool_sentences,
    pool_spans,
    spans_within,
    truncated_note,
    truncated_spans_note,
    usage_features,
)
from idiomtune.encoder.glossary import Meanings
from idiomtune.encoder.idiom_tokens import IdiomTokens, TokenStart, add_idiom_tokens
from idiomtune.encoder.loading import (
    explaining_loading,
    keep_attention,
    load_model,
    locate_checkpoint,
    model_settings,
    silence_libraries,
)
from idiomtune.encoder.reading import Prompts, Reader, Tokenizer, prompts_of, special_tokens_around
from idiomtune.encoder.saved_expressions import load_expressions, save_expressions
from idiomtune.encoder.sharding import compute_device
from idiomtune.encoder.static import StaticTokens
from idiomtune.encoder.usage_gate import GatedRequests, bare_expression, fit_gate, gate_of, shipped_gate
from idiomtune.errors import ArgumentTypeError, ArgumentValueError, UserError
from idiomtune.expressions import Forms, Span
from idiomtune.io.files import cache_folder, checked_count, list_names, one_line, path_text
from idiomtune.io.tables import inputs_in, write_tables
from idiomtune.io.terminal import progress_bar
from idiomtune.requests import Request, Role

log = logging.getLogger(__name__)

_TOKENS_PER_FORWARD = 8192
_NUM_PROBED = 8  # tokens that are embedded to see whether a loaded model tells them apart


# Options of loading: the section `model` without options of training. None = default.
LOAD_OPTIONS: dict[str, Any] = {
    name: kind | None
    for name, kind in get_type_hints(ModelSettings).items()
    if name in ModelSettings.model_fields
    and name not in ("path", "about", "idiom_tokens", "idiom_tokens_start", "glossary_dropout")
}
LOAD_OPTIONS["glossary"] = Any  # also tables in memory
Comparable = Tensor | NDArray[Any] | str | Iterable[str]
Corpus = Iterable[str] | Tensor | NDArray[Any]  # texts, or their embeddings (N, D)
Function = TypeVar("Function", bound=Callable[..., Any])


class EncodeOptions(TypedDict, total=False):
    """Options of `Encoder.encode` that do not change the type of what it returns."""

    role: Role
    instruction: str | None
    batch_size: int | None
    show_progress_bar: bool


def _with_options(function: Function) -> Function:
    """The function with the options of the section `model` in its signature."""
    *named, _ = inspect.signature(function).parameters.values()
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in {"device": str | None, **LOAD_OPTIONS}.items()
        if name not in [parameter.name for parameter in named]
    ]
    vars(function)["__signature__"] = inspect.Signature([*named, *options])
    return function


@dataclass(frozen=True, slots=True)
class Hit:
    """A text found by :meth:`Encoder.search`.

    Attributes:
        text: of the corpus; "" where it was given as embeddings.
        similarity: to the query.
        index: of the text in the corpus.
    """

    text: str
    similarity: float
    index: int


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An expression in a text, found by :meth:`Encoder.find`.

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


class Encoder(nn.Module):
    """A sentence-transformers model that also embeds spans, and reads each text once.

    A span's embedding is the mean of the last layer's token embeddings whose character offsets
    overlap the span (late chunking), passed through whatever modules of the checkpoint follow its
    pooling (a dense layer, normalisation), so that it is in the documents' space. With `raw_spans` it is
    the mean of the transformer's last hidden states, past all other modules.

    Args:
        model: transformer → (token-level modules) → pooling → (embedding-level modules); or what
            :meth:`from_pretrained` takes, with its options: `Encoder("minilm", glossary={...})`.
        prompts: how this model family writes queries and documents.
        tokens_per_forward: texts are sorted by length and cut into forward batches of about this many tokens,
            padding included. This bounds padding and, when scoring, memory; it never changes an embedding.
        idiom_tokens: of the model, if it has any; they replace expressions in texts.
        meanings: what the model reads after the expressions of a glossary, if it was given one.
        raw_spans: embed spans by the transformer's last hidden states alone.

    Attributes:
        raw_spans: as given.
        truncated_spans: requests so far whose span continues beyond the maximum length; the part before it
            is pooled.
        truncated: requests so far whose text continues beyond it.

    Raises:
        UserError: if the model has no transformer, no pooling, or no tokenizer with offsets; if raw spans
            would have another width than its embeddings.
    """

    @_with_options
    def __init__(
        self,
        model: SentenceTransformer | str | os.PathLike[str],
        prompts: Prompts | None = None,
        *,
        tokens_per_forward: int | None = None,
        idiom_tokens: IdiomTokens | None = None,
        meanings: Meanings | None = None,
        raw_spans: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        if not isinstance(model, SentenceTransformer):
            path_text(model, "model")
            if prompts or idiom_tokens or meanings or raw_spans or "path" in options:
                message = "prompts, idiom_tokens, meanings and raw_spans are those of the checkpoint"
                raise ArgumentTypeError(message, option="model")
            loaded = Encoder.from_pretrained(model, tokens_per_forward=tokens_per_forward, **options)
            self.__dict__ = loaded.__dict__
            return
        if options:
            message = f"{', '.join(options)}: only for a model that is loaded by its name or folder"
            raise ArgumentTypeError(message, option=next(iter(options)))
        parts = {"prompts": (prompts, Prompts), "idiom_tokens": (idiom_tokens, IdiomTokens)}
        for option, (part, kind) in {**parts, "meanings": (meanings, Meanings)}.items():
            if not isinstance(part, kind | None):
                raise type_error(option, f"{kind.__name__} or None", part)
        if tokens_per_forward is not None:
            checked_count(tokens_per_forward, "tokens_per_forward")
        num_poolings = sum(isinstance(module, Pooling) for module in model)
        if not isinstance(model[0], Transformer | StaticTokens) or num_poolings != 1:
            names = " → ".join(type(module).__name__ for module in model)
            raise UserError(
                f"this model is {names}; span embeddings need a transformer followed by one pooling"
            )
        hidden, width = model[0].get_embedding_dimension(), model.get_embedding_dimension()
        if raw_spans and hidden != width:
            raise UserError(
                f"the model's hidden states have {hidden} dimensions and its embeddings {width}, so they "
                "cannot be compared: leave model.span unset",
                option="model.span=raw",
            )
        self.raw_spans = raw_spans
        self._has_logged_coverage = False
        self.model = model
        self.prompts = prompts or Prompts()
        self.tokens_per_forward = tokens_per_forward or _TOKENS_PER_FORWARD
        self.idiom_tokens = idiom_tokens
        self.meanings = meanings
        self._tokenizer = Tokenizer(model)
        self.truncated_spans: set[Request] = set()
        self.truncated: set[Request] = set()
        self.eval()

    # ---------------------------------------------------------------- loading and saving

    @classmethod
    @_with_options
    def from_pretrained(
        cls, path: str | os.PathLike[str], *, device: str | None = None, **options: Any
    ) -> Encoder:
        """Load a sentence-transformers or plain transformers checkpoint, in float32.

        Args:
            path: a local folder, a model on the Hugging Face Hub, or a name that `model=` takes on the
                command line, such as `e5_base`: where no option is given here, that of `conf/model/` holds.
            device: `cpu`, `cuda` or `mps`; by default the fastest available.
            options: those of the section `model` (:doc:`/docs/reference/options`), as `max_length=64` or
                `span="raw"`; None = by default. `glossary` also takes tables in memory: expression → meaning.

        Raises:
            UserError: if there is no such model, it cannot be reached, or its kind is not supported; for an
                argument that is not among the options; if expressions should be replaced, but the model has
                no idiom tokens.
        """
        if others := options.keys() - LOAD_OPTIONS.keys():
            name = min(others)
            near = "".join(f"; is it {other}?" for other in nearest(name, list(LOAD_OPTIONS)))
            raise UserError(f"there is no such argument{near}", option=name)
        name = path_text(path, "path")
        if device is not None:
            try:
                torch.empty(0, device=str(device)).tolist()
            except Exception as error:  # of many kinds
                reason = one_line(str(error))
                raise UserError(f"must be cpu, cuda or mps: {reason}", option="device") from None
        if (glossary := options.get("glossary")) is not None:
            with inputs_in(cache_folder() / "inputs"):
                options["glossary"] = write_tables(glossary, "glossary")
        options = {
            name: value.tolist() if hasattr(value, "dtype") else value for name, value in options.items()
        }
        settings = model_settings(name if isinstance(path, str) else Path(name), options)
        encoder = cls.load(settings, device=device)
        encoder.meanings = choose_meanings(encoder, settings, labelled=labelled_usages)
        return encoder

    @classmethod
    def load(cls, settings: ModelSettings, *, device: str | None = None, empty: bool = False) -> Encoder:
        """The model of a section `model`, with the glossary and the idiom tokens of the checkpoint itself.

        Args:
            empty: read no weights: it can read requests and refuse options, but embed nothing.

        Raises:
            UserError: as :meth:`from_pretrained`.
        """
        folder, offline = locate_checkpoint(settings.path, settings.revision)
        with explaining_loading(folder):
            model = load_model(folder, settings, device=device, local_files_only=offline, empty=empty)
            idioms, meanings = load_expressions(folder, model, settings, local_files_only=offline)
            encoder = cls(
                model,
                prompts_of(model.prompts, settings),
                tokens_per_forward=settings.tokens_per_forward,
                idiom_tokens=idioms,
                meanings=meanings,
                raw_spans=settings.span == "raw",
            )
            if not empty:
                check_embeddings(folder, encoder.embed_some_tokens(), encoder.dimension)
        return encoder

    @classmethod
    def around(cls, model: SentenceTransformer, *, tokens_per_forward: int | None = None) -> Encoder:
        """An encoder of a model in memory, with the model's prompts, in evaluation mode.

        It does not know the idiom tokens in the folder that the model came from; :meth:`from_pretrained`
        does.

        Raises:
            UserError: if the model is of an unsupported kind, or its prompts are malformed.
        """
        try:
            return cls(model, prompts_of(model.prompts), tokens_per_forward=tokens_per_forward)
        except ValueError as error:
            raise UserError(str(error)) from None

    def add_idiom_tokens(
        self,
        expressions: Iterable[str],
        *,
        start: TokenStart = "pieces",
        seed: int = 0,
        forms: Forms | None = None,
    ) -> None:
        """Add a token for each expression, see :func:`idiomtune.encoder.idiom_tokens.add_idiom_tokens`.

        Raises:
            UserError: if one is not a valid expression, or the tokenizer does not support such tokens.
        """
        self.idiom_tokens = add_idiom_tokens(
            self.model,
            self.idiom_tokens,
            checked_texts("expressions", expressions),
            start=start,
            seed=seed,
            forms=forms,
        )
        self._tokenizer.forget()

    def drop_idiom_tokens(self, expressions: Iterable[str]) -> None:
        """Read these expressions as words again; their tokens stay in the vocabulary, unused."""
        names = checked_texts("expressions", expressions)
        if self.idiom_tokens is not None:
            self.idiom_tokens = self.idiom_tokens.drop(names)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write a plain sentence-transformers folder, with prompts, and weights as safetensors.

        Args:
            folder: a new or an empty one.
            overwrite: whether it may hold files; those of the same names are replaced.

        Raises:
            UserError: if it holds files and may not, or is one.
        """
        path = Path(folder)
        if path.is_file() or (path.is_dir() and not overwrite and any(path.iterdir())):
            problem = "is a file" if path.is_file() else "is not empty (overwrite=True replaces files there)"
            raise UserError(f"{problem}: name a new folder", option="folder", file=path)
        # Prompts for other tasks are kept: one of them may be the checkpoint's default.
        self.model.prompts = {**self.model.prompts, **asdict(self.prompts)}
        Tokenizer(self.model)([""])  # its file keeps how it last truncated a text: at the model's length
        with silence_libraries():
            self.model.save_pretrained(str(folder), create_model_card=False, safe_serialization=True)
        keep_attention(self.model, Path(folder))
        save_expressions(Path(folder), self.model.tokenizer, self.idiom_tokens, self.meanings)

    def reading(self, meanings: Meanings | None) -> Encoder:
        """A second encoder of the same model with these meanings; this encoder keeps its own."""
        encoder = object.__new__(type(self))
        encoder.__dict__ = {**self.__dict__, "meanings": meanings}
        return encoder

    def __getstate__(self) -> dict[str, Any]:
        """For pickles and copies: without the hooks that transformers adds to layers."""
        shared = {id(tensor): tensor for tensor in (*self.parameters(), *self.buffers())}
        state = deepcopy(self.__dict__, shared)
        for module in state["_modules"]["model"].modules():
            module.__dict__.pop("_output_capturing_hooks_installed", None)
            for number, hook in [*module._forward_hooks.items()]:
                if hook.__module__ == "transformers.utils.output_capturing":
                    del module._forward_hooks[number]
        return state

    def describe_reading(self) -> dict[str, Any]:
        """For a model card: prompts, and modules after the pooling, which spans pass too."""
        at = self._pooling_at
        return {
            "query": self.prompts.query,
            "document": self.prompts.document,
            "has_default_prompt": bool(self.model.prompts.get(self.model.default_prompt_name or "")),
            "pooling_at": at,
            "num_poolings": self._num_poolings,
            "after": [type(module).__name__ for module in list(self.model)[at + 1 :]],
            "raw_spans": self.raw_spans,
        }

    def weights_digest(self, dimensions: int | None = None) -> str:
        """SHA-256 of all weights and their names, to check that a base model is the same as before.

        Args:
            dimensions: only parameters of so many.
        """
        digest = hashlib.sha256()
        for name, p in self.named_parameters():
            if dimensions is None or p.dim() == dimensions:
                digest.update(name.encode())
                digest.update(p.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def digest(self) -> str:
        """SHA-256 of all that embeddings depend on: weights, modules, tokenizer, prompts, glossary."""
        tokenizer = json.loads(self.model.tokenizer.backend_tokenizer.to_str())
        modules: list[Any] = list(self.model)
        config = {} if isinstance(modules[0], StaticTokens) else modules[0].auto_model.config.to_dict()
        idioms, meanings = self.idiom_tokens, self.meanings
        facts: list[Any] = [
            self.weights_digest(),
            [(type(module).__name__, module.get_config_dict()) for module in modules],
            {name: value for name, value in config.items() if name != "_name_or_path"},
            {part: value for part, value in tokenizer.items() if part not in ("truncation", "padding")},
            *(asdict(self.prompts), self.model.max_seq_length, self.raw_spans),
            idioms and (idioms.expressions, idioms.replace),
            # In their order: of two expressions that fit a text alike, the first is read.
            meanings and [list(meanings.senses.items()), meanings.form, meanings.gate],
        ]
        # Only unusual facts: the checksums of other models stay the same.
        facts += [["forms", part.forms] for part in (idioms, meanings) if part is not None and part.forms]
        if self.model.tokenizer.truncation_side != "right":
            facts.append(["cut on the left"])
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()

    # ---------------------------------------------------------------- for users

    @overload
    def encode(
        self,
        texts: str | Iterable[str],
        spans: str | Span | Spans = None,
        *,
        convert_to_numpy: Literal[False] = False,
        **options: Unpack[EncodeOptions],
    ) -> Tensor: ...

    @overload
    def encode(
        self,
        texts: str | Iterable[str],
        spans: str | Span | Spans = None,
        *,
        convert_to_numpy: Literal[True],
        **options: Unpack[EncodeOptions],
    ) -> NDArray[np.float32]: ...

    @torch.no_grad()
    def encode(
        self,
        texts: str | Iterable[str],
        spans: str | Span | Spans = None,
        *,
        role: Role = "document",
        instruction: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool = True,
        convert_to_numpy: bool = False,
    ) -> Tensor | NDArray[np.float32]:
        """Embed texts, or spans in their texts.

        Args:
            texts: N texts, or one.
            spans: one for each text: character offsets (start, end), the words themselves (their first
                occurrence as whole words counts), or an expression as a dictionary has it ("kick the bucket"
                for "kicked the bucket"); None = the whole text, as all are by default.
            role: picks the model family's prompt; most models have the same for both.
            instruction: put before every text, in the model family's format; implies `role="query"`.
            batch_size: the most texts that are read at a time; by default as many as `tokens_per_forward`
                allows. It changes speed and memory alone.
            show_progress_bar: on a terminal; elsewhere there is none.
            convert_to_numpy: an array instead of a tensor.

        Returns:
            (N, D), float32, on the CPU, in the order of `texts`; of one text (D,).

        Raises:
            TypeError, ValueError: for an argument of another kind than these.
            UserError: if a span is not in its text, or beyond the model's maximum length.

        >>> encoder = Encoder("minilm")
        >>> assert encoder.encode("He broke the ice.").shape == (encoder.dimension,)
        >>> texts, spans = ["He broke the ice.", "Nothing."], ["break the ice", None]
        >>> assert encoder.encode(texts, spans).shape == (2, encoder.dimension)
        """
        is_single = isinstance(texts, str)
        span_list: Any = [spans] if is_single and spans is not None else spans
        requests = requests_for(
            [texts] if isinstance(texts, str) else texts, span_list, role, instruction, batch_size
        )
        for name, value in (("show_progress_bar", show_progress_bar), ("convert_to_numpy", convert_to_numpy)):
            if not isinstance(value, bool):
                raise type_error(name, "True or False", value)
        self._log_coverage([request.text for request in requests])
        embeddings = self._encode("texts", requests, batch_size=batch_size, has_bar=show_progress_bar)
        embeddings = embeddings[0] if is_single else embeddings
        return embeddings.numpy() if convert_to_numpy else embeddings

    @torch.no_grad()
    def _encode(
        self, name: str, requests: Sequence[Request], *, batch_size: int | None = None, has_bar: bool = True
    ) -> Tensor:
        """(R, D), float32, on the CPU; `name` is what the caller calls the texts."""
        has_bar = has_bar and sys.stderr.isatty()
        bar = progress_bar("embedding", self.num_texts(requests)) if has_bar else nullcontext()
        truncated = set(self.truncated)
        with evaluation_mode(self), bar as advance:
            embeddings: Tensor = self(requests, advance, batch_size=batch_size).float().cpu()
        self.warn_of_truncated(requests, before=truncated)
        check_finite(name, embeddings, [request.text for request in requests])
        return embeddings

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

        >>> encoder = Encoder("minilm")
        >>> texts = ["The boy broke the ice on the pond.", "A joke broke the ice."]
        >>> literal, idiomatic = encoder.usage(texts, "break the ice")
        >>> assert literal < 0.5 < idiomatic
        """
        return self.usages(*usage_requests(texts, expressions), labels)

    def usages(
        self,
        requests: Sequence[Request | None],
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
        is_within = spans_within([request for _, request, _ in uses], self.reader)
        if not all(is_within):
            beyond = [i for (i, *_), is_read in zip(uses, is_within, strict=True) if not is_read]
            texts_beyond = dict.fromkeys(locations[i] if locations else f"text {i}" for i in beyond)
            message = "beyond the model's maximum length (%d tokens) an expression has no usage: %s"
            log.warning(message, self.model.max_seq_length, list_names([*texts_beyond], 5))
        uses = [use for use, is_read in zip(uses, is_within, strict=True) if is_read]
        usages = [math.nan] * len(requests)
        if not uses:
            return usages
        gates = [gate_of(self, labelled_usages)]
        if labels is not None:
            gates.append(fit_gate(self.reading(None), labelled_requests(requests, names, labels)))
        texts = [request for _, request, _ in uses] + [bare_expression(name) for *_, name in uses]
        logits = torch.zeros(len(uses))
        for gate in gates:
            features = self.usage_features(texts, gate.layers)
            logits += gate.usage(*gate.terms(features).chunk(2)).cpu().logit()
        for (i, *_), usage in zip(uses, logits.sigmoid().tolist(), strict=True):
            usages[i] = usage
        return usages

    def _log_coverage(self, texts: Iterable[str]) -> None:
        """Log once how many of the glossary's expressions occur in the texts that are embedded first."""
        if self.meanings is not None and not self._has_logged_coverage and (texts := list(texts)):
            self._has_logged_coverage = True
            self.meanings.log_coverage(texts, "the texts that are embedded first")

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

        >>> encoder = Encoder("minilm", glossary={"break the ice": "make people relax"})
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
                Request(texts[i], (start, end), pooling="usage_terms", with_meanings=False)
                for i, start, end, _ in matches
            ]
            occurring = [locations[i] if locations else f"text {i}" for i, *_ in matches]
            usages = self.usages(requests, [name for *_, name in matches], locations=occurring)
        return [
            Occurrence(
                name, i, (start, end), _sentence(texts[i], start, end), self.meanings.meaning(name), usage
            )
            for (i, start, end, name), usage in zip(matches, usages, strict=True)
        ]

    def similarity(self, first: Comparable, second: Comparable | None = None) -> Tensor:
        """The similarity of embeddings or texts: their cosine, unless the checkpoint names another function.

        Args:
            first: (N, D), from :meth:`encode`; or a text, or a list of texts.
            second: (M, D) or texts; None = `first` once more.

        Returns:
            (N, M), float32: row i compares the i-th of `first` with all of `second`.

        Raises:
            TypeError, ValueError: if they are neither, or embeddings differ in length.

        >>> texts = ["He was too late.", "The ship left without him."]
        >>> plain = Encoder("minilm").similarity("He missed the boat.", texts)[0]
        >>> informed = Encoder("minilm", glossary={"miss the boat": "be too late"})
        >>> cosines = informed.similarity("He missed the boat.", texts)[0]
        >>> assert plain.argmax() == 1  # the ship
        >>> assert cosines.argmax() == 0  # the meaning
        """
        a = embeddings_or_requests("first", [first] if isinstance(first, str) else first)
        b = [second] if isinstance(second, str) else second
        return self._compare({"first": a, "second": a if b is None else embeddings_or_requests("second", b)})

    def _compare(self, sides: Mapping[str, Tensor | list[Request]]) -> Tensor:
        """(N, M), of two arguments by their names: embeddings, or requests for them."""
        first, second = sides.values()
        distinct = {id(side): side for side in (first, second) if not isinstance(side, Tensor)}
        self._log_coverage([request.text for side in distinct.values() for request in side])
        a, b = (
            side if isinstance(side, Tensor) else self._encode(name, side) for name, side in sides.items()
        )
        if a.shape[1] != b.shape[1]:
            *_, wrong = (name for name, side in sides.items() if isinstance(side, Tensor))
            message = f"embeddings of {a.shape[1]} and of {b.shape[1]} dimensions cannot be compared"
            raise ArgumentValueError(message, option=wrong)
        similarities: Tensor = self.model.similarity(a, b)
        return similarities

    @overload
    def search(  # type: ignore[overload-overlap]
        self,
        query: str,
        corpus: Corpus,
        *,
        span: str | Span | None = None,
        k: int = 5,
        top_k: int | None = None,
    ) -> list[Hit]: ...

    @overload
    def search(
        self,
        query: Sequence[str] | Tensor | NDArray[np.float32],
        corpus: Corpus,
        *,
        span: Spans = None,
        k: int = 5,
        top_k: int | None = None,
    ) -> list[list[Hit]]: ...

    def search(
        self,
        query: str | Sequence[str] | Tensor | NDArray[np.float32],
        corpus: Corpus,
        *,
        span: str | Span | Spans = None,
        k: int = 5,
        top_k: int | None = None,
    ) -> list[Hit] | list[list[Hit]]:
        """The texts of a corpus that are most similar to a query, the most similar first.

        Args:
            query: a text, several, or their embeddings (Q, D).
            corpus: N texts, or their embeddings (N, D), which several calls then share.
            span: search for what these words (or this range) of the query mean; of several one for each.
            k: how many; fewer if the corpus has fewer.
            top_k: the same.

        Returns:
            The hits; of several queries a list for each.

        Raises:
            TypeError, ValueError, UserError: as :meth:`encode`.

        >>> encoder = Encoder("minilm", glossary={"miss the boat": "be too late"})
        >>> corpus = ["The ship left without him.", "He was too late."]
        >>> best, other = encoder.search("He missed the boat.", corpus)
        >>> assert (best.index, best.text) == (1, "He was too late.")
        >>> assert encoder.search(["He missed the boat."], encoder.encode(corpus), k=1)[0][0].index == 1
        """
        k = checked_count(k, "k") if top_k is None else checked_count(top_k, "top_k")
        is_single = isinstance(query, str)
        spans: Any = [span] if is_single and span is not None else span
        documents = embeddings_or_requests("corpus", corpus)
        queries = embeddings_or_requests(
            "query", [query] if isinstance(query, str) else query, spans, "query"
        )
        similarities = self._compare({"query": queries, "corpus": documents})  # (Q, N)
        texts = [] if isinstance(documents, Tensor) else [document.text for document in documents]
        order = similarities.argsort(dim=1, descending=True, stable=True)[:, :k].tolist()
        hits = [
            [Hit(texts[i] if texts else "", row[i].item(), i) for i in best]
            for row, best in zip(similarities, order, strict=True)
        ]
        return hits[0] if is_single else hits

    # ---------------------------------------------------------------- the forward path

    @property
    def dimension(self) -> int:
        """D, the length of an embedding."""
        dimension = self.model.get_embedding_dimension()
        assert dimension is not None
        return dimension

    def checkpoint_activations(self) -> None:
        """Keep no activations within layers in training: the backward pass computes them again.

        Raises:
            UserError: if the architecture does not support it.
        """
        transformer: Any = self.transformer
        # Renamed in transformers 5.x; the old name is to be removed in 6.
        new_name, old_name = "activation_checkpointing_enable", "gradient_checkpointing_enable"
        try:
            enable = getattr(transformer, new_name, None) or getattr(transformer, old_name)
            # The reentrant form needs inputs that have a gradient, which token ids do not.
            enable({"use_reentrant": False})
        except (AttributeError, ValueError) as error:
            reason = f"{type(transformer).__name__} cannot ({error})"
            raise UserError(reason, option="trainer.activation_checkpointing=true") from None

    @property
    def transformer(self) -> nn.Module:
        """The transformer alone, without what follows it (pooling, a dense layer)."""
        first: Any = self.model[0]
        transformer: nn.Module = first.auto_model
        return transformer

    @property
    def device(self) -> torch.device:
        return compute_device(self.model)

    def forward(
        self,
        requests: Sequence[Request],
        on_progress: Callable[[int], None] | None = None,
        *,
        batch_size: int | None = None,
    ) -> Tensor:
        """Embed all requests. Each distinct text, prompt included, goes through the model once.

        Args:
            requests: R embeddings to compute.
            on_progress: called after each forward pass with the number of its texts; what a gate reads
                besides does not count.
            batch_size: see :meth:`forward_batches`.

        Returns:
            (R, D), row i for request i; with a graph where gradients are enabled.

        Raises:
            UserError: if a span is missing, outside its text, or beyond the maximum length.
        """
        if not requests:
            return torch.zeros(0, self.dimension, device=self.device)
        pieces, order = [], []
        gated = GatedRequests(requests, self.reader, is_on=not self.training)
        for batch in self.forward_batches(gated.requests, batch_size=batch_size):
            pieces.append(self.embed(batch))  # (n, D)
            order += batch.requests
            if on_progress is not None:
                on_progress(batch.num_texts_of(len(requests)))
        return gated.combine(in_request_order(torch.cat(pieces), order))

    @property
    def reader(self) -> Reader:
        """How the model reads requests."""
        parts = self.prompts, self._pooling.include_prompt, self.idiom_tokens, self.meanings
        return Reader(self._tokenizer, self.model.max_seq_length, *parts)

    def forward_batches(
        self, requests: Sequence[Request], *, min_batches: int = 1, batch_size: int | None = None
    ) -> list[ForwardBatch]:
        """The forward batches that embed all requests: longest texts first, each view of a text once.

        Args:
            min_batches: make at least this many, as long as each has about 512 tokens or more.
            batch_size: the most texts in one; None = as many as `tokens_per_forward` allows.

        Raises:
            UserError: if a span is missing, outside its text, or beyond the maximum length.
        """
        options = self.reader, self.tokens_per_forward, min_batches, batch_size
        batches, spans_of, truncated = plan_batches(requests, *options)
        if spans_of and not self.truncated_spans:  # only the first call that cuts some reports it
            spans = {request for request in requests if request.pooling == "span"}
            log.warning("%s", truncated_spans_note(len(spans_of), len(spans), self.model.max_seq_length))
        self.truncated_spans |= spans_of
        self.truncated |= truncated
        return batches

    def num_texts(self, requests: Iterable[Request]) -> int:
        """The number of distinct texts in these requests."""
        return len({self.prompts.render(request)[0] for request in requests})

    def warn_of_truncated(self, requests: Collection[Request], before: Collection[Request] = ()) -> None:
        """Warn of truncated texts and spans, unless the warning was given before."""
        if (truncated := self.truncated.intersection(requests)) and not truncated.issubset(before):
            counts = self.num_texts(truncated), self.num_texts(requests)
            log.warning("%s", truncated_note(*counts, self.model.max_seq_length))

    @property
    def _pooling_at(self) -> int:
        return next(i for i, module in enumerate(self.model) if isinstance(module, Pooling))

    @property
    def _pooling(self) -> Any:
        return self.model[self._pooling_at]

    @property
    def _num_poolings(self) -> int:
        count: int = self._pooling.pooling_output_dimension // self._pooling.embedding_dimension
        return count

    @property
    def pooling_mode(self) -> str:
        """`mean`, `cls`, …; of several side by side `cls+lasttoken`."""
        mode = self._pooling.pooling_mode
        return mode if isinstance(mode, str) else "+".join(mode)

    @property
    def averages_tokens(self) -> bool:
        """Whether a text's embedding is the mean of its tokens' embeddings, up to its length."""
        if self.pooling_mode != "mean" or (self.meanings is not None and self.meanings.gate is not None):
            return False
        return all(isinstance(module, Normalize) for module in list(self.model)[self._pooling_at + 1 :])

    @torch.no_grad()
    def embed_some_tokens(self) -> Tensor:
        """(N, D), of a few words of the vocabulary, each as a text."""
        tokenizer: Any = self.model.tokenizer
        before, after = special_tokens_around(tokenizer)
        ids = range(0, len(tokenizer), -(-len(tokenizer) // _NUM_PROBED))
        texts = [[*before, i, *after] for i in ids if i not in tokenizer.all_special_ids]
        sentences = [PooledSentence(row, row) for row in range(len(texts))]
        return self._embed_batch(ForwardBatch(texts, sentences, []))

    def embed_tokens(self, texts: list[list[int]]) -> Tensor:
        """(B, T, D), token embeddings before the pooling, of B texts as token ids."""
        embeddings: Tensor = self._run(texts)[0]["token_embeddings"]
        return embeddings

    def _run(
        self, texts: list[list[int]], *, with_layers: nn.Module | None = None
    ) -> tuple[dict[str, Any], Tensor]:
        """The features of texts up to the pooling, and the transformer's last hidden states (B, T, D).

        Args:
            with_layers: the transformer, or its first layers, if its hidden layers are wanted too.
        """
        transformer, *others = list(self.model)[: self._pooling_at]
        options = {}
        if with_layers is not None:
            transformer = copy(transformer)  # the module around the transformer, which stays as it is
            vars(transformer)["_modules"] = {"model": WithLayers(with_layers)}
            options["output_hidden_states"] = True
        features = transformer(self._tokenizer.pad(texts, self.device), **options)  # of (B, T) each
        hidden = features["token_embeddings"]
        for module in others:
            features = module(features)
        return features, hidden

    def embed(self, batch: ForwardBatch) -> Tensor:
        """(n, D), row i for the i-th of the batch's `requests`: its sentences, then its spans, its usages."""
        return self._embed_batch(batch)

    @torch.no_grad()
    def usage_features(
        self,
        requests: Sequence[Request],
        layers: Sequence[int],
        on_progress: Callable[[int], None] | None = None,
    ) -> Tensor:
        """(R, F), on the CPU: the gate's features for requests with the pooling `usage_terms`.

        Args:
            layers: their numbers; 0 = the embeddings of tokens.
            on_progress: as of :meth:`forward`.
        """
        pieces, order = [], []
        # One layer more: what the last one gives, some models normalise. A pooling may need all of them.
        transformer = self.transformer
        if self._pooling_at == 1:
            transformer = first_layers(transformer, max(layers) + 1)
        for batch in self.forward_batches(requests):
            features, _ = self._run(batch.texts, with_layers=transformer)
            pieces.append(self._usage_features(batch, features, layers).cpu())
            order += batch.requests
            if on_progress is not None:
                on_progress(batch.num_texts)
        return in_request_order(torch.cat(pieces), order)

    def _usage_features(self, batch: ForwardBatch, features: dict[str, Any], layers: Sequence[int]) -> Tensor:
        every = features.get("all_layer_embeddings")
        if every is None:
            name = type(self.transformer).__name__
            message = f"{name} does not give its hidden layers, which tell how an expression is used"
            raise UserError(message, option="model.glossary_gate=true")
        return usage_features([every[layer] for layer in layers], batch)

    def _embed_batch(self, batch: ForwardBatch) -> Tensor:
        features, hidden = self._run(batch.texts, with_layers=self.transformer if batch.usages else None)
        pooling, *after = list(self.model)[self._pooling_at :]
        pooled = pool_sentences(pooling, features, batch.sentences)
        if batch.spans and not self.raw_spans:
            means = pool_spans(features["token_embeddings"], batch.spans)  # (S, D)
            # Once for each of several concatenated poolings, such as those of [CLS] and [SEP].
            pooled.append(means.repeat(1, self._num_poolings))
        pieces: list[Tensor] = []
        if pooled:
            features = dict(features, sentence_embedding=torch.cat(pooled))
            for module in after:
                features = module(features)
            pieces.append(features["sentence_embedding"])
        if batch.spans and self.raw_spans:
            pieces.append(pool_spans(hidden, batch.spans))
        if batch.usages:
            assert self.meanings is not None
            assert self.meanings.gate is not None
            gate = self.meanings.gate
            terms = gate.terms(self._usage_features(batch, features, gate.layers))  # (U, 2)
            pieces.append(nn.functional.pad(terms, (0, self.dimension - 2)))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)
