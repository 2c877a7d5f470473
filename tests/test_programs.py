"""The programs as a user calls them: help, wrong use, every experiment."""

from __future__ import annotations

import json
import re
import resource
import subprocess
from pathlib import Path

import pytest

import train
from tests.own_data import mixture_options, write_pairs
from tests.programs import ROOT, assert_explained, run
from tests.tiny_runs import WIDE
from train.config.compose import config_names
from train.programs.console import PROGRAMS

EXPERIMENTS = config_names("experiment")
OF_HELP = 1.0  # seconds of processor time: 0.45 are usual
WITHOUT_TORCH = 2.0  # seconds of processor time: about 0.9 are usual, to import torch takes 1.6 more


def time_of_programs() -> float:
    """Processor time of the cold programs that have ended: other work on the machine does not change it."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


@pytest.mark.slow
@pytest.mark.parametrize("program", ["train", "train.evaluate"])
def test_help_is_quick_and_lists_what_there_is(program: str) -> None:
    before = time_of_programs()
    done = run(program, "--help", cold=True)
    assert time_of_programs() - before < OF_HELP
    assert done.returncode == 0, done.stderr
    assert "minilm" in done.stdout
    assert "data=" in done.stdout
    if program == "train":
        assert all(name in done.stdout for name in EXPERIMENTS)
    assert run(program, "--help", "device=cpu").stdout == done.stdout  # as Hydra has it


@pytest.mark.slow
def test_train_alone_shows_its_help(tmp_path: Path) -> None:
    done = run("train", cwd=tmp_path, environment={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in EXPERIMENTS)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("program", ["train", "train.evaluate", "train.learn", "train.push"])
def test_the_version_is_ours(program: str) -> None:
    done = run(program, "--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"idiomtune {train.__version__}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["+experiment=nonsense"], ["nonsense", "idiolink_ft"]),
        (["+experiment=idiolink_ft", "trainer.batchsize=3"], ["trainer.batchsize"]),
        (["+experiment=idiolink_ft", "trainer.batch_size=many"], ["trainer.batch_size", "'many'"]),
        (["+experiment=idiolink_ft", "trainer.monitor=no/such/score"], ["no/such/score"]),
        (["+experiment=idiolink_ft", "model=nonsense"], ["nonsense", "minilm"]),
        (["+experiment=idiolink_ft", "resume=no_such_folder"], ["no_such_folder", "no run"]),
        (["-m", "+experiment=idiolink_ft", "run_dir=x", "seed=1,2"], ["run_dir", "hydra.sweep.dir"]),
        (["+experiment=idiolink_ft", "=3"], ["=3"]),
    ],
)
def test_wrong_use_is_explained_at_once(arguments: list[str], parts: list[str], tmp_path: Path) -> None:
    before = time_of_programs()
    done = run("train", *arguments, cwd=tmp_path, environment={"PYTHONPATH": str(ROOT)}, cold=True)
    assert_explained(done, *parts)
    assert time_of_programs() - before < WITHOUT_TORCH


@pytest.mark.slow
def test_errors_remove_only_the_folder_that_was_made(tmp_path: Path) -> None:
    """An evaluation inside what is left of an old run must not touch it; a new run's folder goes."""
    (tmp_path / ".hydra").mkdir()
    (tmp_path / "train.log").touch()
    here = {"PYTHONPATH": str(ROOT)}
    assert_explained(run("train.evaluate", "split=[]", cwd=tmp_path, environment=here), "split")
    assert_explained(run("train", "seed=-1", cwd=tmp_path, environment=here), "seed")
    assert {path.name for path in tmp_path.iterdir()} - {"checkpoints"} == {".hydra", "train.log"}
    assert not list(tmp_path.glob("checkpoints/*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["model={tmp}"], ["modules.json"]),
        (["model={tmp}/missing"], ["not a folder"]),
        (["model=nobody/nothing"], ["nobody/nothing", "Hub did not give it"]),
        (["data=public", "data.root={tmp}/missing"], ["data.root", "no such folder"]),
        (["device=cuda"], ["device=cuda", "not available"]),
        (["precision=fp16", "device=cpu"], ["precision=fp16"]),
        (
            ["split=tset", "trainer.monitor=idiolink/tset/sentence/ndcg@10"],
            ["tset", "splits there: test, train, val"],
        ),
    ],
)
def test_wrong_world_is_explained(arguments: list[str], parts: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    empty = tmp_path / "empty"
    empty.mkdir()
    named = [a.replace("{tmp}", str(empty)) for a in arguments]
    done = run(
        "train",
        "+experiment=idiolink_ft",
        "data=sample",
        f"run_dir={folder}",
        *named,
        environment={"HF_HUB_OFFLINE": "1"},
    )
    assert_explained(done, *parts)


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_runs_in_smoke(experiment: str, tmp_path: Path, tiny_path: Path) -> None:
    """As a user types it, with a model as small as can be."""
    folder = tmp_path / "run"
    model: tuple[str, ...] = (f"model.path={tiny_path}", "model.max_length=64", WIDE)
    if experiment == "admire_aima":
        from tests.tiny_clip import save_tiny_clip

        clip = f"objective.clip.path={save_tiny_clip(tmp_path / 'clip')}"
        sense = f"objective.sense_encoder.path={tiny_path}"
        model += (clip, sense, "objective.sense_encoder.epochs=1", "objective.captions.summariser=null")
    if experiment == "own":
        model += (f"data.train={write_pairs(tmp_path / 'pairs.csv')}",)
    if experiment == "mixture":
        model += tuple(mixture_options(tmp_path)[1:])
    done = run("train", f"+experiment={experiment}", "+debug=smoke", f"run_dir={folder}", *model, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(folder)
    assert (folder / ".hydra" / "overrides.yaml").is_file()
    assert (folder / "best" / "model.safetensors").is_file()
    scores = json.loads((folder / "scores.json").read_text())
    # Experts are there since training alone.
    expert_keys = {key for key in scores["scores"] if "/experts_" in key or "/majority/" in key}
    assert bool(expert_keys) == (experiment in ("admire_experts", "admire_aima"))
    assert scores["scores"].keys() - expert_keys == scores["baseline"].keys()
    assert "SAMPLE" in done.stdout


@pytest.mark.slow
def test_evaluating_best_gives_the_runs_scores(tmp_path: Path) -> None:
    """What was saved is what was scored, each query; and the sample's scores improve on its unseen idioms."""
    folder = tmp_path / "run"
    modes = ("benchmark.idiolink.query_modes=[sentence,span]", "benchmark.idiolink.split=[val]")
    # IDIOM_DATA points nowhere: data=sample must not care.
    trained = run(
        "train",
        "+experiment=idiolink_ft",
        "data=sample",
        "benchmark=[idiolink]",
        *("eval.every=end", "trainer.monitor=idiolink/val/sentence/r_precision", *modes),
        *("trainer.max_steps=5", "trainer.learning_rate=2e-4", f"run_dir={folder}"),
        environment={"IDIOM_DATA": "/nonexistent"},
    )
    assert trained.returncode == 0, trained.stderr
    output = tmp_path / "scores.json"
    done = run(
        *("train.evaluate", f"model={folder / 'best'}", "data=sample"),
        *("benchmarks=[idiolink]", *modes, f"output={output}", "per_query=queries.jsonl"),
        cwd=tmp_path,
        environment={"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    ours, theirs = json.loads((folder / "scores.json").read_text()), json.loads(output.read_text())
    assert theirs["scores"] == pytest.approx(ours["scores"], abs=1e-9)
    assert theirs["baseline"] == {}
    for mode in ("sentence", "span"):
        key = f"idiolink/val/{mode}/ndcg@10"
        assert ours["scores"][key] > ours["baseline"][key] + 0.03
    margin = "margin=idiolink/val/span/ndcg@10:0.1"
    done = run("train.gate", str(output), f"against={folder}", margin, f"output={tmp_path / 'gate.json'}")
    assert done.returncode == 3, done.stderr  # three idioms are too few
    (check,) = json.loads((tmp_path / "gate.json").read_text())["checks"]
    assert check["interval"] == pytest.approx([0, 0], abs=1e-9)
    assert (check["num_queries"] > 3, check["num_clusters"]) == (True, 3)


@pytest.mark.slow
def test_a_failed_job_does_not_end_the_sweep(tmp_path: Path, tiny_path: Path) -> None:
    done = run(
        *("train", "-m", "+experiment=idiolink_ft", "+debug=smoke", f"model={tiny_path}", "device=cuda,cpu"),
        *("benchmark=[idiolink]", f"hydra.sweep.dir={tmp_path}"),
        environment={"CUDA_VISIBLE_DEVICES": ""},
    )
    assert_explained(done, "job 0: device=cuda")
    assert (tmp_path / "1" / "best" / "model.safetensors").is_file()


@pytest.mark.slow
def test_a_failed_job_ends_a_sweep_of_several_processes(tmp_path: Path, tiny_path: Path) -> None:
    """It may have failed in this process alone: the next job would wait for the others for ever."""
    done = run(
        *("train", "-m", "+experiment=idiolink_ft", "data=sample", f"model={tiny_path}", "device=cuda,cpu"),
        f"hydra.sweep.dir={tmp_path}",
        environment={"CUDA_VISIBLE_DEVICES": "", "RANK": "0", "WORLD_SIZE": "2"},
    )
    assert_explained(done, "process 0: device=cuda")
    assert done.returncode == 2
    assert not (tmp_path / "1").exists()


@pytest.mark.slow
def test_sweep_gives_each_job_a_folder(tmp_path: Path, tiny_path: Path) -> None:
    done = run(
        *("train", "-m", "+experiment=idiolink_ft", "+debug=smoke", f"model={tiny_path}", "seed=1,2"),
        *("benchmark=[idiolink]", f"hydra.sweep.dir={tmp_path}"),
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout[done.stdout.index("2 jobs by the mean of 4 monitored scores") :]
    assert re.search(r"the best job: [01] \(seed=[12]\), model \S+/best", told)
    assert f"python -m train.report {tmp_path}" in told
    for job, seed in (("0", 1), ("1", 2)):
        assert json.loads((tmp_path / job / "run.json").read_text())["seed"] == seed
        assert (tmp_path / job / "best" / "model.safetensors").is_file()


@pytest.mark.slow
def test_cross_validation_scores_each_folds_own_idioms(tmp_path: Path, tiny_path: Path) -> None:
    done = run(
        *("train", "-m", "+experiment=idiolink_ft", "+debug=smoke", "+protocol=cross_validation"),
        *("data.fold=0,1", "data.folds=3", f"model={tiny_path}", f"hydra.sweep.dir={tmp_path}"),
        *("benchmark=[idiolink]", "benchmark.idiolink.query_modes=[sentence,span]", "eval.per_query=true"),
    )
    assert done.returncode == 0, done.stderr
    scored = []
    for job in ("0", "1"):
        keys = json.loads((tmp_path / job / "scores.json").read_text())["scores"]
        assert all(key.startswith("idiolink/cv/") for key in keys)
        rows = (tmp_path / job / "per_query" / "idiolink.jsonl").read_text(encoding="utf-8").splitlines()
        scored.append({json.loads(row)["idiom"] for row in rows})
    assert [len(idioms) for idioms in scored] == [3, 3]
    assert not scored[0] & scored[1]


def test_the_package_by_its_other_name(tmp_path: Path) -> None:
    """The same modules, where a script has a `train.py` beside it."""
    (tmp_path / "train.py").write_text("raise SystemExit('the wrong one')\n", encoding="utf-8")
    (tmp_path / "script.py").write_text(
        "import idiomtune\nfrom idiomtune.requests import Request\nimport train.requests\n"
        "print(Request is train.requests.Request, idiomtune.__version__, train.requests.__spec__.name)\n",
        encoding="utf-8",
    )
    done = run("script.py", cwd=tmp_path, environment={"PYTHONPATH": str(ROOT)}, cold=True)
    assert done.stdout.split() == ["True", train.__version__, "train.requests"], done.stderr
    done = run("idiomtune.report", "--help", cwd=tmp_path, environment={"PYTHONPATH": str(ROOT)}, cold=True)
    assert "python -m train.report" in done.stdout, done.stderr
    shadowed = "import sys; sys.modules['train'] = sys; import idiomtune"
    (tmp_path / "late.py").write_text(shadowed, encoding="utf-8")
    done = run("late.py", cwd=tmp_path, environment={"PYTHONPATH": str(ROOT)}, cold=True)
    assert "import idiomtune before it" in done.stderr


@pytest.mark.slow
def test_the_console_command(tmp_path: Path) -> None:
    """A `train.py` of the user's own is not in its way; modules beside it can be named."""
    (tmp_path / "train.py").write_text("raise SystemExit('the wrong one')\n", encoding="utf-8")
    command = "from idiomtune.__main__ import main; main()"
    (tmp_path / "program.py").write_text(
        f"import sys; sys.path[0] = {str(ROOT)!r}; {command}\n", encoding="utf-8"
    )

    def idiomtune(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run(str(tmp_path / "program.py"), *arguments, cwd=tmp_path)

    said = idiomtune("--help").stdout
    assert all(f"  {name} " in said for name in PROGRAMS)
    assert idiomtune("--version").stdout.strip() == f"idiomtune {train.__version__}"
    assert_explained(idiomtune("evalute"), "'evalute'", "idiomtune evaluate")
    assert "+experiment=" in idiomtune("train").stdout
    (tmp_path / "mine.py").write_text("NOTHING = 1\n", encoding="utf-8")
    assert_explained(idiomtune("evaluate", "extensions=[mine]"), "mine declares nothing")
    assert_explained(idiomtune("report", "nowhere"), "nowhere")
