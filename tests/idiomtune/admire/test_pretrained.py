"""CLIP, the sense encoder and the summariser: what is trained, what is computed once, and what is wrong."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import CLIPImageProcessorPil

from idiomtune import Encoder
from idiomtune.admire import ClipOptions
from idiomtune.admire.pretrained import ClipTowers
from idiomtune.config import TrainSettings, validate
from idiomtune.data.admire import read_items
from idiomtune.data.sources import SAMPLE_ROOT
from idiomtune.training.optimizer import parameter_groups
from tests.idiomtune.admire.conftest import Build
from tests.programs import refused
from tests.tiny_runs import composed

ITEMS = read_items(SAMPLE_ROOT / "admire", "train", check_images=True).items


def towers_of(path: Path, trained_layers: int = 2) -> ClipTowers:
    return ClipTowers(ClipOptions(path=str(path), revision=None, trained_layers=trained_layers))


@pytest.fixture
def towers(clip_path: Path) -> ClipTowers:
    return towers_of(clip_path)


def test_the_last_two_text_layers_alone_are_trained(towers: ClipTowers) -> None:
    """A twin has its own, and the same images."""
    trained = {name for name, p in towers.model.named_parameters() if p.requires_grad}
    assert {name.partition("layers.")[2][0] for name in trained} == {"1", "2"}
    assert all(name.startswith("text_model.encoder.layers.") for name in trained)
    towers.texts(["a dog", "a cat"]).sum().backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None for p in towers.parameters())
    twin = towers.twin()
    assert not {id(p) for p in towers.parameters()} & {id(p) for p in twin.parameters()}
    assert towers.model.vision_model is twin.model.vision_model
    torch.testing.assert_close(towers.texts(["a dog"]), twin.texts(["a dog"]))


def test_features_are_the_models_own(towers: ClipTowers, clip_path: Path) -> None:
    """Texts in any company, twice or longer than the positions; images by the model's own processor."""
    together = towers.texts(["a dog", "word " * 60, "a dog"])
    assert torch.equal(together[0], together[2])
    torch.testing.assert_close(towers.texts(["a dog"])[0], together[0], atol=1e-6, rtol=0)
    paths = [candidate.path for candidate in ITEMS[0].candidates if candidate.path is not None]
    features = towers.images(paths)
    assert not features.requires_grad
    with Image.open(paths[3]) as image:
        pixels = CLIPImageProcessorPil.from_pretrained(clip_path)(image.convert("RGB"), return_tensors="pt")
    alone = towers.model.get_image_features(**pixels).pooler_output[0]
    torch.testing.assert_close(features[3], alone, atol=1e-6, rtol=0)
    assert torch.equal(towers.images([paths[3]])[0], features[3])


def test_what_is_pretrained_is_trained_at_the_encoders_learning_rate(build: Build, tiny: Encoder) -> None:
    scorer = build(system="aima").head
    settings = validate(TrainSettings, composed("train", "+experiment=admire_experts"))
    first, second = parameter_groups(tiny.requires_grad_(False), scorer, settings.trainer)
    pretrained = [p for towers in scorer.towers for p in towers.parameters()]
    pretrained += scorer.sense_encoder.transformer.parameters()
    assert [id(p) for p in first["params"]] == [id(p) for p in pretrained]
    assert first["lr"] == 3e-6
    assert second["lr"] == 1e-3
    assert len(first["params"]) + len(second["params"]) == len(list(scorer.parameters()))


def test_models_that_cannot_be_used_are_named(
    build: Build, towers: ClipTowers, clip_path: Path, tiny_path: Path, tmp_path: Path
) -> None:
    refused(lambda: towers_of(tmp_path), "objective.clip.path=")
    refused(lambda: towers_of(tiny_path), "objective.clip.path=")
    refused(lambda: towers_of(clip_path, trained_layers=4), "objective.clip.trained_layers=4")
    (tmp_path / "a.jpg").write_bytes(b"no image")
    refused(lambda: towers.images([tmp_path / "a.jpg"]), "a.jpg")
    name = "text_model.encoder.layers.2.mlp.fc1.weight"
    folder = Path(shutil.copytree(clip_path, tmp_path / "clip"))
    content = load_file(folder / "model.safetensors")
    del content[name]
    save_file(content, folder / "model.safetensors", metadata={"format": "pt"})
    refused(lambda: towers_of(folder), name)
    wrong = f"objective.sense_encoder.path={tmp_path}"
    refused(lambda: build(wrong, system="aima"), wrong)


def test_summaries_are_made_once(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long captions become the model's own words, short ones stay; cached ones need no model."""
    items = [replace(ITEMS[0], candidates=ITEMS[0].candidates[:2])]
    long, short = (candidate.caption for candidate in items[0].candidates)
    words = len(short.split())
    assert len(long.split()) > words
    scorer = build(f"objective.captions.words={words}", system="aima").head
    (file,) = scorer.prepare(items)
    summary = json.loads(file.read_text(encoding="utf-8"))[long]
    assert scorer.captions_of(items) == [" ".join(summary.split()[:words]), short]
    monkeypatch.setattr("idiomtune.admire.pretrained.load_pretrained", lambda *_: pytest.fail("loaded again"))
    assert scorer.prepare(items) == [file]
