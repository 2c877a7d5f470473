"""Idiom tokens' vectors with a learning rate of their own, and trained alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from tests.tiny_runs import composed, train
from train.config import TrainSettings, check
from train.encoder.encoder import Encoder
from train.encoder.trained_parts import IdiomTokenRows
from train.errors import UserError
from train.requests import Request
from train.training.step import parameter_groups

TOKENS = ["model.idiom_tokens=train", "trainer.max_steps=4", "retain.distillation=0"]
ROWS = "0.model.embeddings.word_embeddings.weight"


def steps(encoder: Encoder, factor: float | None, learning_rate: float, num: int = 3) -> torch.Tensor:
    """The embedding matrix after a few steps; without a factor, of an optimizer of all."""
    weight = dict(encoder.model.named_parameters())[ROWS]
    optimizer = torch.optim.AdamW([weight], lr=learning_rate, weight_decay=0.1)
    if factor is not None:
        IdiomTokenRows(encoder, "x").scale_steps(optimizer, factor)
    for number in range(num):
        target = torch.randn(weight.shape, generator=torch.Generator().manual_seed(number))
        optimizer.zero_grad()
        functional.mse_loss(weight, target, reduction="sum").backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return weight.detach().clone()


def test_a_factor_is_a_learning_rate_of_the_tokens_rows(tiny_path: Path) -> None:
    """As if each row had an optimizer with its own rate, decay included."""
    found = {}
    for name, factor, rate in (("scaled", 20.0, 1e-3), ("low", None, 1e-3), ("high", None, 2e-2)):
        encoder = Encoder.from_pretrained(tiny_path, device="cpu")
        encoder.add_idiom_tokens(["home run", "red tape"])
        found[name] = steps(encoder, factor, rate)
    old = len(found["scaled"]) - 2
    torch.testing.assert_close(found["scaled"][:old], found["low"][:old], rtol=0, atol=0)
    torch.testing.assert_close(found["scaled"][old:], found["high"][old:], rtol=1e-5, atol=1e-6)
    assert (found["scaled"][old:] - found["low"][old:]).abs().max() > 1e-2


def test_tokens_learn_faster_than_the_rest(
    tmp_path: Path, triplet_options: list[str], tiny_path: Path
) -> None:
    run_options = [*triplet_options, *TOKENS, "trainer.learning_rate=1e-4"]
    for name, options in (("same", []), ("own", ["trainer.idiom_tokens_learning_rate=1e-2"])):
        train(tmp_path / name, [*run_options, *options])
    start = Encoder.from_pretrained(tiny_path, device="cpu", pooling="last2")
    num_old = len(dict(start.model.named_parameters())[ROWS])
    moved = {}
    for name in ("same", "own"):
        best = Encoder.from_pretrained(tmp_path / name / "best", device="cpu")
        assert best.idiom_tokens is not None
        start = Encoder.from_pretrained(tiny_path, device="cpu", pooling="last2")
        start.add_idiom_tokens(best.idiom_tokens.expressions[t][0] for t in best.idiom_tokens.expressions)
        change = dict(best.model.named_parameters())[ROWS] - dict(start.model.named_parameters())[ROWS]
        moved[name] = change[num_old:].abs().mean().item(), change[:num_old].abs().max().item()
    assert moved["own"][0] > 10 * moved["same"][0]
    assert moved["own"][1] < 2e-3


def test_tokens_alone_leave_sentences_without_an_idiom_where_they_were(
    tmp_path: Path, triplet_options: list[str], tiny_path: Path
) -> None:
    run_options = [*triplet_options, *TOKENS, "trainer.only_idiom_tokens=true", "trainer.learning_rate=1e-2"]
    train(tmp_path / "run", run_options)
    best = Encoder.from_pretrained(tmp_path / "run" / "best", device="cpu")
    start = Encoder.from_pretrained(tiny_path, device="cpu", pooling="last2")
    texts = ["They sat in the garden until it was dark.", "He got cold feet before the wedding."]
    before, after = ([e.encode([text])[0] for text in texts] for e in (start, best))
    torch.testing.assert_close(after[0], before[0], rtol=0, atol=0)
    assert (after[1] - before[1]).abs().max() > 1e-3
    ours, theirs = dict(best.model.named_parameters()), dict(start.model.named_parameters())
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name][: len(weight)], weight, rtol=0, atol=0)


def test_a_model_without_idiom_tokens_is_refused(tmp_path: Path, triplet_options: list[str]) -> None:
    for option in ("trainer.idiom_tokens_learning_rate=0.01", "trainer.only_idiom_tokens=true"):
        with pytest.raises(UserError, match=f"{option}: the model has no idiom tokens: model.idiom_tokens="):
            train(tmp_path / option, [*triplet_options, *TOKENS[1:], "model.idiom_tokens=null", option])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["trainer.only_idiom_tokens=true", "retain.distillation=1"], "has no effect"),
        (["trainer.only_idiom_tokens=true", "trainer.freeze_encoder=true"], "give one of them"),
    ],
)
def test_contradictions_are_named(options: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check(TrainSettings, composed("config", "+experiment=adaptive_triplet", *options))


def test_only_the_tokens_rows_are_trained_of_the_encoder(tiny: Encoder) -> None:
    tiny.add_idiom_tokens(["home run"])
    IdiomTokenRows(tiny, "x").train_alone()
    settings = check(
        TrainSettings,
        composed(
            "config",
            "+experiment=adaptive_triplet",
            "retain.distillation=0",
            "trainer.only_idiom_tokens=true",
        ),
    )
    (group,) = parameter_groups(tiny, torch.nn.Module(), settings.trainer)
    (matrix,) = group["params"]
    assert group["weight_decay"] == 0.0
    tiny([Request("They scored a home run.")]).sum().backward()
    assert matrix.grad is not None
    assert matrix.grad[:-1].abs().max() == 0
    assert matrix.grad[-1].abs().max() > 0
