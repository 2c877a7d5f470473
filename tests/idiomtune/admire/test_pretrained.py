"""CLIP, the sense encoder and the summariser: what is trained, what is computed once, and what is wrong."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import CLIPImageProcessor

from idiomtune.admire import CaptionOptions, Clip
from idiomtune.admire.pretrained import Captions, ClipTowers
from idiomtune.config import TrainSettings, check
from idiomtune.data.admire import read_items
from idiomtune.data.sources import SAMPLE_ROOT
from idiomtune.encoder.encoder import Encoder
from idiomtune.errors import UserError
from idiomtune.training.step import parameter_groups
from tests.idiomtune.admire.conftest import Build
from tests.tiny_runs import composed

ITEMS = read_items(SAMPLE_ROOT / "admire", "train", check_images=True).items


def towers_of(path: Path, trained_layers: int = 2) -> ClipTowers:
    return ClipTowers.load(Clip(path=str(path), revision=None, trained_layers=trained_layers))


@pytest.fixture
def towers(clip_path: Path) -> ClipTowers:
    return towers_of(clip_path)


def test_the_last_two_text_layers_alone_are_trained(towers: ClipTowers) -> None:
    trained = {name for name, p in towers.model.named_parameters() if p.requires_grad}
    assert {name.split("layers.")[1].split(".")[0] for name in trained} == {"1", "2"}
    assert all(name.startswith("text_model.encoder.layers.") for name in trained)
    towers.texts(["a dog", "a cat"]).sum().backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None for p in towers.parameters())


def test_features_are_the_models_own(towers: ClipTowers, clip_path: Path) -> None:
    """Texts in any company, twice or longer than the positions; images by the model's own processor."""
    together = towers.texts(["a dog", "word " * 60, "a dog"])
    assert torch.equal(together[0], together[2])
    torch.testing.assert_close(towers.texts(["a dog"])[0], together[0], atol=1e-6, rtol=0)
    paths = [candidate.path for candidate in ITEMS[0].candidates if candidate.path is not None]
    features = towers.images(paths)
    assert not features.requires_grad
    with Image.open(paths[3]) as image:
        pixels = CLIPImageProcessor.from_pretrained(clip_path)(image.convert("RGB"), return_tensors="pt")
    alone = towers.model.get_image_features(**pixels).pooler_output[0]
    torch.testing.assert_close(features[3], alone, atol=1e-6, rtol=0)
    assert torch.equal(towers.images([paths[3]])[0], features[3])


def test_twins_share_images_alone(towers: ClipTowers) -> None:
    twin = towers.twin()
    assert not {id(p) for p in towers.parameters()} & {id(p) for p in twin.parameters()}
    assert towers.model.vision_model is twin.model.vision_model
    torch.testing.assert_close(towers.texts(["a dog"]), twin.texts(["a dog"]))


@pytest.mark.parametrize("system", ["admire", "aima"])
def test_what_is_pretrained_is_trained_at_the_encoders_learning_rate(
    build: Build, tiny: Encoder, clip_path: Path, system: str
) -> None:
    scorer = build(f"objective.clip.path={clip_path}", system=system).modules
    settings = check(TrainSettings, composed("config", "+experiment=admire_experts"))
    first, second = parameter_groups(tiny.requires_grad_(False), scorer, settings.trainer)
    pretrained = [p for towers in scorer.towers for p in towers.parameters()]
    if scorer.sense_encoder is not None:
        pretrained += scorer.sense_encoder.transformer.parameters()
    assert [id(p) for p in first["params"]] == [id(p) for p in pretrained]
    assert first["lr_scale"] == 1.0
    assert second["lr_scale"] == pytest.approx(1e-3 / 3e-6)
    assert len(first["params"]) + len(second["params"]) == len(list(scorer.parameters()))


def test_only_what_was_trained_of_clip_is_saved(build: Build, clip_path: Path, tmp_path: Path) -> None:
    build(f"objective.clip.path={clip_path}").modules.publish(tmp_path)
    names = load_file(tmp_path / "experts" / "experts.safetensors")
    assert {n.split(".")[1] for n in names if n.startswith("trained_towers")} == {"0", "1"}
    clip = json.loads((tmp_path / "experts" / "experts.json").read_text())["options"]["clip"]
    assert clip == {"path": str(clip_path), "revision": None, "trained_layers": 2}


def test_models_that_cannot_be_used_are_named(
    build: Build, towers: ClipTowers, clip_path: Path, tiny_path: Path, tmp_path: Path
) -> None:
    for path in (tmp_path, tiny_path):
        with pytest.raises(UserError, match=r"objective\.clip\.path=.*could not be loaded as a CLIP model"):
            towers_of(path)
    with pytest.raises(UserError, match=r"objective\.clip\.trained_layers=4: the text tower of .* has 3"):
        towers_of(clip_path, trained_layers=4)
    (tmp_path / "a.jpg").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"a\.jpg: is not an image"):
        towers.images([tmp_path / "a.jpg"])
    with pytest.raises(UserError, match=r"objective\.sense_encoder\.path="):
        build(f"objective.sense_encoder.path={tmp_path}", system="aima")


def test_a_clip_without_some_of_its_weights_is_refused(clip_path: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(clip_path, tmp_path / "clip"))
    name = "text_model.encoder.layers.2.mlp.fc1.weight"
    content = load_file(folder / "model.safetensors")
    del content[name]
    save_file(content, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=re.escape(name)):
        towers_of(folder)


def captions_of(path: Path, words: int) -> Captions:
    return Captions(CaptionOptions(words=words, summariser=str(path), revision=None), "cpu")


def test_summaries_are_made_once(bart_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short captions stay; a cached one needs no model."""
    long, short_one = "one two three four five six", "a small dog"
    captions = captions_of(bart_path, 4)
    (file,) = captions.prepare([long, short_one])
    summary = captions(long)
    assert captions(short_one) == short_one
    assert 0 < len(summary.split()) <= 4
    assert json.loads(file.read_text(encoding="utf-8")).keys() == {long}

    with monkeypatch.context() as patched:
        patched.setattr(
            "idiomtune.admire.pretrained.load_pretrained", lambda *_: pytest.fail("it is loaded again")
        )
        again = captions_of(bart_path, 4)
        assert again.prepare([long]) == [file]
        assert again(long) == summary


def test_without_the_summariser_captions_are_cut_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    captions = captions_of(tmp_path / "no_bart", 3)
    assert captions.prepare(["one two three four"]) == []
    assert captions("one two three four") == "one two three"
    assert "objective.captions.summariser" in caplog.text
    assert "1 captions cut after 3 words" in captions.note
    assert captions.prepare(["short"]) == []
