"""Users' tables of every form: an error names file, row and field, whatever the cells hold."""

import csv
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idiomtune.benchmarks.user.collections import read_collection
from idiomtune.benchmarks.user.pairs import read_pairs
from idiomtune.data.user.load import UserSplits, load_user_data, read_corpus
from idiomtune.errors import UserError
from idiomtune.explorer.search import user_corpus
from idiomtune.glossaries.tables import read_glossary
from idiomtune.plugins.dataset import UserData
from tests.fuzzing import FUZZED, NAMES, TEXTS, VALUES
from tests.own_data import write, write_collection
from tests.programs import refused
from tests.tiny_runs import composed

_DEFAULTS = {name: composed("train")["data"][name] for name in UserData.model_fields}


def read(*train: Path | str, **options: Any) -> UserSplits:
    """What is trained on, and held out."""
    return load_user_data(UserData(**{**_DEFAULTS, "train": [str(path) for path in train], **options}))


# What reads a file of each form.
READERS: dict[str, Callable[[Path], Any]] = {
    "trained": read,
    "as scored": lambda path: read(path, form="scored"),
    "mapped": lambda path: read(path, columns={"anchor": "ancor", "negative": "neg"}),
    "sts": read_pairs,
    "explored": user_corpus,
    "mined": lambda path: read_corpus([str(path)]),
    "glossary": lambda path: read_glossary([path]),
}
# The files of a collection, and a good row of each.
PARTS: dict[str, dict[str, Any]] = {
    "corpus": {"_id": "d1", "title": "t", "text": "a", "span": "a"},
    "queries": {"_id": "q1", "text": "a", "span_start": 0, "span_end": 1, "group": "g"},
    "qrels": {"query-id": "q1", "corpus-id": "d1", "score": 1},
}

PAIRS = "anchor,positive\na,p\n"
SCORED = "sentence1,sentence2,score\na,b,1\n"
WEIGHTS = "anchor,positive,weight\na,p,1\n"
SPANS = "anchor,positive,span,span_start,span_end\na,p,a,0,1\n"
LIST = '{"query": "a", "pos": ["p"]}\n'
IDS = "id,sentence1,sentence2,score\n7,a,b,1\n"
GLOSSARY = "expression,meaning\nred tape,bureaucracy\n"

# reader or part of a collection, content of the file, what the message names besides the file
SPOILED: list[tuple[str, str | None, tuple[str, ...]]] = [
    # columns
    ("trained", "", ("no row",)),
    ("trained", "a,b\n1,2\n", ("a, b", "anchor, positive", "data.columns")),
    ("trained", "query,question,pos\n1,2,3\n4,5,6\n", ("question", "ignore: ", "data.columns")),
    ("as scored", PAIRS, ("sentence1, sentence2, score",)),
    ("mapped", "anchor,positive,neg\na,p,n\n", ("'ancor'", "'anchor'", "data.columns")),
    ("sts", "sentence1,sentence2,score,span\na,b,1,a\n", ("row 2", "'span'", "span1 or span2")),
    ("explored", "x,y\n1,2\n", ("text", "x, y")),
    ("glossary", "a,b\n1,2\n", ("expression", "meaning", "a, b")),
    # rows
    ("trained", PAIRS + ",q\n,r\nc,\n", ("3 problems", "row 3", "row 4", "row 5")),
    ("sts", "id,sentence1,sentence2,score\n7,,b,1\n8,c,,x\n", ("2 problems", "row 2 (id 7)", "row 3 (id 8)")),
    ("sts", IDS + "7,c,d,0\n", ("row 3", "'id'", "row 2")),
    # texts
    ("trained", PAIRS + "\u200b\u2060,q\n", ("row 3", "'anchor'", "visible")),
    ("trained", "anchor,positive,negative\nb,q,q\n", ("row 2", "'negative'", "'q'", "positive")),
    ("trained", LIST + '{"query": ["b"], "pos": ["p"]}\n', ("row 2", "'query'", "['b']")),
    ("mined", '{"text": "a"}\n{"text": 3}\n', ("row 2", "'text'", "3")),
    ("glossary", "expression,meaning\nthe,article\n…,fear\n", ("'the'", "'…'")),
    ("glossary", GLOSSARY + "a -- b,fear\n", ("row 3", "'expression'", "a -- b")),
    # lists
    ("trained", '{"query": "b", "pos": [{"contents": "p"}]}\n', ("row 1", "'pos'", "'text'")),
    ("trained", '{"query": "b", "pos": [{"text": "q", "meaning": 1.5}]}\n', ("row 1", "'pos'", "'meaning'")),
    ("trained", '{"query": "b", "pos": ["p", "q"], "pos_span": "p"}\n', ("row 1", "'pos_span'", "several")),
    ("queries", '{"_id": "q1", "text": "a", "excluded_ids": "[1,"}\n', ("'excluded_ids'", "not a list")),
    # numbers, names and labels
    *(("trained", WEIGHTS + f"b,q,{w}\n", ("row 3", "'weight'", w)) for w in ("-1", "1e+300", "1_0")),
    ("trained", SCORED + "c,d,nan\n", ("row 3", "'score'", "nan")),
    ("trained", "sentence1,sentence2,rating\na,b,1\nc,d,3\ne,f,3\n", ("'rating'", "score: rating")),
    ("trained", "text,label\na,x\nb,\n", ("row 3", "'label'", "empty")),
    ("trained", '{"text": "a", "group": "g"}\n{"text": "b", "label": "x"}\n', ("'label'", "{label: label}")),
    # spans
    ("trained", SPANS + "a cat,p,dog,,\n", ("row 3", "'span'", "'dog'", "'a cat'")),
    ("trained", SPANS + "a cat,p,,2,\n", ("row 3", "'span_end'")),
    *(
        ("trained", SPANS + f"a cat,p,,{start},{end}\n", ("row 3", "'span_start'", f"{start}–{end}"))
        for start, end in (("2", "6"), ("1.5", "3"), ("-1", "3"))
    ),
    ("trained", SPANS + "a cat,p,cat,0,3\n", ("row 3", "'span'", "'cat'", "'a c'")),
    # tables as a whole
    ("sts", IDS + "8,c,d,1\n", ("all scores are 1",)),
    *((part, None, (part,)) for part in PARTS),
    ("qrels", "q1\td1\t1\nq9\td1\t1\n", ("test.tsv", "row 2", "no query 'q9'")),
    ("qrels", "q1\td1\t1\nq1\td1\t2\n", ("test.tsv", "row 2", "grades")),
    ("qrels", "q1\td1\t1\t0\tx\n", ("test.tsv", "row 1", "got 5")),
    ("qrels", "q1\td1\t0\n", ("test.tsv", "no query has a relevant document")),
]


@pytest.mark.parametrize(("reader", "content", "named"), SPOILED, ids=[str(n) for n in range(len(SPOILED))])
def test_an_error_names_file_row_and_field(
    tmp_path: Path, reader: str, content: str | None, named: tuple[str, ...]
) -> None:
    if reader in PARTS:
        path = write_collection(tmp_path / "mine", **{reader: content})
    else:
        path = write(tmp_path / ("mine.jsonl" if (content or "")[:1] == "{" else "mine.csv"), content or "")
    read_it = partial(read_collection, "mine") if reader in PARTS else READERS[reader]
    refused(lambda: read_it(path), str(path), *named)


# A good row for each reader, whose cells are replaced at random.
ROWS: list[tuple[str, dict[str, Any]]] = [
    ("trained", {"query": "a cat", "pos": ["p"], "neg": ["n"], "span": "cat", "pos_span": None}),
    ("trained", {"text": "a cat", "label": "x", "span_start": 0, "span_end": 1, "usage": "u", "group": 1}),
    ("trained", {"sentence1": "a", "sentence2": "b", "score": 1, "span1": "a", "weight": 1}),
    ("sts", {"id": "1", "sentence1": "a b", "sentence2": "c", "span1": "b", "score": 0.5, "group": "g"}),
    ("explored", {"text": "a cat", "span": "cat", "usage": "u", "idiom": 3}),
    ("mined", {"text": "a", "title": "b"}),
    ("glossary", {"expression": "red tape", "meaning": "bureaucracy", "literal": "yes", "source": "me"}),
]
CELLS = st.one_of(
    st.sampled_from(VALUES), TEXTS, st.lists(st.one_of(TEXTS, st.sampled_from(VALUES)), max_size=3)
)
OBJECTS = st.dictionaries(st.sampled_from(["text", "title", "span", "group", "meaning"]), CELLS)


def both_kinds(path: Path, rows: list[dict[str, Any]]) -> Iterator[Path]:
    """The rows as JSON lines, then as a table between tabs."""
    yield write(path.with_suffix(".jsonl"), "".join(json.dumps(row) + "\n" for row in rows))
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with path.with_suffix(".tsv").open("w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.DictWriter(file, columns, delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)
    yield path.with_suffix(".tsv")


@pytest.mark.slow
@FUZZED
@given(data=st.data(), case=st.sampled_from([*ROWS, *PARTS.items()]))
def test_whatever_is_in_a_cell_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, case: tuple[str, dict[str, Any]]
) -> None:
    """A UserError names the file, or the option that would mend it; nothing else is raised."""
    name, row = case
    columns = st.one_of(st.sampled_from([*row]), NAMES)
    change = data.draw(st.dictionaries(columns, st.one_of(CELLS, OBJECTS), min_size=1, max_size=2))
    folder = tmp_path_factory.mktemp("fuzzed") / "mine"
    place = folder / "mine"
    if name in PARTS:
        write_collection(folder, **{"qrels": "q1\td1\t1\n", name: None})
        place = folder / ("qrels/test" if name == "qrels" else name)
    for path in both_kinds(place, [row, row | change]):
        message = str(folder)
        try:
            _ = read_collection("mine", folder) if name in PARTS else READERS[name](path)
        except UserError as error:
            message = str(error)
        assert str(folder) in message or "data.val=" in message, message
        path.unlink()
