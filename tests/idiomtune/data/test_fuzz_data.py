"""Files of the known data sets and of users, in every format: read, or refused by name, whatever is in one.

`test_own_tables.py` has the cells of each form of users' data.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given

from idiomtune.data import astitch, semeval2022
from idiomtune.data import ncimp as ncimp_data
from idiomtune.data.admire import read_items
from idiomtune.data.astitch import read_senses, read_usages
from idiomtune.data.idiolink import idiolink_root, load_split, read_released
from idiomtune.data.names import NCIMP
from idiomtune.data.ncimp import SCORES_FILE, read_ncimp
from idiomtune.data.semeval2022 import read_groups, read_pairs
from idiomtune.data.sources import SAMPLE_ROOT, DataFiles, dataset_folder
from idiomtune.errors import UserError
from idiomtune.expressions import ExpressionIndex, find_expression
from idiomtune.glossaries.tables import read_glossary
from tests.fuzzing import FUZZED, TERMINAL, TEXTS, damaged_bytes, fuzz
from tests.idiomtune.data.test_own_tables import read as read_own
from tests.programs import refused

pytestmark = pytest.mark.slow

TASK = "semeval2022_task2b/SubTaskB"
SENSES = "astitch/EN_Extended_Noun_Compound_Senses_Dataset.csv"
RELEASED = "idiolink/train/triplets_train_full.jsonl"
GROUPS = f"{TASK}/TrainData/train_data.csv"
RECORDS, QUERIES = "idiolink/train/indexes.json", "idiolink/val/queries.json"
SCORES = f"ncimp/{SCORES_FILE}"


def semeval(split: Any) -> Callable[[Path], Any]:
    return lambda root: read_pairs(DataFiles(semeval2022.FILES, root / "semeval2022_task2b"), split)


def ncimp(language: Any) -> Callable[[Path], Any]:
    return lambda root: read_ncimp(DataFiles(ncimp_data.FILES, root / "ncimp"), language)


def idiolink(root: Path) -> Any:
    return load_split(root / "idiolink", "val+train")


def items(split: Any) -> Callable[[Path], Any]:
    return lambda root: read_items(root / "admire", split).items


# A file of the sample, or of a user's → what reads it from the folder of all.
TABLES: dict[str, Callable[[Path], Any]] = {
    GROUPS: lambda root: read_groups(root / GROUPS),
    f"{TASK}/EvaluationData/dev.csv": semeval("dev"),
    f"{TASK}/EvaluationData/dev.gold.csv": semeval("dev_a"),
    f"{TASK}/TestData/test_submission_format.csv": semeval("test"),
    "ncimp/EN/naturalistics_examplesent2.csv": ncimp("en"),
    "ncimp/EN/neutral.csv": ncimp("en"),
    "ncimp/PT/neutral.csv": ncimp("pt"),
    "admire/subtask_a_train.tsv": items("train"),
    "admire/subtask_a_dev.tsv": items("dev"),
    "astitch/EN/train_zero_shot.csv": lambda root: read_usages(
        DataFiles(astitch.FILES, root / "astitch"), ["train_zero_shot", "dev"]
    ),
    SENSES: lambda root: read_senses(root / SENSES),
}
READERS: dict[str, Callable[[Path], Any]] = {
    **{RECORDS: idiolink, QUERIES: idiolink, SCORES: ncimp("en"), **TABLES},
    RELEASED: lambda root: read_released(root / RELEASED, load_split(SAMPLE_ROOT / "idiolink", "train")),
}


class Damaged(NamedTuple):
    """A copy of all files, in which one after the other is damaged and mended."""

    root: Path

    def read_or_refused(self, name: str, content: bytes) -> str:
        """The message, in which nothing is that a terminal would obey; empty if it is read."""
        path = self.root / name
        before = path.read_bytes()
        path.write_bytes(content)
        try:
            READERS[name](self.root)
        except UserError as error:
            message = str(error)
        else:
            return ""
        finally:
            path.write_bytes(before)
        # What does not fit together is said of either file, or of both splits.
        named = ("splits overlap", "data.val=", *(Path(other).name for other in READERS))
        assert any(part in message for part in named), message
        assert not {*"\x1b\x07\x9b\u202e\u2066\u200f"} & set(message), ascii(message)
        return message


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    """The sample without its images."""
    root = tmp_path_factory.mktemp("data") / "all"
    shutil.copytree(SAMPLE_ROOT, root, ignore=shutil.ignore_patterns("images"))
    return Damaged(root)


@pytest.mark.parametrize("name", READERS)
def test_a_file_as_a_whole(name: str, files: Damaged) -> None:
    """Missing, empty, no text, cut short; line ends and byte order marks make no difference."""
    path, read = files.root / name, READERS[name]
    good, expected = path.read_bytes(), read(files.root)
    path.unlink()
    with pytest.raises(UserError) as refused:
        read(files.root)
    assert path.name.replace(" ", "_") in str(refused.value).replace(" ", "_")
    path.write_bytes(good)
    assert path.name in files.read_or_refused(name, b"")
    files.read_or_refused(name, good[: len(good) // 2])
    if name != SCORES:  # an archive may begin with something else
        assert path.name in files.read_or_refused(name, good.replace(b"e", b"\xe9", 1))
        path.write_bytes(b"\xef\xbb\xbf" + good.replace(b"\n", b"\r\n"))
        assert read(files.root) == expected
        path.write_bytes(good)


@pytest.mark.parametrize("name", [RECORDS, RELEASED, GROUPS, SENSES, SCORES])
def test_bytes_changed_at_random(name: str, files: Damaged) -> None:
    good = damaged_bytes((files.root / name).read_bytes())
    fuzz(good, lambda damaged: files.read_or_refused(name, damaged))


def test_what_a_terminal_would_obey_is_shown_as_its_escape(files: Damaged) -> None:
    """Wherever a message repeats it."""
    first, *rest = json.loads((files.root / QUERIES).read_text(encoding="utf-8"))
    for wrong in ({"id": TERMINAL, "usage": "x"}, {"usage": TERMINAL}, {"span": TERMINAL}, {TERMINAL: 1}):
        assert "\\x1b" in files.read_or_refused(QUERIES, json.dumps([first | wrong, *rest]).encode())
    path = files.root / "own.csv"
    for read, names in ((read_own, "label,group"), (lambda path: read_glossary([path]), "meaning,literal")):
        path.write_text(f"{TERMINAL},{names}\na,b,c\n", encoding="utf-8")
        message = str(refused(lambda: read(path)))  # noqa: B023
        assert "\\x1b" in message
        assert "\x1b" not in message
    path.unlink()


@pytest.mark.parametrize("name", ["a" * 5000, "~nobody-here", "\x00", "no/such"])
def test_folders_that_cannot_be(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IDIOM_DATA", raising=False)
    with pytest.raises(UserError, match=r"data\.idiolink="):
        idiolink_root(name, sample=False)
    with pytest.raises(UserError, match=r"data\.ncimp="):
        dataset_folder(NCIMP, name, None, sample=False)
    with pytest.raises(UserError, match="split"):
        load_split(SAMPLE_ROOT / "idiolink", name)


@FUZZED
@given(TEXTS, TEXTS)
def test_expressions_at_random(text: str, expression: str) -> None:
    if any(c.isalnum() for c in expression):
        find_expression(text, expression)
        found = ExpressionIndex([expression, "home run"]).find(f"{text} {expression}")
        assert all(start < end for start, end, _ in found)
