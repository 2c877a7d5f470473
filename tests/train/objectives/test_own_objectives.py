"""Objectives on a user's own data: the same losses as those that they generalise, bit for bit."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import (
    CoSENTLoss,
    CosineSimilarityLoss,
    MultipleNegativesRankingLoss,
)

from tests.tiny_objectives import contrastive, options, triplets
from tests.tiny_runs import composed
from train.config import TrainSettings, check
from train.data.idiolink import Document, Split, load_split
from train.data.own.load import load_own
from train.data.own.store import number_for
from train.data.semeval2022 import read_groups
from train.data.tuples import TrainingTuple, draw_tuples
from train.declarations.own_data import OwnData
from train.encoder.encoder import Encoder
from train.errors import UserError
from train.factory import build_objective
from train.objectives import Batch, Objective
from train.objectives.idiolink import IdioLinkData
from train.objectives.own_rows import OwnContrastiveData, labelled_rows
from train.objectives.triplets import TripletObjective
from train.requests import Request

_DEFAULTS = {name: composed("config")["data"][name] for name in OwnData.model_fields}


@pytest.fixture(scope="module")
def split(sample_root: Path) -> Split:
    return load_split(sample_root, "train")


def write_jsonl(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def own_data(path: Path, tmp_path: Path, held_out: dict[str, Any], **changes: Any) -> OwnContrastiveData:
    """All rows of a file as training data; another file is held out."""
    val = write_jsonl(tmp_path / "val.jsonl", [held_out])
    splits = load_own(OwnData(**(_DEFAULTS | {"train": [str(path)], "val": [str(val)]} | changes)))
    return OwnContrastiveData(splits.train, splits.files, options("own"))


def labelled(
    train: Path, val: Path, *, batch_size: int, order: str = "shuffled", **loss: float
) -> TripletObjective:
    """Labelled sentences as `conf/objective/own.yaml` has them."""
    splits = load_own(OwnData(**(_DEFAULTS | {"train": [str(train)], "val": [str(val)]})))
    settings = SimpleNamespace(trainer=SimpleNamespace(batch_size=batch_size), seed=0)
    return labelled_rows(splits, options("own", order=order, triplet=loss), settings)


def embedded(batch: Batch) -> torch.Tensor:
    """A vector for what each request embeds: the same for the same text, span and pooling."""
    rows = []
    for request in batch.requests:
        span = request.span if request.pooling == "span" else None
        seed = number_for(repr((request.text, span, request.role))) % 2**31
        rows.append(torch.randn(8, generator=torch.Generator().manual_seed(seed)))
    return torch.stack(rows).requires_grad_()


def losses(objective: Objective, epochs: int = 2) -> list[tuple[float, torch.Tensor]]:
    """Loss and gradient of every step."""
    found = []
    for epoch in range(epochs):
        for step in objective.epoch_steps(epoch, 1):
            batch = objective.batch(epoch, step[0])
            embeddings = embedded(batch)
            loss = objective.loss(embeddings, batch).loss
            loss.backward()  # type: ignore[no-untyped-call]
            assert embeddings.grad is not None
            found.append((loss.item(), embeddings.grad))
    return found


def as_row(record: Document) -> dict[str, Any]:
    start, end = record.span_offsets
    return {
        "text": record.sentence,
        "span_start": start,
        "span_end": end,
        "group": record.idiom,
        "meaning": record.meaning,
        "usage": record.usage,
    }


def assert_same(ours: list[tuple[float, torch.Tensor]], reference: list[tuple[float, torch.Tensor]]) -> None:
    assert len(ours) == len(reference) > 1
    for (loss, gradient), (expected, expected_gradient) in zip(ours, reference, strict=True):
        assert loss == expected
        assert torch.equal(gradient, expected_gradient)


def test_idiolink_as_sentences_gives_the_same_losses(split: Split, tmp_path: Path) -> None:
    """As `idiolink_ft` trains: a batch's sentences against each other, in three modes."""
    records = [*split.queries, *split.documents]
    tuples = [TrainingTuple(record.id, (), (), ()) for record in records]
    changes: dict[str, Any] = {
        "batch_size": 24,
        "query_mode": ["span", "sentence", "masked_span"],
        "query_weights": [1.0, 0.5, 0.5],
        "idioms_per_batch": 6,
        "loss": {"temperature": 0.03, "hard_weight": 5.0},
    }
    reference = contrastive(IdioLinkData(split, lambda _epoch: tuples, from_batch=True), **changes)
    path = write_jsonl(tmp_path / "train.jsonl", [as_row(record) for record in records])
    data = own_data(path, tmp_path, {"text": "It rains.", "group": "rain"})
    assert_same(losses(contrastive(data, **changes)), losses(reference))


def test_idiolink_as_pairs_gives_the_same_losses(split: Split, tmp_path: Path) -> None:
    """Tuples with hard and soft negatives, drawn once; false negatives are masked by group and meaning."""
    drawn = draw_tuples(split.queries, split.documents, num_positives=2, num_hard=2, num_soft=3, seed=[0])
    changes: dict[str, Any] = {"batch_size": 8, "query_mode": ["span"]}
    reference = contrastive(IdioLinkData(split, lambda _epoch: drawn), **changes)
    records = {record.id: record for record in (*split.documents, *split.queries)}
    rows = [
        {
            "query": as_row(records[t.anchor]),
            "pos": [as_row(records[i]) for i in t.positives],
            "neg": [as_row(records[i]) for i in (*t.hard, *t.soft)],
        }
        for t in drawn
    ]
    data = own_data(write_jsonl(tmp_path / "t.jsonl", rows), tmp_path, {"query": "a", "pos": ["b"]})
    own = contrastive(data, **changes)
    assert_same(losses(own), losses(reference))
    batch = own.batch(0, own.epoch_steps(0, 1)[0][0])
    assert own.loss(embedded(batch), batch).counts["false_negatives"] > 0


def test_the_triplets_file_as_labelled_sentences_gives_its_batches(sample_root: Path, tmp_path: Path) -> None:
    path = sample_root.parent / "semeval2022_task2b/SubTaskB/TrainData/train_data.csv"
    groups = read_groups(path)
    reference = triplets(groups, batch_size=24, groups_="all")
    table = tmp_path / "labelled.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label", "group"])
        for group in groups:
            writer.writerow([group.sentence, f"{group.id} same", group.id])
            writer.writerows([text, f"{group.id} same", group.id] for text in group.correct)
            writer.writerows([text, f"{group.id} {i}", group.id] for i, text in enumerate(group.incorrect))
    val = write_jsonl(tmp_path / "val.jsonl", [{"text": "It rains.", "label": "rain"}])
    own = labelled(table, val, batch_size=24)
    for epoch in (0, 1):
        steps = own.epoch_steps(epoch, 2)
        assert steps == reference.epoch_steps(epoch, 2)
        for step in steps:
            ours, expected = own.batch(epoch, step[0]), reference.batch(epoch, step[0])
            assert ours.requests == expected.requests
    assert_same(losses(own), losses(reference))


def test_rows_that_share_a_text_are_no_negatives_of_each_other(tmp_path: Path) -> None:
    """Two rows with one question, and two with one answer."""
    rows = [
        {"question": "What is rain?", "answer": "Water that falls."},
        {"question": "What is rain?", "answer": "Drops from clouds."},
        {"question": "What is snow?", "answer": "Frozen water."},
        {"question": "And hail?", "answer": "Frozen water."},
    ]
    data = own_data(write_jsonl(tmp_path / "t.jsonl", rows), tmp_path, {"question": "a", "answer": "b"})
    objective = contrastive(data, batch_size=4, loss={"in_batch": "all"})
    batch = objective.batch(0, [0, 1, 2, 3])
    assert batch.targets.masks.negative.int().tolist() == [
        [0, 0, 1, 1],
        [0, 0, 1, 1],
        [1, 1, 0, 0],
        [1, 1, 0, 0],
    ]
    assert batch.requests[0] == Request("What is rain?", role="query")
    assert batch.anchors[1] == f"{tmp_path / 't.jsonl'} row 2"


def test_several_positives_come_in_turn(tmp_path: Path) -> None:
    rows = [{"query": "q", "pos": ["a", "b", "c"], "neg": ["n"]}]
    full = own_data(write_jsonl(tmp_path / "t.jsonl", rows), tmp_path, {"query": "x", "pos": ["y"]})
    data = OwnContrastiveData(full.examples, [], options("own", num_positives=2))
    read = full.examples.store.read_text
    drawn = [[read(text) for text in data.candidates(epoch, 0)[0]] for epoch in (0, 1, 2)]
    assert drawn == [["a", "b"], ["c", "a"], ["b", "c"]]


@pytest.mark.parametrize("with_negatives", [False, True])
def test_pairs_of_a_csv_have_sentence_transformers_losses(
    tiny: Encoder, tiny_path: Path, tmp_path: Path, with_negatives: bool
) -> None:
    """MultipleNegativesRankingLoss, batch by batch, both from the files on, without dropout."""
    columns = ["anchor", "positive", *(["negative"] if with_negatives else [])]
    rows = [{column: f"the {column} of row {i}" for column in columns} for i in range(12)]
    path = tmp_path / "pairs.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    config = composed("config", "+experiment=own", f"data.train={path}", "trainer.batch_size=5")
    config["data"]["val"] = str(write_jsonl(tmp_path / "val.jsonl", [{c: f"val {c}" for c in columns}]))
    objective = build_objective(check(TrainSettings, config))
    model = SentenceTransformer(str(tiny_path), device="cpu").eval()
    reference = MultipleNegativesRankingLoss(model)
    by_anchor = {row["anchor"]: row for row in rows}
    steps = objective.epoch_steps(0, 1)
    assert [len(step[0]) for step in steps] == [5, 5, 2]
    tiny.eval()
    with torch.no_grad():
        for step in steps:
            batch = objective.batch(0, step[0])
            ours = objective.loss(tiny(batch.requests), batch).loss
            chosen = [by_anchor[request.text] for request in batch.requests[: len(step[0])]]
            features = [model.preprocess([row[column] for row in chosen]) for column in columns]
            torch.testing.assert_close(ours, reference(features, None), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("loss", ["cosent", "cosine"])
def test_scored_pairs_of_a_csv_have_sentence_transformers_losses(
    tiny: Encoder, tiny_path: Path, tmp_path: Path, loss: str
) -> None:
    rows = [{"sentence1": f"a cat {i}", "sentence2": f"some {i} cats", "score": i / 10} for i in range(10)]
    path = write_jsonl(tmp_path / "scored.jsonl", rows)
    val = write_jsonl(
        tmp_path / "val.jsonl", [{"sentence1": "x", "sentence2": "y", "score": i} for i in (0, 1)]
    )
    config = composed("config", "+experiment=own", f"data.train={path}", f"objective.loss={loss}")
    config["data"]["val"] = str(val)
    config["trainer"]["batch_size"] = 4
    objective = build_objective(check(TrainSettings, config))
    model = SentenceTransformer(str(tiny_path), device="cpu").eval()
    reference = {"cosent": CoSENTLoss, "cosine": CosineSimilarityLoss}[loss](model)
    tiny.eval()
    with torch.no_grad():
        for step in objective.epoch_steps(0, 1):
            batch = objective.batch(0, step[0])
            ours = objective.loss(tiny(batch.requests), batch).loss
            texts = [request.text for request in batch.requests]
            half = len(texts) // 2
            features = [model.preprocess(texts[:half]), model.preprocess(texts[half:])]
            expected = reference(features, batch.targets.float())
            torch.testing.assert_close(ours.float(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("batch_size", "fits"), [(8, True), (12, True), (4, False), (6, False)])
def test_a_batch_of_labels_alone_holds_two_of_them(tmp_path: Path, batch_size: int, fits: bool) -> None:
    """Without groups: four sentences of each label; of one label alone no triplet could be mined."""
    rows = [{"text": f"sentence {i}", "label": f"label {i % 5}"} for i in range(60)]
    train, val = (
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
        for name, rows in (("t", rows), ("v", [{"text": "a", "label": "b"}]))
    )
    if not fits:
        with pytest.raises(UserError, match=r"trainer\.batch_size=.*objective\.per_label=4"):
            labelled(train, val, batch_size=batch_size)
        return
    objective = labelled(train, val, batch_size=batch_size)
    steps = objective.epoch_steps(0, 1)
    assert sorted(anchor for step in steps for shard in step for anchor in shard) == list(range(60))
    labels = [objective.batch(0, step[0]).targets.labels.bincount() for step in steps]
    assert all((found[found > 0] == 4).all() for found in labels)
    # Fifteen times four sentences of one label: where two go together, the last are alone.
    assert sum(int((found > 0).sum()) < batch_size // 4 for found in labels) <= 1


def test_a_labelled_batch_that_another_term_learns_from_is_not_empty(tmp_path: Path) -> None:
    rows = [{"text": f"sentence {i}", "label": f"{i // 4}", "group": f"{i // 4}"} for i in range(8)]
    train, val = (
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
        for name, rows in (("t", rows), ("v", [{"text": "a", "label": "b", "group": "c"}]))
    )
    for weight, is_empty in ((0.5, False), (0.0, True)):
        objective = labelled(train, val, batch_size=4, order="file", correct_weight=weight)
        batch = objective.batch(0, objective.epoch_steps(0, 1)[0][0])
        x = embedded(batch)
        result = objective.loss(x, batch)
        result.loss.backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None
        assert result.is_empty == bool(batch.empty_because) == (not x.grad.any()) == is_empty


def test_a_positive_equal_to_its_anchor_is_another_view(tmp_path: Path) -> None:
    rows = [{"anchor": f"text {i}", "positive": [f"text {i}", f"other {i}"]} for i in range(4)]
    data = own_data(write_jsonl(tmp_path / "a.jsonl", rows), tmp_path, {"anchor": "x", "positive": "y"})
    batch = contrastive(data, batch_size=4).batch(0, range(4))
    assert [(r.text[:4], r.view) for r in batch.requests if r.role == "document"] == [
        ("text", 1),
        ("othe", 0),
    ] * 4
    assert not any(r.view for r in batch.requests if r.role == "query")
