"""The predecessor's way: how IdioLink's system trains and scores, in plain sentence-transformers.

Written anew, as one would write it with care: masked pooling, batches where sentence-transformers has
them, metrics on matrices. What is the predecessor's own is the shape of the work:

- a training step is three forward passes (queries, positives, all negatives), each padded to its own
  longest text, its texts tokenised anew;
- each query mode embeds the documents again;
- a span is embedded by a forward pass of its own.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional
from transformers import get_linear_schedule_with_warmup

from tests.bench.measure import Measured
from tests.bench.workload import MODES, Workload, batches, splits, without_dropout
from train.build import resolve_model_path
from train.data.idiolink import INSTRUCTION, Query, Split, is_relevant


def run(workload: Workload) -> Measured:
    """Train, save the weights, and score."""
    settings = workload.settings()
    train_split, val = splits(settings)
    sentence_of = {r.id: r.sentence for r in (*train_split.documents, *train_split.queries)}
    steps = [
        [
            (
                sentence_of[t.anchor],
                sentence_of[t.positives[0]],
                [sentence_of[i] for i in (*t.hard, *t.soft)],
            )
            for t in step
        ]
        for step in batches(settings)
    ]
    model = SentenceTransformer(resolve_model_path(settings.model.path), device="cpu")
    if not workload.dropout:
        without_dropout(model)
    torch.manual_seed(settings.seed)
    trainer = settings.trainer
    start = time.perf_counter()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=trainer.learning_rate, weight_decay=trainer.weight_decay
    )
    own = settings.idiolink_objective
    assert own is not None
    schedule = get_linear_schedule_with_warmup(optimizer, 0, len(steps))  # type: ignore[no-untyped-call]
    model.train()
    losses = []
    for step in steps:
        loss = _loss(model, step, own.loss.temperature)
        loss.backward()  # type: ignore[no-untyped-call]
        assert trainer.clip_norm is not None
        torch.nn.utils.clip_grad_norm_(model.parameters(), trainer.clip_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, create_model_card=False)
    trained = time.perf_counter()
    model.eval()
    scores: dict[str, float] = {}
    for mode in MODES:
        scores |= _score(model, val, mode)
    return Measured(losses, scores, trained - start, time.perf_counter() - trained)


def _loss(model: SentenceTransformer, batch: list[tuple[str, str, list[str]]], temperature: float) -> Tensor:
    """InfoNCE with own negatives and the other queries' positives: cross-entropy over B + K logits."""
    queries = _embed(model, [query for query, _, _ in batch])  # (B, D)
    positives = _embed(model, [positive for _, positive, _ in batch])  # (B, D)
    flat = _embed(model, [text for _, _, negatives in batch for text in negatives])
    negatives = flat.view(len(batch), -1, flat.shape[1])  # (B, K, D)
    own = torch.einsum("bd,bkd->bk", queries, negatives)
    logits = torch.cat([queries @ positives.T, own], 1) / temperature
    return functional.cross_entropy(logits, torch.arange(len(batch)))


def _embed(model: SentenceTransformer, texts: list[str]) -> Tensor:
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


def _score(model: SentenceTransformer, split: Split, mode: str) -> dict[str, float]:
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
