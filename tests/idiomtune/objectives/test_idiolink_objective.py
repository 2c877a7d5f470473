"""The IdioLink objective: its steps, its batches, and its loss against one computed record by record."""

import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from idiomtune.data.idiolink import (
    Document,
    Split,
    TrainingTuple,
    draw_tuples,
    load_split,
)
from idiomtune.errors import UserError
from idiomtune.objectives import Batch, ObjectiveLoss
from idiomtune.objectives.idiolink import IdioLinkObjective
from idiomtune.requests import EmbeddingRequest
from tests.tiny_objectives import idiolink

PLAIN = ["simplification", "sense"]


@pytest.fixture(scope="module")
def split(sample_root: Path) -> Split:
    return load_split(sample_root, "train")


def build(split: Split, **changes: Any) -> IdioLinkObjective:
    """Queries and documents as anchors, tuples redrawn each epoch."""
    anchors = [*split.queries, *split.documents]

    def tuples(epoch: int) -> list[TrainingTuple]:
        return draw_tuples(anchors, split.documents, num_positives=1, num_hard=2, num_soft=3, seed=[0, epoch])

    options: dict[str, Any] = {"query_mode": ["sentence", "span"], "batch_size": 32, "plain_usages": PLAIN}
    return idiolink(split, tuples, **(options | changes))


def flat(steps: list[list[list[int]]]) -> list[int]:
    return [anchor for step in steps for shard in step for anchor in shard]


def test_a_batch_that_is_not_full_is_left_out_if_asked(split: Split) -> None:
    for drop_last, sizes in ((False, [32, 32, 32, 32, 16]), (True, [32] * 4)):
        steps = build(split, drop_last=drop_last).epoch_steps(0, 1)
        assert [len(flat([step])) for step in steps] == sizes
    with pytest.raises(UserError, match=r"trainer\.batch_size=500"):
        build(split, batch_size=500, drop_last=True)
    assert len(build(split, batch_size=144, drop_last=True).epoch_steps(0, 1)) == 1, "all of them are one"
    for limit in (6, 7):  # of the sample's six idioms
        about = build(split, idioms_per_batch=limit, batch_size=42).describe()
        assert (f"fewer than the {limit}" in about) == (limit == 7)


def vectors_for(
    objective: IdioLinkObjective, batch: Batch
) -> tuple[dict[EmbeddingRequest, Tensor], ObjectiveLoss]:
    """A random vector for each request, and the loss of these."""
    g = torch.Generator().manual_seed(1)
    vectors: dict[EmbeddingRequest, Tensor] = {}
    for request in batch.requests:
        vectors.setdefault(request, torch.randn(8, generator=g, dtype=torch.float64))
    return vectors, objective.loss(torch.stack([vectors[r] for r in batch.requests]), batch)


def likeness(a: Tensor, d: Tensor) -> float:
    return math.exp(float(a @ d / a.norm() / d.norm()) / 0.05)


def test_modes_of_queries(split: Split) -> None:
    """Several share their text; an instruction is the query's alone."""
    batch = build(split).batch(0, [0, 1])
    texts = [request.text for request in batch.requests]
    assert texts[0:2] == texts[2:4]
    assert [r.pooling for r in batch.requests[:4]] == ["sentence"] * 2 + ["span"] * 2
    assert all(r.role == "document" for r in batch.requests[4:])
    assert build(split).loss(torch.eye(len(texts)), batch).counts == {
        "false_negatives": batch.targets.masks.num_false_negatives  # counted once, not once a mode
    }
    first, *others = build(split, query_mode=["instruction_span"]).batch(0, [0]).requests
    assert f"'{split.queries[0].span}'" in (first.instruction or "")
    assert all(r.instruction is None for r in others)


def test_anchors_without_a_positive_are_left_out_and_counted(split: Split) -> None:
    def tuples(_epoch: int) -> list[TrainingTuple]:
        ids = [d.id for d in split.documents[:4]]
        return [TrainingTuple(id_, (ids[0],) if i else (), (), ()) for i, id_ in enumerate(ids)]

    objective = idiolink(split, tuples)
    assert objective.num_skipped == 1
    assert sorted(flat(objective.epoch_steps(0, 1))) == [1, 2, 3]
    assert "1 without a positive left out" in objective.describe()
    literal = next(
        d for d in split.documents if d.usage == "literal"
    )  # alone in its class: a negative of its idiom
    against_all = idiolink(
        split, [literal, *(d for d in split.documents if d.usage != "literal")], batch_size=8
    )
    assert against_all.num_skipped == 0
    assert not any(anchor == 0 for anchor, _ in against_all.batch(0, range(8)).pairs)
    assert "1 more" in against_all.describe()


def alone(split: Split, **changes: Any) -> IdioLinkObjective:
    """Every sentence an anchor; the batch's other sentences are its candidates."""
    options: dict[str, Any] = {
        "query_mode": ["span", "masked_sentence"],
        "query_weights": [1.0, 0.5],
        "document_mode": ["sentence", "span"],
        "batch_size": 48,
        "idioms_per_batch": 6,
        "positive_weights": {"sense": 3.0},
        "plain_usages": PLAIN,
    }
    return idiolink(split, [*split.queries, *split.documents], **(options | changes))


@pytest.mark.parametrize("positives", ["mean", "hardest"])
def test_batch_against_itself_equals_a_loss_computed_record_by_record(split: Split, positives: str) -> None:
    """Weighted modes, documents in two modes, hidden spans, sense documents three times as heavy."""
    objective = alone(split, loss={"positives": positives})
    anchors = flat(objective.epoch_steps(0, 1)[:1])
    vectors, result = vectors_for(objective, objective.batch(0, anchors))
    records = [[*split.queries, *split.documents][i] for i in anchors]

    def hidden(record: Document, _: Any) -> EmbeddingRequest:
        start, end = record.span_offsets
        text = record.sentence[:start] + "[MASK]" + record.sentence[end:]
        return EmbeddingRequest(text, (start, start + 6), role="query")

    def as_span(record: Document, role: Any) -> EmbeddingRequest:
        return EmbeddingRequest(record.sentence, record.span_offsets, role=role, pooling="span")

    def as_sentence(record: Document, _: Any) -> EmbeddingRequest:
        return EmbeddingRequest(record.sentence)

    def term(query: Tensor, anchor: Document, document: Any) -> float:
        e = {other.id: likeness(query, vectors[document(other, "document")]) for other in records}
        others = [r for r in records if r.id != anchor.id]
        alike = [r for r in others if (r.idiom, r.meaning) == (anchor.idiom, anchor.meaning)]
        below = sum(e[r.id] for r in others if r not in alike)
        if positives == "hardest":
            alike = [min(alike, key=lambda r: e[r.id])]
        weights = [3.0 if r.usage == "sense" else 1.0 for r in alike]
        terms = [math.log(1 + below / e[r.id]) for r in alike]
        return sum(w * t for w, t in zip(weights, terms, strict=True)) / sum(weights)

    expected = 0.0
    for (weight, asked), document in product(((1.0, as_span), (0.5, hidden)), (as_sentence, as_span)):
        terms = [term(vectors[asked(r, "query")], r, document) for r in records]
        expected += weight * sum(terms) / len(records)
    assert result.loss.item() == pytest.approx(expected / (1.5 * 2), rel=1e-6)


def test_each_second_epoch_has_pairs_and_the_others_the_batches_as_they_are(split: Split) -> None:
    """Each anchor with a positive, drawn anew, against all of the shuffled batch."""
    records = [*split.queries, *split.documents]
    of_id = {record.id: record for record in records}
    options: dict[str, Any] = {"document_mode": ["sentence"], "positive_weights": {"sense": 1.0}}
    options |= {"query_mode": ["span"], "query_weights": None}
    options |= {"candidates": "in_batch", "loss": {"in_batch": "all", "false_negatives": "positive"}}
    plain, objective = alone(split, **options), alone(split, single_positive_every=2, **options)
    for epoch in (1, 3):
        assert objective.epoch_steps(epoch, 1) == plain.epoch_steps(epoch, 1)
        assert objective.batch(epoch, [3, 4, 5]).requests == plain.batch(epoch, [3, 4, 5]).requests

    drawn = [[objective.candidates(epoch, anchor)[0] for anchor in range(len(records))] for epoch in (0, 2)]
    assert drawn[0] != drawn[1]
    assert sorted(flat(objective.epoch_steps(0, 1))) == sorted(flat(plain.epoch_steps(0, 1)))
    anchors = objective.epoch_steps(0, 1)[0][0]
    assert len({records[anchor].idiom for anchor in anchors}) == 6
    two_modes = {"query_mode": ["span", "masked_sentence"], "query_weights": [1.0, 0.5]}
    assert (
        len(alone(split, single_positive_every=2, **(options | two_modes)).batch(0, anchors).requests)
        == 3 * 48
    )
    batch = objective.batch(0, anchors)
    assert [r.pooling for r in batch.requests] == ["span"] * 48 + ["sentence"] * 48
    vectors, result = vectors_for(objective, batch)
    positives = [objective.candidates(0, anchor)[0][0] for anchor in anchors]
    documents = [of_id[objective.record_name(number)] for number in positives]
    expected = 0.0
    for anchor, own in zip((records[a] for a in anchors), documents, strict=True):
        assert (own.idiom, own.meaning) == (anchor.idiom, anchor.meaning)
        query = vectors[EmbeddingRequest(anchor.sentence, anchor.span_offsets, role="query", pooling="span")]
        e = [likeness(query, vectors[EmbeddingRequest(d.sentence)]) for d in documents]
        same = [(d.idiom, d.meaning) == (anchor.idiom, anchor.meaning) for d in documents]
        itself = [d.id == anchor.id for d in documents]  # it is no candidate of its own
        below = sum(x for x, is_same in zip(e, same, strict=True) if not is_same)
        alike = [x for x, s, i in zip(e, same, itself, strict=True) if s and not i]
        expected += sum(math.log(1 + below / x) for x in alike) / len(alike)
    assert result.loss.item() == pytest.approx(expected / len(anchors), rel=1e-6)


def test_a_mode_that_is_named_twice_weighs_twice(split: Split) -> None:
    twice = build(split, query_mode=["span", "sentence", "span"], query_weights=[1.0, 1.0, 2.0])
    once = build(split, query_mode=["span", "sentence"], query_weights=[3.0, 1.0])
    rows = torch.randn(9 + 18, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows[6:9] = rows[:3]
    anchors = [0, 40, 80]
    loss = twice.loss(rows, twice.batch(0, anchors)).loss
    expected = once.loss(torch.cat([rows[:6], rows[9:]]), once.batch(0, anchors)).loss
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
