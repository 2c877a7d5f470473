"""Text, or a span in it → embedding: the one forward path of training and scoring."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn

from idiomtune.encoder.arguments import (
    Spans,
    check_finite,
    checked_texts,
    embeddings_or_requests,
    requests_for,
)
from idiomtune.encoder.facts import weights_digest
from idiomtune.encoder.forward import (
    ForwardBatch,
    PooledSentence,
    PooledSpan,
    evaluation_mode,
    in_request_order,
    layer_features,
    pool_sentences,
    pool_spans,
    split_batches,
    tokens_of_span,
    truncation_note,
)
from idiomtune.encoder.idiom_tokens import IdiomTokens, TokenStart, add_idiom_tokens
from idiomtune.encoder.loading import (
    keep_attention,
    silence_libraries,
)
from idiomtune.encoder.parallel import Partition, gather, partition_by_size, partition_evenly, run_batches
from idiomtune.encoder.reading import Prompts, Reader, Tokenizer, is_truncated, prompts_of
from idiomtune.encoder.saved_expressions import save_idiom_tokens
from idiomtune.encoder.sharding import compute_device, is_sharded, reshard
from idiomtune.encoder.static import StaticTokens
from idiomtune.errors import ArgumentValueError, UserError
from idiomtune.expressions import Forms, Span
from idiomtune.io.files import checked_count
from idiomtune.io.processes import Processes
from idiomtune.io.terminal import progress_bar
from idiomtune.requests import EmbeddingRequest, LayersRequest, Role

log = logging.getLogger(__name__)

_TOKENS_PER_FORWARD = 8192
_CHUNK_SIZE = 100_000  # requests; a token id with its offsets takes about 100 bytes

Comparable = Tensor | NDArray[Any] | str | Iterable[str]
Corpus = Iterable[str] | Tensor | NDArray[Any]  # texts, or their embeddings (N, D)


class EncodeOptions(TypedDict, total=False):
    """Options of `Encoder.encode` that do not change the type of what it returns."""

    role: Role
    instruction: str | None
    batch_size: int | None
    show_progress_bar: bool


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


class Encoder(nn.Module):
    """A sentence-transformers model that also embeds spans, and reads each text once.

    A span's embedding is the mean of the last layer's token embeddings whose character offsets
    overlap the span (late chunking), passed through whatever modules of the checkpoint follow its
    pooling (a dense layer, normalisation), so that it is in the documents' space. With `raw_spans` it is
    the mean of the transformer's last hidden states, past all other modules.

    Args:
        model: transformer → (token-level modules) → pooling → (embedding-level modules).
        prompts: how this model family writes queries and documents; by default the model's own.
        tokens_per_forward: texts are sorted by length and cut into forward batches of about this many tokens,
            padding included. This bounds padding and, when scoring, memory; it never changes an embedding.
        idiom_tokens: of the model, if it has any; they replace expressions in texts.
        raw_spans: embed spans by the transformer's last hidden states alone.

    Attributes:
        raw_spans: as given.
        truncated_spans: requests so far whose span continues beyond the maximum length; the part before it
            is pooled.
        truncated: requests so far whose text continues beyond it.

    Raises:
        UserError: if the model has no transformer, no pooling, or no tokenizer with offsets; if raw spans
            would have another width than its embeddings; if its prompts are malformed.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        prompts: Prompts | None = None,
        *,
        tokens_per_forward: int | None = None,
        idiom_tokens: IdiomTokens | None = None,
        raw_spans: bool = False,
    ) -> None:
        super().__init__()
        if tokens_per_forward is not None:
            checked_count(tokens_per_forward, "tokens_per_forward")
        num_poolings = sum(isinstance(module, Pooling) for module in model)
        if not isinstance(model[0], Transformer | StaticTokens) or num_poolings != 1:
            names = " → ".join(type(module).__name__ for module in model)
            raise UserError(f"this model is {names}; spans need a transformer followed by one pooling")
        hidden, width = model[0].get_embedding_dimension(), model.get_embedding_dimension()
        if raw_spans and hidden != width:
            message = f"hidden states have {hidden} dimensions and embeddings {width}: leave it unset"
            raise UserError(message, option="model.span_from=last_hidden_state")
        self.prompts = prompts or prompts_of(model.prompts)
        self.model, self.raw_spans = model, raw_spans
        self.tokens_per_forward = tokens_per_forward or _TOKENS_PER_FORWARD
        self.idiom_tokens = idiom_tokens
        self._tokenizer = Tokenizer(model)
        self.truncated_spans: set[EmbeddingRequest] = set()
        self.truncated: set[EmbeddingRequest] = set()
        self.eval()

    # ---------------------------------------------------------------- tokens and saving

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
        names = checked_texts("expressions", expressions)
        self.idiom_tokens = add_idiom_tokens(
            self.model, self.idiom_tokens, names, start=start, seed=seed, forms=forms
        )
        self._tokenizer.forget()

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
        keep_attention(self.model, path)
        save_idiom_tokens(path, self.model.tokenizer, self.idiom_tokens)

    def digest(self) -> str:
        """SHA-256 of all that embeddings depend on: weights, modules, tokenizer, prompts."""
        tokenizer = json.loads(self.model.tokenizer.backend_tokenizer.to_str())
        modules: list[Any] = list(self.model)
        config = {} if isinstance(modules[0], StaticTokens) else modules[0].auto_model.config.to_dict()
        idioms = self.idiom_tokens
        facts: list[Any] = [
            weights_digest(self),
            [(type(module).__name__, module.get_config_dict()) for module in modules],
            {name: value for name, value in config.items() if name != "_name_or_path"},
            {part: value for part, value in tokenizer.items() if part not in ("truncation", "padding")},
            idioms and (idioms.expressions, idioms.replace, idioms.forms),
            self.model.tokenizer.truncation_side,
            *(asdict(self.prompts), self.model.max_seq_length, self.raw_spans),
        ]
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

        >>> encoder = it.Encoder("minilm")
        >>> assert encoder.encode("He broke the ice.").shape == (encoder.dimension,)
        >>> texts, spans = ["He broke the ice.", "Nothing."], ["break the ice", None]
        >>> assert encoder.encode(texts, spans).shape == (2, encoder.dimension)
        """
        is_single = isinstance(texts, str)
        span_list = [spans] if is_single and spans is not None else spans
        requests = requests_for(
            [texts] if isinstance(texts, str) else texts, span_list, role, instruction, batch_size
        )
        embeddings = self._encode("texts", requests, batch_size=batch_size, has_bar=show_progress_bar)
        embeddings = embeddings[0] if is_single else embeddings
        return embeddings.numpy() if convert_to_numpy else embeddings

    @torch.no_grad()
    def _encode(
        self,
        name: str,
        requests: Sequence[EmbeddingRequest],
        *,
        batch_size: int | None = None,
        has_bar: bool = True,
    ) -> Tensor:
        """(R, D), float32, on the CPU; `name` is what the caller calls the texts."""
        has_bar = has_bar and sys.stderr.isatty()
        bar = progress_bar("embedding", self.reader.num_texts(requests)) if has_bar else nullcontext()
        truncated = set(self.truncated)
        with evaluation_mode(self), bar as advance:
            embeddings: Tensor = self(requests, advance, batch_size=batch_size).float().cpu()
        self.warn_of_truncated(requests, before=truncated)
        check_finite(name, embeddings, [request.text for request in requests])
        return embeddings

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
        >>> plain = it.Encoder("minilm").similarity("He missed the boat.", texts)[0]
        >>> informed = it.Encoder("minilm", glossary={"miss the boat": "be too late"})
        >>> cosines = informed.similarity("He missed the boat.", texts)[0]
        >>> assert plain.argmax() == 1  # the ship
        >>> assert cosines.argmax() == 0  # the meaning
        """
        a = embeddings_or_requests("first", [first] if isinstance(first, str) else first)
        b = [second] if isinstance(second, str) else second
        return self._compare({"first": a, "second": a if b is None else embeddings_or_requests("second", b)})

    def _compare(self, sides: Mapping[str, Tensor | list[EmbeddingRequest]]) -> Tensor:
        """(N, M), of two arguments by their names: embeddings, or requests for them."""
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
    ) -> list[Hit]: ...

    @overload
    def search(
        self,
        query: Sequence[str] | Tensor | NDArray[np.float32],
        corpus: Corpus,
        *,
        span: Spans = None,
        k: int = 5,
    ) -> list[list[Hit]]: ...

    def search(
        self,
        query: str | Sequence[str] | Tensor | NDArray[np.float32],
        corpus: Corpus,
        *,
        span: str | Span | Spans = None,
        k: int = 5,
    ) -> list[Hit] | list[list[Hit]]:
        """The texts of a corpus that are most similar to a query, the most similar first.

        Args:
            query: a text, several, or their embeddings (Q, D).
            corpus: N texts, or their embeddings (N, D), which several calls then share.
            span: search for what these words (or this range) of the query mean; of several one for each.
            k: how many; fewer if the corpus has fewer.

        Returns:
            The hits; of several queries a list for each.

        Raises:
            TypeError, ValueError, UserError: as :meth:`encode`.

        >>> encoder = it.Encoder("minilm", glossary={"miss the boat": "be too late"})
        >>> corpus = ["The ship left without him.", "He was too late."]
        >>> best, other = encoder.search("He missed the boat.", corpus)
        >>> assert (best.index, best.text) == (1, "He was too late.")
        >>> assert encoder.search(["He missed the boat."], encoder.encode(corpus), k=1)[0][0].index == 1
        """
        k = checked_count(k, "k")
        is_single = isinstance(query, str)
        spans = [span] if is_single and span is not None else span
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

    @property
    def transformer(self) -> nn.Module:
        """The transformer alone, without what follows it (pooling, a dense layer)."""
        first = self.model[0]
        assert isinstance(first, Transformer | StaticTokens)
        transformer: nn.Module = first.auto_model
        return transformer

    @property
    def device(self) -> torch.device:
        return compute_device(self.model)

    @property
    def reader(self) -> Reader:
        """How the model reads requests."""
        _, pooling, _ = self._parts
        parts = self.prompts, pooling.include_prompt, self.idiom_tokens
        return Reader(self._tokenizer, self.model.max_seq_length, *parts)

    def forward(
        self,
        requests: Sequence[EmbeddingRequest],
        on_progress: Callable[[int], None] | None = None,
        *,
        batch_size: int | None = None,
        processes: Processes | None = None,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
        with_readings: bool = True,
    ) -> Tensor:
        """Embed all requests. Each distinct text, prompt included, goes through the model once.

        Without a graph, token ids of at most `_CHUNK_SIZE` requests are in memory at a time, those of one
        text together; of texts that are read in several ways, three times as many.

        Args:
            requests: R embeddings to compute.
            on_progress: called after each forward pass with the number of its texts, of those that are
                asked for.
            batch_size: see :meth:`forward_batches`.
            processes: that each embed a part; all get all rows, without a graph if there are several.
            autocast: the context of forward passes.
            with_readings: whether texts may be read in further ways (:meth:`readings`).

        Returns:
            (R, D), row i for request i; with a graph where gradients are enabled.

        Raises:
            UserError: if a span is missing, outside its text, or beyond the maximum length.
        """
        none = torch.zeros(0, self.dimension, device=self.device)
        if not requests:
            return none
        processes = processes or Processes()
        if len(requests) > _CHUNK_SIZE and not torch.is_grad_enabled():
            order = sorted(range(len(requests)), key=lambda i: requests[i].text)
            rows = torch.empty(len(requests), self.dimension, device=self.device)  # (R, D)
            options: dict[str, Any] = {"batch_size": batch_size, "processes": processes}
            options |= {"autocast": autocast, "with_readings": with_readings}
            for start in range(0, len(order), _CHUNK_SIZE):
                chunk = order[start : start + _CHUNK_SIZE]
                embedded = self([requests[i] for i in chunk], on_progress, **options)
                rows[torch.tensor(chunk, device=rows.device)] = embedded.to(rows.dtype)  # (n, D)
            return rows
        read, combine = self.readings(requests) if with_readings else Encoder.readings(self, requests)
        partition = self.partition(read, processes, batch_size)
        batches, numbers = partition.batches, partition.numbers[processes.rank]

        def advance(batch: ForwardBatch) -> None:
            if on_progress is not None:
                on_progress(batch.num_texts_of(len(requests)))

        with autocast():  # one context, so that each weight is cast once for all batches
            pieces = run_batches(self.embed, batches, numbers, on_run=advance)
        reshard(self)
        for elsewhere in set(range(len(batches))) - set(numbers):
            advance(batches[elsewhere])
        return combine(gather(pieces, partition, processes, none))

    def readings(
        self, requests: Sequence[EmbeddingRequest]
    ) -> tuple[Sequence[EmbeddingRequest], Callable[[Tensor], Tensor]]:
        """What is embedded for R requests, they themselves first; and what makes their (R, D) of its rows."""
        return requests, lambda rows: rows

    def forward_batches(
        self, requests: Sequence[EmbeddingRequest], *, min_batches: int = 1, batch_size: int | None = None
    ) -> list[ForwardBatch]:
        """The forward batches that embed all requests: longest texts first, each view of a text once.

        Args:
            min_batches: make at least this many, as long as each has about 512 tokens or more.
            batch_size: the most texts in one; None = as many as `tokens_per_forward` allows.

        Raises:
            UserError: if a span is missing, outside its text, or beyond the maximum length.
        """
        reader = self.reader
        read = reader.read(requests)
        truncated_spans: set[EmbeddingRequest] = set()
        requests_of: dict[tuple[str, int], list[int]] = {}  # each view of a text is a row of its own
        for i, (request, (text, span, tokens)) in enumerate(zip(requests, read, strict=True)):
            requests_of.setdefault((text, request.dropout_pass), []).append(i)
            if is_truncated(text, tokens, reader.limit):
                self.truncated.add(request)
            if request.pooling == "span" and span and is_truncated(text[: span[1]], tokens, reader.limit):
                truncated_spans.add(request)
        rows = list(requests_of.values())
        lengths = [len(read[answered[0]].tokens.input_ids) for answered in rows]
        batches = []
        for chunk in split_batches(lengths, self.tokens_per_forward, min_batches, batch_size):
            batch = ForwardBatch([read[rows[number][0]].tokens.input_ids for number in chunk], [], [], [])
            for row, number in enumerate(chunk):
                for i in rows[number]:
                    has_layers = isinstance(requests[i], LayersRequest)
                    if requests[i].pooling == "sentence" and not has_layers:
                        num_skipped = reader.num_skipped(read[i].tokens, requests[i])
                        batch.sentences.append(PooledSentence(row, i, num_skipped))
                    else:
                        pooled_spans = batch.layer_spans if has_layers else batch.spans
                        pooled_spans.append(PooledSpan(row, i, tokens_of_span(read[i], requests[i])))
            batches.append(batch)
        if truncated_spans and not self.truncated_spans:  # only the first call that cuts some reports it
            spans = {request for request in requests if request.pooling == "span"}
            log.warning("%s", truncation_note(len(truncated_spans), len(spans), "spans", reader.limit))
        self.truncated_spans |= truncated_spans
        return batches

    def partition(
        self, requests: Sequence[EmbeddingRequest], processes: Processes, batch_size: int | None = None
    ) -> Partition:
        """The forward batches of these requests, and which process runs which."""
        batches = self.forward_batches(requests, min_batches=processes.count, batch_size=batch_size)
        divide = partition_evenly if is_sharded(self) else partition_by_size
        return divide(batches, processes.count)

    def warn_of_truncated(
        self, requests: Collection[EmbeddingRequest], before: Collection[EmbeddingRequest] = ()
    ) -> None:
        """Warn of truncated texts and spans, unless the warning was given before."""
        if (truncated := self.truncated.intersection(requests)) and not truncated.issubset(before):
            num_truncated, num_texts = map(self.reader.num_texts, (truncated, requests))
            log.warning("%s", truncation_note(num_truncated, num_texts, "texts", self.model.max_seq_length))

    @property
    def _parts(self) -> tuple[list[nn.Module], Pooling, list[nn.Module]]:
        """The modules up to the pooling, the pooling, and the modules after it."""
        modules = list(self.model)
        at, pooling = next((i, module) for i, module in enumerate(modules) if isinstance(module, Pooling))
        return modules[:at], pooling, modules[at + 1 :]

    @property
    def pooling_mode(self) -> str:
        """`mean`, `cls`, …; of several side by side `cls+lasttoken`."""
        _, pooling, _ = self._parts
        mode = pooling.pooling_mode
        return mode if isinstance(mode, str) else "+".join(mode)

    @property
    def averages_tokens(self) -> bool:
        """Whether a text's embedding is the mean of its tokens' embeddings, up to its length."""
        *_, after = self._parts
        return self.pooling_mode == "mean" and all(isinstance(module, Normalize) for module in after)

    def embed_tokens(self, texts: list[list[int]]) -> Tensor:
        """(B, T, D), token embeddings before the pooling, of B texts as token ids."""
        embeddings: Tensor = self._run(texts)[0]["token_embeddings"]
        return embeddings

    def _run(self, texts: list[list[int]], *, with_layers: bool = False) -> tuple[dict[str, Any], Tensor]:
        """The features of texts up to the pooling, and the transformer's last hidden states (B, T, D).

        Args:
            with_layers: `all_layer_embeddings` is wanted too.
        """
        (first, *others), *_ = self._parts
        features = self._tokenizer.pad(texts, self.device)  # of (B, T) each
        if with_layers:  # sentence-transformers gives them if the configuration, which threads share, says so
            names = features.keys() & (getattr(first, "model_forward_params", None) or features)
            output = self.transformer(**{name: features[name] for name in names}, output_hidden_states=True)
            features["token_embeddings"] = output.last_hidden_state
            features["all_layer_embeddings"] = output.get("hidden_states")
        else:
            features = first(features)
        hidden = features["token_embeddings"]
        for module in others:
            features = module(features)
        return features, hidden

    def embed(self, batch: ForwardBatch) -> Tensor:
        """(n, D), row i for the i-th of the batch's `requests`: its sentences, its spans, then layers."""
        features, hidden = self._run(batch.texts, with_layers=bool(batch.layer_spans))
        _, pooling, after = self._parts
        pooled = pool_sentences(pooling, features, batch.sentences)
        if batch.spans and not self.raw_spans:
            means = pool_spans(features["token_embeddings"], batch.spans)  # (S, D)
            # Once for each of several concatenated poolings, such as those of [CLS] and [SEP].
            pooled.append(means.repeat(1, pooling.pooling_output_dimension // pooling.embedding_dimension))
        pieces: list[Tensor] = []
        if pooled:
            complete = dict(features, sentence_embedding=torch.cat(pooled))
            for module in after:
                complete = module(complete)
            pieces.append(complete["sentence_embedding"])
        if batch.spans and self.raw_spans:
            pieces.append(pool_spans(hidden, batch.spans))
        if batch.layer_spans:
            pieces.append(self._layer_rows(batch, features))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _layer_rows(self, batch: ForwardBatch, features: dict[str, Any]) -> Tensor:
        """(U, D), what a subclass makes of the hidden layers of the batch's `layer_spans`."""
        raise NotImplementedError

    @torch.no_grad()
    def hidden_layers(
        self,
        requests: Sequence[LayersRequest],
        layers: Sequence[int],
        on_progress: Callable[[int], None] | None = None,
    ) -> Tensor:
        """(R, 3 · L · H), on the CPU: what L hidden layers say of spans in their texts.

        See :func:`idiomtune.encoder.forward.layer_features`.

        Args:
            layers: their numbers; 0 = the embeddings of tokens.
            on_progress: as of :meth:`forward`.
        """
        pieces, order = [], []
        for batch in self.forward_batches(requests):
            features, _ = self._run(batch.texts, with_layers=True)
            pieces.append(self._layer_features(batch, features, layers).cpu())
            order += batch.requests
            if on_progress is not None:
                on_progress(batch.num_texts)
        return in_request_order(torch.cat(pieces), order)

    def _layer_features(self, batch: ForwardBatch, features: dict[str, Any], layers: Sequence[int]) -> Tensor:
        every = features.get("all_layer_embeddings")
        if every is None:
            name = type(self.transformer).__name__
            raise UserError(f"{name} does not give its hidden layers, which tell how an expression is used")
        return layer_features([every[layer] for layer in layers], batch)
