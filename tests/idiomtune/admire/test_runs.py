"""Runs of AdMIRe's systems on the sample: what they leave, resumed, reloaded, with and without CLIP."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from idiomtune.benchmarks.admire import experts_scores
from idiomtune.config import EvaluateSettings, validate
from idiomtune.data.admire import read_items
from idiomtune.data.names import ExpertsMode
from idiomtune.data.sources import SAMPLE_ROOT
from idiomtune.errors import Interrupted
from idiomtune.programs.evaluate import evaluate as score_model
from tests.fake_hub import serve
from tests.idiomtune.admire.conftest import CV, Build
from tests.programs import refused, run
from tests.tiny_runs import assert_same_run, at_loss, composed, metrics, resume, terminate, train

FOLD = ["split=train_cv", "data.fold=0", "data.folds=5"]
Options = Callable[[str], list[str]]


@pytest.fixture
def options(request: pytest.FixtureRequest, clip_path: Path) -> Options:
    """Of `admire`, of `clip` (the same with images) or of `aima`."""

    def of(system: str) -> list[str]:
        chosen: list[str] = request.getfixturevalue("aima_options" if system == "aima" else "admire_options")
        images = [f"objective.clip.path={clip_path}", "objective.cosine=null"]
        return [*chosen, *images * (system == "clip")]

    return of


def card_of(folder: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((folder / "scores.json").read_text())
    return card


def saved_weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "best" / "experts" / "experts.safetensors")


def evaluated(run_folder: Path, *more: str) -> dict[str, float]:
    config = composed(
        *("evaluate", "data=sample", "device=cpu", "model=pretrained", f"model.path={run_folder / 'best'}"),
        *("benchmarks=[admire]", *(more or ("split=train",))),
    )
    return score_model(validate(EvaluateSettings, config))


def losses(folder: Path, part: str) -> list[float]:
    return [line[part] for line in metrics(folder) if part in line]


HEADS = {"sense_head", "idiomatic", "literal"}
PARTS = {
    "admire": {*HEADS, "sense_map"},
    "clip": {*HEADS, "sense_map", "text_layers"},
    "aima": {*HEADS, "sense_encoder", "text_layers"},
}
# System, options of the objective, inputs of the idiomatic expert, what is not saved.
RUNS: dict[str, tuple[str, str, int, set[str]]] = {
    "text": ("admire", "cosine=null split=train_cv", 3, set()),
    "images": ("clip", "sense_features=usage loss.rank=listwise", 4, set()),
    "printed": ("aima", "", 4, set()),
    "no_sense_encoder": ("aima", "ablation=no_sense_encoder loss.rank=top1_printed", 3, {"sense_encoder"}),
}


@pytest.mark.parametrize("name", RUNS)
def test_what_a_run_leaves_and_reloads(tmp_path: Path, options: Options, name: str) -> None:
    """The scorer is in best/ as safetensors and JSON, and scores as it did in the run."""
    system, chosen, num_inputs, not_saved = RUNS[name]
    split = "train_cv" if "train_cv" in chosen else "train"
    more = [f"objective.{option}" for option in chosen.split()]
    short = ["trainer.accumulation=2", "trainer.max_steps=2"]
    train(tmp_path, [*options(system), *CV * (split == "train_cv"), *more, *short])
    saved = tmp_path / "best" / "experts"
    assert sorted(path.name for path in saved.iterdir()) == ["experts.json", "experts.safetensors"]
    names = saved_weights(tmp_path)
    assert {key.split(".")[0] for key in names} == PARTS[system] - not_saved
    assert sum(key.startswith("idiomatic.inputs") for key in names) == 2 * num_inputs
    card = card_of(tmp_path)
    mode: ExpertsMode = "experts_text" if system == "admire" else "experts_image"
    given = {key: value for key, value in card["scores"].items() if "/caption" not in key}
    assert {f"admire/{split}/{mode}/{m}" for m in ("rank_difference", "sense_accuracy")} <= given.keys()
    assert given.keys() <= set(map(str, experts_scores([split, "astitch_dev", "astitch_test"], mode)))
    assert not [key for key in card["baseline"] if "experts" in key]
    assert f"admire/{split}/caption/ndcg@5" in card["baseline"]
    reloaded = evaluated(tmp_path, *(FOLD if split == "train_cv" else ()))
    assert {key: reloaded[key] for key in given} == pytest.approx(given)
    lines = (tmp_path / "per_query" / "admire.jsonl").read_text().splitlines()
    assert {json.loads(line)["mode"] for line in lines} == {
        *("caption", "caption_span", mode, f"{mode}_gold_sense", "majority")
    }


def test_resumed_bit_for_bit(tmp_path: Path, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """AIMA in its ranking stage."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(whole, options("aima"))
    with monkeypatch.context() as patched:
        at_loss(patched, len(losses(whole, "sense_accuracy")) + 2, terminate)
        with pytest.raises(Interrupted):
            train(cut, options("aima"))
    resume(cut)
    assert_same_run(whole, cut)
    experts = Path("best", "experts", "experts.safetensors")
    assert (whole / experts).read_bytes() == (cut / experts).read_bytes()


def test_experts_learn_and_score_with_a_glossary(tmp_path: Path, options: Options) -> None:
    items = read_items(SAMPLE_ROOT / "admire", "train").items
    rows = "".join(f"{item.compound}\tsomething quite other\n" for item in items)
    (tmp_path / "mine.tsv").write_text(f"expression\tmeaning\n{rows}", encoding="utf-8")
    short = [*options("admire"), "trainer.freeze_encoder=true", "trainer.max_steps=1"]
    train(tmp_path / "without", short)
    train(tmp_path / "with", [*short, f"model.glossary={tmp_path / 'mine.tsv'}"])
    first, second = (losses(tmp_path / name, "loss")[0] for name in ("with", "without"))
    assert first != pytest.approx(second, rel=1e-3)
    record = json.loads((tmp_path / "with" / "run.json").read_text(encoding="utf-8"))
    assert record["glossary"]["occurs"]["admire"]["texts"] > 0
    scored = {key: value for key, value in evaluated(tmp_path / "with").items() if "experts_text" in key}
    reported = card_of(tmp_path / "with")["scores"]
    assert scored == pytest.approx({key: reported[key] for key in reported if "experts_text" in key})


def test_options_that_only_the_data_or_the_model_refuses(
    build: Build, tmp_path: Path, options: Options
) -> None:
    refused(lambda: build("+protocol=cross_validation_admire", "data.fold=5"), "data.fold=5")
    separator = "objective.separator='</s>'"
    refused(lambda: train(tmp_path, [*options("admire"), separator]), separator)


@pytest.mark.slow
def test_experts_of_a_model_on_the_hub_are_scored(tmp_path: Path, tiny_path: Path, build: Build) -> None:
    folder = Path(shutil.copytree(tiny_path, tmp_path / "model"))
    build().head.publish(folder)
    with serve({"models/someone/experts": folder}) as hub:
        environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}
        done = run(
            *("idiomtune", "evaluate", "model=someone/experts", "device=cpu", "data=sample", "split=train"),
            *("benchmarks=[admire]", f"output={tmp_path / 'scores.json'}"),
            environment={**environment, "HF_HUB_OFFLINE": None},
        )
    assert done.returncode == 0, done.stderr
    assert [key for key in card_of(tmp_path)["scores"] if "experts_text" in key]
