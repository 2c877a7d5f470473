"""The forward batches that embed requests: which texts go together, and what is pooled from each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from train.encoder.added_meanings import AddedMeanings
from train.encoder.forward import ForwardBatch, PooledSentence, PooledSpan, Tokens, cut
from train.encoder.reading import Reader, Rendered
from train.encoder.spans import tokens_of_span
from train.requests import Request


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
    """See :meth:`train.encoder.encoder.Encoder.forward_batches`.

    Args:
        rendered: each request's text as the model reads it, and its span's place there.
        tokens: of these texts, each once.
        reader: how the model reads texts.
        tokens_per_forward, min_batches, batch_size: see :func:`~train.encoder.forward.cut`.
    """
    requests_of: dict[str, list[int]] = {text: [] for text in tokens}
    for i, (text, _) in enumerate(rendered):
        requests_of[text].append(i)
    added = AddedMeanings(requests, reader)
    beside = added.lengths([text for text, _ in rendered])
    batches = []
    for chunk in cut(list(tokens), tokens, tokens_per_forward, min_batches, beside, batch_size):
        sentences: list[PooledSentence] = []
        spans: list[PooledSpan] = []
        for row, text in enumerate(chunk):
            for i in requests_of[text]:
                if requests[i].pooling == "sentence":
                    num_skipped = reader.num_skipped(text, tokens[text], requests[i])
                    sentences.append(PooledSentence(row, i, num_skipped))
                else:
                    _, span = rendered[i]
                    positions = tokens_of_span(tokens[text], span, requests[i])
                    spans.append(PooledSpan(row, i, positions))
        ids, meanings, meanings_of = added.placed(sentences, first_row=len(chunk))
        ids = [*(tokens[text].input_ids for text in chunk), *ids]
        batches.append(ForwardBatch(ids, sentences, spans, meanings, meanings_of))
    return batches
