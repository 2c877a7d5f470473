"""Runs of the triplet and joint objectives on a tiny model: resumed, cut short, and without data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from tests.tiny_runs import KEY, WholeRun, at_loss, composed, metrics, resume, terminate, train
from train.config import EvaluateSettings, check
from train.data import sources
from train.data.sources import SAMPLE_ROOT
from train.encoder.encoder import Encoder
from train.errors import Interrupted, UserError
from train.objectives.triplets import TripletObjective
from train.programs.evaluate import score_model


def test_the_best_model_carries_its_pooling(triplet_options: list[str], whole_run: WholeRun) -> None:
    whole = whole_run(triplet_options)
    texts = ["He got cold feet.", "It is only red tape, said the man who waited longest of all of them."]
    best = str(whole / "best")
    theirs = SentenceTransformer(best, device="cpu").encode(texts, convert_to_tensor=True)
    ours = Encoder.from_pretrained(best, device="cpu").encode(texts)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    (layers,) = (whole / "best").glob("*WeightedLayerPooling*")
    assert layers.is_dir()


def test_a_joint_run_is_scored_and_logged_by_part(tmp_path: Path, joint_options: list[str]) -> None:
    train(tmp_path / "whole", joint_options)
    steps = [line for line in metrics(tmp_path / "whole") if "loss" in line]
    # Checkpoints are scored on what is monitored, the best and the untrained model on all.
    scored = [line["scores"] for line in metrics(tmp_path / "whole") if "scores" in line]
    assert {key.partition("/")[0] for scores in scored for key in scores} == {"idiolink"}
    final = json.loads((tmp_path / "whole" / "scores.json").read_text(encoding="utf-8"))
    for scores in (final["scores"], final["baseline"]):
        assert {key.partition("/")[0] for key in scores} == {"idiolink", "semeval2022"}
    for line in steps:
        (part,) = {key.partition("/")[0] for key in line if "/" in key}
        assert line[f"{part}/loss"] == line["loss"]
    assert {key.partition("/")[0] for line in steps for key in line if "/" in key} == {
        *("idiolink", "adaptive_triplet")
    }


def test_accumulation_cuts_between_groups(tmp_path: Path, triplet_options: list[str]) -> None:
    run_options = [*triplet_options, "objective.loss.scope=all", "trainer.max_steps=1"]
    train(tmp_path / "run", [*run_options, "trainer.accumulation=2"])
    (line,) = [line for line in metrics(tmp_path / "run") if "loss" in line]
    train(tmp_path / "whole", run_options)
    (whole,) = [line for line in metrics(tmp_path / "whole") if "loss" in line]
    assert line["triplets_possible"] == whole["triplets_possible"]
    assert line["triplets_within"] <= line["triplets_possible"]
    assert line["triplets_across"] < whole["triplets_across"]  # negatives are those of the micro-step


NOTHING_MINED = [
    *("objective.loss.mining_margin=0.0", "objective.loss.triplets=semihard"),
    *("objective.loss.property_weight=0", "objective.loss.correct_weight=0"),  # a loss in every step
]


def test_steps_without_a_mined_triplet_end_the_run_with_a_message(
    tmp_path: Path, triplet_options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it was interrupted in between: what was counted goes on to count."""
    run_options = [*triplet_options, *NOTHING_MINED, "trainer.max_empty_steps=5", "trainer.clip_norm=null"]
    at_loss(monkeypatch, 2, terminate, TripletObjective)
    with pytest.raises(Interrupted):
        train(tmp_path / "run", run_options)
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"nothing was learnt in 5 steps in a row, up to step 5"):
        resume(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"
    resume(tmp_path / "run", "trainer.max_empty_steps=7")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


def test_in_a_joint_run_each_part_counts_its_own_empty_steps(
    tmp_path: Path, joint_options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of the other part, which learn, do not begin the count anew; nor does an interrupt."""
    run_options = [
        *joint_options,
        "benchmark=[idiolink]",
        "trainer.max_empty_steps=2",
        "trainer.clip_norm=null",
    ]
    run_options += [option.replace("objective.", "objective.adaptive_triplet.") for option in NOTHING_MINED]
    at_loss(monkeypatch, 1, terminate, TripletObjective)
    with pytest.raises(Interrupted):
        train(tmp_path / "run", run_options)
    monkeypatch.undo()
    with pytest.raises(UserError, match="in 2 steps of adaptive_triplet in a row") as caught:
        resume(tmp_path / "run")
    assert "mining_margin" in str(caught.value)
    assert "objective.adaptive_triplet" in str(caught.value)
    # Logged are the steps before the one that ended it: one of the triplets, and whatever came between.
    steps = [line for line in metrics(tmp_path / "run") if "loss" in line]
    assert len([line for line in steps if "adaptive_triplet/loss" in line]) == 1


def test_predictions_are_written(tmp_path: Path, triplet_options: list[str]) -> None:
    splits = "benchmark.semeval2022.split=[dev,eval]"
    train(tmp_path / "run", [*triplet_options, "eval.predictions=true", "trainer.max_steps=1", splits])
    written = tmp_path / "run" / "predictions"
    assert sorted(p.name for p in written.iterdir()) == ["semeval2022_dev.csv", "semeval2022_eval.csv"]
    config = composed(
        *("evaluate", "data=sample", "device=cpu", "model=pretrained", f"model.path={tmp_path / 'run/best'}"),
        *("benchmarks=[semeval2022]", "split=eval", f"predictions={tmp_path / 'out'}"),
    )
    score_model(check(EvaluateSettings, config | {"precision": "fp32"}), config)
    (path,) = (tmp_path / "out").iterdir()
    assert path.name == "semeval2022_eval.csv"
    form = SAMPLE_ROOT / "semeval2022_task2b/SubTaskB/EvaluationData/eval.submission_format.csv"
    files = (form, path, written / path.name)
    given, evaluated, trained = (
        [line.rpartition(b",") for line in f.read_bytes().split(b"\r\n")] for f in files
    )
    assert [line[0] for line in given] == [line[0] for line in evaluated] == [line[0] for line in trained]
    numbers = [[float(line[2]) for line in lines[1:] if line[2]] for lines in (evaluated, trained)]
    assert len(numbers[0]) == 8
    assert numbers[0] == pytest.approx(numbers[1], abs=1e-6)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample_root: Path) -> Path:
    """A folder with IdioLink alone; SemEval's files cannot be downloaded."""
    shutil.copytree(sample_root, tmp_path / "data" / "idiolink")
    monkeypatch.setattr(sources, "GITHUB_FILES", "http://127.0.0.1:9")
    monkeypatch.setenv("IDIOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IDIOM_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_splits_without_gold_give_predictions_or_an_error(
    tmp_path: Path, tiny_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    run_options = ("evaluate", "data=sample", "device=cpu", "model=pretrained", f"model.path={tiny_path}")
    caplog.set_level("INFO")

    def scores(*options: str) -> dict[str, float]:
        config = composed(*run_options, *options)
        return score_model(check(EvaluateSettings, config), config)

    with pytest.raises(UserError, match=r"no scores: semeval2022 has no gold on eval.*predictions=<folder>"):
        scores("benchmarks=[semeval2022]", "split=eval")
    assert scores("benchmarks=[semeval2022]", "split=eval", f"predictions={tmp_path / 'out'}") == {}
    assert "semeval2022 has no gold on eval: predictions, no scores" in caplog.text
    assert (tmp_path / "out" / "semeval2022_eval.csv").is_file()
    assert not capsys.readouterr().out
    # Beside what has gold it is said, and is no error.
    caplog.clear()
    assert scores("benchmarks=[semeval2022]", "split=[dev,eval]")
    assert "semeval2022 has no gold on eval" in caplog.text


def without_data(options: list[str]) -> list[str]:
    return [o for o in options if o != "data=sample" and not o.startswith("benchmark=")]


def test_a_benchmark_without_data_is_said_and_never_ends_a_training(
    tmp_path: Path, options: list[str], nowhere: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert nowhere.is_dir()
    train(tmp_path / "run", [*without_data(options), "trainer.max_steps=1"])
    assert "benchmark semeval2022 is NOT SCORED" in caplog.text
    card = json.loads((tmp_path / "run" / "scores.json").read_text())
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    for not_scored in (card["meta"]["not_scored"], record["not_scored"]):
        assert list(not_scored) == ["semeval2022", "epsilon", "admire"]
        assert "data.semeval2022=" in not_scored["semeval2022"]
    assert KEY in card["scores"]
    assert all(key.startswith("idiolink/") for key in card["scores"])


def test_a_monitored_score_of_a_benchmark_without_data_is_an_error_before_training(
    tmp_path: Path, options: list[str], nowhere: Path
) -> None:
    assert nowhere.is_dir()
    monitor = "trainer.monitor=semeval2022/dev/all/all/spearman"
    with pytest.raises(UserError, match=r"picks the best checkpoint, but .*could not be downloaded"):
        train(tmp_path / "run", [*without_data(options), monitor])
    assert not (tmp_path / "run" / "baseline.json").exists()


def test_a_benchmark_that_is_asked_for_must_have_its_data(tiny_path: Path, nowhere: Path) -> None:
    assert nowhere.is_dir()
    config = composed(
        *("evaluate", "device=cpu", "model=pretrained", f"model.path={tiny_path}", "benchmarks=[semeval2022]")
    )
    with pytest.raises(UserError, match=r"could not be downloaded .*\n.*data\.semeval2022="):
        score_model(check(EvaluateSettings, config), config)
