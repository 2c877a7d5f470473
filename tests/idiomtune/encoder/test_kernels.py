"""How a CPU trains: attention of short texts and dropout with eight-bit masks, against PyTorch's own."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional

import idiomtune.encoder.forward
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.forward import SHORT_ATTENTION, attend, byte_dropout, random_bytes, use_byte_dropout
from idiomtune.requests import Request

_BATCH, _HEADS, _LENGTH, _WIDTH = 3, 4, 11, 8
_SIZE = 2**18
TEXTS = ["He kicked the bucket.", "A short one."]
_exact = functional.scaled_dot_product_attention


def _module(groups: int = 1, is_causal: bool = False) -> Any:
    return SimpleNamespace(num_key_value_groups=groups, is_causal=is_causal)


def _inputs(groups: int = 1) -> list[Tensor]:
    torch.manual_seed(5)
    heads = (_HEADS, _HEADS // groups, _HEADS // groups)
    return [torch.randn(_BATCH, count, _LENGTH, _WIDTH, requires_grad=True) for count in heads]


def _padding() -> Tensor:
    lengths = torch.tensor([_LENGTH, 7, 3])[:, None, None, None]
    return (torch.arange(_LENGTH) < lengths).expand(-1, 1, _LENGTH, -1)


@pytest.mark.parametrize(("groups", "scaling"), [(1, None), (2, 0.7)])
@pytest.mark.parametrize("seen", ["padding", "before", "before, by the module"])
def test_values_and_gradients_are_those_of_pytorch(groups: int, scaling: float | None, seen: str) -> None:
    ours, theirs = _inputs(groups), _inputs(groups)
    mask = _padding() if seen == "padding" else None
    causal = seen.startswith("before")
    given = None if seen == "before, by the module" else causal
    module = _module(groups, is_causal=causal)
    got, _ = attend(module, ours[0], ours[1], ours[2], mask, scaling=scaling, is_causal=given)
    options: dict[str, Any] = {"scale": scaling, "is_causal": causal, "enable_gqa": groups > 1}
    wanted = _exact(theirs[0], theirs[1], theirs[2], mask, **options).transpose(1, 2)
    assert got.shape == (_BATCH, _LENGTH, _HEADS, _WIDTH)
    # Sums of up to 44 products of size 1 to 10, in another order: 1e-6 apart on some processors.
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)
    weight = torch.randn(got.shape)
    (got * weight).sum().backward()  # type: ignore[no-untyped-call]
    (wanted * weight).sum().backward()  # type: ignore[no-untyped-call]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.grad is not None
        torch.testing.assert_close(mine.grad, other.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("spread", [1, 4])
def test_bfloat16_is_as_exact_as_pytorchs(spread: int) -> None:
    torch.manual_seed(0)
    query, key, value = ((torch.randn(4, 12, 48, 32) * s).bfloat16() for s in (spread, 1, 1))
    exact, theirs = (
        _exact(query.to(d), key.to(d), value.to(d)).transpose(1, 2) for d in (torch.float64, torch.bfloat16)
    )
    with torch.autocast("cpu", torch.bfloat16):
        ours, _ = attend(_module(), query, key, value, None)
    assert ours.dtype == torch.bfloat16
    assert (ours - exact).norm() < 1.5 * (theirs - exact).norm()


def test_dropout_draws_what_pytorch_draws_and_a_bias_is_left_to_the_library() -> None:
    query, key, value = _inputs()
    for mask, bias, rate in ((_padding(), None, 0.4), (None, torch.randn(1, _HEADS, _LENGTH, _LENGTH), 0.0)):
        options: dict[str, Any] = {} if bias is None else {"position_bias": bias}
        torch.manual_seed(3)
        got, _ = attend(_module(), query, key, value, mask, dropout=rate, **options)
        torch.manual_seed(3)
        expected = _exact(query, key, value, mask if bias is None else bias, dropout_p=rate).transpose(1, 2)
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)


def test_long_texts_go_to_the_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = Mock(return_value=(None, None))
    monkeypatch.setattr(idiomtune.encoder.forward, "sdpa_attention_forward", fused)
    for length, is_fused in ((255, False), (256, False), (257, True)):
        one = torch.randn(1, 2, length, 4)
        with torch.set_grad_enabled(length % 2 == 0):  # a pass without a graph is made alike with one
            attend(_module(), one, one, one, None)
        assert fused.called == is_fused


@pytest.mark.parametrize(("p", "level"), [(0.1, 26), (0.998, 255), (0.0019, 0), (0.999, 256)])
def test_rate_mean_and_variance(p: float, level: int) -> None:
    torch.manual_seed(0)
    x = byte_dropout(torch.ones(_SIZE), p)
    if not 0 < level < 256:  # beyond eight bits: PyTorch's own
        torch.manual_seed(0)
        assert torch.equal(x, functional.dropout(torch.ones(_SIZE), p))
        return
    q = level / 256
    sigma = (q / (1 - q) / _SIZE) ** 0.5  # of the mean
    assert sorted(set(x.tolist())) == pytest.approx([0, 256 / (256 - level)])
    assert float((x == 0).float().mean()) == pytest.approx(q, abs=4 * (q * (1 - q) / _SIZE) ** 0.5)
    assert float(x.mean()) == pytest.approx(1, abs=4 * sigma)
    assert float(x.var()) == pytest.approx(q / (1 - q), rel=0.2)


def test_masks_are_independent_and_follow_from_the_seed() -> None:
    def mask(seed: int | None = None) -> Tensor:
        if seed is not None:
            torch.manual_seed(seed)
        return byte_dropout(torch.ones(_SIZE), 0.1).bool()

    assert byte_dropout(torch.ones(7, dtype=torch.bfloat16), 0.3).dtype == torch.bfloat16
    first, second = mask(0), mask()
    others = [(first, second), *((first[lag:], first[:-lag]) for lag in (1, 2, 4, 8, 384)), (mask(1), first)]
    for pair in others:  # near 0 ± 1 / √n for independent masks of n values
        assert torch.corrcoef(torch.stack(pair).float())[0, 1].abs() < 4.5 / _SIZE**0.5
    assert torch.equal(mask(0), first)
    assert torch.equal(mask(), second)


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
    monkeypatch.setattr(idiomtune.encoder.forward, "random_bytes", noted)
    ours = loss(tiny.train()([Request(text) for text in texts]))
    ours.backward()  # type: ignore[no-untyped-call]
    assert len(masks) == 1 + 2 * 3

    eager = {"attn_implementation": "eager"}
    plain = SentenceTransformer(str(tiny_path), device="cpu", model_kwargs=eager).train()
    monkeypatch.setattr(functional, "dropout", given)
    read = dict(plain.tokenizer(texts, padding=True, return_tensors="pt"))
    theirs = loss(plain(read)["sentence_embedding"])
    theirs.backward()  # type: ignore[no-untyped-call]
    assert not masks
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    gradients = {name: p.grad for name, p in tiny.model.named_parameters() if p.grad is not None}
    assert len(gradients) > 20
    for name, p in plain.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(gradients.pop(name), p.grad, rtol=1e-4, atol=1e-6, msg=name)
    assert not gradients


def test_a_model_uses_both_and_is_saved_without_a_word_of_it(tiny: Encoder, tmp_path: Path) -> None:
    """Embeddings are those of plain sentence-transformers; only training draws other masks."""
    transformer: Any = tiny.transformer
    assert transformer.config._attn_implementation == SHORT_ATTENTION
    before = tiny.encode(TEXTS)
    tiny.save(tmp_path / "before")
    use_byte_dropout(tiny, tiny.transformer)
    assert not any(type(module) is nn.Dropout for module in tiny.model.modules())
    assert torch.equal(tiny.encode(TEXTS), before)
    tiny.save(tmp_path / "after")
    files = [path.relative_to(tmp_path / "before") for path in (tmp_path / "before").rglob("*.*")]
    assert len(files) > 5
    for file in files:
        contents = {(tmp_path / when / file).read_bytes() for when in ("before", "after")}
        assert [SHORT_ATTENTION.encode() in content for content in contents] == [False], file
    plain = SentenceTransformer(str(tmp_path / "after"), device="cpu")
    torch.testing.assert_close(before, plain.encode(TEXTS, convert_to_tensor=True), atol=1e-6, rtol=1e-5)
