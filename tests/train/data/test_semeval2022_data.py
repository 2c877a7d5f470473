"""SemEval-2022 Task 2B's files: groups, pairs and gold, and each thing wrong named with its row and field."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from train.data.names import SemEvalSplit
from train.data.semeval2022 import FILES, ONE_SHOT_FILE, TRAIN_FILE, read_groups, read_pairs
from train.data.sources import DataFiles
from train.errors import UserError

HEADER = [
    "ID",
    "MWE1",
    "MWE2",
    "Language",
    "sentence_1",
    "sentence_2",
    "sim",
    "alternative_1",
    "alternative_2",
]
GOOD = [
    ["a.1", "cold feet", "None", "EN", "He got Cold-Feet.", "He had doubts.", "1", "", ""],
    ["a.2", "cold feet", "None", "EN", "He got Cold-Feet.", "He got icy toes.", "None", "", ""],
    ["b.1", "pé frio", "None", "PT", "Ele é pé frio.", "Ele é azarado.", "1", "", ""],
]


def table(folder: Path, rows: list[list[str]], header: list[str] = HEADER) -> Path:
    path = folder / "train.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def test_the_real_training_data_is_read_as_published(semeval_real: DataFiles) -> None:
    """REFERENCE: 3,643 groups, 2,497 with an incorrect paraphrase, 6,572 labels, 5,858 triplets."""
    groups = read_groups(semeval_real(TRAIN_FILE))
    assert len(groups) == 3643
    assert sum(bool(group.incorrect) for group in groups) == 2497
    assert sum(group.num_triplets > 0 for group in groups) == 2497
    assert sum(1 + len(group.incorrect) for group in groups) == 6572
    assert sum(group.num_triplets for group in groups) == 5858
    one_shot = read_groups(semeval_real(ONE_SHOT_FILE))
    assert {group.language for group in one_shot} == {"EN", "PT", "GL"}


def test_the_real_gold_is_read_as_published(semeval_real: DataFiles) -> None:
    dev = read_pairs(semeval_real, "dev")
    assert dev.gold is not None
    assert sum(item.is_sts for item in dev.gold) == 800
    idiom = [item for item in dev.gold if not item.is_sts]
    assert sum(item.similarity == 1 for item in idiom) == 569
    assert sum(item.similarity is None for item in idiom) == 406
    for split in ("eval", "test"):
        assert read_pairs(semeval_real, split).gold is None


def test_rows_become_groups(tmp_path: Path) -> None:
    first, second = read_groups(table(tmp_path, GOOD))
    assert (first.id, first.expression, first.language) == ("a.1", "cold feet", "EN")
    assert first.texts == ("He got Cold-Feet.", "He had doubts.", "He got icy toes.")
    assert (first.num_triplets, second.num_triplets) == (2, 0)
    assert second.incorrect == ()


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            ["c", "cold feet", "None", "EN", "Cold feet.", " ", "1", "", ""],
            r"row 5 \(ID c\), field 'sentence_2'",
        ),
        (
            ["c", "", "None", "EN", "Cold feet.", "No.", "1", "", ""],
            r"row 5 \(ID c\), field 'MWE1': is empty",
        ),
        (
            ["c", "cold feet", "None", "FR", "Cold feet.", "No.", "1", "", ""],
            r"field 'Language': 'FR' is not one",
        ),
        (
            ["c", "cold feet", "None", "EN", "Cold feet.", "No.", "0.5", "", ""],
            r"field 'sim': '0.5' is not one of '1' or 'None'",
        ),
        (["c", "cold feet", "None", "EN", "Cold feet.", "No.", "", "", ""], r"field 'sim': '' is not one"),
        (
            ["c", "red tape", "None", "EN", "Cold feet.", "No.", "1", "", ""],
            r"field 'MWE1': 'red tape' is not in",
        ),
        (["c", "cold feet", "None", "EN", "Cold feet."], r"row 5 \(ID c\): has another number of fields"),
        (
            ["c", "feet", "None", "EN", "He got Cold-Feet.", "No.", "1", "", ""],
            r"row 5 \(ID c\): the row with ID a\.1 has its sentence, but another MWE1",
        ),
        (
            ["c", "cold feet", "None", "EN", "He got Cold-Feet.", "He had doubts.", "None", "", ""],
            "group of ID a.1: 'He had doubts.' is both correct and incorrect",
        ),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: list[str], expected: str) -> None:
    path = table(tmp_path, [*GOOD, row])
    with pytest.raises(UserError, match=expected) as caught:
        read_groups(path)
    assert str(path) in str(caught.value)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = table(tmp_path, [row[:6] for row in GOOD], HEADER[:6])
    with pytest.raises(UserError, match=r"the columns sim are missing \(found: ID, MWE1"):
        read_groups(path)


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no row"):
        read_groups(table(tmp_path, []))


@pytest.fixture
def copy(tmp_path: Path, semeval_sample: DataFiles) -> DataFiles:
    assert semeval_sample.folder is not None
    shutil.copytree(semeval_sample.folder, tmp_path / "task")
    return DataFiles(FILES, tmp_path / "task")


def change_gold(files: DataFiles, change: Callable[[list[dict[str, str]]], None]) -> None:
    path = files("SubTaskB/EvaluationData/dev.gold.csv")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    change(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (
            "otherID",
            "nobody",
            r"row 3 \(ID \d+\), field 'otherID': 'nobody' is no ID of a pair, and sim is empty",
        ),
        ("otherID", "", "field 'otherID': '' is no ID of a pair"),
        ("ID", "nobody", r"row 3 \(ID nobody\), field 'ID': there is no such pair"),
        ("sim", "much", "field 'sim': 'much' is no number"),
        ("sim", "nan", "field 'sim': 'nan' is no number"),
    ],
)
def test_bad_gold_is_named(copy: DataFiles, field: str, value: str, expected: str) -> None:
    def change(rows: list[dict[str, str]]) -> None:
        assert not rows[1]["sim"]
        rows[1][field] = value

    change_gold(copy, change)
    with pytest.raises(UserError, match=expected):
        read_pairs(copy, "dev")


def test_gold_that_is_given_twice_is_named(copy: DataFiles) -> None:
    change_gold(copy, lambda rows: rows.append(rows[0]))
    with pytest.raises(UserError, match="field 'ID': it occurs twice"):
        read_pairs(copy, "dev")


def test_gold_of_ones_own_is_used(copy: DataFiles) -> None:
    """Who has the gold of a split that is not public puts it beside the pairs."""
    pairs = read_pairs(copy, "eval").pairs
    assert copy.folder is not None
    path = copy.folder / "SubTaskB" / "EvaluationData" / "eval.gold.csv"
    path.write_text(f"ID,DataID,Language,sim,otherID\n{pairs[0].id},eval.EN.1.1,EN,0.5,\n", encoding="utf-8")
    gold = read_pairs(copy, "eval").gold
    assert gold is not None
    assert [(item.id, item.similarity) for item in gold] == [(pairs[0].id, 0.5)]


def test_a_file_that_is_not_there_is_named(copy: DataFiles) -> None:
    copy("SubTaskB/TestData/test.csv").unlink()
    with pytest.raises(UserError, match=r"test\.csv: there is no such file"):
        read_pairs(copy, "test")


@pytest.mark.parametrize("files", ["semeval_sample", "semeval_real"])
def test_the_halves_are_disjoint_by_expression_and_cover_dev(
    files: str, request: pytest.FixtureRequest
) -> None:
    source: DataFiles = request.getfixturevalue(files)
    golds, expressions, kinds = {}, {}, {}
    splits: tuple[SemEvalSplit, ...] = ("dev", "dev_a", "dev_b")
    for name in splits:
        split = read_pairs(source, name)
        of_pair = {pair.id: pair for pair in split.pairs}
        assert split.gold is not None
        golds[name] = {item.id for item in split.gold}
        expressions[name] = {(of_pair[i.id].expression or "").lower() for i in split.gold if not i.is_sts}
        kinds[name] = {(of_pair[i.id].language, i.is_sts) for i in split.gold}
    assert golds["dev_a"] | golds["dev_b"] == golds["dev"]
    assert not golds["dev_a"] & golds["dev_b"]
    assert not expressions["dev_a"] & expressions["dev_b"]
    assert "" not in expressions["dev"]
    assert kinds["dev_a"] == kinds["dev_b"] == {(lang, sts) for lang in ("EN", "PT") for sts in (True, False)}


def test_the_sample_is_like_the_real_data(semeval_sample: DataFiles) -> None:
    """Some of dev's expressions are trained on, others not; no sentence is; groups with and without any."""
    groups = read_groups(semeval_sample(TRAIN_FILE))
    dev = read_pairs(semeval_sample, "dev")
    trained, asked = {g.expression for g in groups}, {p.expression for p in dev.pairs if p.expression}
    assert trained & asked
    assert asked - trained
    assert not {text for g in groups for text in g.texts} & {p.sentence1 for p in dev.pairs}
    assert {group.num_triplets > 0 for group in groups} == {True, False}
    assert {group.language for group in read_groups(semeval_sample(ONE_SHOT_FILE))} == {"EN", "PT", "GL"}
