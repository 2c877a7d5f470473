"""Text (with a span, with a prompt) → embedding: the one forward path of training and scoring."""

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

from train.encoder.checks import check_length
from train.encoder.forward import Pass, Tokenizer, Tokens, cut, cut_spans_note, is_cut_off, tokens_of_span
from train.encoder.idiom_normalizer import remove_rules, write_rules
from train.encoder.idiom_tokens import FILE as IDIOM_TOKENS_FILE
from train.encoder.idiom_tokens import IdiomTokens, add_idiom_tokens, load_idiom_tokens
from train.encoder.loading import keep_attention, load_model, num_positions, prompts_of, quiet, where_it_is
from train.encoder.pooling import pool_sentences, pool_spans
from train.encoder.prompts import Prompts
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
        tokens_per_forward: texts are sorted by length and cut into forward passes of about this many
            tokens, padding included. It bounds padding and, when scoring, memory; it never changes
            an embedding.
        idiom_tokens: of the model, if it has such: expressions in texts are replaced by them.

    Attributes:
        cut_spans: requests so far whose span goes on beyond the maximum length: what is left of it is pooled.

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
            device: `cpu`, `cuda`, `mps`; by default the best that is there.
            max_length: tokens kept of a text; by default the checkpoint's own.
            pooling: replaces the checkpoint's own pooling (`mean`, `cls`, `lasttoken`, `cls+sep`, `last2`,
                …).
            pool_prompts: whether a prompt's tokens are pooled; by default as the checkpoint has it.
            bidirectional: whether a decoder's tokens see those after them too; by default as the checkpoint
                has it.
            query_prompt, document_prompt: replace the checkpoint's own prompts.
            instruction_prompt: template of queries with an instruction, see :class:`Prompts`.
            trust_remote_code: run Python code that comes with the checkpoint.
            tokens_per_forward: see the class.
            replace_expressions: whether expressions that have an idiom token are replaced by it; by default
                as the checkpoint has it.

        Raises:
            UserError: if there is no such model, it cannot be reached, or it is none we can embed with; if
                expressions are to be replaced, and it has no idiom tokens.
        """
        found, offline = where_it_is(str(path), revision)
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
        if max_length is not None:
            transformer: Any = model[0]
            limit = num_positions(transformer)
            if limit is not None and max_length > limit:
                raise UserError(f"model.max_length={max_length}: the model {path} has {limit} positions")
        check_length(str(path), model, max_length)
        if max_length is not None:
            model.max_seq_length = max_length
        try:
            prompts = prompts_of(model, query_prompt, document_prompt, instruction_prompt)
        except ValueError as error:
            raise UserError(f"model {path}: {error}") from None
        idioms = load_idiom_tokens(found, model, revision=revision, local_files_only=offline)
        if idioms is not None:
            remove_rules(model.tokenizer, idioms.expressions)
        if idioms is not None and replace_expressions is not None:
            idioms.replace = replace_expressions
        elif replace_expressions:
            raise UserError(
                f"model.replace_expressions=true: the model {path} has no idiom tokens to replace them by"
            )
        return cls(model, prompts, tokens_per_forward=tokens_per_forward, idiom_tokens=idioms)

    @classmethod
    def around(cls, model: SentenceTransformer, *, tokens_per_forward: int = 8192) -> Encoder:
        """A model that is already in memory, with its own prompts; it is left in evaluation mode.

        Idiom tokens of a folder that it was loaded from are not known here: see :meth:`from_pretrained`.

        Raises:
            UserError: if the model is none that we can embed with, or its prompts are malformed.
        """
        try:
            return cls(model, prompts_of(model), tokens_per_forward=tokens_per_forward)
        except ValueError as error:
            raise UserError(str(error)) from None

    def add_idiom_tokens(self, expressions: Iterable[str]) -> None:
        """Read each expression as one token, which is added to the model (:mod:`train.encoder.idiom_tokens`).

        Raises:
            UserError: if one is no expression, or the tokenizer cannot have such tokens.
        """
        self.idiom_tokens = add_idiom_tokens(self.model, self.idiom_tokens, expressions)
        self._tokenizer.forget()

    def save(self, folder: str | Path) -> None:
        """Write a plain sentence-transformers folder, prompts included, weights as safetensors."""
        # Beside prompts of other tasks, of which one may be the checkpoint's default.
        self.model.prompts = {
            **self.model.prompts,
            "query": self.prompts.query,
            "document": self.prompts.document,
            "instruction": self.prompts.instruction,
        }
        with quiet():
            self.model.save_pretrained(str(folder), create_model_card=False, safe_serialization=True)
        keep_attention(self.model, Path(folder))
        (Path(folder) / IDIOM_TOKENS_FILE).unlink(missing_ok=True)
        if self.idiom_tokens is not None:
            self.idiom_tokens.save(folder)
            if self.idiom_tokens.replace:
                write_rules(Path(folder), self.model.tokenizer, self.idiom_tokens.expressions)

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
            spans: one a text: character offsets (start, end), or the words themselves (their first
                occurrence as whole words counts). Without it, whole texts are embedded.
            role: picks the model family's prompt; most models make no difference.
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

    def check_special(self, text: str, kind: str) -> None:
        """Whether a text in brackets that an objective puts among words is read as one token.

        Args:
            kind: what it is for, and so the name of the objective's option.

        Raises:
            UserError: if it looks like another model's token; plain words may stand there.
        """
        in_brackets = text[0] + text[-1] in ("[]", "<>")
        if in_brackets and text not in self._tokenizer.own.all_special_tokens:
            own = self._tokenizer.own.mask_token if kind == "mask" else self._tokenizer.own.sep_token
            instead = "something" if kind == "mask" else ":"
            raise UserError(
                f"objective.{kind}={text!r} is no token of this model: "
                + (
                    f"its own is objective.{kind}='{own}'"
                    if own
                    else f"it has none; use words, as '{instead}'"
                )
            )

    def checkpoint_activations(self) -> None:
        """Keep no activations within a layer in training: they are computed again for the gradient.

        Raises:
            UserError: if this architecture cannot.
        """
        first: Any = self.model[0]
        own = first.auto_model
        try:
            # The reentrant form needs inputs with a gradient, which token ids have not.
            # transformers renames it in 5.x; the old name goes in 6.
            old = "gradient_checkpointing_enable"
            enable = getattr(own, "activation_checkpointing_enable", None) or getattr(own, old)
            enable({"use_reentrant": False})
        except (AttributeError, ValueError) as error:
            raise UserError(
                f"trainer.activation_checkpointing=true: {type(own).__name__} cannot ({error})"
            ) from None

    @property
    def transformer(self) -> nn.Module:
        """The part that reads tokens, without what follows it (pooling, a dense layer)."""
        first: Any = self.model[0]
        transformer: nn.Module = first.auto_model
        return transformer

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def forward(
        self, requests: Sequence[Request], on_progress: Callable[[int], None] | None = None
    ) -> Tensor:
        """Embed all requests; each distinct text as the model reads it goes through it once.

        Args:
            requests: R embeddings to compute.
            on_progress: called after each forward pass with the number of texts it held.

        Returns:
            (R, D), row i for request i; with a graph where gradients are on.

        Raises:
            UserError: if a span is missing, outside its text, or beyond the maximum length.
        """
        if not requests:
            return torch.zeros(0, self.dimension, device=self.device)
        pieces, order = [], []
        for one in self.passes(requests):
            pieces.append(self.embed(one))
            order += one.requests
            if on_progress is not None:
                on_progress(len(one.texts))
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(order))
        return torch.cat(pieces)[back.to(self.device)]

    def passes(self, requests: Sequence[Request], *, at_least: int = 1) -> list[Pass]:
        """The forward passes that embed all requests, each distinct text in one of them, longest first.

        Args:
            at_least: cut into so many, if the texts give passes that are worth it (512 tokens).

        Raises:
            UserError: if a span is missing, outside its text, or beyond the maximum length.
        """
        rendered = [self.prompts.render(request) for request in requests]
        if self.idiom_tokens is not None:
            rendered = [self.idiom_tokens.replaced(text, span) for text, span in rendered]
        texts = list(dict.fromkeys(text for text, _ in rendered))
        tokens = dict(zip(texts, self._tokenizer(texts), strict=True))
        wanted: dict[str, list[int]] = {text: [] for text in texts}
        for i, (text, _) in enumerate(rendered):
            wanted[text].append(i)

        self._note_cut_spans(requests, rendered, tokens)
        passes = []
        for chunk in cut(texts, tokens, self.tokens_per_forward, at_least):
            rows, skipped, spans, of_sentences, of_spans = [], [], [], [], []
            for row, text in enumerate(chunk):
                for i in wanted[text]:
                    if requests[i].pooling == "sentence":
                        rows.append(row)
                        skipped.append(self._num_prompt_tokens(tokens[text], requests[i]))
                        of_sentences.append(i)
                    else:
                        where = tokens_of_span(tokens[text], rendered[i][1], requests[i])
                        spans.append((row, where))
                        of_spans.append(i)
            passes.append(
                Pass(
                    [tokens[text].input_ids for text in chunk], rows, spans, of_sentences + of_spans, skipped
                )
            )
        return passes

    def _note_cut_spans(
        self,
        requests: Sequence[Request],
        rendered: Sequence[tuple[str, tuple[int, int] | None]],
        tokens: Mapping[str, Tokens],
    ) -> None:
        """Remember spans that are cut in two; the first are said, and all are in the notes on the scores."""
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

    def embed(self, one: Pass) -> Tensor:
        """(n, D), a row for each of the pass' `requests`: first its sentences, then its spans."""
        features = self._tokenizer.pad(one.texts, self.device)
        modules = list(self.model)
        for module in modules[: self._pooling_at]:
            features = module(features)
        pooled = pool_sentences(modules[self._pooling_at], features, one.rows, one.skipped)
        if one.spans:
            means = pool_spans(features["token_embeddings"], one.spans)
            # In the place of each of several poolings side by side, as of [CLS] and [SEP].
            pooled.append(means.repeat(1, self._num_pooled))
        features = dict(features, sentence_embedding=torch.cat(pooled))
        for module in modules[self._pooling_at + 1 :]:
            features = module(features)
        result: Tensor = features["sentence_embedding"]
        return result

    def _num_prompt_tokens(self, tokens: Tokens, request: Request) -> int:
        """How many tokens before a request's own text are left out of its embedding, as INSTRUCTOR wants it.

        Counted as sentence-transformers does, by the prompt alone.
        """
        if self._pools_prompts:
            return 0
        rendered, own = self.prompts.render(replace(request, span=(0, 0)))
        assert own is not None
        prompt = rendered[: own[0]]
        if not prompt:
            return 0
        if self.idiom_tokens is not None:
            prompt, _ = self.idiom_tokens.replaced(prompt)
        ids = self._tokenizer([prompt])[0].input_ids
        special = self._tokenizer.own.all_special_ids
        num_tokens = len(ids) - (ids[-1] in special)
        if request.text and num_tokens >= len(tokens.input_ids) - (tokens.input_ids[-1] in special):
            raise UserError(
                f"the prompt before {request.text[:80]!r} leaves no room within the model's maximum length "
                f"({len(tokens.input_ids)} tokens): raise model.max_length, or shorten the instruction"
            )
        return num_tokens
