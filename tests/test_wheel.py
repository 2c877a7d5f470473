"""The wheel carries `train`, `idiomloss`, `conf` and the sample, and works away from the clone."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.programs import ROOT


@pytest.mark.slow
def test_installed_wheel_works_elsewhere(tmp_path: Path, tiny_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for expected in (
        *("train/py.typed", "idiomloss/py.typed", "conf/config.yaml", "conf/experiment/idiolink_ft.yaml"),
        *("train/reports/report.html.j2", "train/hub/model_card.md.j2", "train/explorer/page.html.j2"),
        *("train/explorer/page.css", "train/explorer/page.js"),
        "train/data/sample/idiolink/train/indexes.json",
        "train/data/sample/semeval2022_task2b/SubTaskB/EvaluationData/dev.gold.csv",
        *("train/encoder/glossaries/idiolink.tsv", "conf/learn.yaml"),
        "train/data/sample/ncimp/human_compositionality scores.xlsx",
    ):
        assert expected in names
    assert not [name for name in names if name.startswith(("tests/", "checkpoints/"))]

    site = tmp_path / "site"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"),
            *("--target", str(site), str(wheel)),
        ],
        check=True,
        capture_output=True,
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "2"}

    def python(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=elsewhere,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = python("-c", "import train, idiomloss; print(train.__file__, idiomloss.__file__)")
    assert all(path.startswith(str(site)) for path in where.split())
    assert "idiolink_released" in python("-m", "train", "--help")
    model = (f"model.path={tiny_path}", "model.max_length=64")
    last = python(
        *("-m", "train", "+experiment=idiolink_ft", "+debug=smoke", "benchmark=[idiolink]", *model)
    ).splitlines()[-1]
    assert last.startswith(str(elsewhere / "checkpoints" / "idiolink_ft"))
    assert (Path(last) / "best" / "model.safetensors").is_file()
    assert python("-m", "train.report", last).splitlines()[-1] == last
    assert "Worst" in (Path(last) / "report.html").read_text(encoding="utf-8")
