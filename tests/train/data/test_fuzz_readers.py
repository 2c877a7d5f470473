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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import FUZZED, TEXTS, VALUES
from train.data import astitch, semeval2022
from train.data import ncimp as ncimp_data
from train.data.admire import read_items
from train.data.astitch import read_senses, read_usages
from train.data.external import read_pie
from train.data.idiolink import idiolink_root, load_split, read_released
from train.data.names import NCIMP
from train.data.ncimp import SCORES_FILE, read_ncimp
from train.data.semeval2022 import read_groups, read_pairs
from train.data.sources import SAMPLE_ROOT, DataFiles, dataset_folder
from train.errors import UserError
from train.expressions import ExpressionIndex, find_expression

pytestmark = pytest.mark.slow

TERMINAL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\u2066\u200f"

PIE = [
    "Idiom,Sense,Idiomatic_Sent,Literal_Sent,Idiomatic_Label,Literal_Label",
    "spill the beans,to tell a secret,He spilled the beans .,He told the secret .,O B I I O,O B I I O",
    "break the ice,to begin to talk,She broke the ice .,She began to talk .,O B I I O,O B I I O",
]


@dataclass(frozen=True)
class Reader:
    """One file of the sample, and what reads it."""

    file: str
    read: Callable[[Path], Any]

    @property
    def name(self) -> str:
        return Path(self.file).name


TASK = "semeval2022_task2b/SubTaskB"
SENSES = "astitch/EN_Extended_Noun_Compound_Senses_Dataset.csv"


def semeval(root: Path) -> DataFiles:
    return DataFiles(semeval2022.FILES, root / "semeval2022_task2b")


def ncimp(language: Any) -> Callable[[Path], Any]:
    return lambda root: read_ncimp(DataFiles(ncimp_data.FILES, root / "ncimp"), language)


def idiolink(root: Path) -> Any:
    return load_split(root / "idiolink", "val+train")


def released(root: Path) -> Any:
    path = root / "idiolink/train/triplets_train_full.jsonl"
    return read_released(path, load_split(SAMPLE_ROOT / "idiolink", "train"))


def usages(root: Path) -> Any:
    return read_usages(DataFiles(astitch.FILES, root / "astitch"), ["train_zero_shot", "dev"]).usages


def items(split: Any) -> Callable[[Path], Any]:
    return lambda root: read_items(root / "admire", split, check_images=False).items


IDIOLINK = [
    Reader("idiolink/train/indexes.json", idiolink),
    Reader("idiolink/val/queries.json", idiolink),
]
TABLES = [
    Reader(
        f"{TASK}/TrainData/train_data.csv",
        lambda root: read_groups(root / TASK / "TrainData/train_data.csv"),
    ),
    Reader(f"{TASK}/EvaluationData/dev.csv", lambda root: read_pairs(semeval(root), "dev")),
    Reader(f"{TASK}/EvaluationData/dev.gold.csv", lambda root: read_pairs(semeval(root), "dev_a")),
    Reader(f"{TASK}/TestData/test_submission_format.csv", lambda root: read_pairs(semeval(root), "test")),
    Reader("ncimp/EN/naturalistics_examplesent2.csv", ncimp("en")),
    Reader("ncimp/EN/neutral.csv", ncimp("en")),
    Reader("ncimp/PT/neutral.csv", ncimp("pt")),
    Reader("admire/subtask_a_train.tsv", items("train")),
    Reader("admire/subtask_a_dev.tsv", items("dev")),
    Reader("astitch/EN/train_zero_shot.csv", usages),
    Reader(SENSES, lambda root: read_senses(root / SENSES)),
    Reader("pie/data_cleaned.csv", lambda root: read_pie(root / "pie/data_cleaned.csv").documents),
]
RELEASED = Reader("idiolink/train/triplets_train_full.jsonl", released)
TEXTS_FILES = [*IDIOLINK, RELEASED, *TABLES]
SCORES = Reader(f"ncimp/{SCORES_FILE}", ncimp("en"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample without its images, and a little PIE."""
    folder = tmp_path_factory.mktemp("data") / "sample"
    shutil.copytree(SAMPLE_ROOT, folder, ignore=shutil.ignore_patterns("images"))
    (folder / "pie").mkdir()
    (folder / "pie/data_cleaned.csv").write_text("\n".join(PIE) + "\n", encoding="utf-8")
    return folder


@contextmanager
def instead(path: Path, content: bytes) -> Iterator[None]:
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(before)


def refused(reader: Reader, root: Path, content: bytes, *parts: str) -> None:
    with instead(root / reader.file, content), pytest.raises(UserError) as caught:
        reader.read(root)
    for part in (reader.name, *parts):
        assert part in str(caught.value), (part, str(caught.value))


def read_or_refused(reader: Reader, root: Path, content: bytes) -> str:
    """The message, in which nothing is that a terminal would obey."""
    with instead(root / reader.file, content):
        try:
            reader.read(root)
        except UserError as error:
            message = str(error)
        else:
            return ""
    # What does not fit together is said of either file, or of both splits.
    names = [Path(other.file).name for other in (*TEXTS_FILES, SCORES)]
    assert any(name in message for name in names) or "splits overlap" in message, message
    assert not set("\x1b\x07\x9b\u202e\u2066\u200f") & set(message), ascii(message)
    return message


@pytest.mark.parametrize("reader", [*TEXTS_FILES, SCORES], ids=lambda r: r.file)
def test_a_file_as_a_whole(reader: Reader, root: Path) -> None:
    """Missing, empty, no text, cut short; line ends and byte order marks make no difference."""
    path, good = root / reader.file, (root / reader.file).read_bytes()
    expected = reader.read(root)
    path.unlink()
    with pytest.raises(UserError, match=reader.name.replace("_", ".")):
        reader.read(root)
    path.write_bytes(good)
    refused(reader, root, b"")
    read_or_refused(reader, root, good[: len(good) // 2])
    if reader is SCORES:  # an archive may begin with something else
        return
    refused(reader, root, b"\xff\xfe\x00" + good)
    refused(reader, root, good.replace(b"e", b"\xe9", 1), "not UTF-8")
    for same in (b"\xef\xbb\xbf" + good, good.replace(b"\n", b"\r\n")):
        with instead(path, same):
            assert reader.read(root) == expected
    read_or_refused(reader, root, good + good)


def record_of(reader: Reader, root: Path) -> list[Any]:
    records: list[Any] = json.loads((root / reader.file).read_text(encoding="utf-8"))
    return records


@pytest.mark.parametrize("reader", IDIOLINK, ids=lambda r: r.file)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, value) for name in ("id", "sentence", "idiom", "span", "usage") for value in (None, 3, " ")),
        *((name, "\ud800") for name in ("id", "sentence", "idiom", "span", "subject")),
        *[("is_gold", "true"), ("more", 1), ("span", "no such words"), ("idiom", "…!"), ("id", "001")],
    ],
)
def test_each_field_of_a_record(reader: Reader, field: str, value: Any, root: Path) -> None:
    records = record_of(reader, root)
    records[0]["id"] = "001"
    records[2][field] = value
    refused(reader, root, json.dumps(records).encode(), "record 3", f"'{field}'")
    del records[2][field]
    if field != "more":
        refused(reader, root, json.dumps(records).encode(), "record 3", f"'{field}'", "is missing")


@pytest.mark.parametrize("reader", IDIOLINK, ids=lambda r: r.file)
def test_json_that_is_none(reader: Reader, root: Path) -> None:
    good = (root / reader.file).read_text(encoding="utf-8")
    for wrong in ("NaN", "1" * 5000, "[" * 100_000, '{"id": 1, "id": 2}', '"x"', "null", "[]"):
        refused(reader, root, good.replace("[", f"[{wrong},", 1).encode())
    twice = good.replace('"id":', '"id": "x", "id":', 1)
    refused(reader, root, twice.encode(), "has the field 'id' twice")
    for whole in ("{}", "null", '"x"', "3", "[]"):
        refused(reader, root, whole.encode(), "expected a list of records")


def test_idioms_in_two_splits_in_whatever_spelling(root: Path) -> None:
    reader = IDIOLINK[0]
    known = record_of(IDIOLINK[1], root)[0]["idiom"]
    for spelling in (known, known.upper(), known.replace(" ", "-")):
        records = record_of(reader, root)
        records[0]["idiom"] = spelling
        with instead(root / reader.file, json.dumps(records).encode()), pytest.raises(UserError) as caught:
            reader.read(root)
        assert f"idiom {spelling!r} is in the splits val and train" in str(caught.value)


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


@pytest.mark.parametrize("reader", TABLES, ids=lambda r: r.file)
def test_tables_changed_at_random(reader: Reader, root: Path) -> None:
    """Cells, whole rows, and names of columns."""
    delimiter = "\t" if reader.file.endswith(".tsv") else ","
    text = (root / reader.file).read_text(encoding="utf-8-sig")
    header, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    place = st.tuples(st.integers(0, len(rows)), st.integers(0, len(header) - 1))
    cells = st.one_of(TEXTS, st.just(TERMINAL))

    @FUZZED
    @given(st.lists(st.tuples(place, cells), max_size=3), st.lists(st.integers(0, len(rows) - 1), max_size=2))
    def tried(changes: list[tuple[tuple[int, int], str]], doubled: list[int]) -> None:
        damaged = [list(row) for row in (header, *rows)]
        for (row, column), value in changes:
            damaged[row][column] = value
        damaged += [damaged[1 + row] for row in doubled]
        out = io.StringIO()
        csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(damaged)
        read_or_refused(reader, root, out.getvalue().encode("utf-8", errors="surrogatepass"))

    tried()


@pytest.mark.parametrize(
    "reader", [IDIOLINK[0], RELEASED, TABLES[0], TABLES[7], SCORES], ids=lambda r: r.file
)
def test_bytes_changed_at_random(reader: Reader, root: Path) -> None:
    good = (root / reader.file).read_bytes()
    odd = st.one_of(
        st.binary(max_size=3), st.sampled_from([b'"', b",", b"\n", b"\r", b"\t", b"[", b"}", b"\x00"])
    )

    @FUZZED
    @given(st.lists(st.tuples(st.integers(0, len(good)), st.integers(0, 40), odd), min_size=1, max_size=3))
    def tried(changes: list[tuple[int, int, bytes]]) -> None:
        damaged = good
        for start, length, put in changes:
            damaged = damaged[:start] + put + damaged[start + length :]
        read_or_refused(reader, root, damaged)

    tried()


def test_records_changed_at_random(root: Path) -> None:
    reader = IDIOLINK[0]
    records = record_of(reader, root)
    field = st.sampled_from([*records[0], "more"])

    @FUZZED
    @given(
        st.lists(st.tuples(st.integers(0, 9), field, st.one_of(st.sampled_from(VALUES), TEXTS)), max_size=3)
    )
    def tried(changes: list[tuple[int, str, Any]]) -> None:
        damaged = [dict(record) for record in records]
        for number, name, value in changes:
            damaged[number][name] = value
        read_or_refused(reader, root, json.dumps(damaged).encode())

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
    reader = IDIOLINK[1]
    first, *rest = record_of(reader, root)
    for wrong in ({"id": TERMINAL, "usage": "x"}, {"usage": TERMINAL}, {"span": TERMINAL}, {TERMINAL: 1}):
        assert "\\x1b" in read_or_refused(reader, root, json.dumps([first | wrong, *rest]).encode())


def test_expressions_at_random() -> None:
    @FUZZED
    @given(TEXTS, TEXTS)
    def tried(text: str, expression: str) -> None:
        if not any(c.isalnum() for c in expression):
            return
        find_expression(text, expression)
        found = ExpressionIndex([expression, "home run"]).find(f"{text} {expression}")
        assert all(start < end for start, end, _ in found)

    tried()
