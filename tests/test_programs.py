"""The programs as a user calls them: help, wrong use, every experiment, sweeps."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from idiomtune import __version__
from idiomtune.cli import PROGRAMS
from idiomtune.cli import run as run_program
from idiomtune.config.words import config_names
from idiomtune.data.sources import SAMPLE_ROOT
from tests.mistakes import PAIRS
from tests.own_data import mixture_options, write, write_pairs
from tests.programs import ROOT, assert_explained, run
from tests.tiny_clip import save_tiny_clip
from tests.tiny_runs import WIDE

EXPERIMENTS = config_names("experiment")
SLOW_TO_IMPORT = {"torch", "numpy", "pandas", "transformers", "sentence_transformers", "matplotlib", "mteb"}
Sweep = Callable[..., subprocess.CompletedProcess[str]]
HERE = {"PYTHONPATH": str(ROOT)}  # for a program that is started in another folder


@pytest.mark.slow
@pytest.mark.parametrize("program", ["train", "idiomtune evaluate"])
def test_help_is_quick_and_lists_what_there_is(program: str, tmp_path: Path) -> None:
    done = run(*program.split(), "--help", cold=True, environment={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 0, done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "idiomtune" in imported
    assert not SLOW_TO_IMPORT & imported
    assert "minilm" in done.stdout
    assert "data=" in done.stdout
    if program == "train":  # shows it, too, where nothing is asked for
        assert all(name in done.stdout for name in EXPERIMENTS)
        assert run("train", cwd=tmp_path, environment=HERE).stdout == done.stdout
        assert not list(tmp_path.iterdir())
    assert run(*program.split(), "--help", "device=cpu").stdout == done.stdout  # as Hydra has it
    assert run(*program.split(), "--version").stdout.strip() == f"idiomtune {__version__}"


@pytest.mark.slow
@pytest.mark.usefixtures("shown")
def test_the_first_run_gains_and_shows_a_query(tmp_path: Path) -> None:
    """`make run`'s own command with MiniLM: on its last screen both models' first documents."""
    (command,) = re.findall(r"python -m (train .*data=sample .*)", (ROOT / "Makefile").read_text("utf-8"))
    folder, key = tmp_path / "run", "idiolink/val+train/sentence/ndcg@10"
    shorter = ("benchmark.idiolink.query_modes=[sentence]", f"trainer.monitor={key}", "device=cpu")
    done = run(
        *(*command.split(), *shorter, "precision=fp32", f"run_dir={folder}"),
        environment={"IDIOM_DATA": "/nonexistent"},  # data=sample must not care
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == str(folder)
    assert "SAMPLE" in done.stdout
    assert (folder / ".hydra" / "overrides.yaml").is_file()
    val = json.loads((SAMPLE_ROOT / "idiolink" / "val" / "queries.json").read_text("utf-8"))
    answers = [line.strip() for line in lines if line.startswith(("  ✓", "  ✗"))]
    (query,) = [query for query in val if query["sentence"] in " ".join(done.stdout.split())]
    expected = []
    for records in ("per_query_baseline", "per_query"):
        start = {"split": "val+train", "mode": "sentence", "id": query["id"]}
        queries = map(json.loads, (folder / records / "idiolink.jsonl").read_text("utf-8").splitlines())
        (record,) = [r for r in queries if r | start == r]
        expected += [("✗✓"[document["relevant"]], document["usage"]) for document in record["top"][:3]]
    assert [(line[0], re.split("[:,]", line[2:])[0]) for line in answers] == expected
    assert max(map(len, answers)) <= 100
    scores = json.loads((folder / "scores.json").read_text())
    assert scores["scores"][key] > scores["baseline"][key] + 0.03


OWN = "+experiment=own data.train=train.csv trainer.batch_size=16 trainer.max_epochs=1 data.val_share=0.25"
SEARCH = f"-m {OWN} hydra/sweeper=optuna hydra.sweeper.n_trials=1 trainer.learning_rate=1e-4,1e-3"
FINISHED = '{"status": "finished", "experiment": "own"}'
SECRET = "hf_" + "aB3" * 12
LEAVES = """
from idiomtune.plugins.benchmark import BenchmarkOptions
from idiomtune.plugins.registry import benchmark
from idiomtune.plugins.score import Score

@benchmark(__name__)
class Options(BenchmarkOptions):
    def possible_scores(self, splits):
        return [Score("one", "", "", "a")]

    def build(self, settings):
        exit()
"""
MODULES = {f"{name}.py": LEAVES for name in ("one", "two")} | {"exits.py": "raise SystemExit(0)"}
ONE = "+benchmark.one={name:one}"
RUNS_CODE = {"mine.yaml": "model: {trust_remote_code: true}\n"}
STUDY = {"s/study.db": "", "s/0/run.json": FINISHED}
SWEEP = {"s/0/run.json": FINISHED, "s/1/run.json": FINISHED, "s/0/.hydra/overrides.yaml": "- seed=7\n"}
# Program, options, files that are there, exit status, parts of the message. More that end in these ways are
# in `tests/test_mistakes.py` and `tests/idiomtune/config/test_words.py`.
WRONG: list[tuple[str, str, dict[str, str], int, str]] = [
    ("train", f"{OWN} run_dir=new trainer.epochs=3", {}, 2, "trainer.epochs"),
    ("train", f"{OWN} trainer.batch_size=1", {}, 2, "trainer.batch_size"),
    ("train", f"{OWN} trainer.max_steps=${{trainer.steps}}", {}, 2, "trainer.steps"),
    ("train", f"{OWN} resume=no_such_folder", {}, 2, "resume=no_such_folder"),
    ("train", f"{OWN} run_dir=train.csv/new", {}, 2, "train.csv/new"),
    ("train", f"{OWN} =3", {}, 2, "=3"),
    ("train", f"{OWN} +hub.token={SECRET}", {}, 2, "hub.token"),
    ("train", f"-m {OWN} seed=1,2 hydra.sweep.dir=s", SWEEP, 2, "job 0|s/0|resume="),
    ("train", f"{SEARCH} hydra.sweep.dir=s", STUDY, 2, "s/study.db|hydra.sweep.dir="),
    ("idiomtune check", "+experiment=own data.train='x\x1b[31m'", {}, 2, "x\\x1b[31m"),
    ("train", "-m +experiment=mine.yaml seed=1,2 hydra.sweep.dir=s", RUNS_CODE, 2, "trust_remote_code=true"),
    ("idiomtune check", f"{OWN} extensions=[exits]", MODULES, 2, "extensions: exits|SystemExit"),
    ("idiomtune check", f"{OWN} extensions=[one] {ONE}", MODULES, 1, "SystemExit"),
    (
        "idiomtune check",
        f"{OWN} extensions=[one,two] {ONE} {ONE.replace('one', 'two')}",
        MODULES,
        2,
        "'one/a'",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG)
def test_wrong_use_is_explained(
    case: tuple[str, str, dict[str, str], int, str], tmp_path: Path, tiny_path: Path
) -> None:
    """By a message, without a traceback; what is there stays, and no new folder is left."""
    program, options, files, status, named = case
    (tmp_path / ".hydra").mkdir()  # of an old run
    for name, content in {"train.csv": PAIRS, **files}.items():
        write(tmp_path / name, content)
    model = ["model=pretrained", f"model.path={tiny_path}"]
    done = run(*program.split(), *options.split(), *model, cwd=tmp_path, environment=HERE)
    assert done.returncode == status, done.stderr
    assert_explained(done, *named.split("|"))
    assert ("unexpected" in done.stderr) == (status == 1)
    assert "\x1b" not in done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr
    for name, content in files.items():
        assert name.endswith(".db") or (tmp_path / name).read_text(encoding="utf-8") == content
    there = {".hydra", "train.csv", *(name.partition("/")[0] for name in files)}
    assert {path.name for path in tmp_path.iterdir()} - {"checkpoints", "__pycache__"} == there
    assert not list(tmp_path.glob("checkpoints/*"))


@pytest.mark.slow
def test_wrong_use_is_explained_before_torch_is_imported(tmp_path: Path) -> None:
    """Each import is named on stderr."""
    timed = HERE | {"PYTHONPROFILEIMPORTTIME": "1"}
    done = run("train", "+experiment=own", "data.train=none.csv", cwd=tmp_path, environment=timed, cold=True)
    assert_explained(done, "data.train=none.csv")
    assert done.returncode == 2
    imported = set(re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE))
    assert "pydantic" in imported
    assert "torch" not in imported
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_runs_in_smoke(experiment: str, tmp_path: Path, tiny_path: Path) -> None:
    """With a model as small as can be."""
    folder = tmp_path / "run"
    options = [f"+experiment={experiment}", "+debug=smoke", f"run_dir={folder}", f"model.path={tiny_path}"]
    options += ["model.max_length=64", WIDE]
    options += ["benchmark.idiolink.bm25_modes=[]"] * (experiment not in ("own", "mixture"))
    if experiment == "admire_aima":
        options += [f"objective.clip.path={save_tiny_clip(tmp_path / 'clip')}"]
        options += [f"objective.sense_encoder.path={tiny_path}", "objective.sense_encoder.epochs=1"]
        options += ["objective.captions.summariser=null"]
    options += [f"data.train={write_pairs(tmp_path / 'pairs.csv')}"] * (experiment == "own")
    options += mixture_options(tmp_path)[1:] * (experiment == "mixture")
    run_program("train", options)
    assert (folder / "best" / "model.safetensors").is_file()
    scores = json.loads((folder / "scores.json").read_text())
    # Experts are there since training alone.
    expert_keys = {key for key in scores["scores"] if "/experts_" in key or "/majority/" in key}
    assert bool(expert_keys) == (experiment in ("admire_experts", "admire_aima"))
    assert scores["scores"].keys() - expert_keys == scores["baseline"].keys()


# ------------------------------------------------------------------ sweeps


@pytest.fixture
def sweep(tmp_path: Path, tiny_path: Path) -> Sweep:
    """Of runs of a step on own pairs, in the folder `s`."""
    for name, content in {"train.csv": PAIRS, **MODULES}.items():
        write(tmp_path / name, content)
    same = f"-m {OWN} trainer.max_steps=1 hydra.sweep.dir=s device=cpu model={tiny_path}"

    def start(*options: str, cold: bool = False, **more: str) -> subprocess.CompletedProcess[str]:
        return run("train", *same.split(), *options, cwd=tmp_path, environment=HERE | more, cold=cold)

    return start


def records(tmp_path: Path) -> list[dict[str, Any]]:
    """Of the jobs of the sweep."""
    return [json.loads(path.read_text()) for path in sorted(tmp_path.glob("s/*/run.json"))]


@pytest.mark.slow
def test_a_failed_job_does_not_end_the_sweep_but_of_several_processes(sweep: Sweep, tmp_path: Path) -> None:
    """There it may have failed in one process alone: the next job would wait for the others for ever.

    A module that exits, with a status of 0, fails its job too.
    """
    done = sweep("extensions=[one]", *ONE.split(), "seed=1,2")
    assert (done.returncode, "SystemExit" in done.stderr) == (1, True), done.stderr
    assert [record["status"] for record in records(tmp_path)] == ["failed", "failed"]
    done = sweep("device=cuda,cpu", cold=True, RANK="0", WORLD_SIZE="2", CUDA_VISIBLE_DEVICES="")
    assert_explained(done, "process 0: device=cuda")
    assert len(records(tmp_path)) == 2


@pytest.mark.slow
def test_a_sweep_is_resumed_by_the_same_command(sweep: Sweep, tmp_path: Path) -> None:
    """What is finished is skipped, what was interrupted is resumed, what never started is run."""
    first = sweep("seed=1,2")
    assert first.returncode == 0, first.stderr
    assert re.search(r"job: [01] \(seed=[12]\), model \S+/best", first.stdout)
    assert "idiomtune report s" in first.stdout
    jobs = [tmp_path / "s" / str(number) for number in range(3)]
    record = json.loads((jobs[0] / "run.json").read_text())
    (jobs[0] / "run.json").write_text(json.dumps(record | {"status": "running"}))
    before = (jobs[1] / "run.json").read_bytes()
    again = sweep("seed=1,2,3")
    assert again.returncode == 0, again.stderr
    assert f"{jobs[1]}: " in again.stderr
    assert (jobs[1] / "run.json").read_bytes() == before
    printed = [line for line in again.stdout.splitlines() if line in map(str, jobs)]
    assert printed == [str(jobs[0]), str(jobs[2])]  # not the one before again for the one that is skipped
    ended = records(tmp_path)
    assert [(run["seed"], run["status"]) for run in ended] == [(seed, "finished") for seed in (1, 2, 3)]
    assert ["resumed" in run for run in ended] == [True, False, False]
    assert all((job / "best" / "model.safetensors").is_file() for job in jobs)


@pytest.mark.slow
def test_a_search_without_a_folder_is_that_of_its_study(tmp_path: Path, tiny_path: Path) -> None:
    """An empty file, which a kill left before the study's first record, is begun with; a lost one is not."""
    write(tmp_path / "train.csv", PAIRS)
    folder = tmp_path / "checkpoints" / "searches" / "search"
    write(folder / "study.db", "")
    options = (*SEARCH.split(), "trainer.max_steps=1", "device=cpu", f"model={tiny_path}")
    done = run("train", *options, cwd=tmp_path, environment=HERE)
    assert done.returncode == 0, done.stderr
    assert (folder / "0" / "best").is_dir()
    (folder / "study.db").unlink()
    done = run("train", *options, cwd=tmp_path, environment=HERE)
    assert done.returncode == 2
    assert_explained(done, "checkpoints/searches/search/study.db")


@pytest.mark.slow
def test_beside_a_module_named_train(tmp_path: Path) -> None:
    """A script uses its own `train.py` and this package, in either order."""
    write(tmp_path / "train.py", "MINE = 1\n")
    for first, then in (("idiomtune as it", "train"), ("train", "idiomtune as it")):
        write(
            tmp_path / "script.py", f"import {first}\nimport {then}\nprint(it.check.__module__, train.MINE)\n"
        )
        done = run("script.py", cwd=tmp_path, environment=HERE, cold=True)
        assert done.stdout.split() == ["idiomtune.api", "1"], done.stderr


@pytest.mark.slow
def test_the_console_command(tmp_path: Path) -> None:
    """A `train.py` of the user's own is not in its way; modules beside it can be named."""
    write(tmp_path / "train.py", "raise SystemExit('the wrong one')\n")
    write(tmp_path / "mine.py", "NOTHING = 1\n")
    command = "from idiomtune.cli import main; main()"
    write(tmp_path / "program.py", f"import sys; sys.path[0] = {str(ROOT)!r}; {command}\n")

    def idiomtune(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run(str(tmp_path / "program.py"), *arguments, cwd=tmp_path)

    described = idiomtune("--help").stdout
    assert all(f"  {name} " in described for name in PROGRAMS)
    assert idiomtune("--version").stdout.strip() == f"idiomtune {__version__}"
    assert_explained(idiomtune("evalute"), "'evalute'", "idiomtune evaluate")
    assert "+experiment=" in idiomtune("train").stdout
    assert_explained(idiomtune("evaluate", "extensions=[mine]"), "mine declares nothing")
    assert_explained(idiomtune("report", "nowhere"), "nowhere")
