"""Dropout with eight-bit masks: its statistics, its gradient, and the model around it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional

import train.encoder.forward
from train.encoder.encoder import Encoder
from train.encoder.forward import byte_dropout, random_bytes, use_byte_dropout
from train.requests import Request

_SIZE = 2**18


def _kept(p: float = 0.1) -> Tensor:
    return byte_dropout(torch.ones(_SIZE), p).bool()


def _correlation(a: Tensor, b: Tensor) -> float:
    """Near 0 ± 1 / √n for independent masks of n values."""
    return float(torch.corrcoef(torch.stack([a, b]).float())[0, 1])


@pytest.mark.parametrize(("p", "level"), [(0.1, 26), (0.5, 128), (0.05, 13), (0.002, 1), (0.998, 255)])
def test_rate_mean_and_variance(p: float, level: int) -> None:
    torch.manual_seed(0)
    x = byte_dropout(torch.ones(_SIZE), p)
    q = level / 256
    sigma = (q / (1 - q) / _SIZE) ** 0.5  # of the mean
    assert sorted(set(x.tolist())) == pytest.approx([0, 256 / (256 - level)])
    assert float((x == 0).float().mean()) == pytest.approx(q, abs=4 * (q * (1 - q) / _SIZE) ** 0.5)
    assert float(x.mean()) == pytest.approx(1, abs=4 * sigma)
    assert float(x.var()) == pytest.approx(q / (1 - q), rel=0.2)


def test_bytes_are_uniform_at_each_place_of_a_word() -> None:
    torch.manual_seed(0)
    for place in random_bytes(torch.Size([_SIZE])).view(-1, 8).T:
        counts = torch.bincount(place.long(), minlength=256).float()
        chi2 = float(((counts - counts.mean()) ** 2 / counts.mean()).sum())
        assert 160 < chi2 < 370  # of 255 degrees of freedom, whose deviation is 23


def test_masks_are_independent_and_follow_from_the_seed() -> None:
    torch.manual_seed(0)
    first, second = _kept(), _kept()
    limit = 4.5 / _SIZE**0.5
    assert abs(_correlation(first, second)) < limit
    for lag in (1, 2, 4, 8, 384):
        assert abs(_correlation(first[lag:], first[:-lag])) < limit, lag
    torch.manual_seed(0)
    assert torch.equal(_kept(), first)
    assert torch.equal(_kept(), second)
    torch.manual_seed(1)
    assert abs(_correlation(_kept(), first)) < limit


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradient_have_the_same_mask(dtype: torch.dtype) -> None:
    """Also in a layout of its own, and of a size that is not a multiple of eight."""
    torch.manual_seed(0)
    x = torch.randn(7, 5, 3).to(dtype).transpose(0, 1).requires_grad_()
    torch.manual_seed(1)
    dropped = byte_dropout(x, 0.3)
    torch.manual_seed(1)
    kept = random_bytes(x.shape) >= 77
    weight = torch.randn(x.shape).to(dtype)
    (dropped * weight).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    for got, plain in ((dropped, x), (x.grad, weight)):
        exact = plain.double() * kept * (256 / 179)
        assert got.dtype == dtype
        torch.testing.assert_close(got, exact.to(dtype), rtol=torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("p", [0.0, 0.0019, 0.999, 1.0])
def test_rates_beyond_eight_bits_are_left_to_pytorch(p: float) -> None:
    x = torch.randn(1000)
    torch.manual_seed(0)
    ours = byte_dropout(x, p)
    torch.manual_seed(0)
    assert torch.equal(ours, functional.dropout(x, p))


def test_a_step_is_that_of_sentence_transformers_with_the_same_masks(
    tiny: Encoder, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss and gradients, with dropout in embeddings, attention and layers."""
    masks: list[Tensor] = []

    def noted(shape: torch.Size) -> Tensor:
        masks.append(random_bytes(shape))
        return masks[-1]

    def given(x: Tensor, p: float = 0.5, training: bool = True, *_: bool) -> Tensor:
        level = round(256 * p)
        return x * (masks.pop(0) >= level) * (256 / (256 - level)) if training else x

    def loss(rows: Tensor) -> Tensor:
        return functional.cross_entropy(rows[:2] @ rows[2:].T / 0.05, torch.arange(2))

    texts = ["the ship broke the ice of the harbour", "rain fell all day", "it rained", "no"]  # by length
    use_byte_dropout(tiny, tiny.transformer)
    monkeypatch.setattr(train.encoder.forward, "random_bytes", noted)
    ours = loss(tiny.train()([Request(text) for text in texts]))
    ours.backward()  # type: ignore[no-untyped-call]
    assert len(masks) == 1 + 2 * 3

    plain = SentenceTransformer(
        str(tiny_path), device="cpu", model_kwargs={"attn_implementation": "eager"}
    ).train()
    monkeypatch.setattr(functional, "dropout", given)
    theirs = loss(
        plain(dict(plain.tokenizer(texts, padding=True, return_tensors="pt")))["sentence_embedding"]
    )
    theirs.backward()  # type: ignore[no-untyped-call]
    assert not masks
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    gradients = {name: p.grad for name, p in tiny.model.named_parameters() if p.grad is not None}
    assert len(gradients) > 20
    for name, p in plain.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(gradients.pop(name), p.grad, rtol=1e-4, atol=1e-6, msg=name)
    assert not gradients


def test_only_training_is_changed_and_nothing_is_saved_of_it(tiny: Encoder, tmp_path: Path) -> None:
    texts = ["He kicked the bucket.", "A short one."]
    before = tiny.encode(texts)
    kinds = [type(module) for module in tiny.model.modules() if not isinstance(module, nn.Dropout)]
    tiny.save(tmp_path / "before")
    use_byte_dropout(tiny, tiny.transformer)
    assert kinds == [type(m) for m in tiny.model.modules() if not isinstance(m, nn.Dropout)]
    assert not any(type(module) is nn.Dropout for module in tiny.model.modules())
    assert torch.equal(tiny.encode(texts), before)
    tiny.save(tmp_path / "after")
    files = [path.relative_to(tmp_path / "before") for path in (tmp_path / "before").rglob("*.*")]
    assert len(files) > 5
    for file in files:
        assert (tmp_path / "before" / file).read_bytes() == (tmp_path / "after" / file).read_bytes(), file
