"""Text, or a span in it → embedding: the one forward path of training and scoring."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from train.distributed.sharding import compute_device
from train.encoder.arguments import (
    EncodeOptions,
    Spans,
    compared_embeddings,
    requests_for,
    shown_progress,
)
from train.encoder.batches import plan_batches
from train.encoder.conversion import converted
from train.encoder.expression_files import load_expressions, save_expressions
from train.encoder.forward import ForwardBatch, Tokenizer, in_request_order
from train.encoder.idiom_tokens import IdiomTokens, TokenStart, add_idiom_tokens
from train.encoder.kernels import checkpoint_activations
from train.encoder.loading import (
    keep_attention,
    limit_length,
    load_model,
    loading_explained,
    locate_checkpoint,
    silence_libraries,
)
from train.encoder.meanings import Meanings
from train.encoder.named import by_name
from train.encoder.prompts import Prompts, prompts_of
from train.encoder.reading import Read, Reader
from train.encoder.spans import cut_spans_note, find_cut_spans
from train.encoder.stack import Stack
from train.encoder.usage_gate import GatedRequests
from train.errors import UserError
from train.requests import Request, Role

log = logging.getLogger(__name__)


class Encoder(nn.Module):
    """A sentence-transformers model that also embeds spans, and embeds no text twice.

    A span's embedding is the mean of the last layer's token embeddings whose character offsets
    overlap the span (late chunking), passed through whatever modules of the checkpoint follow its
    pooling (a dense layer, normalisation), so that it lies in the documents' space. With `raw_spans` it is
    the mean of the transformer's last hidden states, past all other modules.

    Args:
        model: transformer → (token-level modules) → pooling → (embedding-level modules).
        prompts: how this model family writes queries and documents.
        tokens_per_forward: texts are sorted by length and cut into forward batches of about this many tokens,
            padding included. This bounds padding and, when scoring, memory; it never changes an embedding.
        idiom_tokens: of the model, if it has any; they replace expressions in texts.
        meanings: what the model reads beside the expressions of a glossary, if it was given one.
        raw_spans: embed spans by the transformer's last hidden states alone.

    Attributes:
        cut_spans: requests so far whose span continues beyond the maximum length; only the part before it
            is pooled.

    Raises:
        UserError: if the model has no transformer, no pooling, or no tokenizer with offsets; if raw spans
            would have another width than its embeddings.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        prompts: Prompts | None = None,
        *,
        tokens_per_forward: int = 8192,
        idiom_tokens: IdiomTokens | None = None,
        meanings: Meanings | None = None,
        raw_spans: bool = False,
    ) -> None:
        super().__init__()
        self._stack = Stack(model, raw_spans=raw_spans)
        self.model = model
        self.prompts = prompts or Prompts()
        self.tokens_per_forward = tokens_per_forward
        self.idiom_tokens = idiom_tokens
        self.meanings = meanings
        self._tokenizer = Tokenizer(model)
        self.cut_spans: set[Request] = set()
        self.eval()

    # ---------------------------------------------------------------- loading and saving

    @classmethod
    @by_name
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
        span: Literal["raw"] | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        instruction_prompt: str | None = None,
        trust_remote_code: bool = False,
        convert_weights: bool = False,
        tokens_per_forward: int = 8192,
        replace_expressions: bool | None = None,
    ) -> Encoder:
        """Load a sentence-transformers or plain transformers checkpoint, in float32.

        Args:
            path: a local folder, a model on the Hugging Face Hub, or a name that `model=` takes on the
                command line, such as `e5_base`: where no option is given here, that of `conf/model/` holds.
            revision: branch, tag or commit on the Hub.
            device: `cpu`, `cuda` or `mps`; by default the fastest available.
            max_length: tokens kept of a text; by default the checkpoint's limit.
            pooling: replaces the checkpoint's pooling (`mean`, `cls`, `lasttoken`, `cls+sep`, `last2`, …).
            pool_prompts: whether a prompt's tokens are pooled; by default as in the checkpoint.
            bidirectional: whether a decoder's tokens also attend to later ones; by default as in the
                checkpoint.
            span: `raw` = spans are embedded by the transformer's last hidden states, past the modules after
                the pooling; by default through these.
            query_prompt, document_prompt: replace the checkpoint's prompts.
            instruction_prompt: template of queries with an instruction, see :class:`Prompts`.
            trust_remote_code: run Python code that comes with the checkpoint.
            convert_weights: make a copy with safetensors of a checkpoint that has pickled weights alone.
            tokens_per_forward: see the class.
            replace_expressions: whether expressions that have an idiom token are replaced by it; by default
                as in the checkpoint.

        Raises:
            UserError: if there is no such model, it cannot be reached, or its kind is not supported; if
                expressions should be replaced, but the model has no idiom tokens.
        """
        found, offline = locate_checkpoint(str(path), revision)
        if convert_weights and (folder := converted(found, revision, local_files_only=offline)) != found:
            found, revision, offline = folder, None, False
        with loading_explained(found, revision):
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
        idioms, meanings = load_expressions(
            found, model, revision=revision, local_files_only=offline, replace=replace_expressions
        )
        return cls(
            model,
            prompts,
            tokens_per_forward=tokens_per_forward,
            idiom_tokens=idioms,
            meanings=meanings,
            raw_spans=span == "raw",
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
        Tokenizer(self.model)([""])  # its file keeps how it last truncated a text: at the model's length
        with silence_libraries():
            self.model.save_pretrained(str(folder), create_model_card=False, safe_serialization=True)
        keep_attention(self.model, Path(folder))
        save_expressions(Path(folder), self.model.tokenizer, self.idiom_tokens, self.meanings)

    # ---------------------------------------------------------------- for users

    @overload
    def encode(
        self,
        texts: Iterable[str],
        spans: Spans = None,
        *,
        convert_to_numpy: Literal[False] = False,
        **options: Unpack[EncodeOptions],
    ) -> Tensor: ...

    @overload
    def encode(
        self,
        texts: Iterable[str],
        spans: Spans = None,
        *,
        convert_to_numpy: Literal[True],
        **options: Unpack[EncodeOptions],
    ) -> NDArray[np.float32]: ...

    @torch.no_grad()
    def encode(
        self,
        texts: Iterable[str],
        spans: Spans = None,
        *,
        role: Role = "document",
        instruction: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool = True,
        convert_to_numpy: bool = False,
    ) -> Tensor | NDArray[np.float32]:
        """Embed texts, or spans in their texts.

        Args:
            texts: N texts.
            spans: one for each text: character offsets (start, end), or the words themselves (their first
                occurrence as whole words counts); None = the whole text, as all are by default.
            role: picks the model family's prompt; most models have the same for both.
            instruction: put before every text, in the model family's format; implies `role="query"`.
            batch_size: the most texts that are read at a time; by default as many as `tokens_per_forward`
                allows. It changes speed and memory alone.
            show_progress_bar: on a terminal; elsewhere there is none.
            convert_to_numpy: an array instead of a tensor.

        Returns:
            (N, D), float32, on the CPU, in the order of `texts`.

        Raises:
            TypeError, ValueError: for an argument of another kind than these.
            UserError: if a span is not in its text, or beyond the model's maximum length.
        """
        requests = requests_for(texts, spans, role, instruction, batch_size)
        was_training = self.training
        self.eval()
        try:
            with shown_progress(requests, show=show_progress_bar) as advance:
                embeddings: Tensor = self(requests, advance, batch_size=batch_size).float().cpu()
        finally:
            self.train(was_training)
        return embeddings.numpy() if convert_to_numpy else embeddings

    def similarity(self, first: Tensor | NDArray[Any], second: Tensor | NDArray[Any] | None = None) -> Tensor:
        """How similar embeddings are: by their cosine, unless the checkpoint names another function.

        Args:
            first: (N, D), from :meth:`encode`.
            second: (M, D); None = `first` once more.

        Returns:
            (N, M), float32: row i compares the i-th of `first` with all of `second`.

        Raises:
            TypeError, ValueError: if they are no embeddings, or of different length.
        """
        a, b = compared_embeddings(first, second)
        return self.model.similarity(a, b)

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
        checkpoint_activations(self.transformer)

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
        return gated.combined(in_request_order(torch.cat(pieces), order))

    @property
    def reader(self) -> Reader:
        """How the model reads requests."""
        how = self.prompts, self._stack.pools_prompts, self.idiom_tokens, self.meanings
        return Reader(self._tokenizer, self.model.max_seq_length, *how)

    def forward_batches(
        self, requests: Sequence[Request], *, min_batches: int = 1, batch_size: int | None = None
    ) -> list[ForwardBatch]:
        """The forward batches that embed all requests: longest texts first, each view of a text once.

        Args:
            min_batches: make at least so many, as long as each has about 512 tokens or more.
            batch_size: the most texts in one; None = as many as `tokens_per_forward` allows.

        Raises:
            UserError: if a span is missing, outside its text, or beyond the maximum length.
        """
        reader = self.reader
        rendered = reader.render(requests)
        texts = list(dict.fromkeys(text for text, _ in rendered))
        tokens = dict(zip(texts, self._tokenizer(texts), strict=True))
        found, num_spans = find_cut_spans(requests, rendered, tokens, reader.limit)
        if found and not self.cut_spans:  # only the first call that finds some tells of it
            log.warning("%s", cut_spans_note(len(found), num_spans, reader.limit))
        self.cut_spans |= found
        if any(request.view for request in requests):  # a view is a row of its own, told apart by the name
            views = [(text + "\0" * r.view, span) for (text, span), r in zip(rendered, requests, strict=True)]
            tokens = {view: tokens[text] for (view, _), (text, _) in zip(views, rendered, strict=True)}
            rendered = views
        return plan_batches(
            requests,
            rendered,
            tokens,
            reader,
            tokens_per_forward=self.tokens_per_forward,
            min_batches=min_batches,
            batch_size=batch_size,
        )

    def read(self, requests: Sequence[Request]) -> list[Read]:
        """Each request's text as the model reads it, its tokens, and which of them are pooled."""
        reader = self.reader
        texts = [text for text, _ in reader.render(requests)]
        return [
            Read(text, tokens, reader.num_skipped(text, tokens, request))
            for text, tokens, request in zip(texts, self._tokenizer(texts), requests, strict=True)
        ]

    @property
    def raw_spans(self) -> bool:
        """Whether spans are embedded by the last hidden states alone."""
        return self._stack.raw_spans

    @property
    def pools_prompts(self) -> bool:
        """Whether a prompt's tokens are pooled."""
        return self._stack.pools_prompts

    @property
    def averages_tokens(self) -> bool:
        """Whether a text's embedding is the mean of its tokens' embeddings, up to its length."""
        mixes = self.meanings is not None and (self.meanings.weight > 0 or self.meanings.gate is not None)
        return self._stack.averages_tokens(self.model) and not mixes

    def forget_texts(self) -> None:
        """Drop the tokens of all texts that were read so far; they are kept for texts that come again."""
        self._tokenizer.forget()

    def embed_tokens(self, texts: list[list[int]]) -> Tensor:
        """(B, T, D), what is pooled of B texts, given as token ids."""
        features, _ = self._stack.embed_tokens(self.model, self._tokenizer.pad(texts, self.device))
        embeddings: Tensor = features["token_embeddings"]
        return embeddings

    def embed(self, batch: ForwardBatch) -> Tensor:
        """(n, D), row i for the i-th of the batch's `requests`: first its sentences, then its spans."""
        features = self._tokenizer.pad(batch.texts, self.device)  # (B, T) each
        weight = 0.0 if self.meanings is None else self.meanings.weight
        return self._stack.embed(self.model, features, batch, weight)
