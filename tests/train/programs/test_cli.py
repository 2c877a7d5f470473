"""What becomes of the command line before Hydra sees it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from train.config import TrainSettings, check
from train.config.compose import chosen_by_default, compose_config
from train.errors import UserError
from train.programs.launch import rewrite_arguments
from train.training.resume import find_run, saved_config

MODELS = ["minilm", "pretrained"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["model=minilm"], ["model=minilm"]),
        (["model=unknown"], ["model=unknown"]),  # left to Hydra, which lists what there is
        (
            ["model=intfloat/e5-base-v2", "seed=1"],
            ["model=pretrained", "model.path='intfloat/e5-base-v2'", "seed=1"],
        ),
        (["model='a/b'"], ["model=pretrained", "model.path='a/b'"]),
        (["model=/x/it's here"], ["model=pretrained", "model.path='/x/it\\'s here'"]),
        (["model.path=a/b"], ["model.path='a/b'"]),
        (["run_dir=x=y", "seed=1"], ["run_dir='x=y'", "seed=1"]),
        (["model.glossary=it's, mine.tsv"], ["model.glossary='it\\'s, mine.tsv'"]),
        (["model.glossary=[a.tsv,b.tsv]"], ["model.glossary=[a.tsv,b.tsv]"]),
        (["data.root=null"], ["data.root=null"]),
        (["benchmark.own_sts.path=my, own.csv"], ["benchmark.own_sts.path='my, own.csv'"]),
        (["benchmark.own_sts.path={a:b.csv}"], ["benchmark.own_sts.path={a:b.csv}"]),
        (["trainer.monitor=a/b@1/dim=8"], ["trainer.monitor='a/b@1/dim=8'"]),  # Hydra takes no second =
        (
            ["trainer.monitor=[a/b,'a/b/dim=8',a/b/dim=16]"],
            ["trainer.monitor=[a/b,'a/b/dim=8','a/b/dim=16']"],
        ),
        (
            ["+objective.parts.faq.data.train=my (1).csv", "data.negatives.corpus=a=b.csv"],
            ["+objective.parts.faq.data.train='my (1).csv'", "data.negatives.corpus='a=b.csv'"],
        ),
        (
            ["++objective.parts.faq.data.negatives.corpus=my (1).csv"],
            ["++objective.parts.faq.data.negatives.corpus='my (1).csv'"],
        ),
        (["-m", "model=a/b,c/d"], ["-m", "model=pretrained", "model.path='a/b','c/d'"]),
        (["-m", "model=minilm,pretrained"], ["-m", "model=minilm,pretrained"]),
    ],
)
def test_model_paths(
    given: list[str], expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a run folder is made there
    assert rewrite_arguments(given, MODELS) == expected


@pytest.mark.parametrize(
    ("program", "given", "expected"),
    [
        ("config", ["benchmarks=[own_sts]"], ["benchmark=[own_sts]"]),
        ("evaluate", ["benchmarks=[idiolink]"], ["benchmarks=[idiolink]"]),  # of those that are there
        ("evaluate", ["benchmarks=null"], ["benchmarks=null"]),
        ("evaluate", ["benchmarks=own_sts"], ["benchmark=own_sts", "benchmarks=own_sts"]),
        (
            "evaluate",
            ["benchmarks=[own_sts,idiolink]"],
            ["benchmark=[own_sts,idiolink]", "benchmarks=[own_sts,idiolink]"],
        ),
        (
            "evaluate",
            ["benchmark=[own_sts,idiolink]", "benchmarks=[own_sts]"],
            ["benchmark=[own_sts,idiolink]", "benchmarks=[own_sts]"],
        ),
    ],
)
def test_benchmarks_are_chosen_by_their_names(program: str, given: list[str], expected: list[str]) -> None:
    assert rewrite_arguments(given, MODELS, program, ["idiolink", "admire"]) == expected


def test_what_is_chosen_by_default_is_known() -> None:
    for program in ("config", "evaluate"):
        assert chosen_by_default(program, "benchmark") == compose_defaults(program)
    assert chosen_by_default("push", "benchmark") == []


def compose_defaults(program: str) -> list[str]:
    return list(compose_config(program)["benchmark"])


def test_model_folder_without_a_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert rewrite_arguments(["model=mine"], MODELS) == ["model=pretrained", "model.path='mine'"]


@pytest.mark.parametrize("argument", ["run_dir=x", "resume=x"])
def test_one_folder_for_several_runs_is_refused(argument: str, tmp_path: Path) -> None:
    for name in ("config.yaml", "run.json"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    argument = argument.replace("=x", f"={tmp_path}")
    with pytest.raises(UserError, match="several runs with a folder each"):
        rewrite_arguments(["-m", argument, "seed=1,2"], MODELS)


def test_a_folder_that_holds_a_run_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"status": "finished"}', encoding="utf-8")
    with pytest.raises(UserError, match="already contains a run"):
        rewrite_arguments([f"run_dir={tmp_path}"], MODELS)


def test_resume_in_another_folder_or_with_debug_is_refused(run_folder: Path, tmp_path: Path) -> None:
    composed = {"run_dir": str(tmp_path / "other")}
    with pytest.raises(UserError, match=r"run_dir: .*other, but the run is in"):
        saved_config(run_folder, composed, "default", ["run_dir=other"])
    assert saved_config(run_folder, {"run_dir": str(run_folder)}, "default", ["run_dir=x"])["seed"] == 42
    with pytest.raises(UserError, match="debug=smoke"):
        saved_config(run_folder, {}, "default", ["+debug=smoke"])
    with pytest.raises(UserError, match="protocol=cross_validation"):
        saved_config(run_folder, {}, "default", ["+protocol=cross_validation"])


def test_mixed_models_in_a_sweep_are_refused() -> None:
    with pytest.raises(UserError, match="mixes"):
        rewrite_arguments(["-m", "model=minilm,a/b"], MODELS)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    config = {"seed": 42, "device": "cpu", "resume": None, "run_dir": None}
    config |= {"trainer": {"max_epochs": 3, "batch_size": 32}, "model": {"path": "a", "pooling": None}}
    config |= {"data": {"sample": True}, "objective": {"name": "idiolink"}}
    config |= {"benchmark": {"own_retrieval": {"path": "search"}}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (folder / "run.json").write_text(json.dumps({"experiment": "x", "status": "failed"}), encoding="utf-8")
    return folder


def test_resume_takes_the_saved_config_and_the_run_length(run_folder: Path) -> None:
    composed = {"seed": 7, "trainer": {"max_epochs": 9, "batch_size": 64}, "device": "cuda"}
    config = saved_config(run_folder, composed, "x", ["trainer.max_epochs=9", "+experiment=x", "resume=y"])
    begun_before = {"dropout_masks": "torch", "memory_check": "stop"}  # without a name, masks are PyTorch's
    assert config["trainer"] == {"max_epochs": 9, "batch_size": 32} | begun_before
    assert config["model"] == {"path": "a", "pooling": None, "glossary_gate": None}
    in_memory = {"store": None, "shard_size": 50_000, "index": "exact"}
    assert config["benchmark"]["own_retrieval"] == {"path": "search"} | in_memory
    assert config["seed"] == 42
    assert config["device"] == "cpu"
    assert config["resume"] == str(run_folder)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed=7", "seed: 7, but the run has 42"),
        ("trainer.batch_size=64", r"trainer\.batch_size: 64, but the run has 32"),
        ("model=other", r"model\.path: b, but the run has a"),
    ],
)
def test_resume_names_what_differs(run_folder: Path, override: str, expected: str) -> None:
    composed = {"seed": 7, "trainer": {"batch_size": 64}, "model": {"path": "b", "pooling": None}}
    with pytest.raises(UserError, match=expected):
        saved_config(run_folder, composed, "default", [override])


def test_resume_of_another_experiment_is_refused(run_folder: Path) -> None:
    with pytest.raises(UserError, match="experiment: y, but the run has x"):
        saved_config(run_folder, {}, "y", ["+experiment=y"])


def test_find_run(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_run(["seed=1"]) is None
    assert find_run([f"resume={run_folder}"]) == str(run_folder)
    with pytest.raises(UserError, match="no run"):
        find_run([f"resume={tmp_path}"])
    assert find_run(["resume=auto", f"run_dir={run_folder}"]) == str(run_folder)
    assert find_run(["resume=auto", "run_dir=new"]) is None
    assert find_run(["resume=auto", "+experiment=x"]) is None
    (tmp_path / "checkpoints" / "x").mkdir(parents=True)
    run_folder.rename(tmp_path / "checkpoints" / "x" / "one")
    (tmp_path / "checkpoints" / "x" / "one" / "run.json").write_text('{"status": "interrupted"}')
    assert find_run(["resume=auto", "+experiment=x"]) == "checkpoints/x/one"
    failed = tmp_path / "checkpoints" / "x" / "two"  # newer, but there is nothing in it to go on with
    failed.mkdir()
    (failed / "run.json").write_text('{"status": "failed"}')
    (failed / "config.yaml").write_text("{}")
    assert find_run(["resume=auto", "+experiment=x"]) == "checkpoints/x/one"
    (failed / "step_3").mkdir()
    assert find_run(["resume=auto", "+experiment=x"]) == "checkpoints/x/two"
    (failed / "run.json").unlink()  # lost, but the checkpoint keeps what was in it
    (failed / "step_3" / "record.json").write_text("{}")
    assert find_run(["resume=auto", "+experiment=x"]) == "checkpoints/x/two"
    shutil.rmtree(failed)
    assert find_run(["resume=auto", "+experiment=other"]) is None


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (
            "trainer.batchsize=3",
            "trainer.batchsize: there is no such option. Did you mean trainer.batch_size?",
        ),
        ("sed=3", "sed: there is no such option. Did you mean seed?"),
        ("objective.querymode=span", "Did you mean objective.query_mode?\nobjective has name, split,"),
        ("trainer.batch_size.x=3", "trainer.batch_size.x: there is no such option."),
        (
            "benchmark=[idiolnk]",
            "benchmark=idiolnk: there is no such choice. Did you mean benchmark=idiolink?",
        ),
        (
            "model=minilmm",
            "model=minilmm: there is no such choice. Did you mean model=minilm?\nmodel has bert_base",
        ),
        ("model=mine", "xlmr_large; it also takes a folder, or <owner>/<name> on the Hub"),
        ("+experiment=zzz", "experiment=zzz: there is no such choice.\nexperiment has adaptive_triplet,"),
        ("+objective.parts={p: {data: {train: my (1).csv}}}", "needs quotation marks within"),
        ("seed", "seed: an option is written name=value, without blanks around ="),
        ("seed=1,2", "Write one list in brackets, seed=[1,2]"),
        ("+data=sample", "without a + before it: data=sample (in a file of yours: `override /data: sample`)"),
    ],
)
def test_what_was_misspelt_is_guessed(override: str, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        compose_config("config", override)
    assert expected in str(caught.value)


def test_an_option_of_several_types_is_told_in_one_line() -> None:
    with pytest.raises(
        UserError, match=r"1 setting is wrong:\n  eval\.every: must be one of 'epoch' or 'end', or a"
    ):
        check(TrainSettings, compose_config("config", "eval.every=sometimes"))
