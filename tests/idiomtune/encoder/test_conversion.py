"""Pickled weights: converted on request, as weights and nothing else; what a tokenizer lacks is said."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from idiomtune.encoder import loading, weights_only
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.loading import why_not_loaded
from idiomtune.errors import UserError
from tests.tiny_families import FAMILIES, WIDTH, tiny_checkpoint

pytestmark = pytest.mark.slow

TEXTS = ["He broke the ice with a joke.", "The ice broke, and the boat went down."]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDIOM_CACHE", str(tmp_path / "cache"))


def pickled(folder: Path, *, prefix: str = "", more: dict[str, Any] | None = None) -> Path:
    """A folder's safetensors replaced by a pickle, as old checkpoints have it."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weights = {f"{prefix}{name}": tensor for name, tensor in weights.items()} | (more or {})
    torch.save(weights, folder / "pytorch_model.bin")
    return folder


def without_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that converts runs in this process: a start of its own takes seconds."""

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, weights_only.main(command[3:]), "", "")

    monkeypatch.setattr(subprocess, "run", run)


def encoded(folder: Path, pooling: str | None = "mean", *, convert: bool = False) -> torch.Tensor:
    encoder = Encoder.from_pretrained(folder, device="cpu", pooling=pooling, convert_weights=convert)
    return encoder.encode(TEXTS)


MASK = "transformer.h.0.attn.attention"
MORE: dict[str, tuple[str, dict[str, Any]]] = {
    # Masks that older versions saved, as in SGPT's file, and heads of DeBERTa-v3's own training.
    "gpt_neo": (
        "transformer.",
        {
            f"{MASK}.bias": torch.ones(1, 1, 256, 256, dtype=torch.bool),
            f"{MASK}.masked_bias": torch.tensor(-1e9),
            "lm_head.weight": torch.ones(3, WIDTH),
        },
    ),
    "deberta_v3": (
        "deberta.",
        {"lm_predictions.lm_head.bias": torch.ones(3), "mask_predictions.dense.weight": torch.ones(3, 3)},
    ),
}


@pytest.mark.parametrize("family", MORE)
def test_a_converted_checkpoint_is_the_same_model(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix, more = MORE[family]
    if family != "gpt_neo":
        without_a_process(monkeypatch)
    folder = tiny_checkpoint(FAMILIES[family], tmp_path / "model")
    expected = encoded(folder)
    pickled(folder, prefix=prefix, more=more)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    with pytest.raises(UserError, match=r"model\.convert_weights=true"):
        encoded(folder)
    torch.testing.assert_close(encoded(folder, convert=True), expected)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    (copy,) = (tmp_path / "cache" / "converted").iterdir()
    assert (copy / "model.safetensors").is_file()
    assert not list(copy.rglob("*.bin"))

    monkeypatch.setattr(loading, "_convert", None)  # made once
    torch.testing.assert_close(encoded(folder, convert=True), expected)


def test_a_checkpoint_with_safetensors_is_left_alone(tmp_path: Path) -> None:
    folder = tiny_checkpoint(FAMILIES["bert"], tmp_path / "model")
    (folder / "pytorch_model.bin").write_bytes(b"not read")
    encoded(folder, convert=True)
    assert not (tmp_path / "cache").exists()


def test_shards_and_the_dense_layer_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_a_process(monkeypatch)
    torch.manual_seed(0)
    checkpoint = tiny_checkpoint(FAMILIES["t5"], tmp_path / "t5")
    model = SentenceTransformer(
        modules=[Transformer(str(checkpoint)), Pooling(WIDTH), Dense(WIDTH, 16)], device="cpu"
    )
    folder = tmp_path / "model"
    model.save_pretrained(str(folder), create_model_card=False)
    expected = encoded(folder, None)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    half = len(weights) // 2
    parts = [dict(list(weights.items())[:half]), dict(list(weights.items())[half:])]
    shards = {f"pytorch_model-0000{n}-of-00002.bin": part for n, part in enumerate(parts, 1)}
    for name, part in shards.items():
        torch.save(part, folder / name)
    index = {"weight_map": {weight: name for name, part in shards.items() for weight in part}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index), encoding="utf-8")
    pickled(folder / "2_Dense")
    torch.testing.assert_close(encoded(folder, None, convert=True), expected)


class Attack:
    """What a pickle can do when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_a_file_that_holds_more_than_weights_is_refused_and_not_run(tmp_path: Path) -> None:
    folder = tiny_checkpoint(FAMILIES["bert"], tmp_path / "model")
    pickled(folder, more={"attack": Attack(tmp_path / "done")})
    with pytest.raises(UserError, match=r"pytorch_model\.bin: not read as weights: .*mkdir"):
        encoded(folder, convert=True)
    assert not (tmp_path / "done").exists()
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_what_is_no_weights_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the program that converts, which another process runs."""
    source, target = tmp_path / "pytorch_model.bin", tmp_path / "model.safetensors"
    for content, reason in (({"state_dict": {}}, "other than names with their weights"), (None, "not read")):
        if content is None:
            source.write_bytes(b"cut off")
        else:
            torch.save(content, source)
        assert weights_only.main([str(source), str(target)]) == 1
        assert reason in capsys.readouterr().err
        assert not target.exists()


def test_a_missing_sentencepiece_is_named() -> None:
    error = ValueError("You need to have sentencepiece or tiktoken installed to convert a slow tokenizer")
    assert "pip install 'idiomtune[sentencepiece]'" in why_not_loaded(error)
