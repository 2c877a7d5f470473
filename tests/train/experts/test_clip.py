"""CLIP beside the encoder: what is trained, images once, and experts with images end to end."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from tests.tiny_clip import save_tiny_clip
from tests.tiny_runs import assert_same_run, at_loss, composed, metrics, resume, train
from train.config import EvaluateSettings, TrainSettings, check
from train.data.admire import read_items
from train.data.sources import SAMPLE_ROOT
from train.encoder.encoder import Encoder
from train.errors import Interrupted, UserError
from train.experts.clip import ClipTowers
from train.experts.heads import FOLDER, Experts, ExpertsOptions, load_experts
from train.objectives.admire import AdmireObjective
from train.recipes.evaluate import score_model
from train.training.setup import parameter_groups


@pytest.fixture(scope="module")
def clip_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture
def towers(clip_path: Path) -> ClipTowers:
    return ClipTowers.from_pretrained(str(clip_path))


def load_clip(path: str, trained_layers: int, revision: str | None) -> ClipTowers:
    return ClipTowers.from_pretrained(path, trained_layers=trained_layers, revision=revision)


def test_the_last_two_text_layers_alone_are_trained(towers: ClipTowers) -> None:
    model = towers._model
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {name.split("layers.")[1].split(".")[0] for name in trained} == {"1", "2"}
    assert all(name.startswith("text_model.encoder.layers.") for name in trained)
    towers.texts(["a dog", "a cat"]).sum().backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None for p in towers.module.parameters())


def test_features_are_the_models_own(towers: ClipTowers, clip_path: Path) -> None:
    """Texts in any company, twice or longer than the positions; images by the model's own processor."""
    long = "word " * 60
    together = towers.texts(["a dog", long, "a dog"])
    assert torch.equal(together[0], together[2])
    torch.testing.assert_close(towers.texts(["a dog"])[0], together[0], atol=1e-6, rtol=0)
    paths = [
        c.path for c in read_items(SAMPLE_ROOT / "admire", "train", check_images=True).items[0].candidates
    ]
    found = [path for path in paths if path is not None]
    features = towers.images(found)
    assert not features.requires_grad
    from transformers import CLIPImageProcessor

    with Image.open(found[3]) as image:
        pixels = CLIPImageProcessor.from_pretrained(clip_path)(image.convert("RGB"), return_tensors="pt")
    alone = towers._model.get_image_features(**pixels).pooler_output[0]
    torch.testing.assert_close(features[3], alone, atol=1e-6, rtol=0)
    assert torch.equal(towers.images([found[3]])[0], features[3])


@pytest.mark.slow
def test_what_is_no_clip_is_said(
    tmp_path: Path, tiny_path: Path, towers: ClipTowers, clip_path: Path
) -> None:
    for path in (tmp_path, tiny_path):
        with pytest.raises(UserError, match=r"objective\.clip\.path=.*could not be loaded as a CLIP model"):
            ClipTowers.from_pretrained(str(path))
    with pytest.raises(UserError, match=r"text tower of .* has 3"):
        ClipTowers.from_pretrained(str(clip_path), trained_layers=4)
    (tmp_path / "a.jpg").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"a\.jpg: is no image"):
        towers.images([tmp_path / "a.jpg"])


def test_experts_with_images_save_what_was_trained_of_clip(towers: ClipTowers, tmp_path: Path) -> None:
    """The frozen parts are not in the file; reloaded, scores are the same to the last bit."""
    torch.manual_seed(0)
    experts = Experts(ExpertsOptions(width=8), towers)
    with torch.no_grad():
        for p in towers.module.parameters():
            p.add_(0.1 * torch.randn_like(p))
    experts.publish(tmp_path)
    names = load_file(tmp_path / FOLDER / "experts.safetensors")
    assert {n.split(".")[1] for n in names if n.startswith("trained_towers")} == {"0", "1"}
    again = load_experts(tmp_path, load_clip)
    items = read_items(SAMPLE_ROOT / "admire", "train", check_images=True).items
    embeddings = torch.randn(len(items), 1, 8)
    assert len(experts.item_requests(items[0])) == 1
    for ours, theirs in zip(experts(items, embeddings), again(items, embeddings), strict=True):
        assert torch.equal(ours, theirs)


def test_clip_is_trained_at_the_encoders_learning_rate(towers: ClipTowers, tiny: Encoder) -> None:
    settings = check(TrainSettings, composed("config", "+experiment=admire_experts"))
    experts = Experts(ExpertsOptions(width=32), towers)
    first, second = parameter_groups(tiny.requires_grad_(False), experts, settings.trainer)
    assert [id(p) for p in first["params"]] == [id(p) for p in towers.module.parameters()]
    assert first["lr_scale"] == 1.0
    assert second["lr_scale"] == pytest.approx(1e-3 / 3e-6)
    both = len(first["params"]) + len(second["params"])
    assert both == len(list(experts.parameters()))


@pytest.mark.slow
def test_runs_with_images(tmp_path: Path, tiny_path: Path, clip_path: Path) -> None:
    """The loss falls, the image tower stays, and the reloaded model has the scores of the run."""
    options = [
        *("+experiment=admire_experts", "data=sample", "benchmark=[admire]", "device=cpu"),
        *("model=pretrained", f"model.path={tiny_path}", f"objective.clip.path={clip_path}"),
        *("trainer.max_epochs=12", "trainer.learning_rate=1e-4", "trainer.modules_learning_rate=1e-2"),
        *("objective.usages_per_item=2", "objective.cosine=null", "trainer.batch_size=8"),
    ]
    train(tmp_path / "run", options)
    losses = [line["rank_loss"] for line in metrics(tmp_path / "run") if "loss" in line]
    assert losses[-1] < 0.8 * losses[0]
    config = composed(
        *("evaluate", "data=sample", "device=cpu", "model=pretrained", f"model.path={tmp_path / 'run/best'}"),
        *("benchmarks=[admire]", "split=train"),
    )
    scores = score_model(check(EvaluateSettings, config), config)
    ran = json.loads((tmp_path / "run" / "scores.json").read_text())["scores"]
    experts_scores = {key: value for key, value in ran.items() if "experts_image" in key}
    assert experts_scores
    assert {key: scores[key] for key in experts_scores} == pytest.approx(experts_scores)


@pytest.mark.slow
def test_resumed_bit_for_bit(
    tmp_path: Path, tiny_path: Path, clip_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was trained of CLIP, and its optimizer state, come back."""
    options = [
        *("+experiment=admire_experts", "data=sample", "benchmark=[admire]", "device=cpu"),
        *("model=pretrained", f"model.path={tiny_path}", f"objective.clip.path={clip_path}"),
        *("trainer.max_epochs=2", "trainer.learning_rate=1e-3", "objective.usages_per_item=2"),
    ]
    train(tmp_path / "whole", options)
    at_loss(monkeypatch, 2, lambda: os.kill(os.getpid(), signal.SIGTERM), AdmireObjective)
    with pytest.raises(Interrupted):
        train(tmp_path / "cut", options)
    monkeypatch.undo()
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    ours, theirs = (
        load_file(tmp_path / run / "best" / FOLDER / "experts.safetensors") for run in ("whole", "cut")
    )
    assert any("clip" in name or "tower" in name for name in ours)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_ablation_without_captions(tmp_path: Path, tiny_path: Path, clip_path: Path) -> None:
    """The literal expert is then plain cosine of the sentence with the image."""
    options = [
        *("+experiment=admire_experts", "data=sample", "benchmark=[admire]", "device=cpu"),
        *("model=pretrained", f"model.path={tiny_path}", f"objective.clip.path={clip_path}"),
        *("trainer.max_steps=1", "objective.captions=false", "objective.literal=cosine"),
    ]
    train(tmp_path / "run", options)
    best = tmp_path / "run" / "best"
    experts = load_experts(best, load_clip).eval()
    items = read_items(SAMPLE_ROOT / "admire", "train", check_images=True).items[:2]
    scores = experts(items, torch.randn(2, 1, 32))
    (towers,) = experts.towers
    for item, row in zip(items, scores.by_expert[1], strict=True):
        sentence = towers.texts([item.sentence])
        images = towers.images([c.path for c in item.candidates if c.path is not None])
        torch.testing.assert_close(row, torch.cosine_similarity(sentence, images), atol=1e-6, rtol=0)


@pytest.mark.slow
def test_runs_on_the_real_images(
    tmp_path: Path, tiny_path: Path, clip_path: Path, real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fold is held out, the ranking loss falls, and the reloaded model has the scores of the run."""
    monkeypatch.setenv("IDIOM_DATA", str(real_data))
    fold = ["data.fold=1", "data.folds=5"]
    options = [
        *("+experiment=admire_experts", "+protocol=cross_validation_admire", *fold, "benchmark=[admire]"),
        *("model=pretrained", f"model.path={tiny_path}", f"objective.clip.path={clip_path}", "device=cpu"),
        *("trainer.max_epochs=15", "trainer.modules_learning_rate=3e-3", "objective.cosine=null"),
    ]
    train(tmp_path / "run", options)
    losses = [line["rank_loss"] for line in metrics(tmp_path / "run") if "loss" in line]
    assert len(losses) == 150
    assert sum(losses[-20:]) < 0.8 * sum(losses[:20])
    config = composed(
        *("evaluate", "device=cpu", "model=pretrained", f"model.path={tmp_path / 'run/best'}", *fold),
        *("benchmarks=[admire]", "split=train_cv"),
    )
    scores = score_model(check(EvaluateSettings, config), config)
    ran = json.loads((tmp_path / "run" / "scores.json").read_text())["scores"]
    experts_scores = {key: value for key, value in ran.items() if "experts_image" in key}
    assert {key: scores[key] for key in experts_scores} == pytest.approx(experts_scores)


def test_the_revision_of_clip_is_kept(towers: ClipTowers, tmp_path: Path) -> None:
    """What was trained of one revision fits no other; files of earlier versions name none."""
    towers.revision = "0123abc"
    asked: list[tuple[str, int, str | None]] = []

    def load(path: str, trained_layers: int, revision: str | None) -> ClipTowers:
        asked.append((path, trained_layers, revision))
        return towers

    Experts(ExpertsOptions(width=8), towers).publish(tmp_path)
    load_experts(tmp_path, load)
    file = tmp_path / FOLDER / "experts.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    del content["clip"]["revision"]
    file.write_text(json.dumps(content), encoding="utf-8")
    load_experts(tmp_path, load)
    assert asked == [(towers.path, 2, "0123abc"), (towers.path, 2, None)]


def test_a_clip_without_some_of_its_weights_is_refused(clip_path: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(clip_path, tmp_path / "clip"))
    name = "text_model.encoder.layers.2.mlp.fc1.weight"
    content = load_file(folder / "model.safetensors")
    del content[name]
    save_file(content, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=re.escape(name)):
        ClipTowers.from_pretrained(str(folder))
