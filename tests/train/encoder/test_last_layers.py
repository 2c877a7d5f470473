"""`model.pooling=last2`: the mean over tokens of the mean of the last two layers, saved with the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from train.encoder.encoder import Encoder
from train.errors import UserError

TEXTS = [
    "He broke the ice with a joke about the weather.",
    "The ice broke.",
    "Don't let the cat out of the bag, she said, because nobody else may know about the party yet.",
]


@pytest.fixture(scope="module")
def last2(tiny_path: Path) -> Encoder:
    return Encoder.from_pretrained(tiny_path, device="cpu", pooling="last2")


def naive(encoder: Encoder, text: str) -> torch.Tensor:
    """One text alone, unpadded; not normalised."""
    transformer: Any = encoder.model[0]
    tokenizer: Any = encoder.model.tokenizer
    with torch.no_grad():
        output = transformer.auto_model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
    layers = output.hidden_states[-2:]
    mean: torch.Tensor = ((layers[0] + layers[1]) / 2)[0].mean(0)
    return mean


def unit(rows: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(rows, dim=-1)


def test_it_is_the_mean_of_the_last_two_layers(last2: Encoder, tiny: Encoder) -> None:
    expected = torch.stack([naive(last2, text) for text in TEXTS])
    torch.testing.assert_close(unit(last2.encode(TEXTS)), unit(expected), atol=1e-6, rtol=0)
    assert not torch.allclose(unit(tiny.encode(TEXTS)), unit(expected), atol=1e-3)


def test_padding_changes_nothing(last2: Encoder) -> None:
    alone = torch.cat([last2.encode([text]) for text in TEXTS])
    torch.testing.assert_close(last2.encode(TEXTS), alone, atol=1e-6, rtol=0)


def test_a_saved_model_pools_so_without_our_code(last2: Encoder, tmp_path: Path) -> None:
    last2.save(tmp_path / "model")
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(theirs, last2.encode(TEXTS), atol=1e-6, rtol=0)
    ours = Encoder.from_pretrained(tmp_path / "model", device="cpu").encode(TEXTS)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


def test_the_weights_of_the_layers_are_not_trained(last2: Encoder) -> None:
    names = {name for name, p in last2.model.named_parameters() if not p.requires_grad}
    assert [name for name in names if "layer_weights" in name]


def test_more_layers_than_there_are_is_said(tiny_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.pooling=last3: the model has 2 layers"):
        Encoder.from_pretrained(tiny_path, device="cpu", pooling="last3")
