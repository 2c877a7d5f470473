"""The worked examples of docs/ (adding a loss, adding a benchmark), put into a copy of the project."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.doc_pages import page_files, put_into
from tests.programs import ROOT

# In one process: importing the libraries is most of the time.
SCRIPT = """
import sys
from pathlib import Path
import pytest
if pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "tests"]):
    sys.exit("the examples' tests fail")
import train
assert Path(train.__file__).is_relative_to(Path.cwd())
from train.config.compose import compose_config
from train.evaluate import run as evaluate
from train.recipes.fine_tune import fine_tune
from train.runs.folder import RunFolder
from train.config import TrainSettings, check
model = ["data=sample", "device=cpu", "model=pretrained", f"model.path={sys.argv[1]}"]
config = compose_config(
    "config", "+experiment=contrast", *model, "benchmark=[semeval2022,rewording]", "trainer.max_steps=2",
    "eval.every=end",
)
fine_tune(check(TrainSettings, config), config, "contrast", RunFolder(Path("run")))
evaluate(compose_config("evaluate", "benchmark=[rewording]", *model, "output=scores.json"))
"""


def test_they_train_and_score_as_they_stand(tmp_path: Path, tiny_path: Path) -> None:
    for folder in ("train", "idiomloss", "conf"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    touched = [
        path
        for page in ("adding-a-loss", "adding-a-benchmark")
        for path in put_into(tmp_path, page_files(ROOT / "docs" / f"{page}.md"))
    ]
    (tmp_path / "run").mkdir()

    def python(*arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    code = sorted({str(path) for path in touched if path.suffix == ".py"})
    assert len(code) > 10
    python("-m", "ruff", "check", *code)
    python("-m", "ruff", "format", "--check", *code)
    python("-c", SCRIPT, str(tiny_path))
    trained = json.loads((tmp_path / "run" / "scores.json").read_text(encoding="utf-8"))
    for scores in (trained["scores"], trained["baseline"]):
        assert 0 <= scores["rewording/val/accuracy"] <= 1
    steps = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [s["step"] for s in steps if "loss" in s] == [1, 2]
    scored = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert list(scored["scores"]) == ["rewording/val/accuracy"]
