"""A step's memory: the longest batch is tried before the first step."""

import json
from pathlib import Path

import pytest
import torch

from idiomtune.objectives import Batch
from idiomtune.requests import EmbeddingRequest
from idiomtune.training.loop import longest_batch
from idiomtune.training.run_folder import RunFolder
from tests.programs import refused
from tests.tiny_runs import WholeRun, assert_same_run, at_loss, train


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU."""
    monkeypatch.setattr("idiomtune.training.loop.tries_longest_batch", lambda _: True)


def no_memory() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has no more.")


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize("is_warned", [False, True])
def test_a_run_is_the_same_without_the_trial(
    whole_run: WholeRun, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_warned: bool
) -> None:
    """With what else a step may hold; and where memory does not suffice for it, which is a warning then."""
    more = ["trainer.accumulation=2", "trainer.gradient_caching=true", "trainer.max_steps=2"]
    if is_warned:
        more = []
        at_loss(monkeypatch, 1, no_memory)
    train(tmp_path, [*options, *more, "trainer.memory_check=warn"])
    monkeypatch.undo()
    assert_same_run(tmp_path, whole_run([*options, *more]))


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize("number", [1, 3], ids=["in the trial", "later"])
def test_too_little_memory_ends_with_what_takes_less(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    at_loss(monkeypatch, number, no_memory)
    less = ["trainer.activation_checkpointing", "model.tokens_per_forward", "precision=bf16"]
    less += ["forgetting.lora.rank", "trainer.accumulation=2"]
    error = refused(lambda: train(tmp_path, [*options, "trainer.gradient_caching=true"]), "2.00 GiB", *less)
    assert "gradient_caching" not in str(error)
    assert len(RunFolder(tmp_path).metrics()) == number // 2  # steps before it
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "failed"


def test_the_longest_batch_has_the_most_letters() -> None:
    """A text that several requests embed counts once."""
    texts = [["a" * 5, "a" * 5], ["a" * 4, "b" * 4], ["abcdefg"]]
    batches = [Batch([EmbeddingRequest(text) for text in some], anchors=[], targets=None) for some in texts]
    assert longest_batch(batches) is batches[1]
