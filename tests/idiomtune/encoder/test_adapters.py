"""Adapters that are merged while a model is loaded, and the model that comes with the project as one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import cosine_similarity

import idiomtune as it
from idiomtune.config.sections import LoraSettings
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.trained_parts import Adapters
from idiomtune.errors import UserError

TEXTS = ["They broke the ice.", "A home run."]


def test_saved_adapters_are_merged_into_the_weights(tiny: Encoder, tmp_path: Path) -> None:
    tiny.save(tmp_path / "base")
    before = tiny.encode(TEXTS)
    lora = LoraSettings(rank=2, alpha=3.0, dropout=0.0, target_modules=None)
    adapters = Adapters(tiny, lora, seed=0, base_model="base")
    with torch.no_grad():
        for name, parameter in tiny.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.2, generator=torch.Generator().manual_seed(1))
    adapters.save(tmp_path / "adapter")
    with adapters.merged():
        expected = tiny.encode(TEXTS)
    assert not torch.allclose(expected, before, atol=1e-2)
    loaded = Encoder.from_pretrained(tmp_path / "base", adapter=str(tmp_path / "adapter"), device="cpu")
    assert torch.allclose(loaded.encode(TEXTS), expected, atol=1e-5)
    loaded.save(tmp_path / "merged")  # a plain model, which needs no adapter
    assert torch.allclose(Encoder.from_pretrained(tmp_path / "merged").encode(TEXTS), expected, atol=1e-5)
    for folder, words in (("base", "adapter_config.json"), ("nowhere", "adapter_config.json")):
        with pytest.raises(UserError, match=words) as error:
            Encoder.from_pretrained(tmp_path / "base", adapter=str(tmp_path / folder))
        assert error.value.option == f"model.adapter={tmp_path / folder}"


def test_adapters_of_another_model_are_refused(tiny: Encoder, tmp_path: Path) -> None:
    tiny.save(tmp_path / "base")
    with pytest.raises(UserError, match="of this model"):
        Encoder.from_pretrained(tmp_path / "base", adapter="package:idiomtune/encoder/adapters/minilm_idioms")


def test_the_model_that_ships_reads_a_glossary_at_once() -> None:
    encoder = it.Encoder("minilm_idioms", glossary={"miss the boat": "be too late"}, device="cpu")
    assert encoder.meanings is not None
    assert encoder.meanings.form == "beside"
    assert encoder.meanings.gate is not None
    late, boat, meaning, ship = encoder.encode(
        [
            "Investors who hesitated in the crisis missed the boat completely.",
            "They ran to the harbour but missed the boat to the island.",
            "They were too late to profit.",
            "The ferry left the harbour without them.",
        ]
    )
    assert cosine_similarity(late, meaning, dim=0) > cosine_similarity(late, ship, dim=0)
    assert cosine_similarity(boat, ship, dim=0) > cosine_similarity(boat, meaning, dim=0)
    folder = Path(it.__file__).parent / "encoder/adapters/minilm_idioms"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 3_000_000
    plain = it.Encoder("minilm_idioms", device="cpu")
    assert plain.meanings is None
