"""Vectors on disk: written shard by shard, and nothing but what belongs together."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from train.errors import UserError
from train.io import vectors
from train.io.vectors import VectorStore

FACTS = {"model": "a", "documents": "b"}


def written(folder: Path) -> tuple[VectorStore, torch.Tensor]:
    """Seven rows of three numbers, in shards of three."""
    rows = torch.randn(7, 3)
    store = VectorStore(folder, 7, 3, 3)
    for number in store.start(FACTS, "store"):
        store.write(number, rows[3 * number : 3 * number + 3].numpy())
    return store, rows


def test_rows_come_back(tmp_path: Path) -> None:
    store, rows = written(tmp_path)
    assert [len(part) for part in store] == [3, 3, 1]
    assert torch.equal(torch.cat(list(store)), rows)
    assert torch.equal(torch.cat(list(store.cut(2))), rows[:, :2])
    wanted = torch.tensor([[6, 0], [3, 3]])
    assert torch.equal(store.rows(wanted), rows[wanted])
    assert torch.equal(store.cut(1).rows(wanted), rows[wanted][..., :1])


def test_shards_that_are_not_whole_are_missing(tmp_path: Path) -> None:
    store, _ = written(tmp_path)
    assert store.start(FACTS, "store") == []
    whole = (tmp_path / "00001.npy").read_bytes()
    (tmp_path / "00001.npy").write_bytes(whole[:-1])
    (tmp_path / "00002.npy").write_bytes(whole)  # of another size
    (tmp_path / "00000.npy").unlink()
    assert store.start(FACTS, "store") == [0, 1, 2]
    (tmp_path / "00000.npy").touch()
    assert store.start(FACTS, "store") == [0, 1, 2]


def test_a_shard_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also under its name only once it is on the disk: after a power cut its size would tell nothing."""
    store = VectorStore(tmp_path, 7, 3, 3)
    store.start(FACTS, "store")

    def full(path: Path) -> None:
        assert path.name != "00000.npy"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(vectors, "sync", full)
    with pytest.raises(UserError, match=r"00000\.npy: cannot be written: No space left on device"):
        store.write(0, torch.zeros(3, 3).numpy())
    assert [path.name for path in tmp_path.iterdir()] == ["store.json"]


def test_others_vectors_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = written(tmp_path)
    with pytest.raises(UserError, match=r"differ in model .*with store="):
        store.start({**FACTS, "model": "another"}, "store")
    with pytest.raises(UserError, match="differ in rows, shard_size "):
        VectorStore(tmp_path, 8, 3, 2).start(FACTS, "store")
    (tmp_path / "store.json").unlink()
    with pytest.raises(UserError, match=r"without their store\.json"):
        store.start(FACTS, "store")
    for shard in tmp_path.glob("*.npy"):
        shard.unlink()
    (tmp_path / "hnsw.usearch").touch()  # the index of other vectors
    with pytest.raises(UserError, match=r"without their store\.json"):
        store.start(FACTS, "store")
    usage = type("Usage", (), {"free": 10**9})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(UserError, match=r"need 4\.0 GB, and 1\.0 GB are free"):
        VectorStore(tmp_path / "large", 1_000_000, 1000, 10_000).start(FACTS, "store")
