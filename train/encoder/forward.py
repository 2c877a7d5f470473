"""From requests to forward batches, and from token embeddings to those of sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize

from train.encoder.reading import Read, Reader, Rendered, Tokens
from train.encoder.spans import PooledSpan, tokens_of_span
from train.requests import Request

_MIN_TOKENS_PER_FORWARD = 512  # smaller batches are not worth dividing among processes


class PooledSentence(NamedTuple):
    """A text of a forward batch that is embedded as a whole.

    Attributes:
        row: of the text in its batch.
        request: the request it answers, by its position in the call.
        num_skipped: tokens at the text's start that are not pooled.
    """

    row: int
    request: int
    num_skipped: int = 0


class ForwardBatch(NamedTuple):
    """Texts that go through the transformer together, and what is pooled from them.

    Attributes:
        texts: the token ids of each text, the longest first, then those of `meanings`.
        sentences: what is embedded as a whole.
        spans: what is embedded by its tokens in a text.
        meanings: what is embedded as a whole, and added to sentences.
        meanings_of: of each of the sentences, the meanings that are added to it, by position.
        is_dummy: the embeddings are thrown away.
    """

    texts: list[list[int]]
    sentences: list[PooledSentence]
    spans: list[PooledSpan]
    meanings: Sequence[PooledSentence] = ()
    meanings_of: Sequence[Sequence[int]] = ()
    is_dummy: bool = False

    @property
    def requests(self) -> list[int]:
        """The request that each embedding of the batch answers: the sentences' first, then the spans'."""
        if self.is_dummy:
            return []
        return [sentence.request for sentence in self.sentences] + [span.request for span in self.spans]

    @property
    def num_tokens(self) -> int:
        """Padding included."""
        return len(self.texts) * max(map(len, self.texts))

    @property
    def num_texts(self) -> int:
        """Texts whose embeddings are asked for."""
        return 0 if self.is_dummy else len(self.texts) - len(self.meanings)

    def num_texts_of(self, num_requests: int) -> int:
        """Of these texts, those whose embeddings answer one of the call's first `num_requests` requests."""
        if self.is_dummy:
            return 0
        rows = {sentence.row for sentence in self.sentences if sentence.request < num_requests}
        return len(rows | {span.row for span in self.spans if span.request < num_requests})

    def dummy(self) -> ForwardBatch:
        """A short batch for a process that has none left while others run theirs; its gradient is zero."""
        return ForwardBatch([self.texts[-1]], [PooledSentence(row=0, request=0)], [], is_dummy=True)


def plan_batches(
    requests: Sequence[Request],
    rendered: Sequence[Rendered],
    tokens: Mapping[str, Tokens],
    reader: Reader,
    *,
    tokens_per_forward: int,
    min_batches: int,
    batch_size: int | None,
) -> list[ForwardBatch]:
    """Which texts go together, and what is pooled from each: see `Encoder.forward_batches`.

    Args:
        rendered: each request's text as the model reads it, and its span's place there.
        tokens: of these texts, each once.
        reader: how the model reads texts.
        tokens_per_forward, min_batches, batch_size: see :func:`cut`.
    """
    requests_of: dict[str, list[int]] = {text: [] for text in tokens}
    for i, (text, _) in enumerate(rendered):
        requests_of[text].append(i)
    meanings_of, read = _added_meanings(requests, reader)
    lengths = {
        rendered[i][0]: [len(read[meaning].tokens.input_ids) for meaning in some]
        for i, some in meanings_of.items()
    }
    batches = []
    for chunk in cut(list(tokens), tokens, tokens_per_forward, min_batches, lengths, batch_size):
        sentences: list[PooledSentence] = []
        spans: list[PooledSpan] = []
        for row, text in enumerate(chunk):
            for i in requests_of[text]:
                if requests[i].pooling == "sentence":
                    num_skipped = reader.num_skipped(text, tokens[text], requests[i])
                    sentences.append(PooledSentence(row, i, num_skipped))
                else:
                    positions = tokens_of_span(tokens[text], rendered[i][1], requests[i])
                    spans.append(PooledSpan(row, i, positions))
        meant = [meanings_of.get(sentence.request, []) for sentence in sentences]
        position = {m: place for place, m in enumerate(dict.fromkeys(m for some in meant for m in some))}
        added = [read[meaning] for meaning in position]
        batches.append(
            ForwardBatch(
                [one.input_ids for one in (*(tokens[text] for text in chunk), *(m.tokens for m in added))],
                sentences,
                spans,
                [
                    PooledSentence(row, 0, meaning.num_skipped)
                    for row, meaning in enumerate(added, len(chunk))
                ],
                [[position[meaning] for meaning in some] for some in meant],
            )
        )
    return batches


def _added_meanings(
    requests: Sequence[Request], reader: Reader
) -> tuple[dict[int, list[str]], dict[str, Read]]:
    """The meanings that are added to requests embedded as sentences (`model.glossary_weight`).

    Returns:
        The meanings of each such request, by position; how each is read, as a text of its own.
    """
    meanings = reader.meanings
    if meanings is None or not meanings.weight:
        return {}, {}
    meanings_of = {
        i: meanings.in_text(request.text)
        for i, request in enumerate(requests)
        if request.pooling == "sentence" and request.with_meanings
    }
    distinct = list(dict.fromkeys(m for some in meanings_of.values() for m in some))
    alone = reader._replace(meanings=None, idiom_tokens=None).read([Request(meaning) for meaning in distinct])
    return meanings_of, dict(zip(distinct, alone, strict=True))


def cut(
    texts: Sequence[str],
    tokens: Mapping[str, Tokens],
    tokens_per_forward: int,
    min_batches: int,
    added: Mapping[str, Sequence[int]] | None = None,
    batch_size: int | None = None,
) -> list[list[str]]:
    """Texts sorted by length, longest first, cut where the padded size would exceed the budget.

    Args:
        min_batches: make at least this many, as long as each has `_MIN_TOKENS_PER_FORWARD` or more.
        added: of some texts, the lengths in tokens of what is embedded with them, in rows of their own.
        batch_size: the most texts in one piece; None = as many as the budget holds.
    """
    lengths = {text: [len(tokens[text].input_ids), *(added or {}).get(text, ())] for text in texts}
    texts = sorted(texts, key=lambda text: max(lengths[text]), reverse=True)
    budget = tokens_per_forward
    if min_batches > 1:
        even_size = -(-sum(sum(lengths[text]) for text in texts) // min_batches)
        budget = min(budget, max(even_size, _MIN_TOKENS_PER_FORWARD))
    chunks: list[list[str]] = []
    num_rows = longest = 0
    for text in texts:
        num_rows += len(lengths[text])
        if not chunks or num_rows * longest > budget or len(chunks[-1]) == batch_size:
            chunks.append([])
            num_rows, longest = len(lengths[text]), max(lengths[text])
        chunks[-1].append(text)
    return chunks


def in_request_order(rows: Tensor, order: Sequence[int]) -> Tensor:
    """(R, D), row i for request i.

    Args:
        rows: (R, D), row j for request `order[j]`.
    """
    position = torch.empty(len(order), dtype=torch.long)  # (R,), request → its row in `rows`
    position[torch.tensor(order, dtype=torch.long)] = torch.arange(len(order))
    return rows[position.to(rows.device)]  # (R, D)


def pool_sentences(
    pooling: nn.Module, features: dict[str, Any], sentences: Sequence[PooledSentence]
) -> list[Tensor]:
    """Pieces (n, D') that together have a row for each of the sentences, in their order.

    Args:
        pooling: the model's own module; D' is D times its number of poolings side by side.
        features: with `token_embeddings` (B, T, D) and `attention_mask` (B, T).
    """
    if any(sentence.num_skipped for sentence in sentences):
        tokens, mask = features["token_embeddings"], features["attention_mask"]
        return [
            pooling(
                {
                    "token_embeddings": tokens[row : row + 1],  # (1, T, D)
                    "attention_mask": mask[row : row + 1],  # (1, T)
                    "prompt_length": num_skipped,
                }
            )["sentence_embedding"]
            for row, _, num_skipped in sentences
        ]
    if not sentences:
        return []
    pooled: Tensor = pooling(features)["sentence_embedding"]  # (B, D')
    rows = torch.tensor([sentence.row for sentence in sentences], device=pooled.device)  # (n,)
    return [pooled[rows]]  # (n, D')


def add_meanings(
    sentences: Tensor, meanings: Tensor, meanings_of: Sequence[Sequence[int]], weight: float
) -> Tensor:
    """(S, D), sentences with their expressions' meanings, as far as these fit.

    e + w · max(0, cos(e, m)) · |e| · m, at the length of e: a sentence that uses an expression literally is
    less like its meaning, which then counts for less. Sentences without expressions stay as they are.

    Args:
        sentences: (S, D), of which each is an e.
        meanings: (M, D), each embedded alone; m is the mean of a sentence's, of unit length.
        meanings_of: of each sentence, its rows in `meanings`.
        weight: w.
    """
    pairs = [(row, member) for row, members in enumerate(meanings_of) for member in members]
    rows, members = torch.tensor(pairs, dtype=torch.long, device=sentences.device).view(-1, 2).T
    bare = sentences.float()
    units = normalize(meanings.float(), dim=1)[members]
    means = normalize(torch.zeros_like(bare).index_add(0, rows, units), dim=1)  # (S, D), 0 without any
    fit = cosine_similarity(bare, means, dim=1).clamp(min=0)  # (S,)
    lengths = bare.norm(dim=1, keepdim=True)  # (S, 1)
    mixed = normalize(bare + weight * fit[:, None] * lengths * means, dim=1) * lengths  # (S, D)
    has_meaning = torch.tensor([bool(some) for some in meanings_of], device=sentences.device)  # (S,)
    return torch.where(has_meaning[:, None], mixed.to(sentences.dtype), sentences)
