"""What columns of strangers' tables mean is seen from their values; nothing is silently misread."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from idiomtune.benchmarks.own.collections import read_collection
from idiomtune.benchmarks.own.pairs import read_pairs
from idiomtune.benchmarks.own.ranking import read_ranking
from idiomtune.config.compose import compose_config
from idiomtune.data.own.load import OwnSplits, check_heads
from idiomtune.declarations.dataset import OwnData
from idiomtune.encoder.glossary import read_glossary
from idiomtune.errors import UserError
from idiomtune.io.tables import read_rows
from tests.idiomtune.data.test_own_tables import _DEFAULTS, read
from tests.own_data import write, write_collection, write_lines

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


def pairs(first: str = "query", second: str = "passage", **more: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Twelve pairs of four questions, with more columns."""
    questions = [f"What is number {i // 3}?" for i in range(NUM)]
    return {first: questions, second: [f"Answer {i} is long." for i in range(NUM)], **more}


def in_turn(*values: Any) -> list[Any]:
    return [values[i % len(values)] for i in range(NUM)]


ASKED: list[tuple[str, list[Any]]] = [
    ("label", in_turn(1, 0)),
    ("label", in_turn("1", "0", "0")),
    ("relevance", in_turn(0, 1, 2, 3)),
    ("score", [i / 7 for i in range(NUM)]),
    ("cosine", [i / 17 for i in range(NUM)]),
    ("human judgement", in_turn(87, 12, 40)),
    ("gold_label", in_turn("entailment", "neutral", "contradiction")),
    ("Correct?", in_turn("yes", "no")),
    ("isRelevant", in_turn("TRUE", "FALSE")),
    ("answer_ok", in_turn(True, False)),
    ("what", in_turn("relevant", "irrelevant")),
    ("what", in_turn("Highly relevant", "Partially relevant", "Not relevant")),
    ("what", in_turn("duplicate", "not duplicate")),
    ("passt", in_turn("ja", "nein")),
    ("x", in_turn(1, -1)),
    ("x", in_turn("gut", "schlecht")),
    ("label", ["0"] * NUM),
    ("label", [*["1"] * (NUM - 1), "0"]),
]


@pytest.mark.parametrize(("column", "values"), ASKED, ids=[f"{n} {c}" for n, (c, _) in enumerate(ASKED)])
@pytest.mark.parametrize(
    "names", [("query", "passage"), ("sentence1", "sentence2"), ("premise", "hypothesis")]
)
def test_a_column_that_may_judge_pairs_is_asked_about(
    tmp_path: Path, column: str, values: list[Any], names: tuple[str, str]
) -> None:
    """Whatever the pairs are called; sentences with a score or label are scored pairs by these names."""
    if names[0] == "sentence1" and column in ("label", "score"):
        pytest.skip("read as scored pairs")
    mapping = {"anchor": names[0], "positive": names[1]} if names[0] == "premise" else {}
    path = write_table(tmp_path / "mine.jsonl", pairs(*names) | {column: values})
    with pytest.raises(UserError) as refused:
        read(path, val_share=0.3, columns=mapping)
    assert (refused.value.file, refused.value.field) == (str(path), column)
    ways = [f"{column}: null", f'keep: "{column}', f'positive_if: "{column}']
    ways += [f"{role}: {name}" for role, name in mapping.items()]
    assert [way for way in ways if way not in str(refused.value)] == []


def test_the_options_that_are_asked_for(tmp_path: Path) -> None:
    """Each reading of the label; held-out data are asked about too."""
    path = write_table(tmp_path / "mine.csv", pairs(label=in_turn("right", "Wrong", "wrong")))
    kept = read(path, val_share=0.3, columns={"keep": "label=Right"})
    assert len(kept.train) + len(kept.val) == 4
    assert len(kept.train.texts(0)) == 2
    negatives = read(path, val_share=0.3, columns={"positive_if": "label=right"})
    assert len(negatives.train) + len(negatives.val) == 4
    assert len(negatives.train.texts(0)) == 4
    left_out = read(path, val_share=0.3, columns={"label": None})
    assert len(left_out.train) + len(left_out.val) == NUM
    scored = write_table(tmp_path / "scored.csv", pairs(grade=in_turn(0.0, 0.5, 1)))
    assert read(scored, val_share=0.3, columns={"score": "grade"}).train.form == "scored"
    assert len(read(scored, val_share=0.3, columns={"keep": "grade>=0.5"}).train.store.numbers) == 8
    train = write_table(tmp_path / "train.csv", {"query": ["a", "b"], "passage": ["c", "d"]})
    with pytest.raises(UserError, match=r"mine\.csv.*'label'"):
        read(train, val=[str(path)])
    for wrong in ("label", "label=7", "score>=high"):
        with pytest.raises(UserError, match=r"data\.columns"):
            read(path, columns={"keep": wrong})


def test_the_options_can_be_typed() -> None:
    columns = compose_config("config", 'data.columns={keep: "label=1", other: null}')["data"]["columns"]
    assert columns == {"keep": "label=1", "other": None}


HARMLESS: dict[str, list[Any]] = {
    "id": [*range(NUM)],
    "number_of_row": [i + 1 for i in range(NUM)],
    "pid": in_turn(71, 72),
    "language": in_turn("en", "no"),
    "source": in_turn("quora", "reddit"),
    "split": in_turn("a", "b"),
    "date": in_turn("2020-01-01", "2021-02-03"),
    "year": in_turn(2019, 2020),
    "created_at": in_turn(1600000000, 1600000001, 1700000000),
    "url": [f"https://e.org/{i}" for i in range(NUM)],
    "title": in_turn("One", "Two"),
    "category": in_turn("sport", "news", "art"),
    "subject": in_turn("sport", "news", "art", "law"),
    "length": in_turn(17, 29, 3),
    "page": in_turn(1, 2),
    "votes": in_turn(1, 5, 0),
    "upstream": [i * 31 for i in range(NUM)],
    "Unnamed: 0": [*range(NUM)],
    "context": in_turn("A long text about cats.", "A long text about dogs."),
    "remark": ["", "maybe", *[""] * (NUM - 2)],
    "label": ["1"] * NUM,
    "pos_scores": [[0.5]] * NUM,
}


@pytest.mark.parametrize("column", HARMLESS)
def test_harmless_columns_are_not_asked_about(tmp_path: Path, column: str) -> None:
    for suffix in (".csv", ".jsonl"):
        path = write_table(
            tmp_path / f"mine{suffix}", pairs("question", "answer") | {column: HARMLESS[column]}
        )
        assert len(read(path, val_share=0.3).train)


def idioms(**more: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Three sentences of each of four idioms, with more columns."""
    texts = [f"Sentence {i} is long." for i in range(NUM)]
    return {"sentence": texts, "idiom": [f"idiom {i // 3}" for i in range(NUM)], **more}


def meanings(splits: OwnSplits) -> set[str]:
    """The names of meanings that are trained on and held out."""
    store = splits.train.store
    return {store.names[number] for number in store.labels[store.first[:-1], 1].tolist() if number}


USAGES: list[tuple[str, Sequence[Any]]] = [
    ("label", ("idiomatic", "literal")),
    ("usage", ("Figurative", "Literal")),
    ("class", ("i", "l")),
    ("tag", ("I", "L", "Q")),
    ("is_idiom", (True, False)),
    ("figurative?", ("1", "0")),
    ("label", (1, 0)),
    ("uso", ("idiomático", "literal")),
    ("Bedeutung", ("wörtlich", "übertragen")),
    ("sens", ("littéral", "figuré")),
    ("senso", ("letterale", "figurato")),
    ("whatever", ("non-literal", "literal", "unclear")),
    ("label", ("figuratively", "literally")),
]


@pytest.mark.parametrize(("column", "values"), USAGES, ids=[f"{n} {c}" for n, (c, _) in enumerate(USAGES)])
def test_usages_of_an_expression_are_its_meanings(tmp_path: Path, column: str, values: Sequence[Any]) -> None:
    splits = read(write_table(tmp_path / "mine.jsonl", idioms(**{column: in_turn(*values)})), val_share=0.4)
    assert not splits.train.store.has_labels
    assert meanings(splits) == {str(v).lower() if isinstance(v, bool) else str(v) for v in values}


@pytest.mark.parametrize(
    ("columns", "mapping", "expected"),
    [
        ({"label": ("a", "b"), "label_2": (1, 0)}, {"meaning": "label_2"}, {"1", "0"}),
        ({"label": ("literal", "idiomatic"), "label_2": (1, 0)}, {}, {"literal", "idiomatic"}),
        ({"sense": ("literal", "idiomatic"), "label": (1, 0)}, {}, {"literal", "idiomatic"}),
        ({"sense": ("",), "usage": ("literal", "idiomatic")}, {}, {"literal", "idiomatic"}),
        ({"topic": ("sport", "news"), "remark": ("i", "j")}, {}, set()),
    ],
)
def test_which_of_several_columns_is_the_meaning(
    tmp_path: Path, columns: dict[str, Any], mapping: dict[str, str], expected: set[str]
) -> None:
    path = write_table(tmp_path / "mine.csv", idioms(**{name: in_turn(*v) for name, v in columns.items()}))
    splits = read(path, val_share=0.4, columns=mapping)
    assert meanings(splits) == expected


@pytest.mark.parametrize(
    "columns",
    [
        {"sense": ("to die", "to leave", "to go"), "label": (1, 0)},
        {"first": ("literal", "idiomatic"), "second": ("literal", "figurative")},
        {"label": ("A", "B")},
    ],
)
def test_if_several_readings_are_possible_they_are_asked_about(
    tmp_path: Path, columns: dict[str, Any]
) -> None:
    path = write_table(tmp_path / "mine.csv", idioms(**{name: in_turn(*v) for name, v in columns.items()}))
    with pytest.raises(UserError) as refused:
        read(path, val_share=0.4)
    assert refused.value.field == [*columns][-1]
    assert all(f"meaning: {name}" in str(refused.value) for name in columns)


def test_names_that_are_spelled_differently_are_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In case, blanks, the encoding of accents, or as 1 and 1.0; it is said."""
    groups = in_turn("à força", "a\u0300 forc\u0327a", "À  força ", "à força", "rir", "Rir")
    rows = {"text": idioms()["sentence"], "group": groups, "meaning": in_turn("1", "1.0", "2")}
    splits = read(write_table(tmp_path / "mine.csv", rows), val_share=0.4)
    store = splits.train.store
    assert (len(set(store.groups.tolist())), len(set(store.labels[:, 1].tolist()))) == (2, 2)
    assert "'1.0'" in caplog.text
    assert "names that are read as equal" in caplog.text


def test_rows_without_a_meaning_are_none_of_their_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = idioms(meaning=in_turn("literal", "", "idiomatic"))
    splits = read(write_table(tmp_path / "mine.csv", rows), val_share=0.4)
    assert len(splits.train) + len(splits.val) == 8
    assert all(part in caplog.text for part in ("meaning", "4 rows", "mine.csv row 3"))


def test_lists_in_cells(tmp_path: Path) -> None:
    """A list of one name is the name; of several, an error by row. Python's lists of texts are lists."""
    one = idioms(meaning=in_turn('["literal"]', "['idiomatic']"))
    assert meanings(read(write_table(tmp_path / "one.csv", one), val_share=0.4)) == {"literal", "idiomatic"}
    for column, cell in (
        ("meaning", "['a', 'b']"),
        ("idiom", '["a", "b"]'),
        ("sentence", "['He', 'ran', '.']"),
    ):
        rows = idioms(meaning=in_turn("a", "b")) | {column: in_turn(cell)}
        with pytest.raises(UserError, match=f"12 problems[^$]*row 2[^$]*'{column}'"):
            read(write_table(tmp_path / "several.csv", rows))
    listed = pairs() | {"passage": in_turn("['p', 'q']", "r")}
    several = read(write_table(tmp_path / "p.csv", listed), val_share=0.3)
    assert several.train.store.num_positives.tolist() == in_turn(2, 1)


@pytest.mark.parametrize(
    ("text", "start", "end", "is_warned"),
    [
        ("He broke the ice at noon.", 1, 4, True),  # words
        ("He broke the ice at noon.", 3, 15, True),  # the last character
        ("He broke the ice at noon.", 3, 16, False),
        ("他打破了僵局。", 1, 3, False),
    ],
)
def test_offsets_that_cut_words_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, start: int, end: int, is_warned: bool
) -> None:
    texts = [f"{text} {i}" for i in range(NUM)]
    rows = idioms(span_start=in_turn(start), span_end=in_turn(end)) | {"sentence": texts}
    read(write_table(tmp_path / "mine.csv", rows), val_share=0.4)
    assert ("12 of 12 spans" in caplog.text) == is_warned


MARKS = ["<b>{}</b>", "[MWE]{}[/MWE]", "**{}**", "_{}_", "<i class='x'>{}</i>", "[[{}]]", "__{}__"]


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("form", ["sentences", "pairs", "scored", "sts", "ranking", "documents"])
def test_marks_around_one_stretch_are_the_span(
    tmp_path: Path, mark: str, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    bare = [f"He kicked the bucket {i}." for i in range(NUM)]
    texts = [text.replace("kicked the bucket", mark.format("kicked the bucket")) for text in bare]
    if form in ("sts", "ranking", "documents"):
        if form == "sts":
            rows = {"sentence1": texts, "sentence2": bare, "score": in_turn(1, 0)}
            requests = [pair.first for pair in read_pairs(write_table(tmp_path / "mine.csv", rows))]
        elif form == "ranking":
            rows = {"query": texts, "candidates": in_turn('["a", "b"]'), "grades": in_turn("[1, 0]")}
            requests = [q.text for q in read_ranking(write_table(tmp_path / "mine.csv", rows))]
        else:
            corpus = "".join(json.dumps({"_id": f"d{i}", "text": t}) + "\n" for i, t in enumerate(texts))
            requests = [*read_collection("m", write_collection(tmp_path / "m", corpus=corpus)).documents]
        shown = [(r.text, r.span and r.text[slice(*r.span)]) for r in requests]
    else:
        rows = {
            "sentences": {"text": texts, "idiom": in_turn(*"aabbccdd")},
            "pairs": {"anchor": texts, "positive": [f"p{i}" for i in range(NUM)]},
            "scored": {"sentence1": texts, "sentence2": bare, "score": in_turn(1, 0)},
        }[form]
        train = read(write_table(tmp_path / "mine.csv", rows), val_share=0.3).train
        spans = [(train.store.read_text(a), train.store.span(a)) for a in train.store.first[:-1].tolist()]
        shown = [(text, span and text[slice(*span)]) for text, span in spans]
    assert shown == [(text, "kicked the bucket") for text in bare]
    assert "12 of 12 texts" in caplog.text


@pytest.mark.parametrize(
    ("texts", "is_warned"),
    [
        (in_turn("<b>He</b> ran to <b>me</b>", "<b>I</b> ran to <b>him</b>", "We ran"), True),
        (in_turn("<p>He ran</p>", "<p>She ran</p>"), True),
        (in_turn("a_b is snake_case", "2 * 3 * 4", "x < y > z", "[Laughter] No.", "well"), False),
    ],
)
def test_marks_that_are_unclear_stay_and_are_named(
    tmp_path: Path, texts: list[str], is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    rows = idioms() | {"sentence": [f"{text} {i}" for i, text in enumerate(texts)]}
    if texts[0].startswith("<p>"):
        rows["sentence"] = [text.replace("ran", f"ran {i}") for i, text in enumerate(texts)]
    store = read(write_table(tmp_path / "mine.csv", rows), val_share=0.4).train.store
    assert [store.read_text(i) for i in range(NUM)] == list(rows["sentence"])
    assert not store.has_spans
    assert ("of 12 texts" in caplog.text) == is_warned


QUOTES = [
    ('"a\tx\nb"\ty\n', [('"a', "x"), ('b"', "y")]),
    ('"a said\t"x\nb\ty"\n', [('"a said', '"x'), ("b", 'y"')]),
    ('"a ""b"" c"\t"x"\n', [('a "b" c', "x")]),
    ('He said: "no"\t"x"\n', [('He said: "no"', '"x"')]),
    ("a\tx\n \t\n\nb\ty\n", [("a", "x"), ("b", "y")]),
]


@pytest.mark.parametrize(("content", "expected"), QUOTES)
def test_quotation_marks_of_a_tsv(tmp_path: Path, content: str, expected: list[tuple[str, str]]) -> None:
    path = write(tmp_path / "mine.tsv", f"expression\tmeaning\n{content}")
    assert [tuple(row.values.values()) for row in read_rows(path)] == expected


@pytest.mark.parametrize("cell", ['"a\tb"', '"a\nb"', '"a\r\nb"'])
def test_a_cell_of_a_tsv_with_a_tab_or_a_line_break_is_an_error_by_row(tmp_path: Path, cell: str) -> None:
    """For each kind of table; pandas writes such cells."""
    row = f"expression\tmeaning\nred tape\trules\n{cell}\tx\n"
    with pytest.raises(UserError, match="row 3"):
        read_glossary([write(tmp_path / "mine.tsv", row)])
    with pytest.raises(UserError, match="row 3"):
        read(write(tmp_path / "p.tsv", row.replace("expression\tmeaning", "anchor\tpositive")))
    with pytest.raises(UserError, match="row 3"):
        read_pairs(write(tmp_path / "s.tsv", f"sentence1\tsentence2\tscore\na\tb\t1\n{cell}\tb\t1\n"))


def test_what_pandas_writes_is_read(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows = [{"anchor": 'He said "no".', "positive": '"Yes", she said'}, {"anchor": "a", "positive": 'b "'}]
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        pandas.DataFrame(rows).to_csv(tmp_path / "mine.tsv", sep="\t", index=False, quoting=quoting)
        assert [row.values for row in read_rows(tmp_path / "mine.tsv")] == rows


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "sep=,\nanchor,positive\na,p\n"),
        ("b.csv", '"sep=;"\r\nanchor;positive\r\na;p\r\n'),
        ("c.csv", "\n\nanchor,positive\n,\n , \na,p\n\n"),
        ("f.csv", "anchor,positive,,\na,p,,\n"),
        ("d.json", '{"anchor": "a", "positive": "p"}\n{"anchor": "b", "positive": "q"}\n'),
        ("e.json", '\n{"anchor": "a", "positive": "p"}\n\n{"anchor": "b", "positive": "q"}'),
    ],
)
def test_tables_as_other_programs_write_them(tmp_path: Path, name: str, content: str) -> None:
    rows = [row.values for row in read_rows(write(tmp_path / name, content))]
    assert {column: value for column, value in rows[0].items() if column} == {"anchor": "a", "positive": "p"}
    assert len(rows) == 1 + (name[0] in "de")


@pytest.mark.parametrize("span", [[3, 16], "(3, 16)", "[3, 16]", [[3, 16]]])
def test_a_span_is_also_a_pair_of_offsets(tmp_path: Path, span: Any) -> None:
    rows = [{"text": f"He broke the ice {i}.", "span": span, "group": f"g{i // 3}"} for i in range(NUM)]
    store = read(write_lines(tmp_path / "mine.jsonl", rows), val_share=0.4).train.store
    assert {store.span(i) for i in range(NUM)} == {(3, 16)}
    rows[4]["span"] = [3, 99]
    with pytest.raises(UserError, match="row 5, field 'span'"):
        read(write_lines(tmp_path / "mine.jsonl", rows))


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("Casou a\u0300 forc\u0327a.", "à força"),
        ("Casou à força.", "a\u0300 forc\u0327a"),
        ("à a\u0300 x", "à à"),
    ],
)
def test_accents_match_however_they_are_encoded(tmp_path: Path, text: str, span: str) -> None:
    rows = [{"text": f"{text}{i}", "span": span, "group": f"g{i // 3}"} for i in range(NUM)]
    store = read(write_lines(tmp_path / "mine.jsonl", rows), val_share=0.4).train.store
    start, end = store.span(0) or (0, 0)
    assert len(store.read_text(0)[start:end].encode()) >= len(span) > 0


def test_all_wrong_rows_are_listed_by_the_first_look(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.csv", "text,idiom\n,a\nb,a\n,b\nc,b\n,c\n")
    with pytest.raises(UserError, match=r"(?s)3 problems.*row 2.*row 4.*row 6"):
        check_heads(OwnData(**{**_DEFAULTS, "train": [str(path)]}))


def test_judgements_of_what_does_not_exist_may_be_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_collection(tmp_path / "m", qrels="q1\td1\t1\nq1\td9\t1\nq7\td1\t1\nq2\td3\t1\n")
    with pytest.raises(UserError, match=r"(?s)row 2.*own_retrieval.missing=ignore"):
        read_collection("m", folder)
    collection = read_collection("m", folder, missing="ignore")
    assert [len(query.grades) for query in collection.queries] == [1, 1]
    assert "d9" in caplog.text
    assert "q7" in caplog.text


@pytest.mark.parametrize(
    ("override", "typed"),
    [
        ("seed=42\r", "seed=42"),
        ("seed=“42”", 'seed="42"'),
        ("–seed=42", "seed=42"),
        ("seed = 42", "seed=42"),
        ("seed=\xa042", "seed=42"),
        ("data.train=[a.csv，b.csv]", "data.train=[a.csv,b.csv]"),
    ],
)
def test_a_character_that_no_option_may_have_is_named(override: str, typed: str) -> None:
    with pytest.raises(UserError) as refused:
        compose_config("config", override)
    assert str(refused.value).endswith(f"type {typed}")


def test_rows_are_described_as_they_are_trained(tmp_path: Path) -> None:
    rows = idioms(span=in_turn("long"), label=in_turn("literal", "idiomatic"))
    train = read(write_table(tmp_path / "mine.csv", rows), val_share=0.4).train
    assert all(part in train.describe(0) for part in ("row ", "is [long].", "idiom ", "literal"))
    with_negatives = [{"query": f"q{i}", "pos": [f"{i} p" * 500], "neg": ["n", "m"]} for i in range(4)]
    held_out = write_table(tmp_path / "v.csv", pairs())
    train = read(write_lines(tmp_path / "p.jsonl", with_negatives), val=[str(held_out)]).train
    assert all(part in train.describe(0) for part in ("'q0'", "'n'", "'m'"))
    assert len(train.describe(0)) < 300


PAIR = {"sentence1": "A cat sat.", "sentence2": "A dog sat."}


def rows_of(**columns: Any) -> list[dict[str, Any]]:
    """Pairs of sentences with more columns: values that take turns."""
    return [{**PAIR, **{name: of[i % len(of)] for name, of in columns.items()}, "n": i} for i in range(12)]


@pytest.mark.parametrize(
    ("rows", "option"),
    [
        (rows_of(label=[0, 1, 2]), "positive_if"),
        (rows_of(label=[0, 2, -1, 1]), "score: label"),
        (rows_of(label=["entailment", "not_entailment"]), "positive_if"),
        (rows_of(score=[0, 1], split=["train", "dev"]), "split=train"),
        (rows_of(score=[0, 1], partition=["training", "test", "training"]), "partition=training"),
    ],
)
def test_classes_and_splits_are_asked_about(rows: list[dict[str, Any]], option: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        read(write_lines(tmp_path / "mine.jsonl", rows))
    assert refused.value.field in ("label", "split", "partition")
    assert option in str(refused.value)


def test_lists_as_libraries_print_them(tmp_path: Path) -> None:
    """Without commas, empty, or not to be read."""
    columns = {
        "anchor": [f"Where is {i}?" for i in range(NUM)],
        "positive": [f"Here {i}." for i in range(NUM)],
    }
    negatives = in_turn("['It is far.' 'It is near.']", "[]", '["It rains."]')
    train = read(write_table(tmp_path / "mine.csv", {**columns, "negative": negatives})).train
    texts = {train.store.read_text(text) for row in range(len(train)) for text in train.texts(row)[2:]}
    assert texts == {"It is far.", "It is near.", "It rains."}
    with pytest.raises(UserError, match=r"row 2, field 'negative'"):
        read(write_table(tmp_path / "bad.csv", {**columns, "negative": ["['x', 'Card's']"] * NUM}))


def test_signs_of_html_and_offsets_in_bytes_are_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"text": f"It&#39;s {i} o'clock &amp; late", "label": f"c{i % 4}"} for i in range(12)]
    read(write_lines(tmp_path / "mine.jsonl", rows))
    assert "field 'text': 12 of 12" in caplog.text
    spans: list[dict[str, Any]] = [
        {"text": f"{'Zoë ' * (i < 3)}broke {i}", "group": f"g{i % 4}"} for i in range(12)
    ]
    for row in spans:
        start = len(row["text"].partition("broke")[0].encode())
        row |= {"span_start": start, "span_end": start + 5}
    read(write_lines(tmp_path / "spans.jsonl", spans))
    assert "bytes" in caplog.text


@pytest.mark.parametrize(
    "begin", [b"\x1f\x8b", b"PK\x03\x04", b"version https://git-lfs", b"<!doctype html>"]
)
def test_a_file_of_another_kind_is_called_so(begin: bytes, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_bytes(begin + b"\n\x00 a,b\n")
    with pytest.raises(UserError, match=r"mine\.csv: is (packed|a zip|only a pointer|a web page)"):
        read(path)
