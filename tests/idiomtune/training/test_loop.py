"""The training loop: learning, what a run leaves, best, patience, failures."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from idiomtune.benchmarks.suite import Suite
from idiomtune.errors import UserError
from idiomtune.io.run_files import checkpoints
from idiomtune.objectives import ObjectiveLoss
from idiomtune.objectives.contrastive import ContrastiveObjective
from idiomtune.training.checkpoint import read_state
from tests.programs import refused
from tests.tiny_runs import KEY, metrics, train, weights


@pytest.mark.slow
@pytest.mark.usefixtures("shown")
def test_a_run_leaves_the_folder_that_was_promised(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    best = train(folder, [*options, "eval.per_query=true"], draws=True)
    run = json.loads((folder / "run.json").read_text())
    assert run["status"] == "finished"
    assert run["seed"] == 42
    assert run["sample"] is True
    assert len(run["data"]) == 4
    assert yaml.safe_load((folder / "config.yaml").read_text())["trainer"]["batch_size"] == 48

    lines = metrics(folder)
    steps = [line for line in lines if "loss" in line]
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5, 6]
    assert all(math.isfinite(line["loss"]) and line["grad_norm"] > 0 for line in steps)
    scored = [line for line in lines if "scores" in line]
    assert [line["step"] for line in scored] == [3, 6]
    assert steps[-1]["loss"] < steps[0]["loss"]

    card = json.loads((folder / "scores.json").read_text())
    assert card["scores"].keys() == card["baseline"].keys()
    assert "SAMPLE" in card["meta"]["data"]
    assert card["scores"][KEY] == best == max(line["scores"][KEY] for line in scored)
    assert json.loads((folder / "step_6" / "scores.json").read_text())["scores"] == scored[-1]["scores"]
    assert [read_state(path).epoch for path in checkpoints(folder)] == [1, 2]

    assert len((folder / "per_query" / "idiolink.jsonl").read_text().splitlines()) == 48
    before = [json.loads(r) for r in (folder / "per_query_baseline/idiolink.jsonl").read_text().splitlines()]
    mean = sum(record["ndcg@10"] for record in before) / len(before)
    assert card["baseline"][KEY] == pytest.approx(mean)
    page = (folder / "report.html").read_text(encoding="utf-8")
    figures = {path.name for path in (folder / "plots").iterdir()}
    assert figures == {"learning_curve.png", "idiolink_recall.png"}
    assert page.count("data:image/png") == 1
    assert "untrained" in capsys.readouterr().out
    assert not list(folder.rglob("*.bin")) + list(folder.rglob("*.pt")) + list(folder.rglob("*.pkl"))

    best_step = card["meta"]["checkpoint"]
    ours, theirs = weights(folder / "best"), weights(folder / best_step)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert not (folder / "best" / "optimizer.safetensors").exists()


@pytest.mark.slow
def test_lower_precision_learns_and_saves_float32_weights(tmp_path: Path, options: list[str]) -> None:
    train(tmp_path / "run", [*options, "precision=bf16", "eval.every=end"])
    lines = metrics(tmp_path / "run")
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0]
    assert [line["step"] for line in lines if "scores" in line] == [6]
    assert {w.dtype for w in weights(tmp_path / "run" / "best").values()} == {torch.float32}
    assert json.loads((tmp_path / "run" / "run.json").read_text())["precision"] == "bf16"


def test_max_steps_ends_a_run_normally_and_the_schedule_with_it(tmp_path: Path, options: list[str]) -> None:
    train(tmp_path / "run", [*options, "trainer.max_steps=4", "eval.every=3", "trainer.warmup_ratio=0"])
    lines = metrics(tmp_path / "run")
    assert [line["step"] for line in lines if "scores" in line] == [3, 4]
    rates = [line["lr"] for line in lines if "lr" in line]
    assert rates == pytest.approx([1e-3, 0.75e-3, 0.5e-3, 0.25e-3])
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


# What the model or the data must have, and the option that is named if they do not.
REFUSED = {
    "objective.query_mode=masked_sentence objective.mask='<mask>'": r"objective\.mask='<mask>'",
    "forgetting.distillation=0.5 objective.document_mode=span": r"objective\.document_mode",
    "trainer.idiom_tokens_learning_rate=0.01": r"model\.idiom_tokens=",
    "trainer.only_idiom_tokens=true": r"model\.idiom_tokens=",
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_options_that_do_not_fit_are_refused_before_training(
    tmp_path: Path, options: list[str], wrong: str
) -> None:
    with pytest.raises(UserError, match=REFUSED[wrong]):
        train(tmp_path / "run", [*options, *wrong.split()])
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_training_idioms_must_be_unseen_in_every_split(
    tmp_path: Path, options: list[str], sample_root: Path
) -> None:
    shutil.copytree(sample_root, tmp_path / "data")
    shutil.copytree(sample_root / "train", tmp_path / "data" / "extra")
    with pytest.raises(UserError, match="extra and train"):
        train(
            tmp_path / "run", [*(o for o in options if o != "data=sample"), f"data.idiolink={tmp_path}/data"]
        )


def test_training_on_scored_queries_is_a_warning(
    tmp_path: Path, options: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    train(tmp_path / "run", [*options, "objective.split=val", "trainer.max_steps=1"])
    assert "idioms that the model has seen" in caplog.text


def test_not_finite_loss_names_the_batch_and_what_is_saved(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Suite.run

    def poison_after_scoring(self: Suite, encoder: Any, **rest: Any) -> Any:
        result = real(self, encoder, **rest)
        if (tmp_path / "run" / "baseline.json").exists():
            with torch.no_grad():
                next(encoder.parameters())[:] = math.nan
        return result

    monkeypatch.setattr(Suite, "run", poison_after_scoring)
    chosen = [*options, "eval.every=2"]
    error = refused(lambda: train(tmp_path / "run", chosen), "loss is nan at step 3 (epoch 1)")
    batch = json.loads((tmp_path / "run" / "nonfinite_batch.json").read_text())
    assert len(batch["anchors"]) == 48
    named = ["48 anchors", batch["anchors"][0], "model.0.model.embeddings.word"]
    assert all(part in str(error) for part in (*named, str(tmp_path / "run" / "step_2")))
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["status"] == "failed"
    assert "loss is nan" in run["error"]


def test_not_finite_gradient_names_all_micro_batches(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finite loss with an infinite gradient, as from the square root at 0."""
    real = ContrastiveObjective.loss

    def steep(self: ContrastiveObjective, embeddings: torch.Tensor, batch: Any) -> ObjectiveLoss:
        result = real(self, embeddings, batch)
        return ObjectiveLoss(result.loss + (embeddings.sum() * 0).sqrt())

    monkeypatch.setattr(ContrastiveObjective, "loss", steep)
    with pytest.raises(UserError, match=r"gradient norm is nan at step 1 .* 48 anchors"):
        train(tmp_path / "run", [*options, "trainer.accumulation=2"])
    assert not checkpoints(tmp_path / "run")
