"""AStitchInLanguageModels: sentences, and meanings of compounds."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from idiomtune.data.astitch import FILES, SENSES_FILE, read_senses, read_usages
from idiomtune.data.names import AStitchFile
from idiomtune.data.sources import DataFiles
from idiomtune.expressions import plain_expression


def table(path: Path, *rows: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def usages(folder: Path, *rows: str, name: str = "train_zero_shot") -> DataFiles:
    """A row has label, sentence and compound."""
    head = ["label", "sentence1", "sentence2"]
    table(folder / "EN" / f"{name}.csv", head, *(row.split("|") for row in rows))
    return DataFiles(FILES, folder)


NON_LITERAL = [f"Non-Literal Meaning {number}" for number in (1, 2, 3)]
SENSES = ["Multiword Expression", "Literal Meaning", *NON_LITERAL, "Data Split"]


def test_labels_spans_and_repeated_rows(tmp_path: Path) -> None:
    names: list[AStitchFile] = ["train_zero_shot", "train_one_shot"]
    usages(tmp_path, "1|Her cold feet hurt.|cold feet", "0|He got cold feet.|cold feet")
    files = usages(tmp_path, "0|He got cold feet.|Cold-feet", "1|Warm your feet.|cold feet", name=names[1])
    corpus = read_usages(files, names)
    assert [(u.id, u.is_idiomatic, u.span and u.sentence[slice(*u.span)]) for u in corpus.usages] == [
        ("train_zero_shot_2", False, "cold feet"),
        ("train_zero_shot_3", True, "cold feet"),
        ("train_one_shot_3", False, None),
    ]
    assert len(read_usages(files, names, keep_repeated=True).usages) == 4
    assert [path.name for path in corpus.files] == ["train_zero_shot.csv", "train_one_shot.csv"]


def test_meanings(tmp_path: Path) -> None:
    rows = (
        ["Dog’s Dinner", "meal ", "mess ", "None", "muddle", "train"],
        ["tea towel", "cloth", *["None"] * 4],
    )
    meanings = read_senses(table(tmp_path / "senses.csv", SENSES, *rows))
    first = meanings[plain_expression("dog's dinner")]
    assert (first.compound, first.literal, first.non_literal) == ("Dog’s Dinner", "meal", ("mess", "muddle"))
    assert meanings["tea towel"].non_literal == ()


def test_real_astitch_files(real_data: Path) -> None:
    files = DataFiles(FILES, real_data / "astitch")
    corpus = read_usages(files, ["train_zero_shot"])
    assert len(corpus.usages) == 3327
    assert sum(u.span is None for u in corpus.usages) == 2  # gold miner, traffic controllers
    assert sum(u.is_idiomatic for u in corpus.usages) == 1762
    counts = [len(read_usages(files, get_args(AStitchFile), keep_repeated=k).usages) for k in (True, False)]
    assert counts[0] - counts[1] == 87  # the one-shot rows are few-shot ones too
    meanings = read_senses(files(SENSES_FILE))
    assert (len(meanings), sum(not m.non_literal for m in meanings.values())) == (223, 80)
