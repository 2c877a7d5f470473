"""The loss on leading dimensions: against sentence-transformers' and a naive loop, and in runs."""

import json
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss
from torch import Tensor, nn

from idiomloss import cosine_similarity
from idiomtune.errors import UserError
from idiomtune.objectives import Batch, Mean, ObjectiveLoss, matryoshka_loss
from idiomtune.requests import EmbeddingRequest
from tests.idiomloss.harness import assert_same
from tests.tiny_runs import KEY, metrics, train, weights

pytestmark = pytest.mark.usefixtures("shown")

BATCH = Batch([EmbeddingRequest(str(i)) for i in range(8)], ["a", "b", "c", "d"], None)


class Ranking:
    """Row i + 4 is the positive of row i, the others' positives its negatives; at a temperature of 0.05."""

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        logits = cosine_similarity(embeddings[:4], embeddings[4:]) / 0.05
        loss = nn.functional.cross_entropy(logits, torch.arange(4))
        return ObjectiveLoss(loss, {"anchors": 4.0}, {"mean": Mean(1.0, len(batch.anchors))})


class Given(nn.Module):
    """A model of sentence-transformers whose embeddings are given."""

    def get_embedding_dimension(self) -> int:
        return 16

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return dict(features)


def embeddings() -> Tensor:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(3)).requires_grad_()


def test_it_is_the_mean_of_which_sentence_transformers_has_the_sum() -> None:
    """And of each size the loss is logged."""
    x, model = embeddings(), Given()
    result = matryoshka_loss(Ranking(), x, BATCH, [8, 4])  # type: ignore[arg-type]
    inner = MultipleNegativesRankingLoss(model, scale=20.0)  # type: ignore[arg-type]
    loss = MatryoshkaLoss(model, inner, [16, 8, 4])  # type: ignore[arg-type]
    features = [{"sentence_embedding": x[:4]}, {"sentence_embedding": x[4:]}]
    assert_same(result.loss, loss(features, torch.empty(0)) / 3, x)
    sizes = {f"loss/dim={n}": Mean(Ranking().loss(x[:, :n], BATCH).loss.item(), 4) for n in (8, 4)}
    assert (result.counts, result.means) == ({"anchors": 4.0}, {"mean": Mean(1.0, 4), **sizes})
    own = Ranking().loss(x, BATCH)
    assert matryoshka_loss(Ranking(), x, BATCH, ()).loss.item() == own.loss.item()  # type: ignore[arg-type]


SIZES = ["trainer.matryoshka=[16,8]"]


def test_a_run_trains_and_scores_each_size(tmp_path: Path, options: list[str]) -> None:
    """The scores are those of the saved model as its users cut it; cached gradients give the same weights."""
    run, cached = tmp_path / "run", tmp_path / "cached"
    short = [*options, *SIZES, "trainer.max_steps=2", f"trainer.monitor='{KEY}/dim=8'"]
    train(run, short)
    train(cached, [*short, "trainer.gradient_caching=true"])
    for name, ours in weights(run / "step_2").items():
        torch.testing.assert_close(ours, weights(cached / "step_2")[name], rtol=1e-4, atol=1e-6)
    logged = [line for line in metrics(run) if "loss" in line]
    assert all({"loss/dim=16", "loss/dim=8"} <= line.keys() for line in logged)
    card = json.loads((run / "scores.json").read_text())
    assert {KEY, f"{KEY}/dim=16", f"{KEY}/dim=8"} <= card["scores"].keys()
    assert card["baseline"].keys() == card["scores"].keys()
    assert card["meta"]["monitor"] == [f"{KEY}/dim=8"]
    cut = SentenceTransformer(str(run / "best"), device="cpu", truncate_dim=8)
    assert cut.encode(["He broke the ice."]).shape == (1, 8)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "By dimension" in page


def test_more_dimensions_than_there_are(tmp_path: Path, options: list[str]) -> None:
    with pytest.raises(UserError, match=r"trainer\.matryoshka"):
        train(tmp_path / "run", [*options, "trainer.matryoshka=[32]"])
