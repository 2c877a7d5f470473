"""Remedies against forgetting: what is published, what is trained, and that runs with them can be resumed."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from idiomtune import Encoder
from idiomtune.config.sections import LoraSettings
from idiomtune.encoder.trained_parts import Adapters
from idiomtune.errors import UserError
from idiomtune.objectives import Batch, Mean, ObjectiveLoss, StepLog
from idiomtune.requests import EmbeddingRequest
from idiomtune.training.forgetting import Distillation, Remedies
from tests.tiny_runs import WholeRun, metrics, train, weights

INTERPOLATION = ["forgetting.weight_interpolation=0.7"]
DISTILLATION = ["forgetting.distillation=0.5"]
LORA = ["forgetting.lora.rank=4", "forgetting.lora.dropout=0.1"]


def disturbed(encoder: Encoder, scale: float = 0.1) -> dict[str, torch.Tensor]:
    """Trained, as far as a test can tell; returns a copy of the weights."""
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in encoder.parameters():
            if p.requires_grad:
                p.add_(scale * torch.randn(p.shape, generator=g))
    return {name: p.detach().clone() for name, p in encoder.named_parameters()}


def same(a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_published_weights_are_the_interpolation_and_the_trained_ones_come_back(
    tiny: Encoder, tiny_path: Path, tmp_path: Path
) -> None:
    """Also after an error while they are scored, and from the files of a checkpoint."""
    base = {name: p.detach().clone() for name, p in tiny.named_parameters()}
    remedies = Remedies(tiny, interpolation=0.25)
    trained = disturbed(tiny)
    remedies.save(tmp_path)
    texts = ["He broke the ice.", "Rain fell."]
    with remedies.exported_weights():
        published = tiny.encode(texts)
        for name, p in tiny.named_parameters():
            expected = 0.25 * trained[name] + 0.75 * base[name]
            torch.testing.assert_close(p.detach(), expected, rtol=0, atol=1e-6)
    assert same(dict(tiny.named_parameters()), trained)
    with pytest.raises(RuntimeError), remedies.exported_weights():
        raise RuntimeError("while it is scored")
    assert same(dict(tiny.named_parameters()), trained)
    assert torch.equal(Encoder.from_pretrained(tmp_path, device="cpu").encode(texts), published)
    assert not torch.allclose(tiny.encode(texts), published)
    again = Remedies(Encoder.from_pretrained(tiny_path, device="cpu"), interpolation=0.25)
    again.load(tmp_path)
    assert same(dict(again.encoder.named_parameters()), trained)


def test_the_term_is_the_mean_over_plain_rows(tiny: Encoder, tiny_path: Path) -> None:
    """Against cosines taken one by one, with a prompt in front and a sentence that occurs twice."""
    base = Encoder.from_pretrained(tiny_path, device="cpu", document_prompt="text: ")
    plain = [EmbeddingRequest(text) for text in ("All was calm.", "Rain fell.", "A dog barked.")]
    distillation = Distillation(base, [*plain, plain[0]], weight=0.5)
    idiom = EmbeddingRequest("He broke the ice.", (3, 16), pooling="span")
    batch = Batch([plain[2], idiom, plain[0], plain[2]], ["a"], None, plain_rows=[0, 2, 3])
    disturbed(tiny)
    embeddings = tiny(batch.requests)
    theirs = base.encode([f"{request.text}" for request in batch.requests])
    cosines = torch.nn.functional.cosine_similarity(embeddings, theirs)
    expected = (1 - cosines[0] + 1 - cosines[2] + 1 - cosines[3]) / 3
    assert expected.item() > 1e-3
    torch.testing.assert_close(distillation.term(embeddings, batch)[0], expected)

    remedies = Remedies(tiny, distillation=distillation)
    result = remedies.add_distillation(ObjectiveLoss(embeddings.sum(), {"n": 1.0}), embeddings, batch)
    torch.testing.assert_close(result.loss, embeddings.sum() + 0.5 * expected)
    assert result.counts == {"n": 1.0}
    assert result.means == {"distillation": Mean(distillation.term(embeddings, batch)[0].item(), 3)}
    without = remedies.add_distillation(
        ObjectiveLoss(embeddings.sum()), embeddings, Batch(batch.requests, ["a"], None)
    )
    assert without.loss.item() == pytest.approx(embeddings.sum().item())


def test_what_is_logged_of_a_step_in_parts_is_the_mean_over_its_plain_sentences() -> None:
    log = StepLog()
    for value, num in ((1.0, 1), (4.0, 2), (0.0, 0)):
        log.add(ObjectiveLoss(torch.zeros(()), {"n": 1.0}, {"distillation": Mean(value, num)}))
    assert log.values() == {"n": 3.0, "distillation": 3.0}


def adapted(encoder: Encoder, seed: int = 1, **options: Any) -> tuple[Remedies, Adapters]:
    defaults = {"rank": 4, "alpha": 8.0, "dropout": 0.0, "target_modules": None}
    settings = LoraSettings(**defaults | options)
    adapters = Adapters(encoder, settings, seed=seed, base_model="tiny")
    return Remedies(encoder, adapters=adapters), adapters


TEXTS = ["He broke the ice.", "Rain fell on the quiet town.", "A dog barked."]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's own
def test_adapters_alone_are_trained_and_merged_they_make_the_same_model(
    tmp_path: Path, tiny_path: Path
) -> None:
    """Two steps; the merged model loads as a plain one, and peft puts the adapters onto the base model."""
    encoder = Encoder.from_pretrained(tiny_path, device="cpu")
    untrained, base = encoder.encode(TEXTS), {n: p.clone() for n, p in encoder.named_parameters()}
    remedies, adapters = adapted(encoder)
    assert torch.equal(encoder.encode(TEXTS), untrained)
    trained = [p for p in encoder.parameters() if p.requires_grad]
    assert len(trained) == 2 * 2 * 6  # A and B, two layers, each linear layer
    optimizer = torch.optim.SGD(trained, lr=30.0)
    for _ in range(2):  # at the first step B is zero, so A has no gradient
        encoder([EmbeddingRequest(text) for text in TEXTS])[:, :7].sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    tuned = encoder.encode(TEXTS)
    assert (tuned - untrained).abs().max() > 0.01

    before = {name: p.detach().clone() for name, p in encoder.named_parameters()}
    remedies.save(tmp_path / "step")
    assert same(dict(encoder.named_parameters()), before)
    assert torch.equal(encoder.encode(TEXTS), tuned)
    unchanged = {name.replace(".base_layer", ""): p for name, p in before.items() if "lora_" not in name}
    assert same(unchanged, base)

    plain = SentenceTransformer(str(tmp_path / "step"), device="cpu")
    assert [name for name, _ in plain.named_parameters()] == [n.removeprefix("model.") for n in base]
    torch.testing.assert_close(plain.encode(TEXTS, convert_to_tensor=True), tuned, rtol=1e-4, atol=1e-5)
    with adapters.merging():
        merged = {
            n.removeprefix("model.").replace(".base_layer", ""): p for n, p in encoder.named_parameters()
        }
        assert all(torch.equal(p, merged[name]) for name, p in plain.named_parameters())
        theirs = plain.encode(TEXTS, convert_to_tensor=True)  # by another kernel of attention
        torch.testing.assert_close(theirs, encoder.encode(TEXTS), rtol=0, atol=1e-6)
    with pytest.raises(RuntimeError), adapters.merging():
        raise RuntimeError("while it is scored")
    assert same(dict(encoder.named_parameters()), before)

    by_peft: Any = SentenceTransformer(str(tiny_path), device="cpu")
    PeftModel.from_pretrained(by_peft[0].auto_model, str(tmp_path / "step" / "adapter"))
    torch.testing.assert_close(by_peft.encode(TEXTS, convert_to_tensor=True), tuned, rtol=1e-4, atol=1e-5)

    again, _ = adapted(Encoder.from_pretrained(tiny_path, device="cpu"), seed=2)
    again.load(tmp_path / "step")
    assert same(dict(again.encoder.named_parameters()), before)


def test_a_module_that_is_not_there_is_named(tiny: Encoder) -> None:
    with pytest.raises(UserError, match=r"'q_proj'.* dense, key"):
        adapted(tiny, target_modules=["query", "q_proj"])


def test_a_run_without_peft_ends_at_once(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == "peft" else real(n, *a))
    with pytest.raises(UserError, match=r"forgetting\.lora\.rank.*peft"):
        train(tmp_path / "run", [*options, *LORA])
    assert not (tmp_path / "run" / "baseline.json").exists()


def test_interpolation_only_moves_what_is_published(
    options: list[str], whole_run: WholeRun, tiny_path: Path
) -> None:
    """Training goes on with the raw weights: they are those of the run without it."""
    without, held = whole_run(options), whole_run([*options, *INTERPOLATION])
    free, base = weights(without / "step_6"), weights(tiny_path)
    trained = load_file(held / "step_6" / "trained.safetensors")
    published = weights(held / "step_6")
    assert len(trained) == len(free)
    for name, tensor in trained.items():
        name = name.removeprefix("model.0.model.")
        assert torch.equal(tensor, free[name]), name
        assert torch.equal(published[name], base[name] + 0.7 * (tensor - base[name])), name
    losses = [[line["loss"] for line in metrics(run) if "loss" in line] for run in (without, held)]
    assert losses[0] == losses[1]
