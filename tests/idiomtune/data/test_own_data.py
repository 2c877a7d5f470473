"""Users' own training data: every form is read as it is meant, and split by group; what is wrong is told."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from idiomtune.data.user import text_table
from idiomtune.data.user.examples import ExampleTable, Sentence, UserExample
from idiomtune.data.user.load import UserSplits
from idiomtune.data.user.source import Source
from idiomtune.data.user.text_table import UserExamples
from tests.idiomtune.data.test_own_tables import read
from tests.own_data import write, write_lines
from tests.programs import refused


def texts(splits: UserSplits, row: int) -> list[str]:
    """Those of a row that is trained on."""
    return [splits.train.store.read_text(text) for text in splits.train.texts(row)]


def pair(*texts: str, num_positives: int = 1, **more: Any) -> UserExample:
    return UserExample(1, tuple(Sentence(text) for text in texts), num_positives, **more)


LABELLED_LISTS = {
    "query": {"text": "a cat", "meaning": "m"},
    "span": "cat",
    "group": "g",
    "meaning": "m",
    "pos": [{"text": "one", "span_start": 1, "span_end": 3}],
    "neg": [{"title": "T", "text": "two", "span": "two", "group": "h", "meaning": "k"}, "n"],
}
LABELLED_SENTENCES = (
    Sentence("a cat", (2, 5), "g", "m"),
    Sentence("one", (1, 3), "g", "m"),
    Sentence("T two", (2, 5), "h", "k"),
    Sentence("n", None, "g"),
)

TEVATRON = {
    "query_id": "1",
    "query": "a",
    "positive_passages": [{"docid": "3", "title": "T", "text": "p"}],
    "negative_passages": [{"docid": "4", "title": "", "text": "n"}, {"title": "U", "text": ""}],
}
ENDS = {"positive_span": "dog", "anchor_span_start": "0", "anchor_span_end": "1"}
SCORED_ENDS = {"similarity": 0, "span1": "cat", "span2_start": 0.0, "span2_end": 1.0}
IN_USE = {"sentence": "a cat", "idiom": " g ", "sense": "m", "usage": "literal", "span": "cat"}
FORMS: list[tuple[dict[str, Any], UserExample]] = [
    # sentence-transformers: triplets, several negatives
    ({"anchor": "a", "positive": "p", "negative": "n"}, pair("a", "p", "n")),
    ({"anchor": "a", "positive": "p", "negative_1": "m", "negative_2": "", "neg-3": "n"}, pair(*"apmn")),
    ({"Query": "a", "Positive 1": "p", "positive-2": "q"}, pair("a", "p", "q", num_positives=2)),
    ({"sentence_A": "a", "sentence_B": "p"}, pair("a", "p")),
    # FlagEmbedding, Tevatron
    # the prompt is a prefix: model.query_prompt
    ({"query": "a", "pos": ["p"], "neg": [], "prompt": "Find: "}, pair("a", "p")),
    (TEVATRON, pair("a", "T p", "n", "U")),
    # lists in a CSV
    (
        {"query": "a", "pos": '["p", "q"]', "neg": "[Laughs.] No."},
        pair("a", "p", "q", "[Laughs.] No.", num_positives=2),
    ),
    # spans, groups and meanings
    (LABELLED_LISTS, UserExample(1, LABELLED_SENTENCES, 1)),
    (
        {"anchor": "a", "positive": "a dog"} | ENDS,
        UserExample(1, (Sentence("a", (0, 1)), Sentence("a dog", (2, 5))), 1),
    ),
    # pandas puts an index before the columns
    ({"": "3", "anchor": "a", "positive": "p", "weight": "0.5"}, pair("a", "p", weight=0.5)),
    # scored pairs
    ({"sentence1": "a", "sentence2": "b", "score": 1}, pair("a", "b", score=1.0)),
    (
        {"text1": "a cat", "text2": "b"} | SCORED_ENDS,
        UserExample(1, (Sentence("a cat", (2, 5)), Sentence("b", (0, 1))), 1, score=0.0),
    ),
    # sentences
    ({"text": "a", "label": 3.0}, pair("a", num_positives=0, label="3")),
    (IN_USE, UserExample(1, (Sentence("a cat", (2, 5), "g", "m"),), usage="literal")),
]


@pytest.mark.parametrize(("row", "expected"), FORMS, ids=[str(n) for n in range(len(FORMS))])
def test_a_row_of_every_form(row: dict[str, Any], expected: UserExample) -> None:
    (made,) = ExampleTable(Source("a row", hub=[row]), None).examples()
    assert made == expected


def test_columns_are_mapped() -> None:
    """A mapped column comes before one whose name says the same."""
    row = {"title": "a", "query": "x", "abstract": "p", "wrong": "n", "worse": "m", "idiom in it": "a"}
    roles = ("anchor", "positive", "negative_1", "negative_2", "anchor_span")
    mapping = dict(zip(roles, ("title", "abstract", "wrong", "worse", "idiom in it"), strict=True))
    table = ExampleTable(Source("a row", hub=[row]), mapping)
    (made,) = table.examples()
    assert made == UserExample(1, (Sentence("a", (0, 1)), *map(Sentence, "pnm")), 1)
    assert "left out: query)" in table.about()
    labelled = ExampleTable(
        Source("a row", hub=[{"text": "a", "class": "x", "idiom": "g"}]), {"label": "class"}
    )
    assert [*labelled.examples()] == [UserExample(1, (Sentence("a", None, "g"),), label="x")]


@pytest.mark.parametrize(
    ("header", "form", "expected"),
    [
        ("sentence1 sentence2 score text label", None, "scored"),
        ("sentence1 sentence2 score text label", "sentences", "sentences"),
        ("anchor positive sentence1 sentence2 score", "pairs", "pairs"),
    ],
)
def test_the_form_is_that_of_the_columns_or_as_told(header: str, form: str | None, expected: str) -> None:
    table = ExampleTable(Source("a row", hub=[dict.fromkeys(header.split(), "1")]), form=form)
    next(table.examples())
    assert table.form.name == expected


PAIRS = [{"anchor": f"question {i}", "positive": f"answer {i}"} for i in range(40)]


def test_all_tables_of_a_folder_are_read(tmp_path: Path) -> None:
    """Other files of the folder are none of ours."""
    write(tmp_path / "1.csv", "anchor,positive\n" + "".join(f"question {i},answer {i}\n" for i in range(20)))
    write_lines(tmp_path / "2.jsonl", PAIRS[20:])
    write(tmp_path / "README.md", "mine")
    splits = read(tmp_path)
    assert len(splits.train) + len(splits.val) == len(PAIRS)
    assert splits.train.store.read_text(2 * 39) == "question 39"
    assert splits.train.store.name(10) == f"{tmp_path / '1.csv'} row 12"
    assert splits.train.store.name(39) == f"{tmp_path / '2.jsonl'} row 20"


def test_rows_of_json_lines_may_have_other_fields(tmp_path: Path) -> None:
    """A negative in the third row alone is one; what has no role is asked about, wherever it stands."""
    rows: list[dict[str, Any]] = [{"query": f"q{i}", "pos": [f"p{i}"]} for i in range(5)]
    rows[2] |= {"neg": ["n"], "ngative": "n", "id": 1}
    val = write_lines(tmp_path / "v.jsonl", rows[:1])
    path = write_lines(tmp_path / "mine.jsonl", rows)
    assert refused(lambda: read(path, val=[str(val)]), "mine.jsonl").field == "ngative"
    splits = read(path, val=[str(val)], columns={"ignore": "ngative"})
    assert [len(texts(splits, row)) for row in range(4)] == [2, 3, 2, 2]
    named = ("mine.jsonl", "query as anchor", "neg as negative", "left out: ngative, id)")
    assert all(part in splits.notes[0] for part in named)


def groups_of(examples: UserExamples) -> set[int]:
    return set(examples.store.groups[examples.rows].tolist())


def test_whole_groups_are_held_out_the_same_in_every_run(tmp_path: Path) -> None:
    """By group, label or anchor; in whatever order the rows come."""

    def split(rows: Sequence[Mapping[str, Any]], share: float = 0.1) -> UserSplits:
        splits = read(write_lines(tmp_path / "a.jsonl", rows), val_share=share)
        assert not groups_of(splits.train) & groups_of(splits.val)
        return splits

    rows = [{"text": f"text {i}", "group": f"group {i % 20}", "meaning": i % 3} for i in range(200)]
    splits = split(rows)
    assert 10 <= len(splits.val) <= 20
    (said,) = [note for note in splits.notes if "20 groups" in note and "data.val_share=0.1" in note]
    names = said.partition("): ")[2].split(", ")
    assert {text_table.stable_hash(name) for name in names} == groups_of(splits.val)
    assert groups_of(split(rows[::-1]).val) == groups_of(splits.val)
    assert len(split([*PAIRS, *({**row, "positive": "other"} for row in PAIRS)]).train) == 72
    uneven = [{**row, "group": "large" if i < 90 else str(i)} for i, row in enumerate(rows[:100])]
    assert len(split(uneven, 0.05).val) == 5, "no large group"


def test_what_is_held_out_is_not_trained_on(tmp_path: Path) -> None:
    val = write_lines(tmp_path / "val.jsonl", [{**PAIRS[3], "positive": "another answer"}, PAIRS[5]])
    splits = read(write_lines(tmp_path / "train.jsonl", PAIRS), val=[str(val)])
    assert len(splits.train) == 38
    (said,) = [note for note in splits.notes if "held out" in note]
    assert all(part in said for part in ("2 rows", "train.jsonl row 4", "train.jsonl row 6"))
    # A scored pair is the same in either order; one of its sentences in another pair is not.
    scored = [{"sentence1": f"a{i}", "sentence2": f"b{i}", "score": i} for i in range(4)]
    others = [{"sentence1": "b1", "sentence2": "a1"}, {"sentence1": "a2", "sentence2": "x"}]
    held = write_lines(tmp_path / "sv.jsonl", [row | {"score": 1} for row in others])
    splits = read(write_lines(tmp_path / "s.jsonl", scored), val=[str(held)])
    assert [texts(splits, row)[0] for row in range(3)] == ["a0", "a2", "a3"]


def sentences(*groups: str, meanings: str = "", label: bool = False) -> list[dict[str, Any]]:
    rows = [{"text": f"t{i}", "label" if label else "group": group} for i, group in enumerate(groups)]
    return [row | ({"meaning": meanings[i]} if meanings else {}) for i, row in enumerate(rows)]


NOTES: list[tuple[list[dict[str, Any]], tuple[str, ...]]] = [
    (sentences(*"xxxxy", label=True), ("label", "1 row ", "mine.jsonl row 5")),
    (sentences(*"gggg", meanings="0111"), ("group and meaning", "only negatives", "mine.jsonl row 1")),
    (sentences(*"000gg", meanings="11112"), ("group and meaning", "not used", "mine.jsonl row 4")),
    ([{"anchor": "a", "positive": "p", "anchr_span": "a"}], ("left out: anchr_span",)),
    (sentences(*"gggg", meanings="mmmm"), ("1 of 1 held-out groups are trained on too",)),
]


@pytest.mark.parametrize(("rows", "named"), NOTES, ids=[str(n) for n in range(len(NOTES))])
def test_what_is_odd_is_said(tmp_path: Path, rows: list[dict[str, Any]], named: tuple[str, ...]) -> None:
    held_out = rows[0] | {key: "zzz" for key in ("text", "anchor", "positive", "label") if key in rows[0]}
    val = write_lines(tmp_path / "val.jsonl", [held_out])
    splits = read(write_lines(tmp_path / "mine.jsonl", rows), val=[str(val)])
    assert any(all(part in note for part in named) for note in splits.notes), splits.notes


TWO = "anchor,positive\na,p\n"
SCORED = "sentence1,sentence2,score\na,b,1\n"
SAME = dict.fromkeys(("anchor", "positive"), "anchor")
# content of each file, options, what the message names
REFUSED: list[tuple[list[str], dict[str, Any], tuple[str, ...]]] = [
    (["text,label\na,x\nb,x\nc,y\n"], {}, ("data.val=",)),
    (
        ["text,label\na,x\nb,x\n", "text,label\nc,x\n"],
        {"train": ["0.csv"], "val": ["1.csv"]},
        ("0.csv", "'x'"),
    ),
    ([TWO], {"val": ["0.csv"]}, ("no row is left",)),
    ([TWO, TWO], {"train": ["0.csv"], "val": ["1.csv"]}, ("no row is left",)),
    ([TWO, SCORED], {}, ("0.csv", "1.csv", "has pairs", "has scored")),
    ([TWO], {"columns": {"anker": "a"}}, ("data.columns", "'anker'", "anchor")),
    ([TWO], {"columns": SAME}, ("'anchor'", "anchor and positive")),
    ([], {"train": ["none.csv"]}, ("none.csv",)),
    ([], {"train": ["."]}, ("data.train",)),
    ([], {"train": ["hf:mine"]}, ("hf:<owner>/<name>",)),
]


@pytest.mark.parametrize("case", REFUSED, ids=[str(n) for n in range(len(REFUSED))])
def test_data_that_cannot_be_trained_on_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[list[str], dict[str, Any], tuple[str, ...]]
) -> None:
    contents, options, named = case
    monkeypatch.chdir(tmp_path)
    files = [str(write(Path(f"{n}.csv"), content)) for n, content in enumerate(contents)]
    refused(lambda: read(**{"train": files, **options}), *named)
