"""Columns of strangers' tables are known by name, or asked about; nothing is silently misread."""

import csv
import io
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from idiomtune.config.compose import compose_config
from idiomtune.data.user.load import UserSplits, check_heads
from idiomtune.errors import UserError
from idiomtune.io.tables import read_rows
from idiomtune.plugins.dataset import UserData
from tests.idiomtune.data.test_own_tables import _DEFAULTS, read
from tests.own_data import write, write_lines
from tests.programs import refused

Log = pytest.LogCaptureFixture
NUM = 12


def write_table(path: Path, columns: Mapping[str, Sequence[Any]]) -> Path:
    """A CSV of these columns, or JSON lines."""
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if path.suffix == ".jsonl":
        return write_lines(path, rows)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(columns))
    writer.writeheader()
    writer.writerows(rows)
    return write(path, file.getvalue())


def load(folder: Path, table: Mapping[str, Sequence[Any]], **options: Any) -> UserSplits:
    """What is trained on and held out of a CSV of these columns."""
    return read(write_table(folder / "mine.csv", table), **{"val_share": 0.4, **options})


def pairs(first: str = "query", second: str = "passage", **more: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Twelve pairs of four questions, with more columns."""
    questions = [f"What is number {i // 3}?" for i in range(NUM)]
    return {first: questions, second: [f"Answer {i} is long." for i in range(NUM)], **more}


def idioms(**more: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Three sentences of each of four idioms, with more columns."""
    texts = [f"Sentence {i} is long." for i in range(NUM)]
    return {"sentence": texts, "idiom": [f"idiom {i // 3}" for i in range(NUM)], **more}


def in_turn(*values: Any) -> list[Any]:
    return [values[i % len(values)] for i in range(NUM)]


# A column, its values in turn, and the columns that it stands beside.
QA = ("query", "passage")
ASKED: list[tuple[Any, ...]] = [
    *((QA, "human judgement", 87, 12, 40), (QA, "Correct?", True, False)),
    (QA, "flag", *[""] * (NUM - 1), "bad"),
    (QA, "score", *(i / 7 for i in range(NUM))),  # the name of a role
    (("premise", "hypothesis"), "gold_label", "entailment", "neutral", "contradiction"),
    (("sentence1", "sentence2"), "label", "0", "1", "2"),
]


@pytest.mark.parametrize(("names", "column", "values"), [(n, c, v) for n, c, *v in ASKED])
def test_a_column_that_may_judge_pairs_is_asked_about(
    tmp_path: Path, names: tuple[str, str], column: str, values: list[Any]
) -> None:
    """And what the user has mapped stays in the option that can be typed."""
    mapping = {"anchor": names[0], "positive": names[1]} if names[0] == "premise" else {}
    path = write_table(tmp_path / "mine.jsonl", pairs(*names) | {column: in_turn(*values)})
    ways = ["ignore: ", f'keep: "{column}', f'positive_if: "{column}', "score: ", "'data.columns={"]
    ways += [f"{role}: {name}" for role, name in mapping.items()]
    error = refused(lambda: read(path, val_share=0.3, columns=mapping), *ways)
    assert (error.file, error.field) == (str(path), column)


def test_the_options_that_are_asked_for(tmp_path: Path) -> None:
    """Each reading of the label; held-out data are asked about too."""
    path = write_table(tmp_path / "mine.csv", pairs(label=in_turn("right", "Wrong", "wrong")))
    kept = read(path, val_share=0.3, columns={"keep": "label=Right"})
    assert len(kept.train) + len(kept.val) == 4
    assert len(kept.train.texts(0)) == 2
    negatives = read(path, val_share=0.3, columns={"positive_if": "label=right"})
    assert len(negatives.train) + len(negatives.val) == 4
    assert len(negatives.train.texts(0)) == 4
    for ignoring in ({"label": None}, {"ignore": "label"}, {"ignore": ["label"]}):
        left_out = read(path, val_share=0.3, columns=ignoring)
        assert len(left_out.train) + len(left_out.val) == NUM
    scored = write_table(tmp_path / "scored.csv", pairs(grade=in_turn(0.0, 0.5, 1)))
    assert read(scored, val_share=0.3, columns={"score": "grade"}).train.form == "scored"
    assert len(read(scored, val_share=0.3, columns={"keep": "grade>=0.5"}).train.store.rows) == 8
    train = write_table(tmp_path / "train.csv", {"query": ["a", "b"], "passage": ["c", "d"]})
    with pytest.raises(UserError, match=r"mine\.csv.*'label'"):
        read(train, val=[str(path)])
    for wrong in ("label", "label=7", "score>=high", "lable=right"):
        with pytest.raises(UserError, match=r"data\.columns"):
            read(path, columns={"keep": wrong, "ignore": "label"})
    # A table without the column is read whole.
    assert len(read(path, val=[str(train)], columns={"keep": "label=right|other"}).train) == 4


TWO_SENTENCES = {f"sentence{n}": [f"Sentence {n} of {i}." for i in range(NUM)] for n in (1, 2)}
SURE, USAGES = in_turn("literal", "idiomatic", "unsure"), {"literal", "idiomatic"}
GRADES = in_turn(0, 1, 2, 3)


# A column in `keep` has its role all the same; form; meanings or scores.
KEPT: list[tuple[Mapping[str, Any], dict[str, Any], str, set[Any]]] = [
    (idioms(label=SURE), {"meaning": "label", "keep": "label!=unsure"}, "sentences", USAGES),
    (idioms(usage=SURE), {"keep": "usage!=unsure"}, "sentences", USAGES),
    (idioms(label=SURE), {"keep": "label=literal"}, "sentences", set()),
    (TWO_SENTENCES | {"label": GRADES}, {"score": "label", "keep": "label>=1"}, "scored", {1, 2, 3}),
    (pairs(score=GRADES), {"score": "score", "keep": "score>=1"}, "scored", {1, 2, 3}),
    (TWO_SENTENCES | {"label": SURE}, {"keep": "label=literal"}, "pairs", {0}),
    (TWO_SENTENCES | {"score": GRADES}, {"positive_if": "score>=1"}, "pairs", {0}),
]


@pytest.mark.parametrize(("table", "mapping", "form", "values"), KEPT, ids=range(len(KEPT)))
def test_a_column_in_keep_has_its_role_all_the_same(
    table: Mapping[str, Any], mapping: dict[str, Any], form: str, values: set[Any], tmp_path: Path
) -> None:
    splits = load(tmp_path, table, columns=mapping)
    assert splits.train.form == form
    assert values == (meanings(splits) if form == "sentences" else {*splits.train.store.scores.tolist()})
    assert not splits.train.store.has_labels


def test_slips_in_a_mapping_are_told(tmp_path: Path) -> None:
    mapping = {"meaning": "label", "ignore": ["label"]}
    refused(lambda: load(tmp_path, idioms(label=SURE), columns=mapping), "'label'")
    refused(lambda: load(tmp_path, pairs(), columns={"keep": "okk=1"}), "no table has the column 'okk'")


HARMLESS: dict[str, list[Any]] = {
    **{"id": [*range(NUM)], "Unnamed: 0": [*range(NUM)], "pid": in_turn(71, 72), "span_id": in_turn(1, 2)},
    **{"language": in_turn("en", "no"), "annotator": in_turn("a", "b"), "year": in_turn(2019, 2020)},
    **{"created_at": in_turn(1600000000, 1700000000), "length": in_turn(17, 29, 3)},
    **{"notes": [f"note {i}" for i in range(NUM)], "wieght": [*range(NUM)], "_task_hash": in_turn(-3, 8)},
    **{"label": ["1"] * NUM, "pos_scores": [[0.5]] * NUM},
}


def test_harmless_columns_are_not_asked_about(tmp_path: Path) -> None:
    assert len(load(tmp_path, pairs("question", "answer") | HARMLESS).train)


def meanings(splits: UserSplits) -> set[str]:
    """The names of meanings that are trained on and held out."""
    store = splits.train.store
    return {store.names[number] for number in store.labels[store.first[:-1], 1].tolist() if number}


# Columns of sentences, and the roles that are proposed for the first one; whatever the words mean.
SENTENCES_ASKED: list[tuple[dict[str, tuple[Any, ...]], tuple[str, ...]]] = [
    ({"label": (1, 0)}, ("meaning", "label")),
    ({"status": ("approved", "approved", "rejected")}, ("meaning",)),
    ({"meaning": ("x", "y"), "label": ("right", "wrong")}, ("label", "keep")),
    (
        {"answer": ("accept", "reject"), "split": ("train", "test", "dev"), "quality": (0.5, 0.9)},
        ("meaning",),
    ),
]


@pytest.mark.parametrize(("columns", "roles"), SENTENCES_ASKED)
def test_columns_of_sentences_are_asked_about_in_one_message(
    tmp_path: Path, columns: dict[str, Any], roles: tuple[str, ...]
) -> None:
    """And what the message proposes is enough to go on."""
    table = idioms(**{name: in_turn(*values) for name, values in columns.items()})
    asked = [name for name in columns if name != "meaning"]
    options = [f"{roles[0]}: {asked[0]}", *(f'keep: "{name}' for name in asked), *roles]
    path = write_table(tmp_path / "mine.jsonl", table)
    error = refused(lambda: read(path, val_share=0.4), *(options if roles[0] != "keep" else options[1:]))
    assert error.field == asked[0]
    command = str(error).rpartition("left out is ")[2]
    mapping = compose_config("train", shlex.split(command)[0])["data"]["columns"]
    assert mapping == {"ignore": asked}
    assert len(read(path, val_share=0.4, columns=mapping).train)


# Columns of texts → anchor, positive and negatives; or the one that is asked about.
NAMINGS: list[tuple[str, list[str] | str]] = [
    ("text1 text2", ["text1", "text2"]),
    ("text paraphrase", ["text", "paraphrase"]),
    ("sentence positive", ["sentence", "positive"]),
    ("negative_2 anchor positive negative_1", ["anchor", "positive", "negative_2", "negative_1"]),
    ("anchor positive text", "text"),
    ("anchor positive answer", "answer"),  # Prodigy's verdict
]


@pytest.mark.parametrize(("header", "expected"), NAMINGS)
def test_texts_are_read_by_their_names_or_asked_about(
    tmp_path: Path, header: str, expected: list[str] | str
) -> None:
    table = {name: [f"This is {name}, number {i}." for i in range(NUM)] for name in header.split()}
    if isinstance(expected, str):
        assert refused(lambda: load(tmp_path, table), "negative: ", "ignore: ").field == expected
        return
    train = load(tmp_path, table).train
    texts = [train.store.read_text(text) for text in train.texts(0)]
    assert [text.split()[2].strip(",") for text in texts] == expected


def test_numbered_sentences_are_asked_for_by_their_names(tmp_path: Path) -> None:
    """sentence-transformers numbers columns from 0: the second is no anchor."""
    table = {f"sentence_{n}": [f"This is {n} of {i}." for i in range(NUM)] for n in range(3)}
    refused(lambda: load(tmp_path, table), "sentence_0", "data.columns")


def scores(*of_pairs: Any) -> list[dict[str, Any]]:
    return [{"sentence1": f"a{i % 2}", "sentence2": f"b{i % 2}", "score": s} for i, s in enumerate(of_pairs)]


# Rows → how many are left of equal ones, what the warning names.
COPIES: list[tuple[list[dict[str, Any]], int, str]] = [
    ([{"text": f"t{i // 3}", "idiom": "g", "meaning": "m", "annotator": i % 3} for i in range(12)], 4, ""),
    ([{"text": f"t{i // 3}", "idiom": "g", "meaning": i % 3 // 2} for i in range(12)], 8, "4 texts"),
    ([{"text": f"t{i % 3}", "label": i % 2} for i in range(12)], 6, "3 texts"),
    ([{"text": f"t{i % 3}", "idiom": f"g{i % 2}", "meaning": i % 2} for i in range(12)], 6, ""),  # two idioms
    (scores(1, 0, 1, 0.5), 3, "1 pairs"),
]


@pytest.mark.parametrize(("rows", "num", "warning"), COPIES, ids=range(len(COPIES)))
def test_equal_rows_count_once_and_contradictions_are_named(
    tmp_path: Path, rows: list[dict[str, Any]], num: int, warning: str, caplog: Log
) -> None:
    others = [
        {k: f"{v}t" if isinstance(v, str) else v for k, v in row.items()} for row in (rows[0], rows[-1])
    ]
    train, val = (write_lines(tmp_path / f"{n}.jsonl", table) for n, table in enumerate((rows, others)))
    splits = read(train, val=[str(val)])
    assert len(splits.train.rows) == num
    assert any("copies" in note and "0.jsonl row" in note for note in splits.notes) is (num < len(rows))
    assert (f"{warning} have several" in caplog.text) == bool(warning) == ("have several" in caplog.text)
    assert not warning or "0.jsonl row" in caplog.text


def test_names_that_are_spelled_differently_are_one(tmp_path: Path) -> None:
    """In case, blanks, the encoding of accents, or as 1 and 1.0."""
    groups = in_turn("à força", "a\u0300 forc\u0327a", "À  força ", "à força", "rir", "Rir")
    rows = {"text": idioms()["sentence"], "group": groups, "meaning": in_turn("1", "1.0", "2")}
    store = load(tmp_path, rows).train.store
    assert (len(set(store.groups.tolist())), len(set(store.labels[:, 1].tolist()))) == (2, 2)


def test_rows_without_a_meaning_are_none_of_their_own(tmp_path: Path, caplog: Log) -> None:
    splits = load(tmp_path, idioms(meaning=in_turn("literal", "", "idiomatic")))
    assert len(splits.train) + len(splits.val) == 8
    assert all(part in caplog.text for part in ("meaning", "4 rows", "mine.csv row 3"))


def test_lists_in_cells(tmp_path: Path) -> None:
    """Also as Python and NumPy print them; a list in place of one name or text is an error by row."""
    for column, cell in {"meaning": "['a', 'b']", "idiom": '["a"]', "sentence": "['He', 'ran', '.']"}.items():
        rows = idioms(meaning=in_turn("a", "b")) | {column: in_turn(cell)}
        with pytest.raises(UserError, match=f"12 problems[^$]*row 2[^$]*'{column}'"):
            load(tmp_path, rows)
    negatives = in_turn("['It is far.' 'It is near.']", "[]", '["It rains."]')
    train = load(tmp_path, pairs(negative=negatives)).train
    texts = {train.store.read_text(text) for row in range(len(train)) for text in train.texts(row)[2:]}
    assert texts == {"It is far.", "It is near.", "It rains."}
    with pytest.raises(UserError, match=r"row 2, field 'negative'"):
        load(tmp_path, pairs(negative=["['x', 'Card's']"] * NUM))


def sentences(*texts: str, **more: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Twelve different sentences of four idioms, by these texts in turn."""
    return idioms(**more) | {"sentence": [text.format(i) for i, text in enumerate(in_turn(*texts))]}


def ends(start: int, end: int) -> dict[str, list[int]]:
    return {"span_start": in_turn(start), "span_end": in_turn(end)}


def test_markup_is_removed_and_said_once(tmp_path: Path, caplog: Log) -> None:
    store = load(tmp_path, sentences("<p>It&#39;s {} o\u200bclock &amp; <i>late</i></p>")).train.store
    assert [store.read_text(i) for i in range(NUM)] == [f"It's {i} oclock & late" for i in range(NUM)]
    assert [record.getMessage().count("12 rows, the first row 2") for record in caplog.records] == [1]


def test_offsets_count_the_characters_of_the_file(tmp_path: Path) -> None:
    """Markup is removed before, in and after a span, which stays on its words."""
    text = "<p>He&nbsp;<i>bro\u00adke&nbsp;the</i> ice&#33;</p> {}"
    store = load(tmp_path, sentences(text, **ends(14, 33))).train.store
    assert text[14:33] == "bro\u00adke&nbsp;the</i>"
    assert {store.read_text(i)[slice(*(store.span(i) or (0, 0)))] for i in range(NUM)} == {"broke the"}
    assert store.read_text(0).startswith("He broke the ice!")


def test_signs_that_are_no_marks_stay(tmp_path: Path, caplog: Log) -> None:
    """Other marks are words; brackets are marks only around words, in most texts."""
    texts = ["a_b is **snake** {}", "{} * 3 * 4 is [3, 4]", "x < y > {}", "[Laughter] No {}.", "[[well]] {}"]
    rows = sentences(*texts)
    store = load(tmp_path, rows).train.store
    assert [store.read_text(i) for i in range(NUM) if "[[" not in rows["sentence"][i]] == [
        text for text in rows["sentence"] if "[[" not in text
    ]
    assert not store.has_spans
    assert "marked" not in caplog.text


@pytest.mark.parametrize("mark", ["<b>{}</b> <b>{}</b>", "[{} {}]"])
@pytest.mark.parametrize("form", ["sentences", "pairs"])
def test_marks_around_one_stretch_are_the_span(tmp_path: Path, mark: str, form: str, caplog: Log) -> None:
    texts = [f"He {mark.format('kicked', 'the bucket')} {i}." for i in range(NUM)]
    table = idioms() | {"sentence": texts} if form == "sentences" else pairs() | {"query": texts}
    store = load(tmp_path, table).train.store
    read_as = [(store.read_text(text), store.span(text)) for text in store.first[:-1].tolist()]
    assert read_as == [(f"He kicked the bucket {i}.", (3, 20)) for i in range(NUM)]
    assert "12 of 12 texts" in caplog.text


# A table → its rows.
TABLES: dict[str, list[tuple[str, ...]]] = {
    'a.tsv expression\tmeaning\n"a\tx\nb"\ty\n': [('"a', "x"), ('b"', "y")],
    'a.tsv expression\tmeaning\n"a said\t"x\nb\ty"\n': [('"a said', '"x'), ("b", 'y"')],
    'a.tsv expression\tmeaning\n"a ""b"" c"\t"x"\n': [('a "b" c', "x")],
    'a.tsv expression\tmeaning\nHe said: "no"\t"x"\n': [('He said: "no"', '"x"')],
    "a.tsv expression\tmeaning\na\tx\n \t\n\nb\ty\n": [("a", "x"), ("b", "y")],
    "a.csv \n\nanchor,positive\n,\n , \na,p\n\n": [("a", "p")],
    "a.csv anchor,positive,,\na,p,,\n": [("a", "p")],
    'a.json \n{"anchor": "a", "positive": "p"}\n\n{"anchor": "b", "positive": "q"}': [("a", "p"), ("b", "q")],
}


@pytest.mark.parametrize("table", TABLES)
def test_tables_as_other_programs_write_them(tmp_path: Path, table: str) -> None:
    name, _, content = table.partition(" ")
    rows = [row.values for row in read_rows(write(tmp_path / name, content))]
    assert [tuple(value for column, value in row.items() if column) for row in rows] == TABLES[table]


@pytest.mark.parametrize("cell", ['"a\tb"', '"a\nb"', '"a\r\nb"'])
def test_a_cell_of_a_tsv_with_a_tab_or_a_line_break_is_an_error_by_row(tmp_path: Path, cell: str) -> None:
    """pandas writes such cells."""
    path = write(tmp_path / "mine.tsv", f"anchor\tpositive\nred tape\trules\n{cell}\tx\n")
    with pytest.raises(UserError, match="row 3"):
        read(path)


def test_accents_of_a_span_match_however_they_are_encoded(tmp_path: Path) -> None:
    for text, span, expected in (
        ("Casou a\u0300 forc\u0327a. {}", "à força", (6, 15)),
        ("Casou à força. {}", "a\u0300 forc\u0327a", (6, 13)),
    ):
        store = load(tmp_path, sentences(text, span=in_turn(span))).train.store
        assert {store.span(i) for i in range(NUM)} == {expected}


def test_all_wrong_rows_are_listed_by_the_first_look(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.csv", "text,idiom\n,a\nb,a\n,b\nc,b\n,c\n")
    with pytest.raises(UserError, match=r"(?s)3 problems.*row 2.*row 4.*row 6"):
        check_heads(UserData(**{**_DEFAULTS, "train": [str(path)]}))


def test_rows_are_described_as_they_are_trained(tmp_path: Path) -> None:
    rows = idioms(span=in_turn("long"), usage=in_turn("literal", "idiomatic"))
    train = load(tmp_path, rows).train
    assert all(part in train.describe(0) for part in ("row ", "is [long].", "idiom ", "literal"))
    with_negatives = [{"query": f"q{i}", "pos": [f"{i} p" * 500], "neg": ["n", "m"]} for i in range(4)]
    held_out = write_table(tmp_path / "v.csv", pairs())
    train = read(write_lines(tmp_path / "p.jsonl", with_negatives), val=[str(held_out)]).train
    assert all(part in train.describe(0) for part in ("'q0'", "'n'", "'m'"))
    assert len(train.describe(0)) < 300
