"""Odd arguments of the Python functions: each is right, or one error that names the argument."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import idiomtune as it
from idiomtune import Encoder
from idiomtune.api import evaluation_options
from idiomtune.benchmarks.semeval2022 import SemEvalBenchmarkOptions
from idiomtune.config.compose import by_hydra, compose_config, fill
from idiomtune.config.words import unquote, word
from idiomtune.io.tables import read_rows, rows_of, write_table, write_tables, write_texts
from tests.programs import refused

pytestmark = pytest.mark.usefixtures("in_folder", "undrawn")

TEXTS = ["He broke the ice.", "The ice broke."]
ROWS = [
    {"anchor": f"He {verb} the {noun}.", "positive": meaning, "group": verb}
    for verb, noun in (("missed", "boat"), ("broke", "ice"), ("spilled", "beans"))
    for meaning in ("He was late.", "He was too late for it.", "It was over.")
]
BOAT = [{"expression": "miss the boat", "meaning": "be late"}]
OTHER = [{"headword": "kick the bucket", "definition": "die"}]


class Strange:
    """An object that no function takes."""


ODD: dict[str, Any] = {
    **{"NA": pd.NA, "None": None, "5": 5, "object": Strange()},
    **{"empty list": [], "surrogate": "a\ud800b", "nothing": [None]},
}


def odd_check(option: str) -> Callable[[Any, Any], Any]:
    """A check of a training on rows that gives an option the odd value."""
    return lambda value, model: it.check("own", **{"data": ROWS, "model": model, option: value})


# A call with an odd value and a model → the name that its error must have, and the odd values that are right.
DOORS: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "train experiment": (lambda v, _: it.train(v, model="no/such", data=ROWS), "experiment", "None"),
    "train data": (lambda v, _: it.train("own", data=v, model="no/such"), "data", ""),
    "train val": (odd_check("val"), "val", "None"),
    "train model": (odd_check("model"), "model", "None"),
    "train glossary": (odd_check("glossary"), "glossary", "None empty-list"),
    "train run_dir": (lambda v, _: it.train("own", data=ROWS, run_dir=v, model="no/such"), "run_dir", "None"),
    "train trainer": (odd_check("trainer"), "trainer", "None"),
    "train objective": (lambda v, m: it.check(data=ROWS, objective=v, model=m), "objective", "None"),
    "train max_epochs": (lambda v, m: odd_check("trainer")({"max_epochs": v}, m), "max_epochs", "5"),
    "resume": (lambda v, _: it.resume(v), "run", ""),
    "evaluate model": (lambda v, _: it.evaluate(v, "idiolink", data="sample"), "model", ""),
    "evaluate data": (lambda v, _: it.evaluate("no/such", "idiolink", data=v), "data", "None"),
    "evaluate benchmarks": (lambda v, m: it.evaluate(m, v, data="sample"), "benchmark", "None"),
    "evaluate glossary": (
        lambda v, m: it.evaluate(m, "idiolink", glossary=v, data="sample"),
        "glossary",
        "None empty-list",
    ),
    "learn model": (lambda v, _: it.learn(v, BOAT), "model", ""),
    "learn glossary": (lambda v, m: it.learn(m, v), "glossary", ""),
    "learn corpus": (lambda v, m: it.learn(m, BOAT, corpus=v), "corpus", "None"),
    "learn epochs": (lambda v, m: it.learn(m, BOAT, epochs=v), "epochs", "None 5"),
    "glossary sources": (lambda v, _: it.glossary(v, "out.tsv"), "from", ""),
    "glossary output": (lambda v, _: it.glossary(BOAT, v), "output", ""),
    "glossary texts": (lambda v, _: it.glossary(BOAT, "out.tsv", texts=v), "in", "None"),
    "push run": (lambda v, _: it.push(v, "me/model", dry_run=True), "run", ""),
    "report runs": (lambda v, _: it.report(v), "runs", ""),
    "report against": (lambda v, m: it.report(m, against=v), "against", "None empty-list nothing"),
    "report output": (lambda v, m: it.report(m, output=v), "output", "None"),
    "report fail_below": (
        lambda v, m: it.report(m, against=m, fail_below=v),
        "fail_below",
        "None 5 empty-list nothing",
    ),
    "usage model": (lambda v, _: it.usage(v, TEXTS[:1], "break the ice"), "model", ""),
    "usage texts": (lambda v, _: it.usage("no/such", v, "break the ice"), "texts", "empty-list"),
    "usage expressions": (lambda v, _: it.usage("no/such", TEXTS, v), "expressions", ""),
    "explore models": (lambda v, _: it.explore(v, corpus=TEXTS), "models", ""),
    "explore corpus": (lambda v, m: it.explore(m, corpus=v), "corpus", "None"),
    "explore glossary": (lambda v, m: it.explore(m, corpus=TEXTS, glossary=v), "glossary", "None empty-list"),
    "explore output": (lambda v, m: it.explore(m, corpus=TEXTS, output=v), "output", "None"),
    "Run": (lambda v, _: it.Run(v), "path", ""),
    "Encoder": (lambda v, _: it.Encoder(v), "model", ""),
    "Encoder glossary": (lambda v, m: it.Encoder(m, glossary=v), "glossary", "None empty-list"),
    "Encoder device": (lambda v, m: it.Encoder(m, device=v), "device", "None"),
    "Encoder pooling": (lambda v, m: it.Encoder(m, pooling=v), "pooling", "None"),
}


def assert_named(name: str, function: Callable[[Any], Any], values: Iterable[Any]) -> None:
    """With each of the values the function ends in one error that names the argument."""
    for value in values:
        error = refused(lambda value=value: function(value))  # type: ignore[misc]
        assert name in f"{error} {error.option}", value


@pytest.mark.parametrize("door", DOORS)
def test_an_odd_argument_is_one_error_that_names_it(door: str, tiny_path: Path) -> None:
    function, name, right = DOORS[door]
    values = [value for kind, value in ODD.items() if kind.replace(" ", "-") not in right.split()]
    assert_named(name, lambda value: function(value, str(tiny_path)), values)


def test_doors_of_an_encoder(tiny: Any) -> None:
    """What is odd is a `UserError`, and where `encode` promises it a TypeError or ValueError as well."""
    make: Any = Encoder
    vectors = tiny.encode(TEXTS)
    damaged, frame = vectors.clone(), pd.DataFrame({"text": TEXTS})
    damaged[1, 3] = torch.nan
    no_texts = [None, 5, b"ice", [5], {"a"}, ["\ud800"], [pd.NA], frame, np.array("ice"), np.array([TEXTS])]
    no_vectors = [torch.zeros(2, 0), damaged, damaged.numpy(), vectors.double().numpy() * 1e300]
    doors: list[tuple[str, Callable[[Any], Any], list[Any]]] = [
        ("k", lambda v: tiny.search("ice", TEXTS, k=v), [-1, 0, True, 2.0, "2", None]),
        ("query", lambda v: tiny.search(v, TEXTS), [*no_texts, *no_vectors, torch.zeros(3, 5), "a\ud800"]),
        ("corpus", lambda v: tiny.search("ice", v), [*no_texts, *no_vectors, torch.zeros(3, 5), "ice"]),
        ("span", lambda v: tiny.search("the ice", TEXTS, span=v), [5, (1,), "fire", (3, 2), ("a", 1)]),
        ("span", lambda v: tiny.search(vectors, TEXTS, span=v), [["ice", "ice"]]),
        *(("texts", read, no_texts) for read in (tiny.encode, lambda v: tiny.usage(v, "ice"))),
        ("spans", lambda v: tiny.encode(TEXTS, v), [5, "ice", [5, 5], [(0, 1.5)] * 2]),
        ("role", lambda v: tiny.encode(TEXTS, role=v), [None, 5, [], "querry"]),
        ("batch_size", lambda v: tiny.encode(TEXTS, batch_size=v), [0, -1, True, 1.5, "2"]),
        ("first", tiny.similarity, [*no_texts, *no_vectors, {}]),
        ("second", lambda v: tiny.similarity(vectors, v), [*no_texts[1:], *no_vectors, torch.zeros(3, 5)]),
        (
            "expressions",
            lambda v: tiny.usage(TEXTS, v),
            [None, 5, [None, None], ["ice"], [(0, 99)] * 2, pd.Series(["ice", None]), np.array([TEXTS])],
        ),
        ("pooling", lambda v: make(tiny.model, pooling=v), ["mean", None, 5]),
        ("tokens_per_forward", lambda v: make(tiny.model, tokens_per_forward=v), [0, True, "8"]),
    ]
    for name, function, values in doors:
        assert_named(name, function, values)
    texts: Any
    for texts in (5, ["a", 5]):
        with pytest.raises(TypeError):
            tiny.encode(texts)
    with pytest.raises(KeyError, match="5"):
        it.Scores({"a/b": 0.5})[5]  # type: ignore[index]


def test_a_text_whose_embedding_is_not_finite_is_named(tiny: Any) -> None:
    word = tiny.model.tokenizer(" ship", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        tiny.transformer.get_input_embeddings().weight[word] = torch.nan
    texts = ["He broke the ice.", "The ship came."]
    doors = {"texts": tiny.encode, "corpus": lambda v: tiny.search("ice", v), "first": tiny.similarity}
    for name, function in doors.items():
        assert "text 1" in str(refused(lambda: function(texts), name))  # noqa: B023
    assert tiny.search("ice", texts[:1])


# ------------------------------------------------------------------ a value means itself


def filled(option: str, value: Any) -> Any:
    """The value that an option of an evaluation has when it is given from Python."""
    return fill(by_hydra("evaluate", []), {option: value}).options[option]


def test_a_text_from_python_is_taken_literally() -> None:
    """Whatever it has of the grammar of the command line and of interpolations."""
    parts = [*"\\'\"${}[],=: \na1ä~/()@#", "${", "true", "dim=64", "oc.env:HOME", "null", "1e5"]
    draw = random.Random(7)
    texts = ["".join(draw.choices(parts, k=draw.randint(1, 8))) for _ in range(300)]
    assert [unquote(word(text)) for text in texts] == texts
    assert filled("split", texts) == texts
    for text in (text for text in texts[:8] if text.strip()):
        assert filled("output", text) == text
        assert compose_config("evaluate", f"output={word(text)}")["output"] == text


def test_an_odd_value_is_named_by_its_option(tiny_path: Path) -> None:
    """And what is given for a benchmark or tracker that is not chosen is not left out without a word."""
    odd: dict[str, Any] = {"name": "???"}
    odd |= {"device": pd.NA, "precision": pd.DataFrame({"a": [1]})}
    odd |= {"tracking": {"wandb": {"project": "x"}}, "benchmark": {"own_sts": {"path": "x.csv"}}}
    chosen = {"model": tiny_path, "data": "sample"}
    for option, value in odd.items():
        error = refused(lambda: it.check("idiolink_ft", **chosen, **{option: value}))  # noqa: B023
        assert (error.option or "").startswith(option)
    for group, section in (("benchmark", "own_sts"), ("tracking", "wandb")):
        error = refused(lambda: it.check("idiolink_ft", **chosen, **{group: {section: 5}}))  # noqa: B023
        assert error.option == f"{group}.{section}"


def test_options_beside_a_benchmark_that_is_an_object() -> None:
    """They stay, and what is no name beside it is an error that names the option."""
    beside = SemEvalBenchmarkOptions(name="semeval2022", split=["dev"], setting="fine_tune")
    given = {"benchmark": {"own_sts": {"path": "p.csv"}}}
    words, values = evaluation_options("minilm", ["own_sts", beside], [], given)
    assert "benchmark=[own_sts]" in words
    assert values["benchmark"]["own_sts"] == {"path": "p.csv"}
    assert values["benchmark"]["semeval2022"]["split"] == ["dev"]
    assert refused(lambda: evaluation_options("minilm", [beside, 5], [], {})).option == "benchmark"


def test_values_of_other_kinds_keep_them() -> None:
    class Colour(StrEnum):
        RED = "red one"

    table = {"a b": {"c,d": "${x}"}, "e:f": [1], 500: 1}
    values: list[Any] = [1, 2.5, True, None, "a b", Path("x y"), np.float32(0.5), np.int64(3), np.bool_(True)]
    kept = filled("split", [*values, Colour.RED, ["a", ("b", 1)], table])
    assert kept == [1, 2.5, True, None, "a b", "x y", 0.5, 3, True, "red one", ["a", ["b", 1]], table]


@pytest.mark.slow
def test_a_run_in_a_folder_with_signs_of_the_grammar(tiny_path: Path) -> None:
    folder = "o'brien/${HOME}/${oc.env:NO}/a,[b] {c}=d/dim=64/\\"
    options: dict[str, Any] = {"device": "cpu", "eval": {"cache": False}, "model": str(tiny_path)}
    steps = {"max_steps": 1, "batch_size": 3}
    run = it.train(data=ROWS, val=ROWS[:3], run_dir=folder, trainer=steps, **options)
    assert run.path == Path(folder).absolute()
    assert it.resume(folder, trainer={"max_steps": 2}).status == "finished"
    it.check("own", data=ROWS, **{**options, "model": run})
    assert it.explore(folder, corpus=TEXTS, output=Path(folder, "e.html"), device="cpu").path.is_file()


# ------------------------------------------------------------------ data in memory


def test_rows_come_back_as_they_were() -> None:
    rows: list[dict[str, Any]] = [
        {"text": "ä\u2028\0'", "number": 1, "share": 0.1, "yes": True, "none": None, "list": ["a", ["b", 2]]},
        {"text": np.str_("b"), "number": np.int64(2), "share": np.float64(0.2), "yes": np.bool_(False)},
    ]
    rows[1] |= {"none": float("nan"), "list": np.array([1, 2])}
    back = [row.values for row in read_rows(Path(write_table(rows)))]
    assert back[0] == rows[0]
    assert back[1] == {"text": "b", "number": 2, "share": 0.2, "yes": False, "none": None, "list": [1, 2]}
    frame = pd.DataFrame({"text": ["a", None], "n": [1, 2], "x": [0.1234567890123456, None]})
    assert [row.values for row in read_rows(Path(write_table(frame)))] == [
        {"text": "a", "n": 1, "x": 0.1234567890123456},
        {"text": None, "n": 2, "x": None},
    ]
    assert write_table(iter(rows)) == write_table(rows)
    assert Path(write_texts(["a\nb", "c"], "corpus")).read_text() == "a b\nc\n"
    assert write_table({"a b": ["c", "d"], "e f": None}) == write_table(
        [{"expression": e, "meaning": m} for e, m in (("a b", "c"), ("a b", "d"), ("e f", ""))]
    )
    assert write_table(BOAT[0]) == write_table(BOAT)
    refused(lambda: write_tables([("miss the boat", "be late")], "glossary"), "glossary", "dictionary")


LINES = [{"idiom": "no cap", "sense": "honestly"}, {"idiom": "miss the boat", "sense": "be late"}]
FRAME = pd.DataFrame(LINES)


@pytest.mark.parametrize(
    "frame",
    [
        FRAME.set_index("idiom"),
        FRAME.set_index(["idiom", "sense"]),
    ],
)
def test_an_index_with_a_name_is_a_column(frame: Any) -> None:
    assert rows_of(frame, "data.train") == LINES


@pytest.mark.parametrize(
    ("glossary", "names"),
    [
        ({"Idiom": [*FRAME["idiom"]], "Definition": [*FRAME["sense"]]}, ("Idiom", "Definition")),
        ({" MWE": FRAME["idiom"], "Gloss": FRAME["sense"]}, (" MWE", "Gloss")),
        ({"TERM": FRAME["idiom"].to_numpy(), "sense": (*FRAME["sense"],)}, ("TERM", "sense")),
    ],
)
def test_a_glossary_in_memory_is_read_by_its_names(glossary: Any, names: list[str]) -> None:
    assert rows_of(glossary, "glossary") == [dict(zip(names, row.values(), strict=True)) for row in LINES]


def test_one_row_of_a_glossary_and_series_of_texts() -> None:
    for row in (
        {"Expression": "no cap", "Meaning": "honestly"},
        {"Idiom": "no cap", "Definition": "honestly"},
    ):
        assert rows_of(row, "glossary") == [row]
    for series in (pd.Series(TEXTS), pd.Series(TEXTS, index=[f"id {n}" for n in range(len(TEXTS))])):
        assert rows_of(series, "corpus") == [{"text": text} for text in TEXTS]


@pytest.mark.parametrize(
    "data", [FRAME[:0], FRAME[:0].set_index("idiom"), [], {}, {"idiom": []}, FRAME["idiom"][:0]]
)
def test_data_without_a_row_are_said_to_have_none(data: Any) -> None:
    assert "has no rows" in str(refused(lambda: rows_of(data, "glossary")))


@pytest.mark.parametrize(
    "value",
    [b"x", Path("x"), Strange(), {1, 2}, Decimal("1.5"), datetime.date(2026, 1, 2), pd.Timestamp(0), 1j,
     np.datetime64(0, "ns"), float("inf"), "\ud800", {1: 2}, [b"x"], len, range(2)],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_value_that_json_lacks_is_an_error_with_row_and_field(value: Any) -> None:
    for data in ([{"text": "a"}, {"text": value}], pd.DataFrame({"text": ["a", value]}, dtype=object)):
        error = refused(lambda: write_table(data, "data.train"))  # noqa: B023
        assert (error.option, error.row, error.field) == ("data.train", 2, "text")


@pytest.mark.parametrize(
    "data",
    [
        pd.DataFrame([["a", "b"]], columns=["text", "text"]),
        pd.DataFrame([["a", "b"]]),
        [{5: "a"}],
        {"kick the bucket": {"meaning": "die"}},
        {"kick the bucket": 0},
        {5: "five"},
        {"a b": [["c"]]},
        pd.DataFrame({"when": pd.to_datetime(["2026-01-01"])}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_table_that_is_none_is_refused(data: Any) -> None:
    for write in (write_table, write_tables):
        assert refused(lambda: write(data, "glossary")).option == "glossary"  # noqa: B023
    assert not Path("checkpoints").exists()


@pytest.mark.slow
def test_every_argument_that_takes_a_table_takes_one_in_memory(
    tiny_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, a frame, expression → meaning and names of files, alone and in a list."""
    monkeypatch.setattr("idiomtune.programs.learn.project_sentences", list)
    Path("boat.csv").write_text("expression,meaning\nmiss the boat,be late\n")
    meanings = {"miss the boat": "be late"}
    forms: list[Any] = [BOAT, BOAT[0], pd.DataFrame(BOAT), meanings, Path("boat.csv"), "boat.csv", iter(BOAT)]
    forms += [["boat.csv"], [Path("boat.csv"), {"no cap": "honestly"}]]
    forms += [["boat.csv", BOAT], [pd.DataFrame(BOAT)]]
    same: dict[str, Any] = {"device": "cpu", "trainer": {"batch_size": 3}, "model": str(tiny_path)}
    scored: dict[str, Any] = {"device": "cpu", "cache": False}
    pairs = [{"sentence1": f"a {n}", "sentence2": "b", "score": n / 9} for n in range(9)]
    for number, glossary in enumerate(forms):
        senses = it.Encoder(tiny_path, glossary=[*glossary] if number == 6 else glossary).meanings
        assert senses is not None
        assert "be late" in senses.senses["miss the boat"]
    glossary, data = forms[8], pd.DataFrame(ROWS)
    it.check("own", data=ROWS, glossary=glossary, **same)
    it.check("own", data=ROWS, **{**same, "model": {"path": str(tiny_path), "glossary": glossary}})
    it.check("own", data={"train": data, "val": data[:3], "columns": {"anchor": "anchor"}}, **same)
    made = it.glossary(glossary, "made.tsv", texts=["He missed the boat."])
    assert "be late" in made.read_text()
    assert it.explore(tiny_path, corpus=data, glossary=glossary, output="e.html", device="cpu")
    path = {"my pairs": pd.DataFrame(pairs)}
    it.evaluate(tiny_path, "own_sts", benchmark={"own_sts": {"path": path}}, **scored)
    it.learn(
        tiny_path,
        [*forms[8]],
        "model.glossary_gate=false",
        output="m",
        epochs=1,
        sentences=1,
        corpus=pd.DataFrame({"text": TEXTS}),
    )


def test_other_columns_are_the_same_error_in_a_file_and_in_memory(tiny_path: Path) -> None:
    Path("other.jsonl").write_text("".join(json.dumps(row) + "\n" for row in OTHER))
    functions: list[Callable[[Any], object]] = [
        lambda glossary: it.Encoder(tiny_path, glossary=glossary),
        lambda glossary: it.learn(tiny_path, glossary, output="m"),
        lambda glossary: it.check("own", data=ROWS, glossary=glossary, model=tiny_path),
        lambda glossary: it.explore(tiny_path, corpus=TEXTS, glossary=glossary, device="cpu"),
    ]
    for glossary in (OTHER, "other.jsonl", [pd.DataFrame(OTHER)]):
        for function in functions:
            with pytest.raises(it.UserError, match="headword, definition") as raised:
                function(glossary)
            assert glossary == "other.jsonl" or "rows in memory" in str(raised.value)


@pytest.mark.parametrize("value", [ROWS, ["sample", 1]], ids=["rows", "a number in a list"])
@pytest.mark.parametrize("choice", ["data", "benchmark", "trainer", "objective", "tracking"])
def test_what_is_chosen_by_name_takes_no_other_value(choice: str, value: Any) -> None:
    if choice != "objective":
        assert refused(lambda: it.evaluate("minilm", **{choice: value})).option == choice
    if choice != "data":  # a table of one's own
        assert refused(lambda: it.check("own", data=ROWS, **{choice: value})).option == choice
