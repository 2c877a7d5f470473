"""The approximate index: what it finds, and that it says how much."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from idiomtune.benchmarks import retrieval as approximate
from idiomtune.benchmarks.own import OwnRetrievalOptions
from idiomtune.benchmarks.retrieval import Search, approximate_ranking, tie_break
from idiomtune.errors import UserError
from idiomtune.io import vectors
from idiomtune.io.vectors import VectorStore

pytest.importorskip("usearch")


def stored(folder: Path, rows: torch.Tensor) -> VectorStore:
    store = VectorStore(folder, len(rows), rows.shape[1], 400)
    for number in store.start("store"):
        store.write(number, rows[400 * number : 400 * (number + 1)].numpy())
    return store


def test_it_finds_most_of_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    g = torch.Generator().manual_seed(0)
    documents, queries = torch.randn(1000, 16, generator=g), torch.randn(70, 16, generator=g)
    documents[3:6] = documents[2]
    queries[1] = documents[2]
    store = stored(tmp_path, documents)
    search = Search(
        queries, store, tie_break(map(str, range(1000))), [[2] if n == 1 else [] for n in range(70)]
    )
    with monkeypatch.context() as full_disk:
        full_disk.setattr(vectors, "sync", Mock(side_effect=OSError("no space left")))
        with pytest.raises(UserError, match="cannot be written"):
            approximate_ranking(search, store, 10)
    assert not any("usearch" in path.name for path in tmp_path.iterdir())
    exact, _ = search.ranking(10)
    (ranking, values), recall = approximate_ranking(search, store, 10)
    shared = [len(set(a) & set(b)) for a, b in zip(ranking.tolist(), exact.tolist(), strict=True)]
    assert sum(shared) / exact.numel() > 0.95
    assert recall == pytest.approx(sum(shared) / exact.numel())
    # Ties are broken as in the exact ranking, without the query itself.
    assert ranking[1, :3].tolist() == exact[1, :3].tolist() == sorted([3, 4, 5], key=search.ties.__getitem__)
    cosines = torch.nn.functional.cosine_similarity(queries[:, None], documents[ranking], dim=2)
    torch.testing.assert_close(values, cosines)

    monkeypatch.setattr(approximate, "_CANDIDATES", 1)
    assert approximate_ranking(search, store, 10)[1] < recall  # by 8 bits a number

    one = approximate_ranking(search.some(torch.tensor([1])), store, 2000)[0]
    assert sorted(one[0][0].tolist()) == list(range(1000))

    path = tmp_path / "hnsw.usearch"
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], whole[:5000] + bytes(99) + whole[5099:]):
        caplog.clear()
        path.write_bytes(damaged)
        again = approximate_ranking(search.some(torch.tensor([1])), store, 2000)[0]
        assert all(torch.equal(*pair) for pair in zip(again, one, strict=True))
        assert f"{path} is damaged" in caplog.text


def test_each_query_of_the_sample_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three queries the index finds the last one's documents not at all."""
    documents = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    store = stored(tmp_path, documents)
    search = Search(documents[:3], store, tie_break(map(str, range(20))))
    worst = search.ranking(20)[0][:, -2:]

    def ranked(_index: object, some: Search, _store: object, depth: int) -> approximate.Ranking:
        positions, values = some.ranking(depth)
        positions[-1] = worst[-1]
        return positions, values

    monkeypatch.setattr(approximate, "_ranked", ranked)
    assert approximate_ranking(search, store, 2)[1] == pytest.approx(2 / 3)


def test_the_index_of_other_vectors_is_refused(tmp_path: Path) -> None:
    documents = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    (one, other) = stored(tmp_path / "one", documents), stored(tmp_path / "other", documents[:5])
    for store in (one, other):
        approximate_ranking(Search(documents[:1], store, tie_break("a" * store.num_rows)), store, 2)
    path = tmp_path / "other" / "hnsw.usearch"
    one.save(path.name, lambda to: Path(to).write_bytes(path.read_bytes()))
    with pytest.raises(UserError, match="is not the index of the vectors in its folder"):
        approximate_ranking(Search(documents[:1], one, tie_break(map(str, range(20)))), one, 2)


def test_an_index_is_of_a_store() -> None:
    options: dict[str, object] = {"name": "own_retrieval", "path": "mine", "judgements": None}
    options |= {
        "instruction": None,
        "exclude_self": False,
        "missing": "error",
        "store": None,
        "shard_size": 10,
        "index": "hnsw",
    }
    with pytest.raises(ValueError, match=r"own_retrieval\.store="):
        OwnRetrievalOptions.model_validate(options)
