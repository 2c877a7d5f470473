"""The wheel carries all packages, `conf` and the sample, and works away from the clone; the losses' own."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import idiomtune
from tests.programs import ROOT


def test_the_losses_have_a_wheel_of_their_own(tmp_path: Path) -> None:
    wheel, names = built(tmp_path, ROOT / "packaging" / "idiomloss")
    assert wheel.name.startswith(f"idiomloss-{idiomtune.__version__}-")
    sources = {f"idiomloss/{path.name}" for path in (ROOT / "idiomloss").glob("*.py")}
    assert {*sources, "idiomloss/py.typed", "idiomloss/LICENSE"} == {
        n for n in names if ".dist-info" not in n
    }


def built(folder: Path, source: Path) -> tuple[Path, set[str]]:
    """The wheel of a project, and what is in it."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)],
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel, set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.slow
def test_installed_wheel_works_elsewhere(tmp_path: Path, tiny_path: Path) -> None:
    wheel, names = built(tmp_path, ROOT)
    expected = {
        *("train/__main__.py", "idiomtune/py.typed", "idiomtune/__main__.py", "idiomloss/py.typed"),
        *(f"idiomtune/conf/{name}.yaml" for name in ("config", "experiment/idiolink_ft", "learn")),
        *("idiomtune/reports/report.html.j2", "idiomtune/hub/card.md.j2", "idiomtune/explorer/page.html.j2"),
        *(
            "idiomtune/explorer/page.css",
            "idiomtune/explorer/page.js",
            "idiomtune/encoder/glossaries/idiolink.tsv",
        ),
        *("idiomtune/start/config.yaml", "idiomtune/start/notebook.ipynb", "idiomtune/start/sentences.csv"),
        *("idiomtune/encoder/gates/minilm.json", "idiomtune/encoder/gates/LICENCE.md"),
        "idiomtune/data/published.tsv",
        "idiomtune/data/sample/idiolink/train/indexes.json",
        "idiomtune/data/sample/semeval2022_task2b/SubTaskB/EvaluationData/dev.gold.csv",
        "idiomtune/data/sample/ncimp/human_compositionality scores.xlsx",
    }
    assert expected <= names
    tops = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"idiomtune", "idiomloss", "train"}

    site = tmp_path / "site"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", *install, str(wheel)], check=True, capture_output=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "2"}

    def python(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=elsewhere, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    (elsewhere / "train.py").write_text("raise SystemExit('the wrong one')\n", encoding="utf-8")
    assert python("-m", "idiomtune", "--version").strip() == f"idiomtune {idiomtune.__version__}"
    where = python("-c", "import idiomtune, idiomloss; print(idiomtune.__file__, idiomloss.__file__)")
    assert all(path.startswith(str(site)) for path in where.split())
    (elsewhere / "train.py").unlink()
    assert "idiolink_released" in python("-m", "train", "--help")
    options = ("+experiment=idiolink_ft", "+debug=smoke", "benchmark=[idiolink]", "model.max_length=64")
    last = python("-m", "train", *options, f"model.path={tiny_path}").splitlines()[-1]
    assert last.startswith(str(elsewhere / "checkpoints" / "idiolink_ft"))
    assert (Path(last) / "best" / "model.safetensors").is_file()
    assert python("-m", "train.report", last).splitlines()[-1] == last
    assert "Worst" in (Path(last) / "report.html").read_text(encoding="utf-8")
