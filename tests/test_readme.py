"""What the README shows runs as it stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch

from tests.test_structure import ROOT
from train.cli import config_names
from train.data.idiolink import Document
from train.encoder import Encoder

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def run(code: str, model: Path) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(code.replace("checkpoints/idiolink_ft/<run>/best", str(model)), names)
    return names


def test_both_ways_to_a_span_embedding_agree(tiny_path: Path) -> None:
    ours = run(next(b for b in blocks("python") if "from train import Encoder" in b), tiny_path)
    plain = run(next(b for b in blocks("python") if "import SentenceTransformer" in b), tiny_path)
    torch.testing.assert_close(ours["spans"][0], plain["embedding"].cpu(), atol=1e-6, rtol=0)
    assert ours["sentences"].shape == (2, Encoder.from_pretrained(tiny_path).dimension)


def test_loss_alone(tiny_path: Path) -> None:
    names = run(next(b for b in blocks("python") if "from idiomloss" in b), tiny_path)
    assert names["loss"].isfinite()
    assert names["masks"].num_false_negatives == 2  # the first two anchors share idiom and meaning


def test_record_is_one() -> None:
    (record,) = blocks("json")
    assert Document.model_validate(json.loads(record)).usage == "idiomatic"


def test_every_experiment_is_in_the_table() -> None:
    for name in config_names("experiment"):
        assert f"| `{name}` |" in README


def test_targets_and_options_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([a-z-]+)", README):
        assert f"\n{target}:" in makefile


def test_no_figure_is_left_open() -> None:
    for path in (ROOT / "README.md", ROOT / "RESULTS.md"):
        assert not re.findall(r"@@\w*@@", path.read_text(encoding="utf-8")), path
