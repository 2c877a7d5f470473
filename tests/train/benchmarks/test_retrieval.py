"""Retrieval metrics: by hand, and against pytrec_eval."""

from __future__ import annotations

import pytest
import pytrec_eval
import torch

from train.benchmarks.retrieval import ndcg, r_precision, rank, recall_at_r, relevance_by_rank


def test_by_hand() -> None:
    """Relevant at ranks 1 and 4 of 5; R = 2."""
    hits = torch.tensor([[True, False, False, True, False]])
    assert r_precision(hits).item() == 0.5
    dcg, ideal = 1 + 1 / 2.321928094887362, 1 + 1 / 1.584962500721156
    assert ndcg(hits, 10).item() == pytest.approx(dcg / ideal, abs=1e-12)
    assert ndcg(hits, 1).item() == 1.0
    kind = torch.tensor([[False, False, False, True, False]])
    assert recall_at_r(hits, kind).item() == 0.0
    assert recall_at_r(hits, hits & ~kind).item() == 1.0


def test_no_relevant_documents_score_zero() -> None:
    hits = torch.zeros(1, 4, dtype=torch.bool)
    assert r_precision(hits).item() == ndcg(hits, 10).item() == 0.0


def test_ties_go_to_the_earlier_document() -> None:
    assert rank(torch.tensor([[0.5, 0.9, 0.5, 0.5]])).tolist() == [[1, 0, 2, 3]]
    many = torch.zeros(2, 5000)
    assert torch.equal(rank(many), torch.arange(5000).expand(2, -1))


@pytest.mark.parametrize("seed", range(3))
def test_equal_pytrec_eval(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    num_queries, num_documents = 12, 150
    # Distinct in every row, so that the two ways of breaking ties do not matter.
    similarity = torch.stack([torch.randperm(num_documents, generator=g) for _ in range(num_queries)]).float()
    relevant = torch.rand(num_queries, num_documents, generator=g) < torch.rand(num_queries, 1, generator=g)
    relevant[:, 0] = True
    hits = relevance_by_rank(rank(similarity), relevant)

    names = [f"d{n:03d}" for n in range(num_documents)]
    qrel = {
        str(q): {n: int(r) for n, r in zip(names, row, strict=True)}
        for q, row in enumerate(relevant.tolist())
    }
    run = {str(q): dict(zip(names, row, strict=True)) for q, row in enumerate(similarity.tolist())}
    theirs = pytrec_eval.RelevanceEvaluator(qrel, {"Rprec", "ndcg_cut.10"}).evaluate(run)
    for q in range(num_queries):
        assert r_precision(hits)[q].item() == pytest.approx(theirs[str(q)]["Rprec"], abs=1e-12)
        assert ndcg(hits, 10)[q].item() == pytest.approx(theirs[str(q)]["ndcg_cut_10"], abs=1e-12)
