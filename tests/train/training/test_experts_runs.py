"""Runs of AdMIRe's experts on the sample: what they leave, resumed, reloaded, with and without CLIP."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from tests.fake_hub import serve
from tests.programs import run
from tests.tiny_runs import composed, metrics, train, weights
from train import data
from train.benchmarks.admire.keys import experts_keys
from train.config import EvaluateSettings, TrainSettings, check
from train.encoder.encoder import Encoder
from train.encoder.loading import load_model
from train.encoder.width import configured_width
from train.errors import UserError
from train.experts.heads import FOLDER, Experts, ExpertsOptions, load_experts
from train.objectives import Batch, ObjectiveLoss
from train.objectives.admire import AdmireObjective
from train.recipes.evaluate import score_model

CV = ["+protocol=cross_validation_admire", "data.fold=0"]


def scores_of(folder: Path) -> dict[str, float]:
    scores: dict[str, float] = json.loads((folder / "scores.json").read_text())["scores"]
    return scores


def evaluated(run: Path, *options: str) -> dict[str, float]:
    config = composed(
        *("evaluate", "data=sample", "device=cpu", "model=pretrained", f"model.path={run / 'best'}"),
        *("benchmarks=[admire]", *options),
    )
    return score_model(check(EvaluateSettings, config), config)


FOLD = ["split=train_cv", "data.fold=0", "data.folds=5"]


def test_what_a_run_leaves_and_reloads(tmp_path: Path, experts_options: list[str]) -> None:
    """The experts lie in best/ as safetensors and JSON, and score as they did in the run."""
    train(tmp_path / "run", experts_options)
    card = json.loads((tmp_path / "run" / "scores.json").read_text())
    held_out = experts_keys(["train_cv", "astitch_dev", "astitch_test"], "experts_text")
    given = {key for key in card["scores"] if "/caption" not in key}
    assert given <= set(held_out)
    assert "admire/train_cv/experts_text/rank_difference" in given
    assert not [key for key in card["baseline"] if "experts" in key]
    assert "admire/train_cv/caption/ndcg@5" in card["baseline"]
    saved = tmp_path / "run" / "best" / FOLDER
    assert sorted(path.name for path in saved.iterdir()) == ["experts.json", "experts.safetensors"]
    reloaded = evaluated(tmp_path / "run", *FOLD)
    assert {key: reloaded[key] for key in given} == pytest.approx({key: card["scores"][key] for key in given})
    records = [
        json.loads(line)
        for line in (tmp_path / "run" / "per_query" / "admire.jsonl").read_text().splitlines()
    ]
    assert {record["mode"] for record in records} == {
        *("caption", "caption_span", "experts_text", "experts_text_gold_sense", "majority")
    }
    (saved / "experts.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"experts\.safetensors: cannot be loaded"):
        evaluated(tmp_path / "run", *FOLD)


def test_a_frozen_encoder_stays_as_it_is(tmp_path: Path, experts_options: list[str], tiny_path: Path) -> None:
    train(tmp_path / "run", [*experts_options, "trainer.freeze_encoder=true"])
    before, after = load_file(tiny_path / "model.safetensors"), weights(tmp_path / "run" / "best")
    assert all(torch.equal(before[name], after[name]) for name in before)
    drawn = metrics(tmp_path / "run")
    assert drawn[0]["loss"] != drawn[1]["loss"]


def test_experts_learn_and_score_with_a_glossary(tmp_path: Path, experts_options: list[str]) -> None:
    sample = Path(data.__file__).parent / "sample" / "admire" / "subtask_a_train.tsv"
    compounds = [line.split("\t")[0] for line in sample.read_text(encoding="utf-8").splitlines()[1:]]
    rows = [f"{name}\tsomething quite other\n" for name in dict.fromkeys(compounds)]
    (tmp_path / "mine.tsv").write_text("".join(["expression\tmeaning\n", *rows]), encoding="utf-8")
    short = [*experts_options, "trainer.freeze_encoder=true", "trainer.max_steps=1"]
    train(tmp_path / "without", short)
    train(tmp_path / "with", [*short, f"model.glossary={tmp_path / 'mine.tsv'}"])
    losses = [metrics(tmp_path / name)[0]["loss"] for name in ("with", "without")]
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)
    record = json.loads((tmp_path / "with" / "run.json").read_text(encoding="utf-8"))
    assert record["glossary"]["occurs"]["admire"]["texts"] > 0
    reported = scores_of(tmp_path / "with")
    scored = evaluated(tmp_path / "with", *FOLD)
    experts = [key for key in scored if "experts_text" in key]
    assert experts
    assert {key: scored[key] for key in experts} == pytest.approx({key: reported[key] for key in experts})


def test_the_losses_of_the_parts_fall(tmp_path: Path, experts_options: list[str]) -> None:
    """On so few items the experts learn them by heart."""
    longer = ["trainer.max_epochs=30", "trainer.modules_learning_rate=1e-2", "objective.head=hidden"]
    train(tmp_path / "run", [*experts_options, *longer, "trainer.freeze_encoder=true"])
    lines = [line for line in metrics(tmp_path / "run") if "loss" in line]
    for part in ("rank_loss", "sense_loss", "meaning_loss"):
        first, last = (sum(line[part] for line in some) for some in (lines[:9], lines[-9:]))
        assert last < 0.8 * first, part


@pytest.mark.parametrize("accumulation", [1, 2])
def test_what_is_logged_is_the_mean_over_the_step_also_of_the_last_shorter_one(
    tmp_path: Path, experts_options: list[str], monkeypatch: pytest.MonkeyPatch, accumulation: int
) -> None:
    """Of each item, sentence and meaning of a step; the sample's items do not fill the last one."""
    run_options = [*experts_options, "trainer.batch_size=4", "trainer.max_epochs=1"]
    run_options += [f"trainer.accumulation={accumulation}"]
    real, part_results = AdmireObjective.loss, []

    def loss(self: AdmireObjective, embeddings: torch.Tensor, batch: Batch) -> ObjectiveLoss:
        result = real(self, embeddings, batch)
        part_results.append((len(batch.anchors), result))
        return result

    monkeypatch.setattr(AdmireObjective, "loss", loss)
    train(tmp_path / "run", run_options)
    lines = [line for line in metrics(tmp_path / "run") if "loss" in line]
    sizes: list[int] = []
    for line in lines:
        parts = [part_results.pop(0) for _ in range(accumulation)] if line is not lines[-1] else part_results
        sizes.append(sum(size for size, _ in parts))
        for name, mean in (("rank_loss", 1), ("sense_loss", 3), ("sense_accuracy", 3)):
            # An item comes with two sentences for the sense.
            expected = sum(result.means[name].value * size for size, result in parts) / sizes[-1]
            assert line[name] == pytest.approx(expected), name
            assert sum(result.means[name].num for _, result in parts) == mean * sizes[-1]
        assert line["loss"] == pytest.approx(
            sum(result.loss.item() * size for size, result in parts) / sizes[-1]
        )
        with_meanings = [(r.means["meaning_loss"].value, r.means["meaning_loss"].num) for _, r in parts]
        total = sum(number for _, number in with_meanings)
        assert line["with_meanings"] == total
        if total:
            assert line["meaning_loss"] == pytest.approx(sum(v * n for v, n in with_meanings) / total)
    assert sizes[-1] < 4


def test_all_items_and_the_ablations(tmp_path: Path, experts_options: list[str]) -> None:
    run_options = [o for o in experts_options if o not in CV]
    ablations = ["objective.sense_encoder=false", "objective.literal=cosine", "objective.cosine=10.0"]
    train(
        tmp_path / "run", [*run_options, *ablations, "objective.loss.rank=listwise", "trainer.accumulation=2"]
    )
    scores = scores_of(tmp_path / "run")
    assert "admire/train/experts_text/sense_accuracy" in scores
    assert "held out" not in json.loads((tmp_path / "run" / "scores.json").read_text())["meta"]["trained_on"]
    names = load_file(tmp_path / "run" / "best" / FOLDER / "experts.safetensors")
    assert not [name for name in names if name.startswith("literal")]
    assert evaluated(tmp_path / "run", "split=train")["admire/train/experts_text/ndcg@5"] == pytest.approx(
        scores["admire/train/experts_text/ndcg@5"]
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["data.fold=0"], "cross-validation_admire|cross_validation_admire"),
        (["objective.split=train_cv"], "cross_validation_admire"),
        (["objective.captions=false"], "leaves nothing to rank by"),
        (["trainer.freeze_encoder=true", "retain.distillation=1.0"], "leaves the encoder as it is"),
        (["benchmark=[idiolink]"], "this run has no score 'admire/train/experts_text/ndcg@5'"),
    ],
)
def test_settings_that_do_not_fit(wrong: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check(TrainSettings, composed("config", "+experiment=admire_experts", *wrong))


def test_only_experts_can_leave_the_encoder_alone() -> None:
    with pytest.raises(UserError, match="trains nothing beside the encoder"):
        check(TrainSettings, composed("config", "+experiment=idiolink_ft", "trainer.freeze_encoder=true"))


def test_a_fold_that_is_not_there(tmp_path: Path, experts_options: list[str]) -> None:
    with pytest.raises(UserError, match=r"data\.fold=5 of data\.folds=5: .*8 compounds"):
        train(tmp_path / "run", [*experts_options, "data.fold=5"])


def test_the_separator_is_the_models_own(tmp_path: Path, experts_options: list[str]) -> None:
    with pytest.raises(UserError, match=r"objective\.separator='</s>' is no token .* its own is .*\[SEP\]"):
        train(tmp_path / "run", [*experts_options, "objective.separator='</s>'"])


def test_experts_are_of_the_module_that_is_trained() -> None:
    assert hasattr(Experts, "publish")


@pytest.mark.slow
def test_experts_of_a_model_on_the_hub_are_scored(tmp_path: Path, tiny_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_path, tmp_path / "model"))
    Experts(ExpertsOptions(width=32)).publish(folder)
    with serve({"models/someone/experts": folder}) as hub:
        done = run(
            *("train.evaluate", "model=someone/experts", "device=cpu", "data=sample", "split=train"),
            *("benchmarks=[admire]", f"output={tmp_path / 'scores.json'}"),
            environment={
                "HF_ENDPOINT": hub.url,
                "HF_HOME": str(tmp_path / "hf"),
                "HF_HUB_OFFLINE": None,
                "HF_HUB_DISABLE_XET": "1",
            },
        )
    assert done.returncode == 0, done.stderr
    assert [key for key in scores_of(tmp_path) if "experts_text" in key]


def test_a_run_builds_the_model_twice(
    tmp_path: Path, experts_options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To score it untrained and train it, and the best from its folder."""
    loaded: list[str] = []

    def counted(path: str, **options: Any) -> SentenceTransformer:
        loaded.append(Path(path).name)
        return load_model(path, **options)

    monkeypatch.setattr("train.encoder.encoder.load_model", counted)
    train(tmp_path / "run", [*experts_options, "trainer.max_steps=1"])
    assert loaded == ["model", "best"]


@pytest.mark.parametrize("pooling", [None, "cls", "cls+sep", "last2"])
def test_the_width_is_that_of_the_embeddings(tiny_path: Path, tmp_path: Path, pooling: str | None) -> None:
    encoder = Encoder.from_pretrained(tiny_path, device="cpu", pooling=pooling)
    assert configured_width(str(tiny_path), own_pooling=pooling is None) == encoder.dimension
    encoder.save(tmp_path / "saved")
    assert configured_width(str(tmp_path / "saved")) == encoder.dimension
    assert configured_width(str(tiny_path.parent / "bert")) == encoder.dimension


def without_weights(folder: Path) -> None:
    (folder / "experts.safetensors").unlink()


def cut_off(folder: Path) -> None:
    file = folder / "experts.safetensors"
    file.write_bytes(file.read_bytes()[:100])


def with_other_experts(folder: Path) -> None:
    content = json.loads((folder / "experts.json").read_text(encoding="utf-8"))
    (folder / "experts.json").write_text(json.dumps({**content, "hidden": 7}), encoding="utf-8")


def no_options(folder: Path) -> None:
    (folder / "experts.json").write_text("[]", encoding="utf-8")


def an_option_too_many(folder: Path) -> None:
    content = json.loads((folder / "experts.json").read_text(encoding="utf-8"))
    (folder / "experts.json").write_text(json.dumps({**content, "more": 7}), encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "file"),
    [
        (without_weights, "experts.safetensors"),
        (cut_off, "experts.safetensors"),
        (with_other_experts, "experts.safetensors"),
        (no_options, "experts.json"),
        (an_option_too_many, "experts.json"),
    ],
)
def test_damaged_experts_are_named(tmp_path: Path, spoil: Callable[[Path], None], file: str) -> None:
    Experts(ExpertsOptions(width=8)).publish(tmp_path)
    spoil(tmp_path / FOLDER)
    with pytest.raises(UserError, match=re.escape(str(tmp_path / FOLDER / file))):
        load_experts(tmp_path, lambda *_: pytest.fail("there is no CLIP"))
