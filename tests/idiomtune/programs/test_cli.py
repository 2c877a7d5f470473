"""What becomes of the command line before Hydra sees it: what is rewritten, what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from omegaconf import DictConfig

from idiomtune.config import TrainSettings, check
from idiomtune.config.compose import chosen_by_default, compose_config, plain
from idiomtune.config.words import rewrite_arguments
from idiomtune.errors import UserError
from idiomtune.io.secrets import refuse_arguments, refuse_values
from idiomtune.programs.call import call_of
from idiomtune.programs.ending import run_plain
from idiomtune.programs.run import composed
from idiomtune.training.resume import find_run, saved_config

TOKEN = "hf_" + "aB3" * 12


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, in which `mine` is a finished run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / "best").mkdir(parents=True)
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "run.json").write_text('{"status": "running"}', encoding="utf-8")
    (tmp_path / "mine" / "run.json").write_text('{"status": "finished"}', encoding="utf-8")
    return tmp_path


# Arguments, separated by ` | `, and what Hydra gets.
REWRITTEN = [
    ("model=minilm", "model=minilm"),
    ("model=unknown", "model=unknown"),  # left to Hydra, which lists what there is
    ("model=mine", "model=pretrained | model.path='mine/best'"),
    ("model=mine/best", "model=pretrained | model.path='mine/best'"),
    ("model=a/b-v2 | seed=1", "model=pretrained | model.path='a/b-v2' | seed=1"),
    ("model='a/b'", "model=pretrained | model.path='a/b'"),
    ("model=/x/it's here", "model=pretrained | model.path='/x/it\\'s here'"),
    ("model.path=a/b", "model.path='a/b'"),
    ("run_dir=x=y | seed=1", "run_dir='x=y' | seed=1"),
    ("model.glossary=it's, mine.tsv", "model.glossary='it\\'s, mine.tsv'"),
    ("model.glossary=[a.tsv,b.tsv]", "model.glossary=[a.tsv,b.tsv]"),
    ("data.root=null", "data.root=null"),
    ("benchmark.own_sts.path=my, own.csv", "benchmark.own_sts.path='my, own.csv'"),
    ("benchmark.own_sts.path={a:b.csv}", "benchmark.own_sts.path={a:b.csv}"),
    ("trainer.monitor=a/b@1/dim=8", "trainer.monitor='a/b@1/dim=8'"),  # Hydra takes no second =
    ("trainer.monitor=[a/b,'a/dim=8',a/dim=16]", "trainer.monitor=[a/b,'a/dim=8','a/dim=16']"),
    ("+objective.parts.p.data.train=my (1).csv", "+objective.parts.p.data.train='my (1).csv'"),
    (
        "++objective.parts.p.data.negatives.corpus=a=b.csv",
        "++objective.parts.p.data.negatives.corpus='a=b.csv'",
    ),
    ("-m | model=a/b,c/d", "-m | model=pretrained | model.path='a/b','c/d'"),
    ("-m | model=minilm,pretrained", "-m | model=minilm,pretrained"),
    ("idiolink_ft | seed=1,2 | -m", "-m | +experiment=idiolink_ft | seed=1,2"),
    ("-m | seed=1,2 | hub.repo_id='me/idioms-${seed}'", "-m | seed=1,2 | hub.repo_id='me/idioms-${seed}'"),
    # Flags of Hydra
    *((flags, flags) for flags in ("-m | --config-dir | mine | --cfg | job", "--config-dir=mine | -cn=x")),
]


@pytest.mark.parametrize(("given", "expected"), REWRITTEN)
def test_what_hydra_gets(given: str, expected: str) -> None:
    assert rewrite_arguments(given.split(" | ")) == expected.split(" | ")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("benchmarks=[idiolink]", "benchmarks=[idiolink]"),  # of those that are there
        ("benchmarks=null", "benchmarks=null"),
        ("benchmarks=own_sts", "benchmark=own_sts benchmarks=own_sts"),
        ("benchmarks=[own_sts,idiolink]", "benchmark=[own_sts,idiolink] benchmarks=[own_sts,idiolink]"),
        (
            "benchmark=[own_sts,admire] benchmarks=[own_sts]",
            "benchmark=[own_sts,admire] benchmarks=[own_sts]",
        ),
    ],
)
def test_an_evaluations_benchmarks_are_chosen_by_their_names(given: str, expected: str) -> None:
    rewritten = rewrite_arguments(given.split(), "evaluate")
    assert rewritten == expected.split()
    assert rewrite_arguments(["benchmarks=[own_sts]"], "config") == ["benchmark=[own_sts]"]


@pytest.mark.parametrize(
    ("program", "given", "expected"),
    [
        ("config", "idiolink_ft | seed=1", "+experiment=idiolink_ft | seed=1"),
        ("config", "-m | idiolink_ft,own", "-m | +experiment=idiolink_ft,own"),
        ("config", "--cfg | job", "--cfg | job"),
        ("evaluate", "minilm", "model=minilm"),
        ("push", "mine | dry_run=true", "checkpoint='mine' | dry_run=true"),
        ("learn", "seed=1 | minilm", "seed=1 | minilm"),  # which Hydra refuses
    ],
)
def test_a_first_word_is_what_the_program_is_about(program: str, given: str, expected: str) -> None:
    assert rewrite_arguments(given.split(" | "), program) == expected.split(" | ")


# Arguments, separated by ` | `, and a part of the message.
REFUSED = [
    ("-m | model=minilm,a/b", "mixes"),
    ("model=unfinished", "unfinished: the run has no best/ yet"),
    ("-m | run_dir=run | seed=1,2", "several runs with a folder each"),
    ("-m | resume=run | seed=1,2", "several runs with a folder each"),
    ("-m | seed=1,2 | hub.repo_id=me/idioms", "names one repository"),
    ("run_dir=\udcff", "UTF-8"),
    ("model=~nobody-here", "model=~nobody-here: there is no"),
    # Options with dashes, with the form that they have here
    ("--experiment=own | data.train=a.csv", "without dashes: +experiment=own"),  # a flag's beginning
    ("+experiment=own | --data | sample", "--data: options are written name=value, without dashes: data=…"),
    ("-model=minilm", "without dashes: model=minilm"),
    ("--trainer.max-epochs=2", "without dashes: trainer.max_epochs=2"),
    ("--config_dir=mine", "Did you mean --config-dir?"),
    # Secrets
    ("--hf-token=the-secret", "Put a token into the environment variable"),  # known by its name alone
    ("--token | the-secret", "Put a token into the environment variable"),
    ("+hub.hf_token=the-secret", "HF_TOKEN"),
    *((f"{name}={TOKEN}", "HF_TOKEN") for name in ("token", "+token", "hub.token", "HF_TOKEN", "seed")),
    (f"+hydra.job.env_set.HF_TOKEN={TOKEN}", "hydra.job.env_set"),
    ("+hydra.job.env_set.ANYTHING=x", "hydra.job.env_set"),
    ("model.path=https://me:pa55word@example.org/model", "model.path"),
    ("hydra.sweeper.storage=mysql://me:pa55word@db/study", "hydra.sweeper.storage"),
    ("hub.repo_id=${oc.env:HF_TOKEN}", "hub.repo_id"),
    ("+x=${oc.env:'WANDB_API_KEY'}", "x"),
    ("tracking.wandb.project=the-secret-value", "tracking.wandb.project"),
]


def folder_of(config: DictConfig) -> Path:
    call = call_of(plain(config, throw_on_missing=True), config, [])
    assert call is not None
    return call.run.path


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("run_dir=mine", "mine already contains a run: resume it"),
        ("run_dir=~nobody-here", "run_dir=~nobody-here: there is no"),
        (f"run_dir={'a' * 300}", "the folder of the run cannot be written: .*too long"),
    ],
)
def test_a_new_run_takes_no_folder_of_another(here: Path, given: str, named: str) -> None:
    with pytest.raises(UserError, match=named):
        composed("config", folder_of, [given])
    (here / "unfinished" / "run.json").write_text('{"status": "failed"}', encoding="utf-8")
    for free in ("run_dir=unfinished", "run_dir=new", "run_dir=mine overwrite=true", "hydra.run.dir=other"):
        given = free.split()[0].partition("=")[2]
        assert composed("config", folder_of, free.split()) == here / given
    assert composed("config", folder_of, ["run_dir=."]) == here
    assert not (here / "new").exists()


@pytest.mark.usefixtures("run_folder")
@pytest.mark.parametrize(("given", "named"), REFUSED)
def test_what_is_refused_at_once(given: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No token or password is in the message: neither on the screen nor in a log."""
    monkeypatch.setenv("SOME_API_KEY", "the-secret-value")
    with pytest.raises(UserError) as refused:
        rewrite_arguments(given.split(" | "))
    assert named in str(refused.value)
    assert not any(secret in str(refused.value) for secret in (TOKEN, "pa55word", "the-secret"))


def test_what_looks_like_a_secret_passes() -> None:
    refuse_arguments(
        [
            *("model.tokenizer=x", "trainer.max_steps=3", "model.idiom_tokens=train", "run_dir=/a/token"),
            *("model.path=https://example.org/model", "+x=${oc.env:HOME}", "model.revision=" + "0a" * 20),
        ]
    )


def test_a_configuration_file_of_the_users_own_is_looked_at_too() -> None:
    with pytest.raises(UserError, match=r"model\.path"):
        refuse_values({"model": {"path": [TOKEN]}})
    refuse_values({"model": {"path": "a/b", "n": 3, "none": None}})


def test_what_is_chosen_by_default_is_known() -> None:
    for program in ("config", "evaluate"):
        assert chosen_by_default(program, "benchmark") == list(compose_config(program)["benchmark"])
    assert chosen_by_default("push", "benchmark") == []


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("trainer.batchsize=3", "no such option. Did you mean trainer.batch_size?"),
        ("sed=3", "sed: there is no such option. Did you mean seed?"),
        ("lr=3", "lr: there is no such option. Did you mean trainer.learning_rate?"),
        ("batch_size=8", "Did you mean trainer.batch_size?"),
        ("objective.querymode=span", "Did you mean objective.query_mode?\nobjective has name, split,"),
        ("trainer.batch_size.x=3", "trainer.batch_size.x: there is no such option."),
        ("benchmark=[idiolnk]", "Did you mean benchmark=idiolink?"),
        ("model=minilmm", "Did you mean model=minilm?\nmodel has bert_base"),
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


def test_an_option_of_several_types_is_explained_in_one_line() -> None:
    with pytest.raises(UserError, match=r"  eval\.every: must be one of 'epoch' or 'end', or a"):
        check(TrainSettings, compose_config("config", "eval.every=sometimes"))


def test_each_end_of_a_program_has_its_message_and_status(capsys: pytest.CaptureFixture[str]) -> None:
    """Of those without a configuration."""

    def program(arguments: Sequence[str]) -> int:
        if arguments == ["wrong"]:
            raise UserError("wrong=: is wrong")
        if arguments == ["stop"]:
            raise KeyboardInterrupt
        return 3

    assert [run_plain(program, [way], "") for way in ("fine", "wrong", "stop")] == [3, 2, 130]
    assert capsys.readouterr().err == "error: wrong=: is wrong\ninterrupted\n"
    assert run_plain(program, ["wrong", "--help"], "how it is used") == 0
    assert capsys.readouterr().out == "how it is used\n"


# ------------------------------------------------------------------ resuming


@pytest.fixture
def run_folder(here: Path) -> Path:
    folder = here / "run"
    folder.mkdir()
    config = {"seed": 42, "device": "cpu", "resume": None, "run_dir": None}
    config |= {"trainer": {"max_epochs": 3, "batch_size": 32}, "model": {"path": "a", "pooling": None}}
    config |= {"data": {"sample": True}, "objective": {"name": "idiolink"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (folder / "run.json").write_text(json.dumps({"experiment": "x", "status": "failed"}), encoding="utf-8")
    return folder


def test_resume_takes_the_saved_config_and_the_run_length(run_folder: Path) -> None:
    composed = {"seed": 7, "trainer": {"max_epochs": 9, "batch_size": 64}, "device": "cuda"}
    composed |= {"run_dir": str(run_folder), "model": {"path": "b", "glossary_gate": None}}
    config = saved_config(run_folder, composed, "x", ["trainer.max_epochs=9", "+experiment=x", "run_dir=y"])
    assert config["trainer"] == {"max_epochs": 9, "batch_size": 32}
    assert config["model"] == {"path": "a", "pooling": None}
    assert (config["seed"], config["device"], config["resume"]) == (42, "cpu", str(run_folder))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed=7", "seed: 7, but the run has 42"),
        ("trainer.batch_size=64", "trainer.batch_size: 64, but the run has 32"),
        ("model=other", "model.path: b, but the run has a"),
        ("+experiment=y", "experiment: y, but the run has x"),
        ("run_dir=other", "other, but the run is in"),
        ("+debug=smoke", "debug=smoke"),
        ("+protocol=cross_validation", "protocol=cross_validation"),
    ],
)
def test_resume_names_what_differs(run_folder: Path, override: str, expected: str) -> None:
    composed = {"seed": 7, "trainer": {"batch_size": 64}, "model": {"path": "b", "pooling": None}}
    composed |= {"run_dir": "other"} if override == "run_dir=other" else {}
    with pytest.raises(UserError) as caught:
        saved_config(run_folder, composed, "y" if "experiment" in override else "default", [override])
    assert expected in str(caught.value)


def test_find_run(run_folder: Path, here: Path) -> None:
    assert find_run(["seed=1"]) is None
    assert find_run([f"resume={run_folder}"]) == str(run_folder)
    with pytest.raises(UserError, match="no run"):
        find_run([f"resume={here}"])
    with pytest.raises(UserError, match="resume=~nobody-here"):
        find_run(["resume=~nobody-here"])
    assert find_run(["resume=auto", f"run_dir={run_folder}"]) == str(run_folder)
    assert find_run(["resume=auto", "run_dir=new"]) is None
    latest = ["resume=auto", "+experiment=x"]
    assert find_run(latest) is None
    (here / "checkpoints" / "x").mkdir(parents=True)
    run_folder.rename(here / "checkpoints" / "x" / "one")
    (here / "checkpoints" / "x" / "one" / "run.json").write_text('{"status": "interrupted"}')
    assert find_run(latest) == "checkpoints/x/one"
    failed = here / "checkpoints" / "x" / "two"  # newer, but there is nothing in it to go on with
    failed.mkdir()
    (failed / "run.json").write_text('{"status": "failed"}')
    (failed / "config.yaml").write_text("{}")
    assert find_run(latest) == "checkpoints/x/one"
    (failed / "step_3").mkdir()
    assert find_run(latest) == "checkpoints/x/two"
    (failed / "run.json").unlink()  # lost, but the checkpoint keeps what was in it
    (failed / "step_3" / "record.json").write_text("{}")
    assert find_run(latest) == "checkpoints/x/two"
    shutil.rmtree(failed)
    assert find_run(["resume=auto", "+experiment=other"]) is None
