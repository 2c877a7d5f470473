"""The predecessor's way: how IdioLink's system trains and scores, in plain sentence-transformers.

Written anew, as one would write it with care: masked pooling, batches where sentence-transformers has
them, metrics on matrices. What is the predecessor's own is the shape of the work:

- a training step is three forward passes (queries, positives, all negatives), each padded to its own
  longest text, its texts tokenised anew;
- each query mode embeds the documents again;
- a span is embedded by a forward pass of its own.

Its loss has only the other queries' positives beside a query's own negatives; here it is the benchmark's, the
same for all ways (see :mod:`bench.workload`). That moves no time.
"""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional

from bench.measure import Measured, Steps, Time
from bench.workload import (
    MODES,
    Texts,
    Workload,
    batches,
    optimizer_and_schedule,
    splits,
    temperature,
    without_dropout,
)
from idiomtune.config import TrainSettings
from idiomtune.data.idiolink import INSTRUCTION, Query, Split, is_relevant
from idiomtune.encoder.loading import resolve_model_path


def run(workload: Workload) -> Measured:
    """Train, or score."""
    settings = workload.settings()
    model = SentenceTransformer(resolve_model_path(settings.model.path), device="cpu")
    if workload.is_training:
        return _train(model, workload, settings)
    scores: dict[str, float] = {}
    _, val = splits(settings)
    start = Time.now()
    for mode in MODES:
        scores |= score_mode(model, val, mode)
    return Measured([Time.now() - start], scores=scores)


def _train(model: SentenceTransformer, workload: Workload, settings: TrainSettings) -> Measured:
    if not workload.dropout:
        without_dropout(model)
    torch.manual_seed(settings.seed)
    optimizer, schedule = optimizer_and_schedule(model, settings)
    clip_norm = settings.trainer.clip_norm
    assert clip_norm is not None
    model.train()
    losses, clock = [], Steps()
    for step in batches(workload):
        with torch.autocast("cpu", torch.bfloat16, enabled=workload.precision == "bf16"):
            loss = _loss(model, step, temperature(settings))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        clock.ended()
    return Measured(clock.times, losses)


def _loss(model: SentenceTransformer, batch: list[Texts], temperature: float) -> Tensor:
    """InfoNCE with all positives and negatives of the batch: cross-entropy over B + B · K logits."""
    queries = embed(model, [t.query for t in batch])  # (B, D)
    positives = embed(model, [t.positive for t in batch])  # (B, D)
    negatives = embed(model, [text for t in batch for text in t.negatives])  # (B · K, D)
    logits = queries @ torch.cat([positives, negatives]).T / temperature
    return functional.cross_entropy(logits, torch.arange(len(batch)))


def embed(model: SentenceTransformer, texts: list[str]) -> Tensor:
    """(N, D), unit vectors of N texts, in one forward pass with a graph."""
    inputs = model.tokenizer(
        texts, padding=True, truncation=True, max_length=model.max_seq_length, return_tensors="pt"
    )
    hidden = _transformer(model)(**inputs).last_hidden_state
    mask = inputs["attention_mask"][:, :, None].float()
    return functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)


def _transformer(model: SentenceTransformer) -> nn.Module:
    transformer: Any = model[0]
    inner: nn.Module = transformer.auto_model
    return inner


@torch.no_grad()
def _embed_span(model: SentenceTransformer, text: str, start: int, end: int) -> Tensor:
    inputs: Any = model.tokenizer(
        text,
        truncation=True,
        max_length=model.max_seq_length,
        return_offsets_mapping=True,
        return_tensors="pt",
    )
    offsets = inputs.pop("offset_mapping")[0]
    hidden = _transformer(model)(**inputs).last_hidden_state[0]
    inside = (offsets[:, 0] < end) & (offsets[:, 1] > start) & (offsets[:, 0] < offsets[:, 1])
    return functional.normalize(hidden[inside].mean(0), dim=0)


def _encode(model: SentenceTransformer, texts: list[str]) -> Tensor:
    return model.encode(
        texts, batch_size=32, convert_to_tensor=True, normalize_embeddings=True, show_progress_bar=False
    )


def score_mode(model: SentenceTransformer, split: Split, mode: str) -> dict[str, float]:
    """R-Precision and nDCG@10 of a query mode; the documents are embedded for it."""
    documents = _encode(model, [d.sentence for d in split.documents])
    prefixes = [_instruction(q) if mode.startswith("instruction") else "" for q in split.queries]
    if mode.endswith("span"):
        rows = []
        for query, prefix in zip(split.queries, prefixes, strict=True):
            start, end = query.span_offsets
            at = len(prefix)
            rows.append(_embed_span(model, prefix + query.sentence, at + start, at + end))
        queries = torch.stack(rows)
    else:
        texts = [prefix + q.sentence for q, prefix in zip(split.queries, prefixes, strict=True)]
        queries = _encode(model, texts)
    ranking = (queries @ documents.T).argsort(dim=1, descending=True, stable=True)
    r_precisions, gains = [], []
    discounts = 1 / torch.log2(torch.arange(10) + 2.0)
    for query, order in zip(split.queries, ranking, strict=True):
        relevant = torch.tensor([is_relevant(query, d) for d in split.documents])
        hits, count = relevant[order].float(), int(relevant.sum())
        r_precisions.append(hits[:count].mean().item())
        gains.append((hits[:10] @ discounts[: len(hits)] / discounts[:count].sum()).item())
    key = f"idiolink/{split.name}/{mode}"
    return {
        f"{key}/r_precision": sum(r_precisions) / len(r_precisions),
        f"{key}/ndcg@10": sum(gains) / len(gains),
    }


def _instruction(query: Query) -> str:
    return f"Instruct: {INSTRUCTION.format(span=query.span)}\nQuery: "
