"""One verdict of `check` and `train`, a message instead of a traceback, and no option ignored in silence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.mistakes import OWN, PAIRS, Mistake, run_mistake, run_sound
from tests.programs import assert_explained, run
from tests.tiny_runs import composed
from train.data.own.load import load_own
from train.declarations.dataset import OwnData
from train.errors import UserError
from train.gate import main as gate
from train.hub.card import command, eval_results
from train.io.files import parse_yaml
from train.report import main as report

ESCAPE = "\x1b[31m"
RATED = "sentence1,sentence2,rating\n" + "".join(f"Cat {i} sat.,Cat {i} lay.,{i % 5}\n" for i in range(24))
WEIGHED = "question,answer,weight\n" + "".join(f"Where is {i}?,At {i}.,1e300\n" for i in range(24))


def sentences(before: str, number: int = 24) -> str:
    """Labelled uses of an expression, each after the words `before`."""
    rows = [
        {"text": f"{i} {before}spill the beans {i}", "span": "spill the beans", "group": f"g{i % 4}"}
        | {"meaning": ("idiom", "literal")[i // 4 % 2]}
        for i in range(number)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def extension(key: str, name: str) -> str:
    """A module with a benchmark that gives one score."""
    return f"""
from train.benchmarks import BenchmarkResult
from train.declarations.benchmark import BenchmarkOptions, BenchmarkType
from train.requests import Request

class Options(BenchmarkOptions):
    def score_keys(self, splits):
        return [{key!r}]

class Benchmark:
    name, without_gold, files = {name!r}, (), []
    requests = [Request("a cat"), Request("a dog")]

    def score(self, embeddings):
        return BenchmarkResult({{{key!r}: float(embeddings[0] @ embeddings[1])}})

DECLARED = [BenchmarkType({name!r}, Options, lambda settings, options: Benchmark())]
"""


TRAIN = {"train.csv": PAIRS}
SPANS: tuple[str, ...] = ("+experiment=own", "device=cpu", "data.train=train.jsonl", "data.val=val.jsonl")
SPANS += ("objective.query_mode=span", "objective.document_mode=span", "trainer.batch_size=8")
TWO = {"one.py": extension("one/a/x", "one"), "two.py": extension("one/a/x", "two")}
MISTAKES = [
    Mistake("pooling", (*OWN, "model.pooling=zzz"), ["model.pooling=zzz", "mean"], TRAIN),
    Mistake("layers to pool", (*OWN, "model.pooling=last9"), ["model.pooling=last9", "2 layers"], TRAIN),
    Mistake("matryoshka", (*OWN, "trainer.matryoshka=[512]"), ["trainer.matryoshka", "512", "32"], TRAIN),
    Mistake("dimensions", (*OWN, "eval.dimensions=[999]"), ["eval.dimensions", "999"], TRAIN),
    Mistake("length", (*OWN, "model.max_length=999"), ["model.max_length=999", "64 positions"], TRAIN),
    Mistake(
        "adapted modules",
        (*OWN, "retain.lora.rank=4", "retain.lora.target_modules=[zzz]"),
        ["retain.lora.target_modules", "'zzz'", "query"],
        TRAIN,
    ),
    Mistake(
        "modules that take no adapter",
        (*OWN, "retain.lora.rank=4", "retain.lora.target_modules=[LayerNorm]"),
        ["retain.lora.target_modules", "LayerNorm", "Linear"],
        TRAIN,
    ),
    Mistake("run_dir", (*OWN, "run_dir=['']"), ["run_dir", "string"], TRAIN),
    Mistake("weight", OWN, ["train.csv", "row 2", "'weight'", "1e+300"], {"train.csv": WEIGHED}),
    Mistake(
        "spans beyond the length",
        SPANS,
        ["'spill the beans'", "model.max_length"],
        {"train.jsonl": sentences("word " * 80), "val.jsonl": sentences("They ", 16)},
    ),
    Mistake(
        "held-out spans beyond the length",
        SPANS,
        ["'spill the beans'", "model.max_length"],
        {"train.jsonl": sentences("They "), "val.jsonl": sentences("word " * 80, 16)},
    ),
    Mistake("home folder", ("+experiment=own", "data.train=~nosuch/f"), ["data.train=~nosuch/f"]),
    Mistake(
        "home folder of the scores",
        ("device=cpu", "output=~nosuch/f"),
        ["output=~nosuch/f"],
        program="train.evaluate",
    ),
    Mistake("ratings", OWN, ["'rating'", "data.columns={score: rating}"], {"train.csv": RATED}),
    Mistake(
        "files without brackets",
        ("+experiment=own", "device=cpu", "data.train=a.csv,b.csv"),
        ["data.train=[a.csv,b.csv]"],
    ),
    Mistake(
        "two benchmarks with one score",
        (*OWN, "extensions=[one,two]", "+benchmark.one={name: one}", "+benchmark.two={name: two}"),
        ["one and two", "'one/a/x'"],
        TRAIN | TWO,
    ),
    Mistake(
        "form of what is learnt",
        ("glossary=g.tsv", "output=o", "model.glossary_form=in_place"),
        ["model.glossary_form"],
        {"g.tsv": "expression\tmeaning\nspill the beans\treveal a secret\n"},
        "train.learn",
    ),
    Mistake("escape", ("+experiment=own", "device=cpu", f"data.train='x{ESCAPE}'"), ["x\\x1b[31m"]),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_named_with_its_remedy(mistake: Mistake, tmp_path: Path, tiny_path: Path) -> None:
    done = run_mistake(mistake, tmp_path, tiny_path)
    assert "unexpected" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {*mistake.files, "__pycache__"}


SOUND: dict[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "pooling": ((*OWN, "model.pooling=last2"), TRAIN),
    "cls+sep": ((*OWN, "model.pooling=cls+sep"), TRAIN),
    "adapters": ((*OWN, "retain.lora.rank=4"), TRAIN),
    "matryoshka": ((*OWN, "trainer.matryoshka=[16]"), TRAIN),
    "length": ((*OWN, "model.max_length=64"), TRAIN),
    "run_dir": ((*OWN, "run_dir=new"), TRAIN),
    "some spans beyond the length": (
        SPANS,
        {"train.jsonl": sentences("They "), "val.jsonl": sentences("word " * 80, 2) + sentences("We ", 8)},
    ),
    "ratings by name": ((*OWN, "data.columns={score: rating}"), {"train.csv": RATED}),
    "ratings that do not count": ((*OWN, "data.form=pairs"), {"train.csv": RATED}),
    "a model out of reach": ((*OWN, "model=nobody/nothing", "model.pooling=zzz"), TRAIN),
}


@pytest.mark.parametrize("name", SOUND)
def test_what_is_sound_is_not_refused(name: str, tmp_path: Path, tiny_path: Path) -> None:
    options, files = SOUND[name]
    done = run_sound(options, tmp_path, tiny_path, files)
    if name == "some spans beyond the length":  # those are refused where they are embedded
        assert "the configuration and its data are in order" in done.stdout, done.stderr
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "new").exists()


EXTENSIONS = {
    "raises": ("raise ValueError('boo')", "ValueError: boo"),
    "exits": ("raise SystemExit(0)", "SystemExit: 0"),
    "does not parse": ("def :", "SyntaxError"),
    "imports what is missing": ("import nosuchpackage", "nosuchpackage"),
    "raises what is no Exception": ("class E(BaseException): ...\nraise E('x')", "E: x"),
}


@pytest.mark.parametrize("name", EXTENSIONS)
def test_an_extension_that_cannot_be_imported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, said = EXTENSIONS[name]
    module = "ext_" + name.replace(" ", "_")
    (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    for program in (report, lambda a: gate([*a, "floor=x/y:0"])):
        assert program([str(tmp_path), f"extensions={module}"]) == 2
        printed = capsys.readouterr().err
        assert f"extensions: {module} cannot be imported: " in printed
        assert said in printed
        assert "Traceback" not in printed
        assert "unexpected" not in printed


def test_an_extension_that_exits_ends_no_program_with_status_0(tmp_path: Path, tiny_path: Path) -> None:
    files = TRAIN | {"leaves.py": "raise SystemExit(0)"}
    done = run_sound([*OWN, "extensions=[leaves]"], tmp_path, tiny_path, files)
    assert done.returncode == 2
    assert_explained(done, "extensions: leaves", "SystemExit")
    later = extension("leaves2/a", "leaves2").replace("Benchmark())", "exit())")
    options = [*OWN, "extensions=[leaves2]", "+benchmark.leaves2={name: leaves2}"]
    done = run_sound(options, tmp_path, tiny_path, TRAIN | {"leaves2.py": later})
    assert done.returncode == 1
    assert_explained(done, "SystemExit")


DEEP = "[" * 100_000


def planted_run(folder: Path) -> Path:
    """A finished run, as far as reports read it."""
    contents = {
        "run.json": json.dumps({"status": "finished", "experiment": "own"}),
        "config.yaml": "seed: 1\n",
        "scores.json": json.dumps({"scores": {"own_val/score": 0.5}, "baseline": {}, "meta": {}}),
    }
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", ["run.json", "scores.json", "config.yaml"])
def test_records_that_are_nested_too_deep(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_folder = planted_run(tmp_path / "run")
    (run_folder / name).write_text(DEEP, encoding="utf-8")
    for status in (report([str(run_folder)]), gate([str(run_folder), "floor=own_val/score:0"])):
        assert status == (0 if name == "config.yaml" else 2)
    printed = capsys.readouterr()
    assert f"{name} is damaged" in printed.out + printed.err or name == "run.json"
    assert "unexpected" not in printed.err


def test_yaml_as_deep_as_configurations_are_is_read() -> None:
    content = parse_yaml("{a: " * 50 + "1" + "}" * 50)
    for _ in range(50):
        content = content["a"]
    assert content == 1


def test_a_damaged_record_of_the_command_line_stops_no_card(tmp_path: Path) -> None:
    run_folder = planted_run(tmp_path / "run")
    (run_folder / "config.yaml").write_text(
        "model: {path: m}\ndata: {a: 1}\nobjective: {name: own}\ntrainer: {a: 1}\n", encoding="utf-8"
    )
    (run_folder / ".hydra").mkdir()
    (run_folder / ".hydra" / "overrides.yaml").write_bytes(b"\xad +experiment=own\n")
    assert command(run_folder) == "python -m train +experiment=own"


def test_a_card_takes_scores_without_a_split() -> None:
    (result,) = eval_results({"mybench/accuracy": 0.5})
    assert (result.dataset_split, result.metric_type, result.dataset_type) == (None, "accuracy", "mybench")


def test_paths_are_printed_without_escapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_folder = planted_run(tmp_path / f"run{ESCAPE}")
    nowhere = str(tmp_path / f"none{ESCAPE}")
    assert report([str(run_folder)]) == 0
    assert gate([str(run_folder), "floor=own_val/score:0"]) == 0
    assert report([nowhere]) == 2
    assert gate([nowhere, "floor=own_val/score:0"]) == 2
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert printed.out.count("\\x1b[31m") > 1


@pytest.mark.parametrize("option", ["output=o", "against=r", "group=none", "scores=all", "published=epsilon"])
def test_modes_takes_no_option_of_a_report(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(["run", "modes=a,b", option]) == 2
    assert f"{option.partition('=')[0]}=: has no effect with modes=" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("first", "option"), [("published=epsilon", "group=none"), ("group=none", "split=x")]
)
def test_no_option_of_a_report_is_ignored(
    first: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(["run", first, option]) == 2
    assert f"{option.partition('=')[0]}=: has no effect with" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["~nosuch/r"], ["run", "output=~nosuch/o"], ["run", "against=~nosuch/r"]]
)
def test_home_folders_of_nobody(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    planted_run(tmp_path / "run")
    assert report(arguments) == 2
    assert gate([*arguments, "floor=own_val/score:0"]) == 2
    assert capsys.readouterr().err.count("there is no home folder for ~nosuch") == 2


def test_a_finished_models_record_of_its_glossary(tmp_path: Path, tiny_path: Path) -> None:
    shutil.copytree(tiny_path, tmp_path / "m")
    (tmp_path / "m" / "learnt.json").write_text("{}", encoding="utf-8")
    (tmp_path / "train.csv").write_text(PAIRS, encoding="utf-8")
    data = ("benchmarks=[own_val]", "data.train=train.csv", "data.val_share=0.25")
    done = run("train.evaluate", "model=./m", "device=cpu", *data, cwd=tmp_path)
    assert done.returncode == 2
    assert_explained(done, "learnt.json: is damaged", "glossary")
    assert "unexpected" not in done.stderr


def test_a_column_of_numbers_beside_a_column_of_names_is_refused_only_by_its_numbers(tmp_path: Path) -> None:
    defaults = {name: composed("config")["data"][name] for name in OwnData.model_fields}
    for column, is_refused in (("rating", True), ("is_duplicate", True), ("idx", False), ("note", False)):
        value = "a word" if column == "note" else "1"
        path = tmp_path / f"{column}.csv"
        rows = "".join(f"Cat {i}.,Dog {i}.,{value}\n" for i in range(8))
        path.write_text(f"sentence1,sentence2,{column}\n{rows}", encoding="utf-8")
        data = OwnData(**(defaults | {"train": [str(path)], "val_share": 0.25}))
        if is_refused:
            with pytest.raises(UserError, match=f"score: {column}"):
                load_own(data)
        else:
            assert load_own(data).train.form == "pairs"
