"""The best checkpoint is scored as it was saved; if it is the last one, its embeddings are at hand."""

from pathlib import Path
from typing import Any

import pytest
import torch

from idiomtune import Encoder
from idiomtune.benchmarks import embeddings
from idiomtune.errors import UserError
from idiomtune.training import loop
from tests.tiny_runs import train

LAST = ["trainer.max_steps=2", "eval.every=end", "eval.cache=false"]


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counts: list[int] = []
    real = embeddings.embed_now

    def counted(encoder: Any, requests: Any, *others: Any) -> torch.Tensor:
        counts.append(len(requests))
        return real(encoder, requests, *others)

    monkeypatch.setattr(embeddings, "embed_now", counted)
    return counts


def test_the_last_checkpoint_is_embedded_once(
    tmp_path: Path, options: list[str], embedded: list[int]
) -> None:
    train(tmp_path / "run", [*options, *LAST])
    untrained, last, probes = embedded
    assert (untrained, probes) == (last, 8)


@pytest.mark.parametrize("is_same", [False, True])
def test_another_models_embeddings_are_not_taken(
    tmp_path: Path, options: list[str], embedded: list[int], monkeypatch: pytest.MonkeyPatch, is_same: bool
) -> None:
    """Weights that change when they are saved are scored as they are in the file, which the run reports; also
    if the digest were the same, by some texts that are embedded again."""
    real = loop._save

    def spoiled(training: Any, *others: Any, **options: Any) -> None:
        with torch.no_grad():
            for parameter in training.encoder.parameters():
                parameter.copy_(torch.randn_like(parameter))
        real(training, *others, **options)

    monkeypatch.setattr(loop, "_save", spoiled)
    if is_same:
        monkeypatch.setattr(Encoder, "digest", lambda _: "the same")
    with pytest.raises(UserError, match="best/"):
        train(tmp_path / "run", [*options, *LAST])
    assert embedded[-1] == embedded[0]
