"""Checkpoints that are damaged, incomplete or pickled are refused in words; static ones are read alone."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor

from idiomtune import Encoder
from idiomtune.encoder import loading
from idiomtune.errors import UserError
from tests.doc_pages import inline
from tests.programs import ROOT, refused

Weights = dict[str, Tensor]
Spoil = Callable[[Path], object]


def weights(change: Callable[[Weights], Weights]) -> Spoil:
    def spoil(folder: Path) -> None:
        file = folder / "model.safetensors"
        save_file(change(load_file(file)), file, metadata={"format": "pt"})

    return spoil


def setting(file: str, name: str, value: object) -> Spoil:
    def spoil(folder: Path) -> None:
        content = json.loads((folder / file).read_text(encoding="utf-8"))
        content[name] = value
        (folder / file).write_text(json.dumps(content), encoding="utf-8")

    return spoil


def pickled_dense(folder: Path) -> None:
    """A module whose weights are a pickle that would run code."""
    model = SentenceTransformer(str(folder), device="cpu")
    model.append(Dense(32, 32, bias=False))
    model.save_pretrained(str(folder))
    (dense,) = folder.glob("*_Dense")
    (dense / "model.safetensors").unlink()
    torch.save({"linear.weight": Path("x")}, dense / "pytorch_model.bin")


def small_vocabulary(folder: Path) -> None:
    setting("config.json", "vocab_size", 3_000)(folder)
    weights(lambda w: {n: t[:3_000].clone() if "word_embeddings" in n else t for n, t in w.items()})(folder)


LENGTHS, TOKENIZER = "sentence_bert_config.json", "tokenizer_config.json"
LAST, LAST_BIAS = (f"encoder.layer.1.output.dense.{name}" for name in ("weight", "bias"))
SPOILT: dict[str, tuple[Spoil, list[str]]] = {
    # Nothing but our checks would tell: how it comes about, and what the message has to name.
    "no tokenizer": (lambda f: [*map(os.remove, f.glob("tokenizer*"))], ["tokenizer.json"]),
    "no weights of a layer": (
        weights(lambda w: {n: t for n, t in w.items() if n not in (LAST, LAST_BIAS)}),
        [LAST, LAST_BIAS, "config.json"],
    ),
    "weights of more layers": (setting("config.json", "num_hidden_layers", 1), ["encoder.layer.1."]),
    "weights of another shape": (weights(lambda w: w | {LAST: torch.ones(2, 2)}), [LAST, "2 × 2", "32 × 64"]),
    "NaN": (weights(lambda w: w | {LAST: w[LAST] * float("nan")}), ["NaN", LAST]),
    "small vocabulary": (small_vocabulary, ["3000", "config.json"]),
    "another width": (setting("1_Pooling/config.json", "embedding_dimension", 16), ["32 numbers", "16"]),
    "length -5": (setting(TOKENIZER, "model_max_length", -5), [TOKENIZER, "model_max_length", "-5"]),
}
REFUSED: dict[str, Spoil] = {
    # The libraries tell, in whatever way: their reason has to be one line.
    "dtype": setting("config.json", "dtype", "float8"),
    "nested": lambda f: (f / TOKENIZER).write_text("[" * 100_000),
    "pickled code": pickled_dense,
}


@pytest.fixture
def copy(tiny_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_path, tmp_path / "model"))


@pytest.mark.parametrize("name", [*SPOILT, *REFUSED])
def test_what_is_broken_is_refused_in_a_line(copy: Path, name: str) -> None:
    spoil, named = SPOILT.get(name) or (REFUSED[name], [])
    spoil(copy)
    error = refused(lambda: Encoder.from_pretrained(copy, device="cpu"), str(copy), *named)
    assert "\n" not in str(error)


def test_a_length_leaves_room_for_words(copy: Path) -> None:
    """An option mends that of a checkpoint."""
    setting(LENGTHS, "max_seq_length", 2)(copy)
    for length in (None, 2, 0):
        with pytest.raises(UserError, match=r"model\.max_length\b"):
            Encoder(copy, device="cpu", max_length=length)
    assert Encoder(copy, device="cpu", max_length=3).encode(["a word"]).isfinite().all()


def with_another_head(w: Weights) -> Weights:
    """As a language model has them: with a prefix and a head, segments of zeros, and no pooler."""
    encoder = {f"bert.{name}": t for name, t in w.items() if not name.startswith("pooler")}
    encoder["bert.embeddings.token_type_embeddings.weight"].zero_()
    encoder["bert.embeddings.position_ids"] = torch.arange(64)[None]
    return {**encoder, "cls.predictions.bias": torch.zeros(30522)}


def test_what_embeddings_are_not_made_of_may_be_missing_or_more(
    copy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing pooler is the same in each load: it is saved, and by it a base model would seem another."""
    weights(with_another_head)(copy)
    first, second = (Encoder(copy, device="cpu") for _ in range(2))
    assert first.encode(["a word"]).isfinite().all()
    assert "LOAD REPORT" not in caplog.text
    for (name, ours), theirs in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(ours, theirs), name


def test_what_the_libraries_raise_is_a_line_but_not_a_lack_of_memory(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A download that fails is no bad file."""

    lost = OSError("We couldn't connect")
    lost.__cause__ = ConnectionError("connection refused")
    for error, words in (
        (lost, "download"),
        (ValueError("You need to have\nsentencepiece"), r"idiomtune\[sentencepiece\]"),
    ):
        monkeypatch.setattr(loading, "SentenceTransformer", Mock(side_effect=error))
        with pytest.raises(UserError, match=words) as caught:
            Encoder(tiny_path, device="cpu")
        assert "\n" not in str(caught.value)
        assert caught.value.__cause__ is error
    monkeypatch.setattr(loading, "SentenceTransformer", Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        Encoder(tiny_path, device="cpu")


TEXTS, SPANS = ["Yes.", "He broke the ice with a joke."], ["Yes", "broke the ice"]


def test_pickled_weights_are_refused_until_the_documented_line_converted_them(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = Encoder(copy, device="cpu").encode(TEXTS)
    torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"docs/troubleshooting\.md"):
        Encoder(copy, device="cpu")
    (line,) = (code for code in inline(ROOT / "docs" / "troubleshooting.md") if "save_pretrained" in code)
    exec(line.replace("<model>", str(copy)), {"SentenceTransformer": SentenceTransformer})
    torch.testing.assert_close(Encoder("converted", device="cpu").encode(TEXTS), expected)


def test_static_embeddings_are_means_of_token_vectors_and_never_trained(
    tiny: Encoder, tmp_path: Path
) -> None:
    folder, tokenizer = tmp_path / "static", tiny.model.tokenizer.backend_tokenizer
    modules: list[Any] = [StaticEmbedding(tokenizer, embedding_dim=16), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder))
    plain, encoder = SentenceTransformer(str(folder), device="cpu"), Encoder(folder, device="cpu")
    torch.testing.assert_close(encoder.encode(TEXTS), torch.as_tensor(plain.encode(TEXTS)))
    torch.testing.assert_close(encoder.encode(TEXTS, SPANS), torch.as_tensor(plain.encode(SPANS)))
    with pytest.raises(UserError, match=r"model\.bidirectional"):
        Encoder(folder, device="cpu", bidirectional=True)
    with pytest.raises(UserError):
        encoder.save(folder / "copy")
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["vocab"]["onemore"] = len(content["model"]["vocab"])
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match="vocab"):
        Encoder(folder, device="cpu")
