"""`idiomtune.extend`: what those who bring a part of their own import."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cosine_similarity

import idiomtune as it
from idiomtune import extend
from idiomtune.testing import check_objective
from tests.own_data import STS, write, write_collection
from tests.programs import ROOT

MODULE = """
from idiomtune.extend import DatasetType, PairsOptions, RetrievalOptions, benchmark


@benchmark("proverbs", title="Proverbs")
class ProverbOptions(PairsOptions):
    pass


@benchmark("sayings", title="Sayings")
class SayingOptions(RetrievalOptions):
    pass


DECLARED = [
    DatasetType("proverbs", title="Proverbs", licence="cc0-1.0"),
    DatasetType("sayings", title="Sayings", licence="cc0-1.0"),
]
"""


@pytest.mark.usefixtures("in_folder")
def test_a_benchmark_of_a_kind_is_its_data_and_a_class(tiny_path: Path) -> None:
    """It scores as `own_sts` and `own_retrieval` score the same files; a split that is not there is named."""
    Path("my_kinds.py").write_text(MODULE, encoding="utf-8")
    write(Path("pairs/val.csv"), STS)
    write_collection(Path("found/val"))
    own = {"own_sts": {"path": {"val": "pairs/val.csv"}}, "own_retrieval": {"path": {"val": "found/val"}}}
    same: dict[str, Any] = {"device": "cpu", "cache": False}
    expected = it.evaluate(tiny_path, [*own], benchmark=own, **same)
    ours: dict[str, Any] = {
        "benchmark": {name: {"name": name, "split": ["val"]} for name in ("proverbs", "sayings")},
        "data": {"proverbs": "pairs", "sayings": "found"},
    }
    arguments = ("extensions=[my_kinds]", "benchmark=[]")
    scores = it.evaluate(tiny_path, None, *arguments, "output=scores.json", **ours, **same)
    names = {"proverbs": "own_sts", "sayings": "own_retrieval"}
    assert {f"{names[key.split('/')[0]]}/{key.partition('/')[2]}": scores[key] for key in scores} == expected
    files = {*map(Path, json.loads(Path("scores.json").read_text())["meta"]["files"])}
    read = {Path("pairs/val.csv"), *(path for path in Path("found/val").rglob("*") if path.is_file())}
    assert {path.resolve() for path in files} == {path.resolve() for path in read}
    ours["benchmark"]["proverbs"]["split"] = ["test"]
    with pytest.raises(it.UserError, match=r"test.*proverbs|proverbs.*test"):
        it.evaluate(tiny_path, ["proverbs"], *arguments, **ours, **same)


class Near(extend.BaseObjective):
    """Draws each text to the one with its number."""

    def batch(self, epoch: int, anchors: Sequence[int]) -> extend.Batch:  # noqa: ARG002
        texts = [f"{word} {anchor}" for word in ("cat", "dog") for anchor in anchors]
        return extend.Batch([extend.EmbeddingRequest(text) for text in texts], [*map(str, anchors)], None)

    def loss(self, embeddings: torch.Tensor, batch: extend.Batch) -> extend.ObjectiveLoss:  # noqa: ARG002
        first, second = embeddings.chunk(2)
        return extend.ObjectiveLoss(1 - cosine_similarity(first, second).mean())


def test_a_base_objective_needs_a_batch_and_a_loss() -> None:
    passed = check_objective(lambda seed: Near(12, batch_size=4, seed=seed))
    assert passed
    steps = Near(10, batch_size=4, seed=1).epoch_steps(0, 2)
    assert sorted(anchor for step in steps for part in step for anchor in part) == [*range(10)]
    assert [[len(part) for part in step] for step in steps] == [[2, 2], [2, 2], [1, 1]]
    assert Near(10, batch_size=4, seed=1).epoch_steps(1, 2) != steps


def test_it_imports_nothing_heavy() -> None:
    code = "import sys, idiomtune.extend; print({*sys.modules} & {'torch', 'numpy'})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
