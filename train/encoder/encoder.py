"""Text, or a span in it → embedding: the one forward path of training and scoring."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling as PoolingModule
from torch import Tensor, nn

from train.encoder.files import fetch_file
from train.encoder.forward import (
    ForwardBatch,
    PooledSentence,
    PooledSpan,
    Tokenizer,
    Tokens,
    cut,
    in_request_order,
)
from train.encoder.idiom_tokens import FILE as IDIOM_TOKENS_FILE
from train.encoder.idiom_tokens import IdiomTokens, TokenStart, add_idiom_tokens, load_idiom_tokens
from train.encoder.loading import (
    keep_attention,
    limit_length,
    load_model,
    locate_checkpoint,
    silence_libraries,
)
from train.encoder.meanings import FILE as GLOSSARY_FILE
from train.encoder.meanings import Meanings, read_meanings
from train.encoder.pooling import pool_sentences
from train.encoder.prompts import Prompts, prompts_of
from train.encoder.spans import cut_spans_note, is_cut_off, pool_spans, tokens_of_span
from train.encoder.tokenizer_rules import remove_rules, write_rules
from train.errors import UserError
from train.requests import Request, Role, find_span

log = logging.getLogger(__name__)


class Encoder(nn.Module):
    """A sentence-transformers model that also embeds spans, and embeds no text twice.

    A span's embedding is the mean of the last layer's token embeddings whose character offsets
    overlap the span (late chunking), passed through whatever modules of the checkpoint follow its
    pooling (a dense layer, normalisation), so that it lies in the documents' space.

    Args:
        model: transformer → (token-level modules) → pooling → (embedding-level modules).
        prompts: how this model family writes queries and documents.
        tokens_per_forward: texts are sorted by length and cut into forward batches of about this many tokens,
            padding included. This bounds padding and, when scoring, memory; it never changes an embedding.
        idiom_tokens: of the model, if it has any; they replace expressions in texts.
        meanings: what the model reads beside the expressions of a glossary, if it was given one.

    Attributes:
        cut_spans: requests so far whose span continues beyond the maximum length; only the part before it
            is pooled.

    Raises:
        UserError: if the model has no transformer, no pooling, or no tokenizer with offsets.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        prompts: Prompts | None = None,
        *,
        tokens_per_forward: int = 8192,
        idiom_tokens: IdiomTokens | None = None,
        meanings: Meanings | None = None,
    ) -> None:
        super().__init__()
        modules = list(model)
        poolings = [i for i, module in enumerate(modules) if isinstance(module, PoolingModule)]
        if not isinstance(modules[0], Transformer) or len(poolings) != 1:
            names = " → ".join(type(module).__name__ for module in modules)
            raise UserError(
                f"this model is {names}; span embeddings need a transformer followed by one pooling"
            )
        self.model = model
        self.prompts = prompts or Prompts()
        self.tokens_per_forward = tokens_per_forward
        self.idiom_tokens = idiom_tokens
        self.meanings = meanings
        self._pooling_at = poolings[0]
        pooling: Any = modules[poolings[0]]
        self._num_pooled = pooling.pooling_output_dimension // pooling.embedding_dimension
        self._pools_prompts: bool = pooling.include_prompt
        self._tokenizer = Tokenizer(model)
        self.cut_spans: set[Request] = set()
        self.eval()

    # ---------------------------------------------------------------- loading and saving

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        revision: str | None = None,
        device: str | None = None,
        max_length: int | None = None,
        pooling: str | None = None,
        pool_prompts: bool | None = None,
        bidirectional: bool | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        instruction_prompt: str | None = None,
        trust_remote_code: bool = False,
        tokens_per_forward: int = 8192,
        replace_expressions: bool | None = None,
    ) -> Encoder:
        """Load a sentence-transformers or plain transformers checkpoint, in float32.

        Args:
            path: a local folder, or the name of a model on the Hugging Face Hub.
            revision: branch, tag or commit on the Hub.
            device: `cpu`, `cuda` or `mps`; by default the fastest available.
            max_length: tokens kept of a text; by default the checkpoint's limit.
            pooling: replaces the checkpoint's pooling (`mean`, `cls`, `lasttoken`, `cls+sep`, `last2`, …).
            pool_prompts: whether a prompt's tokens are pooled; by default as in the checkpoint.
            bidirectional: whether a decoder's tokens also attend to later ones; by default as in the
                checkpoint.
            query_prompt, document_prompt: replace the checkpoint's prompts.
            instruction_prompt: template of queries with an instruction, see :class:`Prompts`.
            trust_remote_code: run Python code that comes with the checkpoint.
            tokens_per_forward: see the class.
            replace_expressions: whether expressions that have an idiom token are replaced by it; by default
                as in the checkpoint.

        Raises:
            UserError: if there is no such model, it cannot be reached, or its kind is not supported; if
                expressions should be replaced, but the model has no idiom tokens.
        """
        found, offline = locate_checkpoint(str(path), revision)
        model = load_model(
            found,
            revision=revision,
            device=device,
            pooling=pooling,
            pool_prompts=pool_prompts,
            bidirectional=bidirectional,
            trust_remote_code=trust_remote_code,
            local_files_only=offline,
        )
        limit_length(str(path), model, max_length)
        try:
            prompts = prompts_of(model, query_prompt, document_prompt, instruction_prompt)
        except ValueError as error:
            raise UserError(f"model {path}: {error}") from None
        idioms = load_idiom_tokens(found, model, revision=revision, local_files_only=offline)
        glossary = fetch_file(found, GLOSSARY_FILE, revision, local_files_only=offline)
        if idioms is not None or glossary is not None:
            remove_rules(model.tokenizer, idioms.expressions if idioms is not None else ())
        if idioms is not None and replace_expressions is not None:
            idioms.replace = replace_expressions
        elif replace_expressions:
            raise UserError(
                f"model.replace_expressions=true: the model {path} has no idiom tokens to replace them by"
            )
        return cls(
            model,
            prompts,
            tokens_per_forward=tokens_per_forward,
            idiom_tokens=idioms,
            meanings=read_meanings(glossary) if glossary is not None else None,
        )

    @classmethod
    def around(cls, model: SentenceTransformer, *, tokens_per_forward: int = 8192) -> Encoder:
        """An encoder of a model in memory, with the model's prompts, in evaluation mode.

        It does not know the idiom tokens in the folder that the model came from; :meth:`from_pretrained`
        does.

        Raises:
            UserError: if the model is of an unsupported kind, or its prompts are malformed.
        """
        try:
            return cls(model, prompts_of(model), tokens_per_forward=tokens_per_forward)
        except ValueError as error:
            raise UserError(str(error)) from None

    def add_idiom_tokens(
        self, expressions: Iterable[str], *, start: TokenStart = "pieces", seed: int = 0
    ) -> None:
        """Add a token for each expression, see :func:`train.encoder.idiom_tokens.add_idiom_tokens`.

        Raises:
            UserError: if one is not a valid expression, or the tokenizer does not support such tokens.
        """
        self.idiom_tokens = add_idiom_tokens(
            self.model, self.idiom_tokens, expressions, start=start, seed=seed
        )
        self._tokenizer.forget()

    def drop_idiom_tokens(self, expressions: Iterable[str]) -> None:
        """Read these expressions as words again; their tokens stay in the vocabulary, unused."""
        if self.idiom_tokens is not None:
            self.idiom_tokens = self.idiom_tokens.without(expressions)

    def save(self, folder: str | Path) -> None:
        """Write a plain sentence-transformers folder, with prompts, and weights as safetensors."""
        # Prompts for other tasks are kept: one of them may be the checkpoint's default.
        self.model.prompts = {
            **self.model.prompts,
            "query": self.prompts.query,
            "document": self.prompts.document,
            "instruction": self.prompts.instruction,
        }
        with silence_libraries():
            self.model.save_pretrained(str(folder), create_model_card=False, safe_serialization=True)
        keep_attention(self.model, Path(folder))
        for name in (IDIOM_TOKENS_FILE, GLOSSARY_FILE):
            (Path(folder) / name).unlink(missing_ok=True)
        if self.meanings is not None:
            self.meanings.save(folder)
        if self.idiom_tokens is not None:
            self.idiom_tokens.save(folder)
        if self.meanings is not None or self.idiom_tokens is not None:
            write_rules(Path(folder), self.model.tokenizer, self.idiom_tokens, self.meanings)

    # ---------------------------------------------------------------- for users

    @torch.no_grad()
    def encode(
        self,
        texts: Sequence[str],
        spans: Sequence[str | tuple[int, int]] | None = None,
        *,
        role: Role = "document",
        instruction: str | None = None,
    ) -> Tensor:
        """Embed texts, or spans in their texts.

        Args:
            texts: N texts.
            spans: one for each text: character offsets (start, end), or the words themselves (their first
                occurrence as whole words counts). By default whole texts are embedded.
            role: picks the model family's prompt; most models have the same for both.
            instruction: put before every text, in the model family's format; implies `role="query"`.

        Returns:
            (N, D), float32, on the CPU, in the order of `texts`.

        Raises:
            UserError: if a span is not in its text, or beyond the model's maximum length.
        """
        if isinstance(texts, str):
            raise TypeError("texts: expected a list of texts, got one text")
        if isinstance(spans, str):
            raise TypeError("spans: expected a list, one span a text, got one text")
        if spans is not None and len(spans) != len(texts):
            raise ValueError(f"{len(texts)} texts but {len(spans)} spans")
        requests = []
        for i, text in enumerate(texts):
            span = spans[i] if spans is not None else None
            if isinstance(span, str):
                found = find_span(text, span)
                if found is None:
                    raise UserError(f"span {span!r} is not in text {i}: {text!r}")
                span = found
            requests.append(
                Request(
                    text,
                    span,
                    role="query" if instruction is not None else role,
                    instruction=instruction,
                    pooling="sentence" if span is None else "span",
                )
            )
        was_training = self.training
        self.eval()
        try:
            embeddings: Tensor = self(requests)
            return embeddings.float().cpu()
        finally:
            self.train(was_training)

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
        try:
            # Renamed in transformers 5.x; the old name is to be removed in 6.
            old_name = "gradient_checkpointing_enable"
            enable = getattr(transformer, "activation_checkpointing_enable", None)
            enable = enable or getattr(transformer, old_name)
            # The reentrant form needs inputs that have a gradient, which token ids do not.
            enable({"use_reentrant": False})
        except (AttributeError, ValueError) as error:
            raise UserError(
                f"trainer.activation_checkpointing=true: {type(transformer).__name__} cannot ({error})"
            ) from None

    @property
    def transformer(self) -> nn.Module:
        """The transformer alone, without what follows it (pooling, a dense layer)."""
        first: Any = self.model[0]
        transformer: nn.Module = first.auto_model
        return transformer

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def forward(
        self, requests: Sequence[Request], on_progress: Callable[[int], None] | None = None
    ) -> Tensor:
        """Embed all requests. Each distinct text, prompt included, goes through the model once.

        Args:
            requests: R embeddings to compute.
            on_progress: called after each forward pass with the number of its texts.

        Returns:
            (R, D), row i for request i; with a graph where gradients are enabled.

        Raises:
            UserError: if a span is missing, outside its text, or beyond the maximum length.
        """
        if not requests:
            return torch.zeros(0, self.dimension, device=self.device)
        pieces, order = [], []
        for batch in self.forward_batches(requests):
            pieces.append(self.embed(batch))  # (n, D)
            order += batch.requests
            if on_progress is not None:
                on_progress(batch.num_texts)
        return in_request_order(torch.cat(pieces), order)

    def forward_batches(self, requests: Sequence[Request], *, min_batches: int = 1) -> list[ForwardBatch]:
        """The forward batches that embed all requests: longest texts first, each distinct text once.

        Args:
            min_batches: make at least so many, as long as each has about 512 tokens or more.

        Raises:
            UserError: if a span is missing, outside its text, or beyond the maximum length.
        """
        rendered = self._rendered(requests)
        texts = list(dict.fromkeys(text for text, _ in rendered))
        tokens = dict(zip(texts, self._tokenizer(texts), strict=True))
        requests_of: dict[str, list[int]] = {text: [] for text in texts}
        for i, (text, _) in enumerate(rendered):
            requests_of[text].append(i)

        self._note_cut_spans(requests, rendered, tokens)
        batches = []
        for chunk in cut(texts, tokens, self.tokens_per_forward, min_batches):
            sentences: list[PooledSentence] = []
            spans: list[PooledSpan] = []
            for row, text in enumerate(chunk):
                for i in requests_of[text]:
                    if requests[i].pooling == "sentence":
                        num_skipped = self._num_prompt_tokens(text, tokens[text], requests[i])
                        sentences.append(PooledSentence(row, i, num_skipped))
                    else:
                        _, span = rendered[i]
                        positions = tokens_of_span(tokens[text], span, requests[i])
                        spans.append(PooledSpan(row, i, positions))
            batches.append(ForwardBatch([tokens[text].input_ids for text in chunk], sentences, spans))
        return batches

    def _rendered(self, requests: Sequence[Request]) -> list[tuple[str, tuple[int, int] | None]]:
        """Each request's text as the model reads it, and its span's place there."""
        bare = [self.prompts.render(request) for request in requests]
        meanings = self.meanings
        if meanings is None:
            return [self._with_tokens(text, span) for text, span in bare]
        rendered = [
            self._with_tokens(*(meanings.added(text, span) if request.with_meanings else (text, span)))
            for request, (text, span) in zip(requests, bare, strict=True)
        ]
        # Near the maximum length a text loses its meanings before it loses words of its own.
        texts = list(dict.fromkeys(text for text, _ in rendered))
        limit = self.model.max_seq_length
        full = {
            text
            for text, tokens in zip(texts, self._tokenizer(texts), strict=True)
            if limit is not None and len(tokens.input_ids) >= limit
        }
        return [
            self._with_tokens(*short) if long[0] in full else long
            for long, short in zip(rendered, bare, strict=True)
        ]

    def _with_tokens(self, text: str, span: tuple[int, int] | None) -> tuple[str, tuple[int, int] | None]:
        return (text, span) if self.idiom_tokens is None else self.idiom_tokens.replaced(text, span)

    def _note_cut_spans(
        self,
        requests: Sequence[Request],
        rendered: Sequence[tuple[str, tuple[int, int] | None]],
        tokens: Mapping[str, Tokens],
    ) -> None:
        """Remember requests whose span is truncated. Only the first call that finds some logs a warning."""
        limit = self.model.max_seq_length
        spans = [
            (request, text, span)
            for request, (text, span) in zip(requests, rendered, strict=True)
            if request.pooling == "span" and span is not None
        ]
        found = {request for request, text, span in spans if is_cut_off(tokens[text], text, span, limit)}
        if found and not self.cut_spans:
            log.warning("%s", cut_spans_note(len(found), len({request for request, _, _ in spans}), limit))
        self.cut_spans |= found

    def embed(self, batch: ForwardBatch) -> Tensor:
        """(n, D), row i for the i-th of the batch's `requests`: first its sentences, then its spans."""
        features = self._tokenizer.pad(batch.texts, self.device)  # (B, T) each
        modules = list(self.model)
        for module in modules[: self._pooling_at]:
            features = module(features)
        # token_embeddings (B, T, D)
        pooled = pool_sentences(modules[self._pooling_at], features, batch.sentences)
        if batch.spans:
            means = pool_spans(features["token_embeddings"], batch.spans)  # (S, D)
            # Once for each of several concatenated poolings, such as those of [CLS] and [SEP].
            pooled.append(means.repeat(1, self._num_pooled))
        features = dict(features, sentence_embedding=torch.cat(pooled))
        for module in modules[self._pooling_at + 1 :]:
            features = module(features)
        result: Tensor = features["sentence_embedding"]
        return result

    def _num_prompt_tokens(self, text: str, tokens: Tokens, request: Request) -> int:
        """How many prompt tokens a request's pooling leaves out, for models that do not pool prompts.

        Counted on the prompt alone, as sentence-transformers does.

        Args:
            text: as the model reads it: near the maximum length without meanings.
        """
        if self._pools_prompts:
            return 0
        rendered, start = self.prompts.render(replace(request, span=(0, 0)))
        assert start is not None
        prompt = rendered[: start[0]]
        if not prompt:
            return 0
        read = self._with_tokens(prompt, None)[0]
        if self.meanings is not None:
            with_meanings = self._with_tokens(self.meanings.added(prompt)[0], None)[0]
            read = with_meanings if text.startswith(with_meanings) else read
        prompt = read
        ids = self._tokenizer([prompt])[0].input_ids
        special = self._tokenizer.wrapped.all_special_ids
        num_tokens = len(ids) - (ids[-1] in special)
        if request.text and num_tokens >= len(tokens.input_ids) - (tokens.input_ids[-1] in special):
            raise UserError(
                f"the prompt before {request.text[:80]!r} leaves no room within the model's maximum length "
                f"({len(tokens.input_ids)} tokens): raise model.max_length, or shorten the instruction"
            )
        return num_tokens
