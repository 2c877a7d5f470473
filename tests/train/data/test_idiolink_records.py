"""IdioLink records: everything that can be wrong is found, and named by file, record and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from train.data.idiolink import Document, check_disjoint, fold_splits, load_split, query_request
from train.errors import UserError


def record(id_: str, usage: str, idiom: str = "break the ice", **changes: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "sentence": f"They {idiom} in case {id_}.",
        "idiom": idiom,
        "span": idiom,
        "subject": "Sport",
        "usage": usage,
        "is_gold": False,
    } | changes


DOCUMENTS = [record("d1", "literal"), record("d2", "idiomatic"), record("d3", "sense")]
QUERIES = [record("q1", "literal"), record("q2", "idiomatic")]


def write_split(root: Path, name: str, documents: Any, queries: Any) -> Path:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in (("indexes.json", documents), ("queries.json", queries)):
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / file).write_text(text, encoding="utf-8")
    return root


def test_a_sound_split_is_read(tmp_path: Path) -> None:
    split = load_split(write_split(tmp_path, "val", DOCUMENTS, QUERIES), "val")
    assert [d.id for d in split.documents] == ["d1", "d2", "d3"]
    assert [q.meaning for q in split.queries] == ["literal", "idiomatic"]
    assert split.documents[0].sentence[slice(*split.documents[0].span_offsets)] == "break the ice"


@pytest.mark.parametrize(
    ("documents", "queries", "expected"),
    [
        ("[{", QUERIES, ["indexes.json", "not valid JSON", "line 1 column 3"]),
        ({"a": 1}, QUERIES, ["indexes.json", "expected a list of records, got dict"]),
        (["text"], QUERIES, ["indexes.json", "record 1"]),
        ([], QUERIES, ["indexes.json", "empty"]),
        (DOCUMENTS, [], ["queries.json", "empty"]),
        (DOCUMENTS, [record("q1", "sense")], ["queries.json", "field 'usage'", "'sense' is not one of"]),
        (DOCUMENTS, [record("d1", "literal")], ["queries.json", "field 'id'", "record 1 of indexes.json"]),
        (
            DOCUMENTS[1:],
            QUERIES,
            ["queries.json", "record 1 (id q1)", "field 'idiom'", "no relevant document"],
        ),
    ],
)
def test_what_is_wrong_with_a_split_is_named(
    tmp_path: Path, documents: Any, queries: Any, expected: list[str]
) -> None:
    write_split(tmp_path, "val", documents, queries)
    with pytest.raises(UserError) as caught:
        load_split(tmp_path, "val")
    for part in expected:
        assert part in str(caught.value)


def test_missing_files_and_splits_are_named(tmp_path: Path) -> None:
    write_split(tmp_path, "val", DOCUMENTS, QUERIES)
    with pytest.raises(UserError, match=r"split 'tset' is not in .* \(splits there: val\)"):
        load_split(tmp_path, "tset")
    (tmp_path / "val" / "queries.json").unlink()
    with pytest.raises(UserError, match=r"queries\.json: cannot be read"):
        load_split(tmp_path, "val")


def test_an_idiom_or_an_id_in_two_splits_is_refused(tmp_path: Path) -> None:
    write_split(tmp_path, "train", DOCUMENTS, QUERIES)
    other = [record("x1", "literal"), record("x2", "idiomatic")]
    write_split(tmp_path, "val", other, [record("y1", "literal")])
    with pytest.raises(UserError, match="idiom 'break the ice' is in the splits val and train"):
        load_split(tmp_path, "val+train")
    renamed = [record("d1", "literal", idiom="spill the beans")]
    write_split(tmp_path, "val", renamed, [record("y1", "literal", idiom="spill the beans")])
    with pytest.raises(UserError, match="id 'd1' is in the splits train and val"):
        check_disjoint([load_split(tmp_path, "train"), load_split(tmp_path, "val")])


def test_joined_split_has_the_first_ones_queries_and_all_documents(sample_root: Path) -> None:
    val, train = load_split(sample_root, "val"), load_split(sample_root, "train")
    both = load_split(sample_root, "val+train")
    assert both.queries == val.queries
    assert both.documents == val.documents + train.documents


def test_sample_has_the_benchmarks_proportions(sample_root: Path) -> None:
    splits = {name: load_split(sample_root, name) for name in ("train", "val", "test")}
    check_disjoint(list(splits.values()))
    for name, num_idioms in (("train", 6), ("val", 3), ("test", 3)):
        usages: dict[str, dict[str, int]] = {}
        for d in splits[name].documents:
            of_idiom = usages.setdefault(d.idiom, {})
            of_idiom[d.usage] = of_idiom.get(d.usage, 0) + 1
        assert len(usages) == num_idioms
        for of_idiom in usages.values():
            assert of_idiom == {"literal": 8, "idiomatic": 4, "simplification": 4, "sense": 4}
        assert len(splits[name].queries) == 4 * num_idioms


def test_instruction_quotes_the_span_and_keeps_the_usage_secret() -> None:
    literal = Document.model_validate(record("d1", "literal"))
    request = query_request(literal, "instruction_span")
    assert request.instruction == (
        "Based on the literal/idiomatic usage of the span 'break the ice' in the query, retrieve "
        "documents that contain a span conveying the same conceptual meaning."
    )
    idiomatic = Document.model_validate(record("d1", "idiomatic"))
    assert query_request(idiomatic, "instruction_span") == request
    assert (request.role, request.pooling) == ("query", "span")
    assert query_request(literal, "sentence").instruction is None


def test_real_splits_have_the_documented_counts(real_data: Path) -> None:
    root = real_data / "idiolink"
    train, val = load_split(root, "train"), load_split(root, "val")
    check_disjoint([train, val])
    assert [len(x) for x in (train.documents, train.queries)] == [2200, 440]
    assert [len(x) for x in (val.documents, val.queries)] == [1000, 200]
    assert len({d.idiom for d in train.documents}) == 22
    assert len({d.idiom for d in val.documents}) == 10


def test_folds_hold_out_every_idiom_once(sample_root: Path) -> None:
    names = ("train", "val")
    both = [load_split(sample_root, name) for name in names]
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
        again = fold_splits(sample_root, fold, 4)[1]
        assert [q.id for q in again.queries] == [q.id for q in scored.queries]
    assert sorted(held_out) == sorted(idioms)


@pytest.mark.parametrize(("fold", "folds"), [(4, 4), (0, 99)])
def test_folds_that_are_none_are_explained(sample_root: Path, fold: int, folds: int) -> None:
    with pytest.raises(UserError, match=rf"data\.fold={fold} of data\.folds={folds}: there are 9 idioms"):
        fold_splits(sample_root, fold, folds)
