"""Files of the known data sets: whatever is in one, it is read, or refused by its name.

IdioLink's form is one for users' own idioms too, so that an error names record and field. The other files are
published: an altered copy is named in a warning.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from tests.fuzzing import FUZZED, TEXTS, VALUES

pytestmark = pytest.mark.slow

DELIMITERS = {".csv": ",", ".tsv": "\t"}
TERMINAL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\u2066\u200f"


class Reader(NamedTuple):
    """One file of the sample, and what reads it."""

    file: str
    read: Callable[[Path], Any]

    @property
    def name(self) -> str:
        return Path(self.file).name


TASK = "semeval2022_task2b/SubTaskB"
SENSES = "astitch/EN_Extended_Noun_Compound_Senses_Dataset.csv"
RELEASED_FILE = "idiolink/train/triplets_train_full.jsonl"


def semeval(split: Any) -> Callable[[Path], Any]:
    return lambda root: read_pairs(DataFiles(semeval2022.FILES, root / "semeval2022_task2b"), split)


def ncimp(language: Any) -> Callable[[Path], Any]:
    return lambda root: read_ncimp(DataFiles(ncimp_data.FILES, root / "ncimp"), language)


def idiolink(root: Path) -> Any:
    return load_split(root / "idiolink", "val+train")


def released(root: Path) -> Any:
    return read_released(root / RELEASED_FILE, load_split(SAMPLE_ROOT / "idiolink", "train"))


def usages(root: Path) -> Any:
    return read_usages(DataFiles(astitch.FILES, root / "astitch"), ["train_zero_shot", "dev"]).usages


def items(split: Any) -> Callable[[Path], Any]:
    return lambda root: read_items(root / "admire", split, check_images=False).items


RECORDS = Reader("idiolink/train/indexes.json", idiolink)
QUERIES = Reader("idiolink/val/queries.json", idiolink)
RELEASED = Reader(RELEASED_FILE, released)
GROUPS_FILE = f"{TASK}/TrainData/train_data.csv"
GROUPS = Reader(GROUPS_FILE, lambda root: read_groups(root / GROUPS_FILE))
ITEMS = Reader("admire/subtask_a_train.tsv", items("train"))
SCORES = Reader(f"ncimp/{SCORES_FILE}", ncimp("en"))
TABLES = [
    GROUPS,
    Reader(f"{TASK}/EvaluationData/dev.csv", semeval("dev")),
    Reader(f"{TASK}/EvaluationData/dev.gold.csv", semeval("dev_a")),
    Reader(f"{TASK}/TestData/test_submission_format.csv", semeval("test")),
    Reader("ncimp/EN/naturalistics_examplesent2.csv", ncimp("en")),
    Reader("ncimp/EN/neutral.csv", ncimp("en")),
    Reader("ncimp/PT/neutral.csv", ncimp("pt")),
    ITEMS,
    Reader("admire/subtask_a_dev.tsv", items("dev")),
    Reader("astitch/EN/train_zero_shot.csv", usages),
    Reader(SENSES, lambda root: read_senses(root / SENSES)),
]
ALL = [RECORDS, QUERIES, RELEASED, *TABLES, SCORES]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample without its images."""
    folder = tmp_path_factory.mktemp("data") / "sample"
    shutil.copytree(SAMPLE_ROOT, folder, ignore=shutil.ignore_patterns("images"))
    return folder


@contextmanager
def instead(path: Path, content: bytes) -> Iterator[None]:
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(before)


def read_or_refused(reader: Reader, root: Path, content: bytes) -> str:
    """The message, in which nothing is that a terminal would obey; empty if it is read."""
    with instead(root / reader.file, content):
        try:
            reader.read(root)
        except UserError as error:
            message = str(error)
        else:
            return ""
    # What does not fit together is said of either file, or of both splits.
    assert any(other.name in message for other in ALL) or "splits overlap" in message, message
    assert not set("\x1b\x07\x9b\u202e\u2066\u200f") & set(message), ascii(message)
    return message


@pytest.mark.parametrize("reader", ALL, ids=lambda r: r.file)
def test_a_file_as_a_whole(reader: Reader, root: Path) -> None:
    """Missing, empty, no text, cut short; line ends and byte order marks make no difference."""
    path, good = root / reader.file, (root / reader.file).read_bytes()
    expected = reader.read(root)
    path.unlink()
    with pytest.raises(UserError, match=reader.name.replace("_", ".")):
        reader.read(root)
    path.write_bytes(good)
    assert reader.name in read_or_refused(reader, root, b"")
    read_or_refused(reader, root, good[: len(good) // 2])
    if reader is SCORES:  # an archive may begin with something else
        return
    assert "not UTF-8" in read_or_refused(reader, root, good.replace(b"e", b"\xe9", 1))
    with instead(path, b"\xef\xbb\xbf" + good.replace(b"\n", b"\r\n")):
        assert reader.read(root) == expected


def test_an_altered_copy_is_named_once(root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "semeval2022_task2b"
    shutil.copytree(root / "semeval2022_task2b", folder)
    files = DataFiles(semeval2022.FILES, folder)
    for _ in range(2):
        files(semeval2022.TRAIN_FILE)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert str(folder / semeval2022.TRAIN_FILE) in warning
    caplog.clear()
    DataFiles(semeval2022.FILES, SAMPLE_ROOT / "semeval2022_task2b")(semeval2022.TRAIN_FILE)
    assert not caplog.records


def rows_of(reader: Reader, root: Path) -> list[list[Any]]:
    """The names of the columns, then the cells of each row or record."""
    text = (root / reader.file).read_text(encoding="utf-8-sig")
    if reader.file.endswith(".json"):
        records = json.loads(text)
        return [[*records[0]], *([*record.values()] for record in records)]
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=DELIMITERS[Path(reader.file).suffix]))


def content_of(reader: Reader, rows: list[list[Any]]) -> bytes:
    if reader.file.endswith(".json"):
        return json.dumps([dict(zip(rows[0], row, strict=True)) for row in rows[1:]]).encode()
    out = io.StringIO()
    delimiter = DELIMITERS[Path(reader.file).suffix]
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue().encode("utf-8", errors="surrogatepass")


@pytest.mark.parametrize("reader", [RECORDS, *TABLES], ids=lambda r: r.file)
def test_cells_changed_at_random(reader: Reader, root: Path) -> None:
    """Also names of columns, and rows twice."""
    rows = rows_of(reader, root)
    place = st.tuples(st.integers(0, min(len(rows) - 1, 9)), st.integers(0, len(rows[0]) - 1))
    cells = st.one_of(TEXTS, st.just(TERMINAL))
    values = st.one_of(cells, st.sampled_from(VALUES)) if reader is RECORDS else cells

    @FUZZED
    @given(
        st.lists(st.tuples(place, values), max_size=3), st.lists(st.integers(1, len(rows) - 1), max_size=2)
    )
    def tried(changes: list[tuple[tuple[int, int], Any]], doubled: list[int]) -> None:
        damaged = [list(row) for row in rows]
        for (row, column), value in changes:
            damaged[row][column] = value if row else str(value)
        read_or_refused(reader, root, content_of(reader, [*damaged, *(damaged[row] for row in doubled)]))

    tried()


@pytest.mark.parametrize("reader", [RECORDS, RELEASED, GROUPS, ITEMS, SCORES], ids=lambda r: r.file)
def test_bytes_changed_at_random(reader: Reader, root: Path) -> None:
    good = (root / reader.file).read_bytes()
    signs = st.sampled_from([b'"', b",", b"\n", b"\r", b"\t", b"[", b"}", b"\x00"])
    change = st.tuples(st.integers(0, len(good)), st.integers(0, 40), st.one_of(st.binary(max_size=3), signs))

    @FUZZED
    @given(st.lists(change, min_size=1, max_size=3))
    def tried(changes: list[tuple[int, int, bytes]]) -> None:
        damaged = good
        for start, length, put in changes:
            damaged = damaged[:start] + put + damaged[start + length :]
        read_or_refused(reader, root, damaged)

    tried()


@pytest.mark.parametrize("name", ["a" * 5000, "~nobody-here", "\x00", "no/such"])
def test_folders_that_cannot_be(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IDIOM_DATA", raising=False)
    with pytest.raises(UserError, match=r"data\.root="):
        idiolink_root(name, sample=False)
    with pytest.raises(UserError, match=r"data\.ncimp="):
        dataset_folder(NCIMP, name, None, sample=False)
    with pytest.raises(UserError, match="is not in"):
        load_split(root / "idiolink", name)


def test_what_a_terminal_would_obey_is_shown_as_its_escape(root: Path) -> None:
    """Controls and bidirectional overrides, wherever a message repeats them."""
    first, *rest = json.loads((root / QUERIES.file).read_text(encoding="utf-8"))
    for wrong in ({"id": TERMINAL, "usage": "x"}, {"usage": TERMINAL}, {"span": TERMINAL}, {TERMINAL: 1}):
        assert "\\x1b" in read_or_refused(QUERIES, root, json.dumps([first | wrong, *rest]).encode())


@FUZZED
@given(TEXTS, TEXTS)
def test_expressions_at_random(text: str, expression: str) -> None:
    if any(c.isalnum() for c in expression):
        find_expression(text, expression)
        found = ExpressionIndex([expression, "home run"]).find(f"{text} {expression}")
        assert all(start < end for start, end, _ in found)
