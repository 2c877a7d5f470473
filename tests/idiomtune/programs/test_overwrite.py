"""`overwrite=true` replaces the file that is named; without it, and of folders, nothing is replaced."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import idiomtune as it
from tests.dictionaries import write_extract
from tests.own_data import write
from tests.planted_runs import plant
from tests.programs import main_of, refused, run
from tests.tiny_runs import KEY

QUICK: dict[str, Any] = {"data": "sample", "benchmark.idiolink.bm25_modes": []}
QUICK |= {"benchmark.idiolink.query_modes": ["sentence"]}
Make = Callable[..., object]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted") / "run"
    plant(folder, scores={KEY: 0.5}, baseline={})
    return folder


# Names of files → what writes them in a folder, of a model or a run, with these options.
MAKERS: dict[str, Make] = {
    "output.json queries.jsonl": lambda f, m, _, **o: it.evaluate(
        m, "idiolink", output=f / "output.json", per_query=f / "queries.jsonl", **QUICK, **o
    ),
    "page.html": lambda f, m, _, **o: it.explore(m, corpus="sample", output=f / "page.html", **o),
    "idioms.parquet": lambda f, *_, **o: it.glossary(
        "wiktionary", f / "idioms.parquet", path="words.jsonl", **o
    ),
    "report.html table.md table.csv table.tex": lambda f, _, run, **o: it.report(run, output=f, **o),
}


def test_a_file_in_the_way_is_told_before_anything_is_imported(tmp_path: Path) -> None:
    write(tmp_path / "taken" / "table.csv", "mine")
    code = "from idiomtune.cli import main\nimport sys\n"
    code += "try: main(['report', 'nowhere', 'output=taken'])\nexcept SystemExit as end: status = end.code\n"
    code += "sys.exit(10 * status + ('pandas' in sys.modules))"
    script = write(tmp_path / "start.py", code)
    done = run(str(script), cwd=tmp_path, cold=True)
    assert (done.returncode, "taken" in done.stderr) == (20, True)


@pytest.mark.slow
@pytest.mark.parametrize("names", MAKERS)
def test_a_file_in_the_way_is_replaced_only_if_the_user_says_so(
    names: str, in_folder: Path, tiny_path: Path, planted: Path
) -> None:
    write_extract(Path("words.jsonl"))
    folder = in_folder / "out"

    def make(**options: bool) -> object:
        return MAKERS[names](folder, tiny_path, planted, **options)

    folder.mkdir()
    make()
    made = {name: (folder / name).read_bytes() for name in names.split()}
    for name in made:
        (folder / name).unlink()
    for name, ours in made.items():
        for content in (ours, b"mine"):  # an earlier output of the program, too
            (folder / name).write_bytes(content)
            refused(make, name, "overwrite=true")
            assert (folder / name).read_bytes() == content
        (folder / name).unlink()
        (folder / name).mkdir()
        refused(lambda: make(overwrite=True), name)
        (folder / name).rmdir()
    for name in made:
        (folder / name).write_bytes(b"mine")
    make(overwrite=True)
    assert all((folder / name).read_bytes() != b"mine" for name in made)
    assert not [*folder.glob(".*")]


def test_a_report_replaces_its_files_in_its_own_place(planted: Path, tmp_path: Path) -> None:
    run_ = Path(shutil.copytree(planted, tmp_path / "run"))
    for _ in range(2):
        it.report(run_)
    it.report(run_, output=tmp_path / "else")
    refused(lambda: it.report(run_, output=tmp_path / "else"), "overwrite=true")
    refused(lambda: it.report(run_, overwrite="yes"), "overwrite")


def test_a_new_folder_writes_through_no_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "config.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    assert main_of("new")([str(tmp_path / "project")]) == 2
    assert "config.yaml" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere.yaml").exists()
