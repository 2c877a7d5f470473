"""A new run's folder, the run that is resumed, and how programs without a configuration end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from omegaconf import DictConfig

from idiomtune.config.compose import to_dict
from idiomtune.errors import UserError
from idiomtune.programs.call import call_of
from idiomtune.programs.failures import run_plain
from idiomtune.programs.run import read_settings, run_task
from idiomtune.training.resume import find_run
from tests.own_data import write


@pytest.fixture(autouse=True)
def here(in_folder: Path) -> Path:
    """The working folder, in which `mine` is a finished run."""
    write(in_folder / "mine" / "run.json", '{"status": "finished"}')
    return in_folder


@pytest.mark.parametrize("option", ["resume", "++resume"])
def test_resume_is_found_however_it_is_written(option: str) -> None:
    """`auto` is the newest unfinished run; there is none."""
    assert read_settings("train", ["data=sample", f"{option}=auto"]).resume is None


def folder_of(config: DictConfig) -> Path:
    of_run = call_of(to_dict(config, throw_on_missing=True), config, [])
    assert of_run is not None
    return of_run[1].run.path


def test_a_new_run_takes_no_folder_of_another(here: Path) -> None:
    for wrong, named in (("mine", "mine"), ("~nobody-here", "run_dir=~nobody-here"), ("a" * 300, "too long")):
        with pytest.raises(UserError, match=named):
            run_task("config", folder_of, [f"run_dir={wrong}"])
    write(here / "unfinished" / "run.json", '{"status": "failed"}')
    for free in ("run_dir=unfinished", "run_dir=new", "run_dir=mine overwrite=true", "hydra.run.dir=other"):
        given = free.split()[0].partition("=")[2]
        assert run_task("config", folder_of, free.split()) == here / given
    assert run_task("config", folder_of, ["run_dir=."]) == here
    assert not (here / "new").exists()


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


def test_a_run_that_failed_before_its_first_checkpoint_is_not_resumed(here: Path) -> None:
    failed, latest = here / "checkpoints/x/two", ["resume=auto", "+experiment=x"]
    write(failed / "run.json", '{"status": "failed"}')
    assert find_run(latest) is None
    (failed / "step_3").mkdir()
    assert find_run(latest) == "checkpoints/x/two"
    with pytest.raises(UserError, match="resume=~nobody-here"):
        find_run(["resume=~nobody-here"])
