"""A model's files beside its weights: one that it was saved with, and that is gone, is missed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.glossary import Meanings
from idiomtune.errors import UserError

TEXTS = ["They broke the ice, and spilled the beans."]


def loaded(folder: Path) -> Encoder:
    return Encoder.from_pretrained(folder, device="cpu")


def test_a_file_that_a_model_was_saved_with_is_missed(tmp_path: Path, tiny: Encoder) -> None:
    """Where it is not claimed, by other libraries or by versions of before, nothing is missed."""
    tiny.add_idiom_tokens(["spill the beans"], start="random")
    tiny.meanings = Meanings({"break the ice": ["make people relax"]})
    tiny.save(tmp_path / "model")
    before = loaded(tmp_path / "model").encode(TEXTS)
    for name in ("glossary.json", "idiom_tokens.json"):
        (tmp_path / "model" / name).rename(tmp_path / name)
        with pytest.raises(UserError, match=f"{name}, which it was saved with, is missing"):
            loaded(tmp_path / "model")
        (tmp_path / name).rename(tmp_path / "model" / name)
    config = tmp_path / "model" / "config_sentence_transformers.json"
    facts = json.loads(config.read_text())
    del facts["idiomtune_files"]
    config.write_text(json.dumps(facts))
    assert torch.equal(loaded(tmp_path / "model").encode(TEXTS), before)
    SentenceTransformer(str(tmp_path / "model"), device="cpu").save_pretrained(str(tmp_path / "plain"))
    assert "idiomtune_files" not in (tmp_path / "plain" / config.name).read_text()
    loaded(tmp_path / "plain")
