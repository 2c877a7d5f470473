"""Objectives on a user's own data: the same losses as those that they generalise, bit for bit."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import (
    CoSENTLoss,
    CosineSimilarityLoss,
    MultipleNegativesRankingLoss,
)

from idiomtune import Encoder
from idiomtune.config import TrainSettings, validate
from idiomtune.data.idiolink import Document, Split, draw_tuples, load_split
from idiomtune.data.semeval2022 import read_groups
from idiomtune.data.user.load import UserSplits, forget_user_data, load_user_data
from idiomtune.data.user.text_table import stable_hash
from idiomtune.errors import UserError
from idiomtune.objectives import Batch, Objective
from idiomtune.objectives.user_data import LabelledObjective
from idiomtune.plugins.dataset import UserData
from idiomtune.requests import EmbeddingRequest
from idiomtune.training.objective import build_objective
from tests.own_data import write_lines
from tests.tiny_objectives import idiolink, options, own_pairs, triplets
from tests.tiny_runs import composed

Rows = list[dict[str, Any]]
_DEFAULTS = {name: composed("train")["data"][name] for name in UserData.model_fields}


@pytest.fixture(scope="module")
def split(sample_root: Path) -> Split:
    return load_split(sample_root, "train")


def own_data(folder: Path, rows: Rows, held_out: dict[str, Any]) -> UserSplits:
    """All of these rows as training data; another file is held out."""
    files = {"train": rows, "val": [held_out]}
    paths = {name: [str(write_lines(folder / f"{name}.jsonl", some))] for name, some in files.items()}
    columns = {"label": "label"} if "label" in held_out else {}  # beside groups it is asked about
    return load_user_data(UserData(**(_DEFAULTS | paths | {"columns": columns})))


def labelled(folder: Path, rows: Rows, *, batch_size: int, order: str = "shuffled") -> LabelledObjective:
    """Labelled sentences as `conf/objective/own.yaml` has them."""
    splits = own_data(folder, rows, {"text": "It rains.", "label": "rain"})
    return LabelledObjective(options("own", order=order), splits, batch_size=batch_size, seed=0)


def embedded(batch: Batch) -> torch.Tensor:
    rows = []
    for request in batch.requests:
        span = request.span if request.pooling == "span" else None
        seed = stable_hash(repr((request.text, span, request.role))) % 2**31
        rows.append(torch.randn(8, generator=torch.Generator().manual_seed(seed)))
    return torch.stack(rows).requires_grad_()


def losses(objective: Objective, epochs: int = 2) -> list[tuple[float, torch.Tensor]]:
    every_step = []
    for epoch in range(epochs):
        for step in objective.epoch_steps(epoch, 1):
            batch = objective.batch(epoch, step[0])
            embeddings = embedded(batch)
            loss = objective.loss(embeddings, batch).loss
            every_step.append((loss.item(), torch.autograd.grad(loss, embeddings)[0]))
    return every_step


def as_row(record: Document) -> dict[str, Any]:
    start, end = record.span_offsets
    names = {"group": record.idiom, "meaning": record.meaning, "usage": record.usage}
    return {"text": record.sentence, "span_start": start, "span_end": end, **names}


def assert_same(ours: list[tuple[float, torch.Tensor]], reference: list[tuple[float, torch.Tensor]]) -> None:
    assert len(ours) == len(reference) > 1
    for (loss, gradient), (expected, expected_gradient) in zip(ours, reference, strict=True):
        assert loss == expected
        assert torch.equal(gradient, expected_gradient)


def test_idiolink_as_sentences_gives_the_same_losses(split: Split, tmp_path: Path) -> None:
    """As `idiolink_ft` trains: a batch's sentences against each other, in three modes."""
    records = [*split.queries, *split.documents]
    modes = {"query_mode": ["span", "sentence", "masked_span"], "query_weights": [1.0, 0.5, 0.5]}
    changes: dict[str, Any] = {"batch_size": 24, **modes}
    loss = {"temperature": 0.03, "hard_weight": 5.0}
    reference = idiolink(split, records, **changes, idioms_per_batch=6, loss=loss)
    data = own_data(tmp_path, [*map(as_row, records)], {"text": "It rains.", "group": "rain"})
    assert_same(losses(own_pairs(data, **changes, groups_per_batch=6, infonce=loss)), losses(reference))


def test_idiolink_as_pairs_gives_the_same_losses(split: Split, tmp_path: Path) -> None:
    """Tuples with hard and soft negatives, drawn once; false negatives are masked by group and meaning."""
    drawn = draw_tuples(split.queries, split.documents, num_positives=2, num_hard=2, num_soft=3, seed=[0])
    changes: dict[str, Any] = {"batch_size": 8, "query_mode": ["span"]}
    reference = idiolink(split, lambda _epoch: drawn, **changes)
    records = {record.id: record for record in (*split.documents, *split.queries)}
    rows = [
        {
            "query": as_row(records[t.anchor]),
            "pos": [as_row(records[i]) for i in t.positives],
            "neg": [as_row(records[i]) for i in (*t.hard, *t.soft)],
        }
        for t in drawn
    ]
    data = own_data(tmp_path, rows, {"query": "a", "pos": ["b"]})
    own = own_pairs(data, **changes, infonce=vars(reference.options)["loss"].model_dump())
    assert_same(losses(own), losses(reference))
    batch = own.batch(0, own.epoch_steps(0, 1)[0][0])
    assert own.loss(embedded(batch), batch).counts["false_negatives"] > 0


def test_the_triplets_file_as_labelled_sentences_gives_its_batches(sample_root: Path, tmp_path: Path) -> None:
    path = sample_root.parent / "semeval2022_task2b/SubTaskB/TrainData/train_data.csv"
    groups = read_groups(path)
    reference = triplets(groups, batch_size=24, groups_="all")
    rows = []
    for group in groups:
        for number, text in enumerate(group.texts):
            label = f"{group.id} {'same' if number <= len(group.correct) else number}"
            rows.append({"text": text, "label": label, "group": group.id})
    own = labelled(tmp_path, rows, batch_size=24)
    for epoch in (0, 1):
        assert own.epoch_steps(epoch, 2) == reference.epoch_steps(epoch, 2)
    assert_same(losses(own), losses(reference))


def test_rows_that_share_a_text_are_no_negatives_of_each_other(tmp_path: Path) -> None:
    """Two rows with one question, and two with one answer."""
    pairs = [("rain?", "water"), ("rain?", "drops"), ("snow?", "frozen water"), ("hail?", "frozen water")]
    rows = [{"question": question, "answer": answer} for question, answer in pairs]
    data = own_data(tmp_path, rows, {"question": "a", "answer": "b"})
    batch = own_pairs(data, batch_size=4, infonce={"in_batch": "all"}).batch(0, [0, 1, 2, 3])
    assert batch.targets.masks.negative.int().tolist() == [[0, 0, 1, 1]] * 2 + [[1, 1, 0, 0]] * 2
    assert batch.requests[0] == EmbeddingRequest("rain?", role="query")
    assert batch.anchors[1] == f"{tmp_path / 'train.jsonl'} row 2"


def test_several_positives_come_in_turn(tmp_path: Path) -> None:
    rows = [{"query": "q", "pos": ["a", "b", "c"], "neg": ["n"]}]
    full = own_data(tmp_path, rows, {"query": "x", "pos": ["y"]})
    data = own_pairs(full, num_positives=2)
    read = full.train.store.read_text
    drawn = [[read(text) for text in data.candidates(epoch, 0)[0]] for epoch in (0, 1, 2)]
    assert drawn == [["a", "b"], ["c", "a"], ["b", "c"]]


def features_of(model: SentenceTransformer, texts: Sequence[str], num_columns: int) -> list[Any]:
    """The texts of so many columns, one after another, as the library's losses take them."""
    size = len(texts) // num_columns
    return [model.preprocess(texts[i * size : (i + 1) * size]) for i in range(num_columns)]


TRIPLES = [{name: f"{name} {i}" for name in ("anchor", "positive", "negative")} for i in range(12)]
SCORED = [{"sentence1": f"a cat {i}", "sentence2": f"some {i} cats", "score": i / 12} for i in range(12)]


@pytest.mark.parametrize(
    ("rows", "loss", "theirs"),
    [
        (TRIPLES, "null", MultipleNegativesRankingLoss),
        (SCORED, "cosent", CoSENTLoss),
        (SCORED, "cosine", CosineSimilarityLoss),
    ],
)
def test_a_file_has_sentence_transformers_losses(
    tiny: Encoder, tiny_path: Path, tmp_path: Path, rows: list[dict[str, Any]], loss: str, theirs: Any
) -> None:
    """Batch by batch, both from the file on, without dropout."""
    forget_user_data()  # older releases of pytest use a folder again
    path = write_lines(tmp_path / "train.jsonl", rows)
    held_out = [{k: f"val {v}" if isinstance(v, str) else v for k, v in row.items()} for row in rows[:2]]
    val = write_lines(tmp_path / "val.jsonl", held_out)
    files = ("+experiment=own", f"data.train={path}", f"data.val={val}")
    config = composed("train", *files, f"objective.loss={loss}", "trainer.batch_size=5")
    objective = build_objective(validate(TrainSettings, config))
    model = SentenceTransformer(str(tiny_path), device="cpu").eval()
    reference = theirs(model)
    by_first = {next(iter(row.values())): row for row in rows}
    steps = objective.epoch_steps(0, 1)
    assert [len(step[0]) for step in steps] == [5, 5, 2]
    tiny.eval()
    with torch.no_grad():
        for step in steps:
            batch = objective.batch(0, step[0])
            ours = objective.loss(tiny(batch.requests), batch).loss
            chosen = [by_first[request.text] for request in batch.requests[: len(step[0])]]
            columns = [column for column in chosen[0] if column != "score"]
            texts = [row[column] for column in columns for row in chosen]
            scores = torch.tensor([row["score"] for row in chosen]) if "score" in chosen[0] else None
            expected = reference(features_of(model, texts, len(columns)), scores)
            torch.testing.assert_close(ours.float(), expected, rtol=1e-5, atol=1e-5)


def test_a_batch_of_labels_alone_holds_two_of_them(tmp_path: Path) -> None:
    """Without groups: four sentences of each label; of one label alone no triplet could be mined."""
    rows = [{"text": f"sentence {i}", "label": f"label {i % 5}"} for i in range(60)]
    for batch_size in (4, 6):
        with pytest.raises(UserError, match=r"trainer\.batch_size=.*objective\.per_label="):
            labelled(tmp_path, rows, batch_size=batch_size)
    objective = labelled(tmp_path, rows, batch_size=12)
    counts = [objective.batch(0, step[0]).targets.labels.bincount() for step in objective.epoch_steps(0, 1)]
    assert sum(int(count.sum()) for count in counts) == 60
    assert all((count[count > 0] == 4).all() for count in counts)


def test_a_positive_equal_to_its_anchor_is_another_view(tmp_path: Path) -> None:
    rows = [{"anchor": f"text {i}", "positive": [f"text {i}", f"other {i}"]} for i in range(4)]
    data = own_data(tmp_path, rows, {"anchor": "x", "positive": "y"})
    batch = own_pairs(data, batch_size=4).batch(0, range(4))
    views = [(r.text[:4], r.dropout_pass) for r in batch.requests if r.role == "document"]
    assert views == [("text", 1), ("othe", 0)] * 4
    assert not any(r.dropout_pass for r in batch.requests if r.role == "query")


def question(number: int, *more: str, **columns: Any) -> dict[str, Any]:
    return {"query": f"question {number}", "pos": [f"answer {number}", *more], **columns}


HARD = {"neg": ["a hard one"]}
SHARED = {"query": "one question", "pos": ["one answer"]}


@pytest.mark.parametrize(
    ("rows", "loss", "named"),
    [
        ([question(0)], {}, "trainer.accumulation"),
        ([question(0), question(1)], {"in_batch": "none"}, "infonce.in_batch"),
        ([SHARED, {**SHARED, "weight": 2}, question(0)], {}, "objective.groups_per_batch"),
        ([question(n, weight=0) for n in (0, 1)], {}, "column weight"),
        ([question(0, **HARD)], {"in_batch": "none", "soft_weight": 0.0}, "infonce.soft_weight"),
        ([question(0, **HARD)], {"in_batch": "none"}, ""),
        ([question(0, weight=0), question(1, weight=1)], {}, ""),
        ([question(0, "another")], {"denominator": "all_positives"}, ""),  # positives compete
        ([question(0)], {"denominator": "all_positives"}, "trainer.accumulation"),
    ],
)
def test_why_a_batch_has_nothing_to_learn_from(
    tmp_path: Path, rows: list[dict[str, Any]], loss: dict[str, Any], named: str
) -> None:
    """The first two rows are one batch, with two positives of each."""
    data = own_data(tmp_path, rows, {"query": "x", "pos": ["y"]})
    objective = own_pairs(data, batch_size=len(rows), num_positives=2, infonce={"in_batch": "all"} | loss)
    found = objective.batch(0, range(min(2, len(rows)))).skip_reason
    assert named in found
    assert bool(found) == bool(named)


def test_pairs_and_negatives_are_rows_of_a_batch(tmp_path: Path) -> None:
    """Two questions, then their answers with the second one's own negative: rows 0, 1; 2, 3, 4."""
    rows = [question(0), question(1, **HARD)]
    data = own_data(tmp_path, rows, {"query": "x", "pos": ["y"]})
    for kept in (False, True):
        loss = {"in_batch": "all", "false_negatives": "keep" if kept else "mask"}
        batch = own_pairs(data, infonce=loss).batch(0, [0, 1])
        texts = ["question 0", "question 1", "answer 0", "answer 1", "a hard one"]
        assert [r.text for r in batch.requests] == texts
        assert batch.pairs == [(0, 2), (1, 3)]
        negatives = None if batch.negatives is None else batch.negatives.tolist()
        assert negatives == (None if kept else [[0, 3], [0, 4], [1, 2], [1, 4]])


@pytest.mark.parametrize(
    ("num_groups", "meanings", "share", "chooses"),
    [(300, "", 1.0, True), (200, "il", 0.5, True), (40, "i", 0.9, False)],
)
def test_a_batch_of_labelled_sentences_has_positives(
    tmp_path: Path, num_groups: int, meanings: str, share: float, chooses: bool
) -> None:
    """Of many groups, shuffled batches would have almost none: then groups per batch are chosen."""
    rows: Rows = []
    for group, i in product(range(num_groups), range(4)):
        meaning = {"meaning": meanings[i % len(meanings)]} if meanings else {}
        rows.append({"text": f"sentence {i} of {group}", "group": f"g{group}", **meaning})
    train = write_lines(tmp_path / "train.jsonl", rows)
    val = write_lines(tmp_path / "val.jsonl", [{"text": "a b", "group": "v"}, {"text": "c d", "group": "v"}])

    def built(*more: str) -> Any:
        config = composed("train", "+experiment=own", f"data.train={train}", f"data.val={val}", *more)
        return build_objective(validate(TrainSettings, config))

    objective = built()
    steps = [step[0] for step in objective.epoch_steps(0, 1)]
    with_positive = [len({anchor for anchor, _ in objective.batch(0, step).pairs}) for step in steps]
    found = sum(with_positive) / sum(map(len, steps))
    assert found == pytest.approx(objective.share_with_positive())
    assert objective.share_with_positive() >= share
    assert ("groups_per_batch=" in objective.describe()) is chooses
    if chooses:
        assert built("objective.groups_per_batch=64").share_with_positive() < 0.1  # the option counts
        objective = built("trainer.batch_size=8", "objective.groups_per_batch=8")  # no two of a group
        empty = objective.batch(0, objective.epoch_steps(0, 1)[0][0]).skip_reason
        assert "objective.groups_per_batch=4" in empty


def test_a_sentence_alone_in_its_meaning_is_a_hard_negative(tmp_path: Path) -> None:
    """Of its group; a group without two sentences of a meaning is not used. All of it is said."""
    nums = {"idiomatic": 1, "literal": 4}
    rows = [
        {"text": f"sentence {i} of {group}, {meaning}", "group": f"g{group}", "meaning": meaning}
        for group in range(5)
        for meaning, num in nums.items()
        for i in range(num)
    ]
    rows += [{"text": f"sentence of {m}", "group": "unused", "meaning": m} for m in nums]
    data = own_data(tmp_path, rows, {"text": "a", "group": "v", "meaning": "m"})
    objective = own_pairs(data, batch_size=32, infonce={"hard_weight": 5.0})
    (step,) = objective.epoch_steps(0, 1)
    batch = objective.batch(0, step[0])
    assert len(step[0]) == 5 * sum(nums.values())
    single = min(nums, key=lambda meaning: nums[meaning])
    masks, texts = batch.targets.masks, [r.text for r in batch.requests[: len(step[0])]]
    alone = [i for i, text in enumerate(texts) if text.endswith(single)]
    assert not masks.positive[alone].any()
    hard = (masks.negative & masks.hard)[:, alone].sum(0)
    assert (hard[: len(alone)] >= max(nums.values())).all()
    (other,) = {*nums} - {single}
    num = 5 * nums[other]
    parts = [f"{other}: {num} anchors and positives, {num} of them with a hard negative, 0 hard negatives"]
    parts.append(f"{single}: 0 anchors and positives, 0 of them with a hard negative, 5 hard negatives")
    assert all(part in objective.describe() for part in parts)
    assert len(data.train) == len(step[0])
    assert any("not used" in note and "2 rows" in note for note in data.notes)
    gradient = torch.autograd.grad(objective.loss(rows_of := embedded(batch), batch).loss, rows_of)[0]
    assert gradient[len(texts) :][alone].abs().sum() > 0
