"""Pickled weights are never opened; what a tokenizer lacks is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.loading import why_not_loaded
from idiomtune.errors import UserError
from tests.doc_pages import inline
from tests.programs import ROOT
from tests.tiny_families import FAMILIES, tiny_checkpoint

pytestmark = pytest.mark.slow

TEXTS = ["He broke the ice with a joke.", "The ice broke, and the boat went down."]


def test_pickled_weights_are_refused_until_the_documented_line_converted_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tiny_checkpoint(FAMILIES["bert"], tmp_path / "model")
    expected = Encoder(folder, device="cpu").encode(TEXTS)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"docs/troubleshooting\.md"):
        Encoder(folder, device="cpu")
    (line,) = (code for code in inline(ROOT / "docs" / "troubleshooting.md") if "save_pretrained" in code)
    exec(line.replace("<model>", str(folder)), {"SentenceTransformer": SentenceTransformer})
    torch.testing.assert_close(Encoder("converted", device="cpu").encode(TEXTS), expected)


def test_a_missing_sentencepiece_is_named() -> None:
    error = ValueError("You need to have sentencepiece or tiktoken installed to convert a slow tokenizer")
    assert "pip install 'idiomtune[sentencepiece]'" in why_not_loaded(error)
