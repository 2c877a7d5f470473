"""IdioLink: what is wrong with a file is named by record and field; training tuples, released and drawn."""

import json
from pathlib import Path
from typing import Any

import pytest

from idiomtune.data.idiolink import (
    INSTRUCTION,
    Document,
    Split,
    TrainingTuple,
    check_disjoint,
    document_splits,
    draw_tuples,
    fold_splits,
    load_split,
    query_request,
    query_splits,
    read_released,
    released_file,
    training_request,
)
from idiomtune.errors import UserError
from tests.programs import refused


def record(id_: str, usage: str, idiom: str = "break the ice", **changes: Any) -> dict[str, Any]:
    sentence = f"They {idiom} in case {id_}."
    known = {"id": id_, "sentence": sentence, "idiom": idiom, "span": idiom, "usage": usage}
    return {**known, "subject": "Sport", "is_gold": False} | changes


DOCUMENTS = [record("d1", "literal"), record("d2", "idiomatic"), record("d3", "sense")]
QUERIES = [record("q1", "literal"), record("q2", "idiomatic")]
INDEXES, ASKED = "indexes.json", "queries.json"


def write_split(root: Path, name: str, documents: Any, queries: Any) -> Path:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in ((INDEXES, documents), (ASKED, queries)):
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / file).write_text(text, encoding="utf-8")
    return root


# A field's value in a record, or without one.
FIELDS: list[tuple[str, Any]] = [
    *(("id", None), ("span", " "), ("sentence", 3), ("subject", "\ud800"), ("is_gold", "true"), ("more", 1)),
    *(("span", "no such words"), ("idiom", "…!"), ("id", "d1")),
]
# file, its content, what the message names besides the file
SPOILED: list[tuple[str, Any, tuple[str, ...]]] = [
    *((INDEXES, content, ()) for content in ({"a": 1}, "[]", "[NaN]", f"[{'1' * 5000}]", "[" * 100_000)),
    (INDEXES, "[{", ("line 1 column 3",)),
    (INDEXES, ["text"], ("record 1",)),
    (INDEXES, json.dumps(DOCUMENTS).replace('"id":', '"id": "x", "id":', 1), ("'id'",)),
    (ASKED, [record("q1", "sense")], ("field 'usage'", "'sense'")),
    (ASKED, [record("d1", "literal")], ("field 'id'", "record 1 of indexes.json")),
    (ASKED, [record("q1", "literal", "a b")], ("record 1 (id q1)", "field 'idiom'")),
    *((INDEXES, [*DOCUMENTS[:2], DOCUMENTS[2] | dict([f])], ("record 3", f"'{f[0]}'")) for f in FIELDS),
    (INDEXES, [{k: v for k, v in DOCUMENTS[0].items() if k != "id"}], ("record 1", "'id'")),
]


@pytest.mark.parametrize(("file", "content", "named"), SPOILED, ids=[str(n) for n in range(len(SPOILED))])
def test_what_is_wrong_with_a_split_is_named(
    tmp_path: Path, file: str, content: Any, named: tuple[str, ...]
) -> None:
    files = {INDEXES: DOCUMENTS, ASKED: QUERIES} | {file: content}
    write_split(tmp_path, "val", files[INDEXES], files[ASKED])
    refused(lambda: load_split(tmp_path, "val"), file, *named)


def test_an_idiom_or_an_id_in_two_splits_is_refused(tmp_path: Path) -> None:
    for ids, idiom in ((["x1", "y1"], "BREAK-the ice"), (["d1", "y1"], "spill the beans")):
        write_split(tmp_path, "train", DOCUMENTS, QUERIES)
        other = [record(id_, "literal", idiom=idiom) for id_ in ids]
        write_split(tmp_path, "val", other[:1], other[1:])
        with pytest.raises(UserError, match=r"idiom|'d1'"):
            load_split(tmp_path, "val+train")


def test_joined_split_has_the_first_ones_queries_and_all_documents(sample_root: Path) -> None:
    val, train = load_split(sample_root, "val"), load_split(sample_root, "train")
    both = load_split(sample_root, "val+train")
    assert both.queries == val.queries
    assert both.documents == val.documents + train.documents
    refused(lambda: load_split(sample_root, "tset"), "'tset'", "val")
    whole = load_split(sample_root, "all")
    assert set(whole.queries) == {*val.queries, *train.queries}
    assert set(whole.documents) == set(both.documents)


def test_instruction_quotes_the_span_and_keeps_the_usage_secret() -> None:
    literal, idiomatic = (Document.model_validate(record("d1", usage)) for usage in ("literal", "idiomatic"))
    request = query_request(literal, "instruction_span")
    assert request.instruction == INSTRUCTION.replace("{span}", "break the ice")
    assert query_request(idiomatic, "instruction_span") == request
    assert (request.role, request.pooling) == ("query", "span")
    assert query_request(literal, "sentence").instruction is None


def test_real_splits_and_their_released_tuples(real_data: Path) -> None:
    root = real_data / "idiolink"
    train, val = load_split(root, "train"), load_split(root, "val")
    check_disjoint([train, val])
    assert [(len(x.documents), len(x.queries)) for x in (train, val)] == [(2200, 440), (1000, 200)]
    assert [len({d.idiom for d in x.documents}) for x in (train, val)] == [22, 10]
    tuples = read_released(released_file(root, "train"), train)
    assert [t.anchor for t in tuples] == [q.id for q in train.queries]
    assert {(len(t.positives), len(t.hard), len(t.soft)) for t in tuples} == {(1, 2, 3)}
    assert len({t.positives for t in tuples}) == 402
    assert len({i for t in tuples for i in (*t.hard, *t.soft)}) == 1423


def test_folds_hold_out_every_idiom_once(sample_root: Path) -> None:
    both = [load_split(sample_root, name) for name in ("train", "val")]
    idioms = {d.idiom for split in both for d in split.documents}
    held_out: list[str] = []
    for fold in range(4):
        training, scored = fold_splits(sample_root, fold, 4)
        of_fold = {q.idiom for q in scored.queries}
        held_out += sorted(of_fold)
        assert not of_fold & {r.idiom for r in (*training.documents, *training.queries)}
        assert {d.idiom for d in scored.documents} == idioms, "the corpus is that of all idioms"
        assert {d.idiom for d in training.documents} == idioms - of_fold
        assert len(scored.queries) + len(training.queries) == sum(len(s.queries) for s in both)
        assert fold_splits(sample_root, fold, 4)[1].queries == scored.queries
    assert sorted(held_out) == sorted(idioms)
    for fold, folds in ((4, 4), (0, 99)):
        with pytest.raises(UserError, match=rf"data\.fold={fold} of data\.folds={folds}: .* 18 idioms"):
            fold_splits(sample_root, fold, folds)


@pytest.fixture(scope="module")
def split(sample_root: Path) -> Split:
    return load_split(sample_root, "train")


def draw(split: Split, seed: int, **changes: int) -> list[TrainingTuple]:
    options = {"num_positives": 2, "num_hard": 2, "num_soft": 3} | changes
    return draw_tuples([*split.queries, *split.documents], split.documents, **options, seed=[seed])


def test_drawn_tuples_keep_the_rules_and_follow_from_the_seed(split: Split) -> None:
    records = {r.id: r for r in (*split.documents, *split.queries)}
    tuples = draw(split, 0)
    assert len(tuples) == len(records)
    for t in tuples:
        anchor, positives, hard, soft = t.anchor, t.positives, t.hard, t.soft
        assert (len(positives), len(hard), len(soft)) == (2, 2, 3)
        assert len({anchor, *positives, *hard, *soft}) == 8
        own = records[anchor]
        assert {(records[i].idiom, records[i].meaning) for i in positives} == {(own.idiom, own.meaning)}
        assert {records[i].idiom for i in hard} == {own.idiom}
        assert own.meaning not in {records[i].meaning for i in hard}
        assert own.idiom not in {records[i].idiom for i in soft}
    assert draw(split, 0) == tuples != draw(split, 1)
    # Every document of the class is drawn sooner or later.
    query = split.queries[0]
    drawn = {t.positives for seed in range(60) for t in draw(split, seed, num_positives=1)[:1]}
    pool = {(d.id,) for d in split.documents if (d.idiom, d.meaning) == (query.idiom, query.meaning)}
    assert drawn == pool


def test_fewer_documents_than_asked_for_give_ragged_tuples(split: Split) -> None:
    tuples = draw(split, 0, num_positives=1000, num_hard=1000, num_soft=1000)
    records = {r.id: r for r in split.documents}
    of_document = next(t for t in tuples if t.anchor in records and records[t.anchor].usage == "literal")
    sizes = len(of_document.positives), len(of_document.hard), len(of_document.soft)
    assert sizes == (7, 12, 100)  # eight literal documents, itself left out
    lonely = split.queries[0].model_copy(update={"idiom": "unheard of"})
    (t,) = draw_tuples([lonely], split.documents, num_positives=1, num_hard=1, num_soft=2, seed=[0])
    assert (t.positives, t.hard, len(t.soft)) == ((), (), 2)


def test_broken_released_files_are_explained(tmp_path: Path, split: Split) -> None:
    """Also a positive of another meaning than its query's."""
    path, query = released_file(tmp_path, "train"), split.queries[0]
    path.parent.mkdir()
    refused(lambda: read_released(path, split), "objective.candidates=sampled", path.name)
    other = next(d for d in split.documents if d.idiom == query.idiom and d.meaning != query.meaning)
    for line, expected in (
        ('{"query": "x"}', "field 'positive'"),
        ('{"query": "x", "positive": "y", "negatives": ["z"]}', "'x'"),
        ('{"query": "{0}", "positive": "{1}", "negatives": ["{1}"]}', "row 1"),
    ):
        filled = line.replace("{0}", query.sentence).replace("{1}", other.sentence)
        path.write_text(filled + "\n", encoding="utf-8")
        refused(lambda: read_released(path, split), expected, "triplets_train_full.jsonl")


def test_a_span_is_hidden_but_where_nothing_else_is_left() -> None:
    for sentence, hidden, span in (
        ("They break the ice.", "They [MASK].", (5, 11)),
        ("break the ice", "break the ice", (0, 13)),
    ):
        document = Document.model_validate(record("d1", "literal", sentence=sentence))
        for mode, pooling in (("masked_sentence", "sentence"), ("masked_span", "span")):
            request = training_request(document, mode, "document")  # type: ignore[arg-type]
            assert (request.text, request.span, request.pooling) == (hidden, span, pooling)


def test_what_is_trained_on_and_scored_is_known_by_splits() -> None:
    for trained, scored, is_seen in (("train", "all", 1), ("all", "val", 1), ("train", "val+train", 0)):
        assert bool(set(query_splits(scored)) & set(document_splits(trained))) == is_seen
