"""Whole trainings of a tiny model on the sample: learning, best, patience, resume, failures."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from tests.train.test_settings import composed
from train.checkpoint import checkpoints, latest_checkpoint, verify
from train.encoder import Encoder
from train.errors import UserError
from train.fine_tune import fine_tune
from train.interrupts import Interrupted
from train.objectives import ObjectiveLoss
from train.objectives.idiolink import IdioLinkObjective
from train.resume import saved_config
from train.runfolder import RunFolder
from train.schedule import num_warmup_steps, schedule
from train.settings import TrainSettings, check
from train.suite import Suite

KEY = "idiolink/val/sentence/ndcg@10"
VOLATILE = {"texts_per_second"}


@pytest.fixture
def options(tiny_path: Path) -> list[str]:
    """Two epochs of three steps on the sample, one query mode, no baseline modes to wait for."""
    return [
        "+experiment=idiolink_ft",
        "data=sample",
        "device=cpu",
        "model=pretrained",
        f"model.path={tiny_path}",
        "trainer.batch_size=48",
        "trainer.max_epochs=2",
        "trainer.learning_rate=1e-3",
        f"trainer.monitor={KEY}",
        "objective.query_mode=sentence",
        "benchmark.idiolink.query_modes=[sentence]",
        "benchmark.idiolink.bm25_modes=[]",
    ]


def train(folder: Path, options: list[str]) -> float:
    config = composed("config", *options)
    return fine_tune(check(TrainSettings, config), config, "idiolink_ft", folder)


def resume(folder: Path, *options: str) -> float:
    config = saved_config(folder, composed("config", *options), "default", options)
    return fine_tune(check(TrainSettings, config), config, "default", folder)


def metrics(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in VOLATILE} for line in lines]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def assert_same_run(a: Path, b: Path) -> None:
    """Bit-identical last weights and metrics."""
    assert metrics(a) == metrics(b)
    last = checkpoints(a)[-1].name
    assert last == checkpoints(b)[-1].name
    ours, theirs = weights(a / last), weights(b / last)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert json.loads((a / "scores.json").read_text()) | {"meta": 0} == json.loads(
        (b / "scores.json").read_text()
    ) | {"meta": 0}


def test_a_run_leaves_the_folder_that_was_promised(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    best = train(folder, [*options, "eval.per_query=true"])
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
    assert (folder / "plots" / "learning_curve.png").stat().st_size > 10_000
    rows = (folder / "per_query" / "idiolink.jsonl").read_text().splitlines()
    assert len(rows) == 12
    assert "before" in capsys.readouterr().out
    assert not list(folder.rglob("*.bin")) + list(folder.rglob("*.pt")) + list(folder.rglob("*.pkl"))

    best_step = card["meta"]["checkpoint"]
    model = SentenceTransformer(str(folder / "best"), device="cpu")
    assert model.encode(["He broke the ice."]).shape == (1, 32)
    ours, theirs = weights(folder / "best"), weights(folder / best_step)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert not (folder / "best" / "optimizer.safetensors").exists()


def test_same_seed_same_run_other_seed_another(tmp_path: Path, options: list[str]) -> None:
    train(tmp_path / "a", options)
    train(tmp_path / "b", options)
    train(tmp_path / "c", [*options, "seed=43"])
    assert_same_run(tmp_path / "a", tmp_path / "b")
    assert metrics(tmp_path / "a") != metrics(tmp_path / "c")


def test_accumulation_gives_the_gradient_of_the_whole_batch(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without dropout and in-batch negatives the parts of a batch add up, also of unequal ones."""
    monkeypatch.setattr(Encoder, "train", lambda self, *_: torch.nn.Module.train(self, False))
    own = [*options, "objective.loss.in_batch=none", "trainer.batch_size=60", "trainer.max_epochs=1"]
    train(tmp_path / "whole", own)
    train(tmp_path / "parts", [*own, "trainer.accumulation=5"])
    ours, theirs = (
        [line for line in metrics(tmp_path / name) if "loss" in line] for name in ("parts", "whole")
    )
    assert len(ours) == len(theirs) == 3  # 60, 60 and 24 anchors: the last in parts of 5 and 4
    for a, b in zip(ours, theirs, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-3)


@pytest.mark.parametrize("precision", ["bf16"])
def test_lower_precision_learns_and_keeps_float32_weights(
    tmp_path: Path, options: list[str], precision: str
) -> None:
    train(tmp_path / "run", [*options, f"precision={precision}"])
    losses = [line["loss"] for line in metrics(tmp_path / "run") if "loss" in line]
    assert losses[-1] < losses[0]
    assert {w.dtype for w in weights(tmp_path / "run" / "best").values()} == {torch.float32}
    assert json.loads((tmp_path / "run" / "run.json").read_text())["precision"] == precision


def test_max_steps_ends_a_run_normally_and_the_schedule_with_it(tmp_path: Path, options: list[str]) -> None:
    train(tmp_path / "run", [*options, "trainer.max_steps=4", "eval.every=3", "trainer.warmup_ratio=0"])
    lines = metrics(tmp_path / "run")
    assert [line["step"] for line in lines if "scores" in line] == [3, 4]
    rates = [line["lr"] for line in lines if "lr" in line]
    assert rates == pytest.approx([1e-3, 0.75e-3, 0.5e-3, 0.25e-3])
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


def test_patience_stops_and_the_best_stays(tmp_path: Path, options: list[str]) -> None:
    """No score can improve by 2, so patience counts from the first evaluation on."""
    train(
        tmp_path / "run",
        [*options, "trainer.max_epochs=9", "trainer.patience=2", "trainer.min_delta=2", "eval.every=1"],
    )
    scored = [line for line in metrics(tmp_path / "run") if "scores" in line]
    assert [line["step"] for line in scored] == [1, 2, 3]
    best = max(scored, key=lambda line: line["scores"][KEY])
    card = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert card["meta"]["checkpoint"] == f"step_{best['step']}"
    assert card["scores"] == best["scores"]


def test_resumed_after_its_patience_ran_out_a_run_trains_no_further(
    tmp_path: Path, options: list[str]
) -> None:
    """And `best/`, lost between saving and the end, is made again."""
    train(tmp_path / "run", [*options, "trainer.patience=1", "trainer.min_delta=2", "trainer.max_epochs=9"])
    before, best = metrics(tmp_path / "run"), weights(tmp_path / "run" / "best")
    shutil.rmtree(tmp_path / "run" / "best")
    resume(tmp_path / "run")
    assert metrics(tmp_path / "run") == before
    again = weights(tmp_path / "run" / "best")
    assert all(torch.equal(again[name], best[name]) for name in best)


def test_old_checkpoints_go_but_never_the_best_or_the_last(tmp_path: Path, options: list[str]) -> None:
    train(tmp_path / "run", [*options, "eval.every=1", "trainer.patience=null"])
    best = json.loads((tmp_path / "run" / "scores.json").read_text())["meta"]["checkpoint"]
    assert {path.name for path in checkpoints(tmp_path / "run")} == {best, "step_6"}
    assert all(verify(path) is None for path in checkpoints(tmp_path / "run"))


@pytest.mark.parametrize("at", ["mid-epoch", "epoch end"])
def test_interrupted_and_resumed_equals_uninterrupted(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """SIGTERM during a step: the step is finished and saved, and the resumed run ends bit for bit equal."""
    train(tmp_path / "whole", options)
    calls = 0
    real = IdioLinkObjective.loss

    def loss_then_signal(self: IdioLinkObjective, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == (2 if at == "mid-epoch" else 3):
            os.kill(os.getpid(), signal.SIGTERM)
        return real(self, *arguments)

    monkeypatch.setattr(IdioLinkObjective, "loss", loss_then_signal)
    with pytest.raises(Interrupted, match=r"go on with: python -m train resume="):
        train(tmp_path / "cut", options)
    assert json.loads((tmp_path / "cut" / "run.json").read_text())["status"] == "interrupted"
    saved = checkpoints(tmp_path / "cut")[-1]
    assert saved.name == ("step_2" if at == "mid-epoch" else "step_3")
    assert (saved / "scores.json").exists() == (at == "epoch end")
    monkeypatch.undo()
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_killed_between_checkpoints_repeats_the_lost_steps(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dies in the second epoch without saving: what was logged after the checkpoint is dropped."""
    train(tmp_path / "whole", options)
    real = IdioLinkObjective.loss
    calls = 0

    def loss_then_die(self: IdioLinkObjective, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise SystemExit("killed")
        return real(self, *arguments)

    monkeypatch.setattr(IdioLinkObjective, "loss", loss_then_die)
    with pytest.raises(SystemExit):
        train(tmp_path / "cut", options)
    assert len([line for line in metrics(tmp_path / "cut") if "loss" in line]) == 5
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "los')  # cut short by the kill
    monkeypatch.undo()
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_damaged_checkpoint_is_passed_over(
    tmp_path: Path, options: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    train(tmp_path / "run", [*options, "trainer.keep_checkpoints=5"])
    damaged = tmp_path / "run" / "step_6" / "optimizer.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    assert latest_checkpoint(tmp_path / "run") == tmp_path / "run" / "step_3"
    assert "step_6 is damaged (optimizer.safetensors is damaged)" in caplog.text


def test_killed_before_the_first_checkpoint_starts_again(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    train(tmp_path / "whole", options)
    real = IdioLinkObjective.loss
    calls = 0

    def loss_then_die(self: IdioLinkObjective, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise SystemExit("killed")
        return real(self, *arguments)

    monkeypatch.setattr(IdioLinkObjective, "loss", loss_then_die)
    with pytest.raises(SystemExit):
        train(tmp_path / "cut", options)
    monkeypatch.undo()
    resume(tmp_path / "cut")
    assert "starting again from step 0" in caplog.text
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_resumed_with_no_steps_left_scores_and_ends(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = IdioLinkObjective.loss

    def loss_then_signal(self: IdioLinkObjective, *arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return real(self, *arguments)

    monkeypatch.setattr(IdioLinkObjective, "loss", loss_then_signal)
    with pytest.raises(Interrupted):
        train(tmp_path / "run", options)
    monkeypatch.undo()
    resume(tmp_path / "run", "trainer.max_steps=1")
    card = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert card["meta"]["checkpoint"] == "step_1"


def test_resume_refuses_other_data(tmp_path: Path, options: list[str], sample_root: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(sample_root, data)
    own = [o for o in options if o != "data=sample"] + [f"data.root={data}", "trainer.max_steps=1"]
    train(tmp_path / "run", own)
    moved = data.rename(tmp_path / "elsewhere")
    shutil.copytree(moved, data)
    path = data / "train" / "queries.json"
    path.write_text(path.read_text(encoding="utf-8").replace("aboard", "on"), encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8") + " ", encoding="utf-8")
    with pytest.raises(UserError, match=r"train/queries\.json changed"):
        resume(tmp_path / "run", "trainer.max_steps=2")


def test_a_run_that_failed_before_any_checkpoint_can_be_started_over(
    tmp_path: Path, options: list[str]
) -> None:
    typo = [o for o in options if o != "data=sample"] + [f"data.root={tmp_path / 'missing'}"]
    with pytest.raises(UserError, match="no such folder"):
        train(tmp_path / "run", typo)
    train(tmp_path / "run", [*options, "trainer.max_steps=1"])
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


def test_two_processes_do_not_share_a_folder(tmp_path: Path, options: list[str]) -> None:
    with (
        RunFolder(tmp_path / "run").locked(),
        pytest.raises(UserError, match="another process is working"),
    ):
        train(tmp_path / "run", options)


def test_training_idioms_must_be_unseen_in_every_split(
    tmp_path: Path, options: list[str], sample_root: Path
) -> None:
    shutil.copytree(sample_root, tmp_path / "data")
    shutil.copytree(sample_root / "train", tmp_path / "data" / "extra")
    with pytest.raises(UserError, match="is in the splits extra and train"):
        train(
            tmp_path / "run", [o for o in options if o != "data=sample"] + [f"data.root={tmp_path / 'data'}"]
        )


def test_training_on_scored_queries_is_said(
    tmp_path: Path, options: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    train(tmp_path / "run", [*options, "objective.split=val", "trainer.max_steps=1"])
    assert "these scores are of idioms that the model has seen" in caplog.text


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path, options: list[str]) -> None:
    short = [*options, "trainer.max_steps=1"]
    train(tmp_path / "run", short)
    with pytest.raises(UserError, match="already holds a run: go on with it by resume="):
        train(tmp_path / "run", short)


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
    with pytest.raises(UserError) as caught:
        train(tmp_path / "run", [*options, "eval.every=2"])
    message = str(caught.value)
    assert "the loss is nan at step 3 (epoch 1), in the batch of 48 anchors" in message
    batch = json.loads((tmp_path / "run" / "nonfinite_batch.json").read_text())
    assert len(batch["anchors"]) == 48
    assert batch["anchors"][0] in message
    assert f"the last checkpoint is {tmp_path / 'run' / 'step_2'}" in message
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["status"] == "failed"
    assert "the loss is nan" in run["error"]


def test_not_finite_gradient_names_all_micro_batches(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finite loss with an infinite gradient, as from the square root at 0."""
    real = IdioLinkObjective.loss

    def steep(self: IdioLinkObjective, embeddings: torch.Tensor, batch: Any) -> ObjectiveLoss:
        result = real(self, embeddings, batch)
        return ObjectiveLoss(result.loss + (embeddings.sum() * 0).sqrt(), result.logs)

    monkeypatch.setattr(IdioLinkObjective, "loss", steep)
    with pytest.raises(UserError, match=r"the gradient norm is nan at step 1 .* 48 anchors"):
        train(tmp_path / "run", [*options, "trainer.accumulation=2"])
    assert not checkpoints(tmp_path / "run")


def test_full_disk_keeps_the_last_good_checkpoint(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = save_file
    calls = 0

    def full(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(28, "No space left on device")
        real(*arguments)

    monkeypatch.setattr("train.checkpoint.save_file", full)
    with pytest.raises(UserError, match=r"No space left on device.*whole: .*step_3"):
        train(tmp_path / "run", options)
    assert [p.name for p in tmp_path.joinpath("run").glob("*step_*")] == ["step_3"]
    monkeypatch.undo()
    resume(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


def test_schedule_equals_transformers() -> None:
    from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

    settings = check(TrainSettings, composed("config"))
    for name, reference in (
        ("linear", get_linear_schedule_with_warmup),
        ("cosine", get_cosine_schedule_with_warmup),
    ):
        trainer = settings.trainer.model_copy(update={"schedule": name, "warmup_ratio": 0.25})
        warmup = num_warmup_steps(trainer, 40)
        assert warmup == 10
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        theirs = reference(optimizer, warmup, 40)
        for step in range(40):
            assert schedule(trainer, step, warmup, 40) == pytest.approx(theirs.get_last_lr()[0])
            optimizer.step()
            theirs.step()
