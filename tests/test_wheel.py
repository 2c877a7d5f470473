"""The wheel carries all packages, `conf` and the sample, and works away from the clone; the losses' own."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import idiomtune
from tests.programs import ROOT
from tests.tiny_runs import WIDE


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


PACKAGES = ("idiomtune", "idiomloss", "train", "hydra_plugins")


@pytest.mark.slow
def test_installed_wheel_works_elsewhere(tmp_path: Path, tiny_path: Path) -> None:
    wheel, names = built(tmp_path, ROOT)
    packaged = {
        f"{above}{path.relative_to(ROOT)}"
        for folder, above in (*((name, "") for name in PACKAGES), ("conf", "idiomtune/"))
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {name for name in names if ".dist-info" not in name} == packaged
    assert packaged >= {"idiomtune/conf/train.yaml", "idiomtune/data/sample/idiolink/train/indexes.json"}
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)  # all that an installer does with it
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "2"}

    def python(*arguments: str) -> str:
        options: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
        done = subprocess.run([sys.executable, *arguments], cwd=elsewhere, env=environment, **options)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    (elsewhere / "train.py").write_text("raise SystemExit('the wrong one')\n", encoding="utf-8")
    assert python("-m", "idiomtune", "--version").strip() == f"idiomtune {idiomtune.__version__}"
    code = "import importlib.util as u; print(*(u.find_spec(n).origin for n in ('idiomtune', 'idiomloss')))"
    assert all(origin.startswith(str(site)) for origin in python("-c", code).split())
    (elsewhere / "train.py").unlink()
    options = ("+experiment=idiolink_ft", "+debug=smoke", "benchmark=[idiolink]", WIDE)
    last = python("-m", "train", *options, f"model.path={tiny_path}").splitlines()[-1]
    assert last.startswith(str(elsewhere / "checkpoints" / "idiolink_ft"))
    assert (Path(last) / "best" / "model.safetensors").is_file()
    assert "Worst" in (Path(last) / "report.html").read_text(encoding="utf-8")
