"""A new run's folder, the run that is resumed, and how programs without a configuration end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from idiomtune import cli
from idiomtune.cli import configuration, read_settings
from idiomtune.errors import UserError
from idiomtune.training.resume import find_run
from idiomtune.training.start import run_of
from tests.own_data import write
from tests.programs import main_of


@pytest.fixture(autouse=True)
def here(in_folder: Path) -> Path:
    """The working folder, in which `mine` is a finished run."""
    write(in_folder / "mine" / "run.json", '{"status": "finished"}')
    return in_folder


@pytest.mark.parametrize("option", ["resume", "++resume"])
def test_resume_is_found_however_it_is_written(option: str) -> None:
    """`auto` is the newest unfinished run; there is none."""
    assert read_settings("train", ["data=sample", f"{option}=auto"]).resume is None


def folder_of(*words: str) -> Path:
    return run_of(configuration("train", words))[0].path


def test_a_new_run_takes_no_folder_of_another(here: Path) -> None:
    for wrong, named in (("mine", "mine"), ("~nobody-here", "run_dir=~nobody-here"), ("a" * 300, "too long")):
        with pytest.raises(UserError, match=named):
            folder_of(f"run_dir={wrong}")
    write(here / "unfinished" / "run.json", '{"status": "failed"}')
    for free in ("run_dir=unfinished", "run_dir=new", "run_dir=mine overwrite=true"):
        given = free.split()[0].partition("=")[2]
        assert folder_of(*free.split()) == here / given
    assert folder_of("run_dir=.") == here
    assert not (here / "new").exists()


def test_each_end_of_a_program_has_its_message_and_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main = main_of("find")

    def program(_: str, words: Sequence[str]) -> str:
        if words == ["wrong"]:
            raise UserError("wrong=: is wrong")
        if words == ["stop"]:
            raise KeyboardInterrupt
        return "the last line"

    monkeypatch.setattr(cli, "run", program)
    assert [main([way]) for way in ("fine", "wrong", "stop")] == [0, 2, 130]
    assert capsys.readouterr() == ("the last line\n", "error: wrong=: is wrong\ninterrupted\n")
    assert main(["wrong", "--help"]) == 0
    assert "glossary: [english]" in capsys.readouterr().out


def test_a_run_that_failed_before_its_first_checkpoint_is_not_resumed(here: Path) -> None:
    failed, latest = here / "checkpoints/x/two", ["resume=auto", "+experiment=x"]
    write(failed / "run.json", '{"status": "failed"}')
    assert find_run(latest) is None
    (failed / "step_3").mkdir()
    assert find_run(latest) == "checkpoints/x/two"
    with pytest.raises(UserError, match="resume=~nobody-here"):
        find_run(["resume=~nobody-here"])
