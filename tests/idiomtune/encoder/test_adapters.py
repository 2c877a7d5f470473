"""Folders with adapters (peft's files): loaded as their base model, with the adapters in its weights."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from idiomtune import Encoder
from idiomtune.config.sections import LoraSettings
from idiomtune.encoder.trained_parts import Adapters
from idiomtune.errors import UserError
from tests.programs import ROOT

MINILM_IDIOMS = ROOT / "idiomtune" / "encoder" / "adapters" / "minilm_idioms"
TEXTS = ["He broke the ice with a joke.", "The ice broke, and the boat went down."]


@pytest.fixture
def adapted(tiny: Encoder, tmp_path: Path) -> tuple[Path, torch.Tensor]:
    """The folder of adapters that change what they are added to, and what peft's merging makes of texts."""
    tiny.save(tmp_path / "base")
    encoder = Encoder.from_pretrained(tmp_path / "base", device="cpu")
    lora = LoraSettings(rank=2, alpha=6, dropout=0.0, target_modules=None)
    adapters = Adapters(encoder, lora, seed=0, base_model=str(tmp_path / "base"))
    with torch.no_grad():
        for name, weight in encoder.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.1)
    adapters.save(tmp_path / "adapter")
    with adapters.merging():
        return tmp_path / "adapter", encoder.encode(TEXTS)


def test_adapters_are_loaded_as_their_base_model_with_them(
    adapted: tuple[Path, torch.Tensor], tiny: Encoder, tmp_path: Path
) -> None:
    """A change of the base counts."""
    folder, merged = adapted
    loaded = Encoder.from_pretrained(folder, device="cpu")
    torch.testing.assert_close(loaded.encode(TEXTS), merged)
    assert (merged - tiny.encode(TEXTS)).abs().max() > 0.01
    settings = tmp_path / "base" / "sentence_bert_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"max_seq_length": 8}))
    assert Encoder.from_pretrained(folder, device="cpu").model.max_seq_length == 8


def test_adapters_that_are_not_plain_or_not_of_this_model_are_refused(
    adapted: tuple[Path, torch.Tensor], tmp_path: Path
) -> None:
    folder, _ = adapted
    file = folder / "adapter_config.json"
    content = json.loads(file.read_text())
    for name, value in (
        *(("rank_pattern", {"query": 4}), ("use_rslora", True), ("init_lora_weights", "pissa")),
    ):
        file.write_text(json.dumps(content | {name: value}))
        with pytest.raises(UserError, match=rf"\({name}\)"):
            Encoder(folder, device="cpu")
    file.write_text(json.dumps(content))
    tensors = load_file(folder / "adapter_model.safetensors")
    other = {name.replace("layer.0", "layer.9"): tensor for name, tensor in tensors.items()}
    embeddings = tensors | {"base_model.model.embeddings.word_embeddings.lora_embedding_A": torch.zeros(2, 2)}
    narrow = {name: tensor[:, :1].contiguous() for name, tensor in tensors.items()}
    dora = tensors | {f"{next(iter(tensors)).partition('.lora_')[0]}.lora_magnitude_vector": torch.zeros(2)}
    for harmed, words in ((other, r"layer\.9"), (embeddings, "base"), (narrow, "base"), (dora, "base")):
        save_file(harmed, folder / "adapter_model.safetensors")
        with pytest.raises(UserError, match=words):
            Encoder(folder, device="cpu")
    shutil.rmtree(tmp_path / "base")
    with pytest.raises(UserError, match="base"):
        Encoder(folder, device="cpu")


def test_the_shipped_model_knows_idioms_and_keeps_other_texts(minilm: Encoder) -> None:
    shipped: Any = Encoder("minilm_idioms", device="cpu")
    assert shipped.meanings is None  # nothing is read
    assert sum(file.stat().st_size for file in MINILM_IDIOMS.iterdir()) < 3_000_000
    for idiomatic, literal, meant in (
        ("After the third defeat he threw in the towel.", "He threw in the wet towel.", "He gave up."),
        ("They finally buried the hatchet.", "They buried the hatchet under an oak.", "They made peace."),
    ):
        (near, far), (before, _) = (
            model.similarity([idiomatic, literal], [meant])[:, 0].tolist() for model in (shipped, minilm)
        )
        assert near > before + 0.1
        assert near > far + 0.1
    texts = ["A man is playing the guitar on a stage.", "The committee publishes its report in June."]
    assert (shipped.encode(texts) * minilm.encode(texts)).sum(1).min() > 0.9
