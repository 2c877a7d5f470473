"""SemEval-2022 Task 2B's files: groups, pairs and gold."""

import csv
import shutil
from pathlib import Path

import pytest

from idiomtune.data.names import SemEvalSplit
from idiomtune.data.semeval2022 import FILES, TRAIN_FILE, read_groups, read_pairs
from idiomtune.data.sources import DataFiles
from tests.programs import refused

HEADER = ["ID", "MWE1", "MWE2", "Language", "sentence_1", "sentence_2", "sim"]
HEADER += ["alternative_1", "alternative_2"]
GOOD = [
    ["a.1", "cold feet", "None", "EN", "He got Cold-Feet.", "He had doubts.", "1", "", ""],
    ["a.2", "cold feet", "None", "EN", "He got Cold-Feet.", "He got icy toes.", "None", "", ""],
    ["b.1", "pé frio", "None", "PT", "Ele é pé frio.", "Ele é azarado.", "1", "", ""],
]


def test_the_real_data_is_read_as_published(semeval_real: DataFiles) -> None:
    groups = read_groups(semeval_real(TRAIN_FILE))
    assert (len(groups), sum(bool(group.incorrect) for group in groups)) == (3643, 2497)
    assert sum(1 + len(group.incorrect) for group in groups) == 6572  # labels
    assert sum(group.num_triplets for group in groups) == 5858
    dev = read_pairs(semeval_real, "dev").gold or ()
    assert sum(item.is_sts for item in dev) == 800
    idiom = [item for item in dev if not item.is_sts]
    assert sum(item.similarity == 1 for item in idiom) == 569
    assert sum(item.similarity is None for item in idiom) == 406
    assert [read_pairs(semeval_real, split).gold for split in ("eval", "test")] == [None, None]


def test_rows_become_groups(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([HEADER, *GOOD])
    first, second = read_groups(path)
    assert (first.id, first.expression, first.language) == ("a.1", "cold feet", "EN")
    assert first.texts == ("He got Cold-Feet.", "He had doubts.", "He got icy toes.")
    assert (first.num_triplets, second.num_triplets) == (2, 0)
    assert second.incorrect == ()


@pytest.fixture
def copy(tmp_path: Path, semeval_sample: DataFiles) -> DataFiles:
    assert semeval_sample.folder is not None
    shutil.copytree(semeval_sample.folder, tmp_path / "task")
    return DataFiles(FILES, tmp_path / "task")


def test_ids_without_a_pair_are_refused(copy: DataFiles) -> None:
    for name, more in (
        ("dev.gold.csv", "nobody,dev.EN.1.1,EN,0.5,\n"),
        ("dev.gold.csv", "1,dev.EN.1.1,EN,,nobody\n"),
        ("dev.submission_format.csv", "nobody,EN,pre_train,\n"),
    ):
        path = copy(f"SubTaskB/EvaluationData/{name}")
        good = path.read_text("utf-8")
        path.write_text(good + more, "utf-8")
        refused(lambda: read_pairs(copy, "dev"), "ID", path.name)
        path.write_text(good, "utf-8")


def test_gold_of_ones_own_is_used(copy: DataFiles) -> None:
    """Who has the gold of a split that is not public puts it beside the pairs."""
    pairs = read_pairs(copy, "eval").pairs
    gold = f"ID,DataID,Language,sim,otherID\n{pairs[0].id},eval.EN.1.1,EN,0.5,\n"
    copy("SubTaskB/EvaluationData/eval.csv").with_name("eval.gold.csv").write_text(gold, encoding="utf-8")
    found = read_pairs(copy, "eval").gold or ()
    assert [(item.id, item.similarity) for item in found] == [(pairs[0].id, 0.5)]


def test_the_halves_are_disjoint_by_expression_and_cover_dev(semeval_sample: DataFiles) -> None:
    ids, expressions, kinds = [], [], []
    splits: tuple[SemEvalSplit, ...] = ("dev", "dev_a", "dev_b")
    for name in splits:
        split = read_pairs(semeval_sample, name)
        of_pair = {pair.id: pair for pair in split.pairs}
        gold = split.gold or ()
        ids.append({item.id for item in gold})
        expressions.append({(of_pair[i.id].expression or "").lower() for i in gold if not i.is_sts})
        kinds.append({(of_pair[i.id].language, i.is_sts) for i in gold})
    assert ids[1] | ids[2] == ids[0]
    assert not ids[1] & ids[2]
    assert not expressions[1] & expressions[2]
    assert "" not in expressions[0]
    assert kinds[1] == kinds[2] == {(lang, sts) for lang in ("EN", "PT") for sts in (True, False)}
