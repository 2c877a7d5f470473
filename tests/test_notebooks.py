"""The notebooks run, as shipped and from `idiomtune new`; what a notebook shows."""

from __future__ import annotations

import json
import re
import shutil
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import nbformat
import pytest

import idiomtune as it
from docs.notebooks import NOTEBOOKS, execute, read
from idiomtune.io.terminal import progress_bar
from idiomtune.programs.new import TEMPLATES
from tests.own_data import write
from tests.programs import ROOT, assert_explained, refused, run

pytestmark = pytest.mark.filterwarnings("ignore:zmq.eventloop:Warning")  # theirs
MODEL = "<a tiny model>"
TINY = {"MODEL": MODEL, "EPOCHS": 1}
SMALLER: dict[str, dict[str, object]] = {
    "1_twelve_idioms.ipynb": {"MODEL": MODEL, "OPTIONS": {"trainer": {"max_epochs": 1}}, "EPOCHS": 1},
    "2_published_table.ipynb": {**TINY, "DATA": "sample"},
    "3_your_own_parts.ipynb": TINY,
    "notebook.ipynb": {"OPTIONS": {"model": MODEL, "trainer": {"max_epochs": 1}, "device": "cpu"}},
}


def text_of(notebook: Any) -> str:
    return json.dumps([cell.get("outputs", []) for cell in notebook.cells])


@pytest.mark.slow
def test_notebooks_run(tmp_path: Path, tiny_path: Path) -> None:
    """Every cell, with a tiny model, in a folder of its own; one notebook after another, in one kernel."""
    shutil.copytree(TEMPLATES, tmp_path, dirs_exist_ok=True)
    smaller = json.loads(json.dumps(SMALLER).replace(MODEL, str(tiny_path)))
    notebooks = [read(path, **smaller[path.name]) for path in (*NOTEBOOKS, TEMPLATES / "notebook.ipynb")]
    together = copy(notebooks[0])
    together.cells = [cell for notebook in notebooks for cell in notebook.cells]
    execute(together, tmp_path)
    for shown in map(text_of, notebooks):
        assert "<table" in shown
        assert "Warning" not in shown.replace("**Warning:** on ", "")  # a card's: this training did not help
        assert "\\u001b[A" not in shown  # no bar that moves the cursor, which a notebook cannot


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_outputs_that_are_shipped_are_of_a_whole_run(path: Path) -> None:
    """In order, without errors, without paths or times of the machine that ran it."""
    notebook = read(path)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, 1 + len(cells)))
    shown = text_of(notebook)
    assert '"output_type": "error"' not in shown
    assert not re.findall(r"/(?:tmp|home|root|work|Users)/\w+", shown)
    assert not re.findall(r"\d\d:\d\d:\d\d ", shown)
    assert path.stat().st_size < 300_000
    for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", "".join(c.source for c in notebook.cells)):
        assert (path.parent / target).exists(), target
    assert (f"(../notebooks/{path.name})") in (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def test_a_bar_in_a_notebook_is_one_output_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    publish, clock = Mock(), Mock(return_value=1000.0)
    monkeypatch.setattr("tqdm.std.time", clock)
    monkeypatch.setattr("IPython.display.publish_display_data", publish)
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=None))
    with progress_bar("training", 4) as advance:
        for _ in range(4):
            clock.return_value += 3
            advance(1, note="loss 0.5")
    with progress_bar("scoring", 4) as advance:  # too short to be shown
        advance(4)
    states = [call.args[0]["text/plain"] for call in publish.mock_calls]
    assert all(part in states[1] for part in ("2/4", "loss 0.5"))
    assert not states[-1]  # it vanishes
    assert len({call.kwargs["transient"]["display_id"] for call in publish.mock_calls}) == 1
    assert [call.kwargs["update"] for call in publish.mock_calls] == [False] + [True] * (len(states) - 1)


@pytest.mark.usefixtures("in_folder")
def test_resume_without_a_name() -> None:
    """The newest unfinished run of any experiment; never a new run."""
    refused(it.resume)
    record = {"status": "interrupted", "experiment": "own"}
    write(Path("checkpoints/own/first/run.json"), json.dumps(record))
    refused(it.resume, "own/first/config.yaml")


def test_an_error_in_a_notebook_is_its_message() -> None:
    (line,) = refused(lambda: it.check("idiolink_ft", seed=1.5))._render_traceback_()
    assert line.startswith("UserError: ")
    assert "seed" in line


# ------------------------------------------------------------------------- a folder to start from


@pytest.mark.slow
def test_a_new_folder_runs_as_it_is_and_replaces_nothing(tmp_path: Path, tiny_path: Path) -> None:
    """Its commands with a tiny model; its notebook is run above."""
    started = tmp_path / "my idioms"
    done = run("idiomtune", "new", str(started), cwd=tmp_path)
    assert f"{started}/sentences.csv" in done.stdout, done.stderr
    names = "config.yaml glossary.tsv new_sentences.csv notebook.ipynb sentences.csv"
    assert sorted(path.name for path in started.iterdir()) == names.split()
    given = ("+experiment=config.yaml", f"model={tiny_path}", "device=cpu")
    done = run("idiomtune", "check", *given, cwd=started)
    assert "50 anchors of 10 groups" in done.stdout, done.stderr
    assert "left out: note" in done.stderr
    done = run("train", *given, "trainer.max_epochs=1", cwd=started)
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.splitlines()[-1])
    assert folder.parent == started / "checkpoints" / "config"
    assert run("train", f"resume={folder}", cwd=started).returncode == 0
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))["scores"]
    assert "own_val/span/ndcg@10" in scores
    before = (started / "config.yaml").stat().st_mtime_ns
    assert_explained(run("idiomtune", "new", str(started)), "config.yaml")
    assert (started / "config.yaml").stat().st_mtime_ns == before
    assert_explained(run("idiomtune", "new"), "folder")
    assert_explained(run("idiomtune", "new", str(started / "config.yaml" / "inside")), "config.yaml/inside")


# ------------------------------------------------------------------------- parts in a cell, or a script


SCRIPT = """
run = it.train(objective=CloserOptions(temperature=0.2), benchmark=[NearerOptions()], run_dir="run",
               trainer={"monitor": "nearer/margin", "max_steps": 2}, model=MODEL, device="cpu")
first = it.evaluate(MODEL, [NearerOptions()], device="cpu")["nearer/margin"]
assert run.scores["nearer/margin"] > run.untrained["nearer/margin"] == first
assert not run.compare().differences["nearer/margin"].problems
again = run.resume(trainer={"max_steps": 3})
assert again.status == "finished"
assert not again.compare().differences["nearer/margin"].problems  # not the old ones
exec(PARTS.replace('"margin": margin', '"margin": 2 * margin'))  # as a cell that is run again
assert it.evaluate(MODEL, [NearerOptions()], device="cpu")["nearer/margin"] == 2 * first
"""


@pytest.mark.slow
def test_parts_that_are_declared_in_a_script(tmp_path: Path, tiny_path: Path) -> None:
    """The notebook's; elsewhere the run is refused, until its parts are in a module."""
    (path,) = (path for path in NOTEBOOKS if "parts" in path.name)
    notebook = read(path)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    parts = "\n".join(cells[: next(number for number, cell in enumerate(cells) if "it.train" in cell)])
    parts, script = parts.replace('"minilm"', repr(str(tiny_path))), tmp_path / "script.py"
    script.write_text(f"PARTS = {parts!r}\n{parts}\n{SCRIPT}")
    done = run(str(script), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    config = (tmp_path / "run" / "config.yaml").read_text(encoding="utf-8")
    assert all(part in config for part in ("__main__", "temperature: 0.2"))
    elsewhere = ("train", "resume=run", "trainer.max_steps=4")
    assert_explained(run(*elsewhere, cwd=tmp_path), "extensions=")
    (tmp_path / "parts.py").write_text(parts)
    found = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = run(*elsewhere, "extensions=[parts]", cwd=tmp_path, environment=found)
    assert done.returncode == 0, done.stderr
