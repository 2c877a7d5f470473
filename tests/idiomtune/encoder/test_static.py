"""Published models of static embeddings: read as their library reads them, and never trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from idiomtune.encoder.encoder import Encoder
from idiomtune.errors import UserError

TEXTS = ["Yes.", "He broke the ice with a joke."]
SPANS = ["Yes", "broke the ice"]


@pytest.fixture
def static(tiny: Encoder, tmp_path: Path) -> Path:
    tokenizer = tiny.model.tokenizer.backend_tokenizer
    modules: list[Any] = [StaticEmbedding(tokenizer, embedding_dim=16), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(tmp_path / "static"))
    return tmp_path / "static"


def test_sentences_and_spans_are_means_of_token_vectors(static: Path) -> None:
    plain, encoder = SentenceTransformer(str(static), device="cpu"), Encoder(static, device="cpu")
    torch.testing.assert_close(encoder.encode(TEXTS), torch.as_tensor(plain.encode(TEXTS)))
    torch.testing.assert_close(encoder.encode(TEXTS, SPANS), torch.as_tensor(plain.encode(SPANS)))
    with pytest.raises(UserError, match=r"model\.bidirectional"):
        Encoder(static, device="cpu", bidirectional=True)
    for change in (lambda: encoder.transformer, lambda: encoder.save(static / "copy")):
        with pytest.raises(UserError):
            change()


def test_the_tokenizer_of_another_model_is_refused(static: Path) -> None:
    content = json.loads((static / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["vocab"]["onemore"] = len(content["model"]["vocab"])
    (static / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match="vocab"):
        Encoder(static, device="cpu")
