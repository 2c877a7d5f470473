"""Training tuples: the released ones by id, the drawn ones by rule and by seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from train.data.idiolink import (
    Split,
    TrainingTuple,
    draw_tuples,
    load_split,
    read_released,
    released_file,
)
from train.errors import UserError


@pytest.fixture(scope="module")
def split(sample_root: Path) -> Split:
    return load_split(sample_root, "train")


def draw(split: Split, seed: int, **changes: int) -> list[TrainingTuple]:
    options = {"num_positives": 2, "num_hard": 2, "num_soft": 3} | changes
    anchors = [*split.queries, *split.documents]
    return draw_tuples(anchors, split.documents, **options, seed=[seed])


def test_drawn_tuples_keep_the_rules(split: Split) -> None:
    records = {r.id: r for r in (*split.documents, *split.queries)}
    tuples = draw(split, 0)
    assert len(tuples) == len(records)
    for t in tuples:
        anchor = records[t.anchor]
        assert len(t.positives) == 2
        assert len(t.hard) == 2
        assert len(t.soft) == 3
        drawn = (*t.positives, *t.hard, *t.soft)
        assert len(set(drawn)) == len(drawn)
        assert t.anchor not in drawn
        for id_ in t.positives:
            assert (records[id_].idiom, records[id_].meaning) == (anchor.idiom, anchor.meaning)
        for id_ in t.hard:
            assert records[id_].idiom == anchor.idiom
            assert records[id_].meaning != anchor.meaning
        for id_ in t.soft:
            assert records[id_].idiom != anchor.idiom


def test_drawing_is_a_function_of_the_seed(split: Split) -> None:
    assert draw(split, 1) == draw(split, 1)
    assert draw(split, 1) != draw(split, 2)


def test_every_document_of_the_class_is_drawn_sooner_or_later(split: Split) -> None:
    anchor = split.queries[0]
    pool = {d.id for d in split.documents if (d.idiom, d.meaning) == (anchor.idiom, anchor.meaning)}
    drawn: set[str] = set()
    for seed in range(60):
        (t,) = draw_tuples([anchor], split.documents, num_positives=1, num_hard=0, num_soft=0, seed=[seed])
        drawn.update(t.positives)
    assert drawn == pool


def test_fewer_documents_than_asked_for_give_ragged_tuples(split: Split) -> None:
    tuples = draw(split, 0, num_positives=1000, num_hard=1000, num_soft=1000)
    records = {r.id: r for r in split.documents}
    of_document = next(t for t in tuples if t.anchor in records and records[t.anchor].usage == "literal")
    assert len(of_document.positives) == 7  # eight literal documents, itself left out
    assert len(of_document.hard) == 12
    assert len(of_document.soft) == 100


def test_anchor_without_a_positive_keeps_its_place_with_none(split: Split) -> None:
    lonely = split.queries[0].model_copy(update={"idiom": "unheard of"})
    (t,) = draw_tuples([lonely], split.documents, num_positives=1, num_hard=1, num_soft=2, seed=[0])
    assert t.positives == t.hard == ()
    assert len(t.soft) == 2


def test_real_released_tuples_map_to_ids(real_data: Path) -> None:
    root = real_data / "idiolink"
    split = load_split(root, "train")
    tuples = read_released(released_file(root, "train"), split)
    assert [t.anchor for t in tuples] == [q.id for q in split.queries]
    assert {(len(t.positives), len(t.hard), len(t.soft)) for t in tuples} == {(1, 2, 3)}
    assert len({t.positives for t in tuples}) == 402
    assert len({i for t in tuples for i in (*t.hard, *t.soft)}) == 1423


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", "line 1, column 1: not valid JSON"),
        ('{"query": "x"}', "line 1, field 'positive': is missing"),
        ("[]", "line 1"),
        ('{"query": "x", "positive": "y", "negatives": []}', "line 1, field 'negatives'"),
        ('{"query": "x", "positive": "y", "negatives": ["z"]}', "'x' is not a sentence of split train"),
        ("", "there is no row"),
    ],
)
def test_broken_released_files_are_explained(tmp_path: Path, split: Split, line: str, expected: str) -> None:
    path = tmp_path / "triplets_train_full.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_released(path, split)
    assert expected in str(caught.value)
    assert "triplets_train_full.jsonl" in str(caught.value)


def test_released_positive_of_the_wrong_meaning_is_refused(tmp_path: Path, split: Split) -> None:
    query = split.queries[0]
    wrong = next(d for d in split.documents if d.idiom == query.idiom and d.meaning != query.meaning)
    path = tmp_path / "t.jsonl"
    row = {"query": query.sentence, "positive": wrong.sentence, "negatives": [wrong.sentence]}
    path.write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(UserError, match="line 1, has a positive or negative that is not one of"):
        read_released(path, split)


def test_no_released_file_says_what_to_do(tmp_path: Path, split: Split) -> None:
    with pytest.raises(UserError, match=r"objective\.tuples=drawn"):
        read_released(released_file(tmp_path, "train"), split)
