"""Whatever lies in a data file: it is read as before, or refused by its name and place; nothing else.

Each file of the sample is damaged in ways with a known outcome, then at random.
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
from train.data.datasets import NCIMP
from train.data.idiolink import load_split
from train.data.idiolink_source import idiolink_root
from train.data.ncimp import SCORES_FILE, read_ncimp
from train.data.pie import read_pie
from train.data.semeval2022 import read_groups, read_pairs
from train.data.sources import SAMPLE_ROOT, DataFiles, dataset_folder
from train.data.tuples import read_released
from train.errors import UserError
from train.expressions import ExpressionIndex, find_expression
from train.io.text import text_lines

pytestmark = pytest.mark.slow

PIE = [
    "Idiom,Sense,Idiomatic_Sent,Literal_Sent,Idiomatic_Label,Literal_Label",
    "spill the beans,to tell a secret,He spilled the beans .,He told the secret .,O B I I O,O B I I O",
    "break the ice,to begin to talk,She broke the ice .,She began to talk .,O B I I O,O B I I O",
]
TABLE, JSON, LINES, OTHER = "table", "json", "lines", "other"


@dataclass(frozen=True)
class Reader:
    """One file of the sample, and what reads it.

    Attributes:
        may_be_empty: columns in which a cell may be empty.
        not_read: columns that may be missing.
    """

    file: str
    kind: str
    read: Callable[[Path], Any]
    may_be_empty: tuple[str, ...] = ()
    not_read: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return Path(self.file).name

    @property
    def delimiter(self) -> str:
        return "\t" if self.file.endswith(".tsv") else ","


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


READERS = [
    Reader("idiolink/train/indexes.json", JSON, idiolink),
    Reader("idiolink/val/queries.json", JSON, idiolink),
    Reader("idiolink/train/triplets_train_full.jsonl", LINES, released),
    Reader(
        f"{TASK}/TrainData/train_data.csv",
        TABLE,
        lambda root: read_groups(root / TASK / "TrainData/train_data.csv"),
        not_read=("MWE2", "alternative_1", "alternative_2"),
    ),
    Reader(
        *(f"{TASK}/EvaluationData/dev.csv", TABLE, lambda root: read_pairs(semeval(root), "dev")),
        not_read=("MWE2",),
    ),
    Reader(
        *(f"{TASK}/EvaluationData/dev.gold.csv", TABLE, lambda root: read_pairs(semeval(root), "dev_a")),
        may_be_empty=("otherID",),
        not_read=("Language",),
    ),
    Reader(
        *(f"{TASK}/TestData/test_submission_format.csv", TABLE),
        lambda root: read_pairs(semeval(root), "test"),
        may_be_empty=("Sim",),
    ),
    Reader("ncimp/EN/naturalistics_examplesent2.csv", TABLE, ncimp("en"), not_read=("*",)),
    Reader("ncimp/EN/neutral.csv", TABLE, ncimp("en"), not_read=("*",)),
    Reader("ncimp/PT/neutral.csv", TABLE, ncimp("pt"), not_read=("*",)),
    Reader(f"ncimp/{SCORES_FILE}", OTHER, ncimp("en")),
    Reader("admire/subtask_a_train.tsv", TABLE, items("train"), not_read=("*",)),
    Reader(
        *("admire/subtask_a_dev.tsv", TABLE, items("dev")),
        may_be_empty=("sentence_type", "expected_order"),
        not_read=("*",),
    ),
    Reader("astitch/EN/train_zero_shot.csv", TABLE, usages),
    Reader(
        *(SENSES, TABLE, lambda root: read_senses(root / SENSES)),
        may_be_empty=tuple(f"Non-Literal Meaning {i}" for i in (1, 2, 3)),
        not_read=("*",),
    ),
    Reader("pie/data_cleaned.csv", TABLE, lambda root: read_pie(root / "pie/data_cleaned.csv").documents),
]
TABLES = [reader for reader in READERS if reader.kind == TABLE]


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


def rows_of(reader: Reader, root: Path) -> list[list[str]]:
    text = (root / reader.file).read_text(encoding="utf-8-sig")
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=reader.delimiter))


def table(rows: list[list[str]], delimiter: str) -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue().encode("utf-8", errors="surrogatepass")


def refused(reader: Reader, root: Path, content: bytes, *parts: str) -> None:
    with instead(root / reader.file, content), pytest.raises(UserError) as caught:
        reader.read(root)
    for part in (reader.name, *parts):
        assert part in str(caught.value), (part, str(caught.value))


def read_or_refused(reader: Reader, root: Path, content: bytes) -> None:
    with instead(root / reader.file, content):
        try:
            reader.read(root)
        except UserError as error:
            message = str(error)
        else:
            return
    # What does not fit together is said of either file, or of both splits.
    assert any(Path(other.file).name in message for other in READERS) or "splits overlap" in message, message


@pytest.mark.parametrize("reader", READERS, ids=lambda r: r.file)
def test_a_file_as_a_whole(reader: Reader, root: Path) -> None:
    """Missing, a folder, empty, no text, cut short; line ends and byte order marks make no difference."""
    path, good = root / reader.file, (root / reader.file).read_bytes()
    expected = reader.read(root)
    path.unlink()
    with pytest.raises(UserError, match=reader.name.replace("_", ".")):
        reader.read(root)
    path.mkdir()
    with pytest.raises(UserError, match=reader.name.replace("_", ".")):
        reader.read(root)
    path.rmdir()
    path.write_bytes(good)
    refused(reader, root, b"")
    if reader.kind == OTHER:  # an archive may begin with something else
        refused(reader, root, good[: len(good) // 2])
        return
    refused(reader, root, b"\xff\xfe\x00" + good)
    refused(reader, root, good.replace(b"e", b"\xe9", 1), "not UTF-8")
    for same in (b"\xef\xbb\xbf" + good, good.replace(b"\n", b"\r\n")):
        with instead(path, same):
            assert reader.read(root) == expected
    read_or_refused(reader, root, good[: len(good) // 2])
    read_or_refused(reader, root, good + good)


@pytest.mark.parametrize("reader", TABLES, ids=lambda r: r.file)
def test_a_table_of_another_shape(reader: Reader, root: Path) -> None:
    header, *rows = rows_of(reader, root)
    refused(reader, root, table([header], reader.delimiter))
    shorter, longer = [*rows[1][:-1]], [*rows[1], "more"]
    for row in (shorter, longer):
        damaged = table([header, rows[0], row, *rows[2:]], reader.delimiter)
        refused(reader, root, damaged, "row 3", "another number of fields")
    refused(
        reader, root, table([[*header, header[0]], *([*r, r[0]] for r in rows)], reader.delimiter), "twice"
    )
    good = (root / reader.file).read_bytes()
    refused(reader, root, good + b'"open', "cannot be read as a table")
    swallowed = reader.delimiter.join(f'"{cell}' for cell in rows[0]).encode()
    refused(reader, root, good + swallowed + b"\n", "cannot be read as a table")
    huge = [["a" * 10_000_001, *row[1:]] if n == 0 else row for n, row in enumerate(rows)]
    refused(
        reader, root, table([header, *huge], reader.delimiter), "line 2", "more than 10,000,000 characters"
    )


@pytest.mark.slow
@pytest.mark.parametrize("reader", TABLES, ids=lambda r: r.file)
def test_each_column_missing_and_each_cell_empty(reader: Reader, root: Path) -> None:
    header, *rows = rows_of(reader, root)
    for place, column in enumerate(header):
        if column in reader.not_read:
            continue
        without = [[*row[:place], *row[place + 1 :]] for row in (header, *rows)]
        if "*" in reader.not_read:
            read_or_refused(reader, root, table(without, reader.delimiter))
        else:
            refused(reader, root, table(without, reader.delimiter), "columns", column)
        for blank in ("", " "):
            empty = [[*row[:place], blank, *row[place + 1 :]] for row in rows[:1]]
            content = table([header, *empty, *rows[1:]], reader.delimiter)
            if "*" in reader.not_read or column in ("MWE1", *reader.may_be_empty):
                read_or_refused(reader, root, content)
            else:
                refused(reader, root, content, column)


def record_of(reader: Reader, root: Path) -> list[Any]:
    records: list[Any] = json.loads((root / reader.file).read_text(encoding="utf-8"))
    return records


@pytest.mark.parametrize("reader", [r for r in READERS if r.kind == JSON], ids=lambda r: r.file)
def test_each_field_of_a_record(reader: Reader, root: Path) -> None:
    records = record_of(reader, root)
    third = records[2]

    def with_third(record: Any) -> bytes:
        return json.dumps([*records[:2], record, *records[3:]]).encode()

    for field in third:
        named = "record 3", f"'{field}'"
        refused(
            reader, root, with_third({k: v for k, v in third.items() if k != field}), *named, "is missing"
        )
        for value in (None, 3, 1.5, [], {}, ["a"], *((True, "", " \t") if field != "is_gold" else ("true",))):
            if field == "subject" and isinstance(value, str):
                continue
            refused(reader, root, with_third(third | {field: value}), *named)
    refused(reader, root, with_third(third | {"more": 1}), "record 3", "'more'", "is not a known field")
    refused(reader, root, with_third(third | {"span": "no such words"}), "record 3", "'span'")
    refused(reader, root, with_third(third | {"idiom": "…!"}), "record 3", "'idiom'")
    refused(reader, root, with_third(third | {"id": records[0]["id"]}), "record 3", "'id'", "record 1")
    for other in (None, 3, [], "x", [third]):
        refused(reader, root, with_third(other), "record 3")
    others: list[Any] = [{}, None, "x", 3]
    for whole in others:
        refused(reader, root, json.dumps(whole).encode(), "expected a list of records")


@pytest.mark.parametrize("reader", [r for r in READERS if r.kind == JSON], ids=lambda r: r.file)
def test_json_that_is_none(reader: Reader, root: Path) -> None:
    good = (root / reader.file).read_text(encoding="utf-8")
    for wrong in ("NaN", "Infinity", "1" * 5000, "[" * 100_000, '{"id": 1, "id": 2}', '"\\ud800"'):
        refused(reader, root, good.replace("[", f"[{wrong},", 1).encode())
    twice = good.replace('"id":', '"id": "x", "id":', 1)
    refused(reader, root, twice.encode(), "has the field 'id' twice")
    half = good.replace('"sentence": "', '"sentence": "\\ud800', 1)
    refused(reader, root, half.encode(), "record 1", "'sentence'")


def test_idioms_in_two_splits_in_whatever_spelling(root: Path) -> None:
    reader = READERS[0]
    known = record_of(READERS[1], root)[0]["idiom"]
    for spelling in (known, known.upper(), known.replace(" ", "-")):
        records = record_of(reader, root)
        records[0]["idiom"] = spelling
        with instead(root / reader.file, json.dumps(records).encode()), pytest.raises(UserError) as caught:
            reader.read(root)
        assert f"idiom {spelling!r} is in the splits val and train" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"query": 3}, "field 'query'"),
        ({"positive": None}, "field 'positive'"),
        ({"negatives": "a sentence"}, "field 'negatives"),
        ({"negatives": []}, "field 'negatives"),
        ({"negatives": [["a"]]}, "field 'negatives"),
        ({"negatives": {"a": 1}}, "field 'negatives"),
        ({"query": "Nobody wrote this."}, "'Nobody wrote this.' is not a sentence of"),
    ],
)
def test_released_tuples(change: dict[str, Any], expected: str, root: Path) -> None:
    reader = READERS[2]
    first, *rest = text_lines((root / reader.file).read_text(encoding="utf-8"))
    row = json.loads(first)
    refused(reader, root, "\n".join([json.dumps(row | change), *rest]).encode(), "line 1", expected)
    itself = json.dumps(row | {"positive": row["query"]})
    refused(reader, root, itself.encode(), "line 1", "is the query itself")
    for wrong in ("[1]", "3", '{"query": NaN}', "[" * 100_000, '{"query": 1, "query": 2}', "{}"):
        refused(reader, root, wrong.encode(), "line 1")


def of_file(name: str) -> Reader:
    return next(reader for reader in READERS if reader.file.endswith(name))


@pytest.mark.parametrize(
    ("file", "column", "value", "expected"),
    [
        ("dev.gold.csv", "sim", "1.5", "is no number from 0 to 1"),
        ("dev.gold.csv", "sim", "-0.1", "is no number from 0 to 1"),
        ("dev.gold.csv", "sim", "nan", "is no number from 0 to 1"),
        ("dev.gold.csv", "DataID", "dev.EN.sts.1", "is an STS pair, but"),
        ("dev.gold.csv", "ID", "nobody", "there is no such pair"),
        ("submission_format.csv", "Setting", "zero_shot", "is not one of 'pre_train' or 'fine_tune'"),
        ("submission_format.csv", "Language", "GL", "but the pair's is"),
        ("train_data.csv", "MWE1", "---", "no letter or digit"),
        ("train_data.csv", "sim", "0.5", "is not one of '1' or 'None'"),
        ("data_cleaned.csv", "Idiomatic_Label", "O B X I O", "'X' is not O, B or I"),
        ("data_cleaned.csv", "Sense", "\n", "field 'Sense': is empty"),
        ("subtask_a_train.tsv", "expected_order", "[1, 2, 3, 4, 5]", "is no list of image names"),
        ("subtask_a_train.tsv", "expected_order", "{[]}", "is no list of image names"),
        ("subtask_a_train.tsv", "image3_caption", "\\n", "field 'image3_caption': is empty"),
        ("examplesent2.csv", "original sentence_tag", "{[]}", "is not a list of True and False"),
        ("examplesent2.csv", "original sentence_tag", "-" * 50_000 + "1", "is not a list of True and False"),
        ("train_zero_shot.csv", "label", "2", "is neither 0 (idiomatic) nor 1 (literal)"),
        ("Senses_Dataset.csv", "Multiword Expression", "--", "is empty"),
    ],
)
def test_a_wrong_cell_is_named(file: str, column: str, value: str, expected: str, root: Path) -> None:
    reader = of_file(file)
    header, first, *rows = rows_of(reader, root)
    first[header.index(column)] = value
    refused(reader, root, table([header, first, *rows], reader.delimiter), expected)


def test_synonyms_without_their_marks_are_not_left_out_in_silence(root: Path) -> None:
    reader = of_file("EN/neutral.csv")
    header, *rows = rows_of(reader, root)
    header[header.index("head synonym alt1_tag")] = "another name"
    refused(reader, root, table([header, *rows], ","), "there is no column 'head synonym alt1_tag' to it")
    reader = of_file("examplesent2.csv")
    header, *rows = rows_of(reader, root)
    more = [f"{cell}s" if name == "compound" else cell for name, cell in zip(header, rows[0], strict=True)]
    refused(reader, root, table([header, *rows, more], ","), f"row {len(rows) + 2}", "is not in neutral.csv")


@pytest.mark.parametrize("reader", TABLES, ids=lambda r: r.file)
def test_tables_changed_at_random(reader: Reader, root: Path) -> None:
    header, *rows = rows_of(reader, root)
    place = st.tuples(st.integers(0, len(rows)), st.integers(0, len(header) - 1))

    @FUZZED
    @given(st.lists(st.tuples(place, TEXTS), max_size=3), st.lists(st.integers(0, len(rows) - 1), max_size=2))
    def tried(cells: list[tuple[tuple[int, int], str]], doubled: list[int]) -> None:
        damaged = [list(row) for row in (header, *rows)]
        for (row, column), value in cells:
            damaged[row][column] = value
        damaged += [damaged[1 + row] for row in doubled]
        read_or_refused(reader, root, table(damaged, reader.delimiter))

    tried()


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS, ids=lambda r: r.file)
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
    reader = READERS[0]
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


@pytest.mark.parametrize("name", ["a" * 5000, "~nobody-here", "\x00", "no/such"])
def test_folders_that_cannot_be(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IDIOM_DATA", raising=False)
    with pytest.raises(UserError, match=r"data\.root="):
        idiolink_root(name, sample=False)
    with pytest.raises(UserError, match=r"data\.ncimp="):
        dataset_folder(NCIMP, name, None, sample=False)
    with pytest.raises(UserError, match="is not in"):
        load_split(root / "idiolink", name)


TERMINAL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\u2066\u200f"


def test_what_a_terminal_would_obey_is_shown_as_its_escape(root: Path) -> None:
    """Controls and bidirectional overrides in data, wherever a message repeats it."""
    reader = READERS[1]
    first, *rest = record_of(reader, root)
    for wrong in ({"id": TERMINAL, "usage": "x"}, {"usage": TERMINAL}, {"span": TERMINAL}, {TERMINAL: 1}):
        assert_harmless(reader, root, json.dumps([first | wrong, *rest]).encode())
    for reader in TABLES:
        header, first_row, *rows = rows_of(reader, root)
        for place in range(len(header)):
            damaged = [*first_row[:place], TERMINAL, *first_row[place + 1 :]]
            assert_harmless(reader, root, table([header, damaged, *rows], reader.delimiter))
            other = [*header[:place], TERMINAL, *header[place + 1 :]]
            assert_harmless(reader, root, table([other, first_row, *rows], reader.delimiter))


def assert_harmless(reader: Reader, root: Path, content: bytes) -> None:
    message = ""
    with instead(root / reader.file, content):
        try:
            reader.read(root)
        except UserError as error:
            message = str(error)
    assert not set("\x1b\x07\x9b\u202e\u2066\u200f") & set(message), ascii(message)


@pytest.mark.parametrize("field", ["id", "sentence", "idiom", "span", "subject"])
@pytest.mark.parametrize("reader", [r for r in READERS if r.kind == JSON], ids=lambda r: r.file)
def test_half_a_character_is_refused(reader: Reader, field: str, root: Path) -> None:
    records = record_of(reader, root)
    records[2][field] += "\ud800"
    refused(reader, root, json.dumps(records).encode(), "record 3", f"'{field}'")
