"""Retrieval metrics: by hand, and against pytrec_eval."""

import pytest
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
    recall_at_r,
    reciprocal_rank,
    tie_break,
    tie_note,
)
from tests.fuzzing import FUZZED


def test_no_relevant_documents_score_zero() -> None:
    hits, none = torch.zeros(1, 4, dtype=torch.bool), torch.tensor([0])
    assert ndcg_of_gains(hits, hits, 10) == ndcg(hits, none, 10) == average_precision(hits, none) == 0
    assert r_precision(hits, none) == reciprocal_rank(torch.tensor([[False, False, True]]), 2) == 0
    assert recall_at_r(hits, none, none).isnan().all()


@pytest.mark.parametrize("depth", [1, 50, 200])
def test_the_first_few_are_those_of_the_whole_ranking(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with many ties, and a few queries at a time."""
    g = torch.Generator().manual_seed(depth)
    for similarity in (torch.rand(40, 150, generator=g), torch.randint(0, 9, (40, 150), generator=g).float()):
        assert torch.equal(rank(similarity, depth), rank(similarity)[:, :depth])
        ties = tie_break(map(str, range(150)))
        expected = rank(similarity, ties=ties)[:, :depth]
        assert torch.equal(rank(similarity, depth, ties), expected)
        for pairs in (1, 1000):
            monkeypatch.setattr(retrieval, "_MAX_SIMILARITIES", pairs)
            found, values = rank_in_blocks(similarity.__getitem__, 40, depth, ties)
            assert torch.equal(found, expected)
            assert torch.equal(values, similarity.gather(1, expected))


def test_ties_depend_neither_on_the_order_nor_on_the_side() -> None:
    """The relevant tenth of the documents stands first in the corpus: of 100 documents, 10 are relevant."""
    shares = []
    assert rank(torch.tensor([[0.5, 0.9, 0.5, 0.5]])).tolist() == [[1, 0, 2, 3]]  # else to the earlier one
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
