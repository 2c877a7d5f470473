"""Retrieval metrics: by hand, and against pytrec_eval."""

from __future__ import annotations

import pytest
import pytrec_eval
import torch
from hypothesis import given
from hypothesis import strategies as st

from idiomtune.benchmarks import retrieval
from idiomtune.benchmarks.retrieval import (
    average_precision,
    ndcg,
    ndcg_of_gains,
    nearest,
    r_precision,
    rank,
    rank_in_blocks,
    recall,
    recall_at_r,
    reciprocal_rank,
    tie_break,
    tie_note,
)
from tests.fuzzing import FUZZED


def test_by_hand() -> None:
    """Relevant at ranks 1 and 4 of 5; R = 2."""
    hits = torch.tensor([[True, False, False, True, False]])
    both, one = torch.tensor([2]), torch.tensor([1])
    assert r_precision(hits, both).item() == 0.5
    dcg, ideal = 1 + 1 / 2.321928094887362, 1 + 1 / 1.584962500721156
    assert ndcg(hits, both, 10).item() == pytest.approx(dcg / ideal, abs=1e-12)
    assert ndcg(hits, both, 1).item() == 1.0
    kind = torch.tensor([[False, False, False, True, False]])
    assert recall_at_r(kind, both, one).item() == 0.0
    assert recall_at_r(hits & ~kind, both, one).item() == 1.0


def test_no_relevant_documents_score_zero() -> None:
    hits, none = torch.zeros(1, 4, dtype=torch.bool), torch.tensor([0])
    gains = torch.zeros(1, 4)
    assert ndcg_of_gains(gains, gains, 10).item() == average_precision(hits, none).item() == 0.0
    assert reciprocal_rank(torch.tensor([[False, False, True]]), 2).item() == 0.0
    assert r_precision(hits, none).item() == ndcg(hits, none, 10).item() == 0.0
    assert recall_at_r(hits, none, none).isnan().all()


@pytest.mark.parametrize("depth", [1, 50, 149, 200])
def test_the_first_few_are_those_of_the_whole_ranking(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with many ties, and a few queries at a time."""
    g = torch.Generator().manual_seed(depth)
    for similarity in (torch.rand(40, 150, generator=g), torch.randint(0, 9, (40, 150), generator=g).float()):
        assert torch.equal(rank(similarity, depth), rank(similarity)[:, :depth])
        ties = tie_break(map(str, range(150)))
        expected = rank(similarity, ties=ties)[:, :depth]
        assert torch.equal(rank(similarity, depth, ties), expected)
        for pairs in (1, 1000, 10**6):
            monkeypatch.setattr(retrieval, "_MAX_SIMILARITIES", pairs)
            found, values = rank_in_blocks(similarity.__getitem__, 40, depth, ties)
            assert torch.equal(found, expected)
            assert torch.equal(values, similarity.gather(1, expected))


def test_ties_go_to_the_earlier_document() -> None:
    assert rank(torch.tensor([[0.5, 0.9, 0.5, 0.5]])).tolist() == [[1, 0, 2, 3]]
    many = torch.zeros(2, 5000)
    assert torch.equal(rank(many), torch.arange(5000).expand(2, -1))


def test_ties_depend_neither_on_the_order_nor_on_the_side() -> None:
    """The relevant tenth of the documents stands first in the corpus: of 100 documents, 10 are relevant."""
    shares = []
    for name in range(50):
        ids = [f"{name}/{n}" for n in range(1000)]
        first = rank(torch.zeros(1, 1000), 100, tie_break(ids))[0]
        shares.append((first < 100).double().mean().item())
        mixed = torch.randperm(1000, generator=torch.Generator().manual_seed(name))
        again = rank(torch.zeros(1, 1000), 100, tie_break(ids[n] for n in mixed.tolist()))[0]
        assert torch.equal(mixed[again], first)
    assert sum(shares) / len(shares) == pytest.approx(0.1, abs=0.015)  # a deviation of 0.004


@FUZZED
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=1, max_size=12))
def test_the_share_of_tied_gold(documents: list[tuple[bool, int]]) -> None:
    ranked = sorted(documents, key=lambda document: -document[1])
    hits, values = (torch.tensor([row]) for row in zip(*ranked, strict=True))
    misses = {value for is_hit, value in ranked if not is_hit}
    gold = [value for is_hit, value in ranked if is_hit]
    num_tied = sum(value in misses for value in gold)
    note = " ".join(tie_note("mine", hits, values.float()))
    assert note.startswith(f"mine: {num_tied / len(gold):.1%} of" if num_tied else "")
    assert bool(note) == bool(num_tied)


def test_graded_metrics_equal_pytrec_eval() -> None:
    """Grades from -1 to 3, of which only some documents are judged; the first 100 of 150 are ranked."""
    g = torch.Generator().manual_seed(0)
    num_queries, num_documents = 12, 150
    similarity = torch.stack([torch.randperm(num_documents, generator=g) for _ in range(num_queries)]).float()
    grades = torch.randint(-1, 4, (num_queries, num_documents), generator=g)
    judged = torch.rand(num_queries, num_documents, generator=g) < torch.rand(num_queries, 1, generator=g)
    judged[:, 0], grades[:, 0] = True, 1
    gains = (grades * judged).clamp(min=0)
    ranked = gains.gather(1, rank(similarity, 100))
    ideal, hits, number = gains.sort(dim=1, descending=True).values, ranked > 0, (gains > 0).sum(1)
    ours = {
        **{f"ndcg_cut_{k}": ndcg_of_gains(ranked, ideal, k) for k in (1, 5, 10, 100)},
        **{f"recall_{k}": recall(hits, number, k) for k in (1, 5, 10, 100)},
        "map_cut_100": average_precision(hits, number),
        "P_1": hits[:, 0].double(),
        "recip_rank": reciprocal_rank(rank_all := gains.gather(1, rank(similarity)) > 0),
        "Rprec": r_precision(rank_all, number),
    }
    assert torch.equal(reciprocal_rank(rank_all, 100), reciprocal_rank(hits))

    names = [f"d{n:03d}" for n in range(num_documents)]
    qrel = {
        str(q): {n: r for n, r, is_judged in zip(names, row, known, strict=True) if is_judged}
        for q, (row, known) in enumerate(zip(grades.tolist(), judged.tolist(), strict=True))
    }
    run = {str(q): dict(zip(names, row, strict=True)) for q, row in enumerate(similarity.tolist())}
    measures = {"ndcg_cut.1,5,10,100", "recall.1,5,10,100", "map_cut.100", "P.1", "recip_rank", "Rprec"}
    theirs = pytrec_eval.RelevanceEvaluator(qrel, measures).evaluate(run)
    for q in range(num_queries):
        for name, values in ours.items():
            assert values[q].item() == pytest.approx(theirs[str(q)][name], abs=1e-12), name


def test_a_single_relevant_document_counts_whole() -> None:
    hits, one = torch.tensor([[False, True, False]]), torch.tensor([1])
    assert retrieval.average_precision(hits, one).tolist() == [0.5]
    assert retrieval.recall(hits, one, 2).tolist() == [1.0]
    assert "100.0%" in retrieval.tie_note("ndcg", hits, torch.tensor([[0.5, 0.5, 0.1]]))[0]


def test_the_nearest_by_hand() -> None:
    """Of documents of any length; a zero vector has the cosine 0, as one at a right angle."""
    documents = torch.tensor([[3.0, 0], [0, 0], [0, 2], [1, 1]])
    queries, ties = torch.tensor([[1.0, 0], [0, 5]]), torch.arange(4)
    half = 0.5**0.5
    positions, values = nearest(queries, documents, 4, ties)
    assert positions.tolist() == [[0, 3, 1, 2], [2, 3, 0, 1]]
    torch.testing.assert_close(values, torch.tensor([[1, half, 0, 0], [1, half, 0, 0]]))
    positions, values = nearest(queries, documents, 4, ties, [[2], [3]])
    assert positions.tolist() == [[0, 3, 1, 2], [2, 0, 1, 3]], "what is left out comes last"
    torch.testing.assert_close(values, torch.tensor([[1, half, 0, -torch.inf], [1, 0, 0, -torch.inf]]))
    assert nearest(queries, documents, 1, ties, [[], [2, 3]])[0].tolist() == [[0], [0]]
