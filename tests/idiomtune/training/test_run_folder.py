"""Whose a run folder is, what it is called, and how runs end: nobody writes into it without its lock."""

import itertools
import os
import re
import signal
from pathlib import Path
from typing import NoReturn

import pytest

from idiomtune.errors import UserError
from idiomtune.io.files import free_name
from idiomtune.io.outputs import TakenError
from idiomtune.training.interrupts import stop_requests
from idiomtune.training.run_folder import RunFolder
from idiomtune.training.start import run_name
from tests.programs import ROOT, run
from tests.tiny_runs import train


def test_who_loses_a_folder_leaves_it_as_it_is(tmp_path: Path) -> None:
    winner = RunFolder(tmp_path / "run", start={"mine": ""})
    with winner.reserve(resume=False):
        winner.start({}, experiment="x", seed=1)
        # The lock is opened by both, which older releases of filelock write down as a change.
        before = {p: p.stat().st_mtime_ns for p in winner.path.rglob("*") if p.name != ".lock"}
        loser = RunFolder(tmp_path / "run", start={"theirs": ""}, is_new=True)
        with pytest.raises(TakenError), loser.reserve(resume=False):
            pass
        after = {p: p.stat().st_mtime_ns for p in winner.path.rglob("*") if p.name != ".lock"}
        assert after == before


def test_a_chosen_name_that_is_taken_is_followed_by_the_next(tmp_path: Path) -> None:
    runs = [RunFolder(tmp_path / "run", chosen=True) for _ in range(3)]
    with runs[0].reserve(resume=False), runs[1].reserve(resume=False):
        assert [r.path.name for r in runs] == ["run", "run-2", "run"]
        runs[0].start({}, experiment="x", seed=1)
        runs[0].end("finished")
    with runs[2].reserve(resume=False):  # nobody holds "run" any more, but it holds a run
        assert runs[2].path.name == "run-2"
    assert [p.name for p in itertools.islice(free_name(Path("a/run")), 3)] == ["run", "run-2", "run-3"]


@pytest.mark.parametrize("leaves", [None, "run.json", "baseline.json"])
def test_a_mistake_leaves_a_folder_only_with_a_result(tmp_path: Path, leaves: str | None) -> None:
    run_ = RunFolder(tmp_path / "checkpoints" / "run", start={"overrides.yaml": ""}, chosen=True)

    def mistake() -> NoReturn:
        if leaves is not None:
            run_.start({}, experiment="x", seed=1)
            run_.end("failed")
            (run_.path / leaves).touch()
        raise UserError("mistake")

    with pytest.raises(UserError, match="mistake"), run_.reserve(resume=False):
        mistake()
    assert (run_.path / "run.json").exists() == (leaves == "baseline.json")
    assert any(tmp_path.iterdir()) == (leaves == "baseline.json")


def test_a_run_is_replaced_only_where_that_is_asked_for(tmp_path: Path) -> None:
    """With all that it has written; a folder without a run is not emptied."""
    folder, other = tmp_path / "run", tmp_path / "other"
    for path in (folder, other):
        (path / "best").mkdir(parents=True)
        (path / "best" / "model").touch()
    (folder / "run.json").write_text('{"status": "finished", "sums": {"best/model": ""}}')
    with pytest.raises(UserError, match="overwrite=true"), RunFolder(folder).reserve(resume=False):
        pass
    with RunFolder(folder).reserve(resume=False, overwrite=True):
        assert {path.name for path in folder.iterdir()} <= {".lock", "train.log"}
    with pytest.raises(UserError, match="best"):
        RunFolder(other).reserve(resume=False, overwrite=True).__enter__()
    assert (other / "best" / "model").exists()


@pytest.mark.parametrize("name", ["config.yaml", "report.html", "scores.json", "run.json", "best/model.bin"])
@pytest.mark.parametrize("overwrite", [True, False])
def test_a_new_run_replaces_no_file_of_the_users(tmp_path: Path, name: str, overwrite: bool) -> None:
    """A folder of a project may have files of the same names."""
    file = tmp_path / "run" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    with pytest.raises(UserError, match=name.partition("/")[0]):
        RunFolder(tmp_path / "run").reserve(resume=False, overwrite=overwrite).__enter__()
    assert file.read_text() == "mine"


def test_what_else_is_in_a_runs_folder_stays(tmp_path: Path) -> None:
    for name in ("run.json", "notes.txt", "step_3/model", "data/train.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"status": "finished"}')
    with RunFolder(tmp_path).reserve(resume=False, overwrite=True):
        assert {path.name for path in tmp_path.iterdir()} <= {".lock", "train.log", "notes.txt", "data"}


def test_a_lock_in_a_folder_that_is_gone_is_no_lock(tmp_path: Path) -> None:
    """Whoever holds a removed lock file must not think that he has the folder."""
    first = RunFolder(tmp_path / "run", is_new=True)
    with pytest.raises(UserError, match="slip"), first.reserve(resume=False):
        raise UserError("slip")
    with RunFolder(tmp_path / "run").lock(), pytest.raises(TakenError):
        RunFolder(tmp_path / "run").lock().__enter__()


@pytest.mark.parametrize("name", [".lock", "run.json", "best"])
def test_nothing_is_written_through_a_link(tmp_path: Path, options: list[str], name: str) -> None:
    outside = tmp_path / "precious"
    file = outside / "file" if name == "best" else outside
    file.parent.mkdir(exist_ok=True)
    file.write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(outside)
    with pytest.raises(UserError):
        train(tmp_path / "run", options)
    assert file.read_text() == "precious"


def test_requests_to_stop_are_noted_until_the_step_is_finished() -> None:
    """SIGTERM to every process, and again by the launcher that got it too; a second SIGINT stops at once."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with stop_requests() as asked:
        assert not asked()
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert asked()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "status", "named"),
    [
        ("raise ZeroDivisionError('a bug')", 1, "ZeroDivisionError: a bug"),
        ("raise KeyboardInterrupt('stopped after step 3')", 130, "stopped after step 3"),
    ],
)
def test_how_a_program_ends(tmp_path: Path, task: str, status: int, named: str) -> None:
    """Started as `idiomtune train` is: with a message, and a bug's traceback in a file."""
    (tmp_path / "start.py").write_text(
        "import idiomtune.cli as cli\n"
        f"def task(*_): {task}\n"
        "cli.settings_of = task\n"
        "cli.main(['train', 'run_dir=run'])\n"
    )
    done = run(str(tmp_path / "start.py"), cwd=tmp_path, environment={"PYTHONPATH": str(ROOT)})
    assert done.returncode == status
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    if status == 1:
        file = Path(done.stderr.split("The traceback is in ")[1].split("\n")[0])
        assert "in task" in file.read_text()
        file.unlink()


def test_damaged_lines_of_the_log_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"st\n\xff\n[2]\n{"step": 3}\n{"step": 4')
    assert RunFolder(tmp_path).metrics() == [{"step": 1}, {"step": 3}]
    assert "metrics.jsonl" in caplog.text


OPTIONS = "_o_0-value_0_o_1-value_1_o_2-value_2_o_3-value_3"


def test_a_run_is_named_by_what_differs() -> None:
    for overrides, ending in (
        ([], ""),
        (["+experiment=idiolink_ft", "trainer.batch_size=64", "seed=3"], "_seed-3_batch_size-64"),
        (["data.idiolink=/home/me/data", "device=cpu", "hub.repo_id=me/x", "tracking=wandb"], ""),
        (["model=pretrained", "model.path='/home/me/models/mine'"], "_model-mine"),
        # cut between options
        ([*(f"objective.o_{i}=value_{i}" for i in range(9)), "seed=7"], "_seed-7" + OPTIONS),
        (["seed=3", "name='my run/1'"], "_my-run-1"),  # a chosen name stands for the options
        (["seed=3", "name=日本"], "_seed-3"),  # nothing of it can be in a folder's name
    ):
        chosen = next((o.partition("=")[2].strip("'") for o in overrides if o.startswith("name=")), None)
        name = run_name(overrides, chosen)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d" + re.escape(ending), name), name
