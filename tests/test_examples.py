"""The examples run as they stand, with a tiny model; sentence-transformers' trainer learns by our losses."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)

from idiomloss.sentence_transformers import (
    AdaptiveTripletTrainerLoss,
    DistillationTrainerLoss,
    GroupBatchSampler,
    InfoNCETrainerLoss,
    RankingTrainerLoss,
    group_columns,
)
from idiomtune.integrations.sentence_transformers import SCORES_FILE
from tests.programs import run

ROOT = Path(__file__).resolve().parent.parent

# Theirs, of the trainer without an accelerator and of mteb with sentence-transformers 6.
pytestmark = [
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
    pytest.mark.filterwarnings("ignore:The `get_sentence_embedding_dimension`:FutureWarning"),
]


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "examples")])
    return importlib.import_module(name)


@pytest.mark.parametrize("name", ["infonce", "adaptive_triplet", "ranking"])
def test_trainer_examples(
    name: str, monkeypatch: pytest.MonkeyPatch, tiny_path: Path, tmp_path: Path
) -> None:
    example(name, monkeypatch).main(str(tiny_path), str(tmp_path))
    before, after = SentenceTransformer(str(tiny_path)), SentenceTransformer(str(tmp_path / "model"))
    assert any(not torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))
    if name != "ranking":
        lines = (tmp_path / "eval" / SCORES_FILE).read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["epoch"] for line in lines] == ([1.0] if name == "infonce" else [1.0, 2.0])


@pytest.mark.slow
def test_a_plug_in_trains_is_scored_and_reported(tiny_path: Path, tmp_path: Path) -> None:
    """The command of its docstring, with a tiny model; a report of the run knows what it declares."""
    folder = ROOT / "examples"

    def python(*arguments: str) -> None:
        environment = {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
        done = run(*arguments, cwd=folder, environment=environment)
        assert done.returncode == 0, done.stderr

    python(
        *("train", "--config-dir", "paraphrases/conf", "+experiment=paraphrases", f"model={tiny_path}"),
        *("device=cpu", "trainer.learning_rate=1e-2", f"run_dir={tmp_path / 'run'}"),
    )
    card = json.loads((tmp_path / "run" / "scores.json").read_text(encoding="utf-8"))
    assert 0 <= card["scores"]["paraphrases/val/accuracy"] <= 1
    assert card["scores"].keys() == card["baseline"].keys()
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    losses = [json.loads(line)["loss"] for line in lines if '"loss"' in line]
    assert losses[-1] < losses[0]
    python(
        "idiomtune",
        "report",
        str(tmp_path / "run"),
        "extensions=paraphrases",
        f"output={tmp_path / 'report'}",
    )
    assert "Paraphrases, val" in (tmp_path / "report" / "table.md").read_text(encoding="utf-8")


def test_metric_learning_example(monkeypatch: pytest.MonkeyPatch, tiny_path: Path) -> None:
    assert len(example("metric_learning", monkeypatch).main(str(tiny_path), "2")) == 2


def test_mteb_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tiny_path: Path, tmp_path: Path
) -> None:
    from idiomtune.integrations.mteb import IdioLinkRetrieval  # mteb takes seconds to import

    example("mteb_scores", monkeypatch).main(str(tiny_path), str(tmp_path))
    assert "IdioLink val default 0." in capsys.readouterr().out
    (written,) = tmp_path.rglob(f"{IdioLinkRetrieval.metadata.name}.json")
    assert json.loads(written.read_text())["scores"]["val"][0]["main_score"] > 0


TEXTS = ["He broke the ice with a joke.", "She spilled the beans.", "They hit the road.", "A red herring."]
OTHERS = ["He made them relax.", "She told the secret.", "They set off.", "It was misleading."]
ROWS: dict[str, dict[str, Any]] = {
    "infonce": {"anchor": TEXTS, "positive": OTHERS, "label": [[0, 1], [1, 1], [2, 1], [3, 1]]},
    "triplet": group_columns([(a, [b], [c]) for a, b, c in zip(TEXTS, OTHERS, OTHERS[::-1], strict=True)]),
    "ranking": {"query": TEXTS, "a": OTHERS, "b": OTHERS[::-1], "label": [[0, 1]] * 4},
    "distillation": {
        "sentence": TEXTS,
        "label": torch.randn(4, 32, generator=torch.Generator().manual_seed(0)).tolist(),
    },
}
LOSSES = {
    "infonce": InfoNCETrainerLoss,
    "triplet": AdaptiveTripletTrainerLoss,
    "ranking": RankingTrainerLoss,
    "distillation": DistillationTrainerLoss,
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_trainer_lowers_each_loss(name: str, tiny_path: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = SentenceTransformer(str(tiny_path), device="cpu")
    data = Dataset.from_dict(ROWS[name])
    options: dict[str, Any] = {"max_steps": 3, "learning_rate": 2e-3, "lr_scheduler_type": "constant"}
    options |= {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True}
    options["batch_sampler"] = GroupBatchSampler if name == "triplet" else "batch_sampler"
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(str(tmp_path), per_device_train_batch_size=12, **options),
        train_dataset=data,
        eval_dataset=data,
        loss=LOSSES[name](model),
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before - 1e-3
    assert trainer.state.global_step == 3
