"""Vectors on disk: written shard by shard, and nothing but what belongs together."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from idiomtune.errors import UserError
from idiomtune.io import vectors
from idiomtune.io.vectors import VectorStore

FACTS = {"model": "a", "documents": "b"}


def written(folder: Path) -> tuple[VectorStore, torch.Tensor]:
    """Seven rows of three numbers, in shards of three."""
    rows = torch.randn(7, 3)
    store = VectorStore(folder, 7, 3, 3, FACTS)
    for number in store.start("store"):
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


def _spoil(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def _exchange(folder: Path) -> None:
    (folder / "00000.npy").rename(folder / "x")
    (folder / "00001.npy").rename(folder / "00000.npy")
    (folder / "x").rename(folder / "00001.npy")


def _without_sum(folder: Path) -> None:
    np.save(folder / "00001.npy", np.load(folder / "00001.npy"))


DAMAGES: dict[str, tuple[list[int], Callable[[Path], object]]] = {
    "a flipped bit": ([1], _spoil("00001.npy", lambda c: c[:131] + bytes([c[131] ^ 64]) + c[132:])),
    "another shape": ([1], _spoil("00001.npy", lambda content: content.replace(b"(3, 3)", b"(9, 1)"))),
    "cut short": ([2], _spoil("00002.npy", lambda content: content[:-1])),
    "emptied": ([0], _spoil("00000.npy", lambda _: b"")),
    "as before there were sums": ([1], _without_sum),
    "exchanged": ([0, 1], _exchange),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_shards_are_missing(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, _ = written(tmp_path)
    assert store.start("store") == []
    assert not caplog.messages
    missing, spoil = DAMAGES[damage]
    spoil(tmp_path)
    assert store.start("store") == missing
    assert [f"{tmp_path}/{number:05}.npy is damaged" in caplog.text for number in range(3)] == [
        number in missing for number in range(3)
    ]


def test_shards_of_other_facts_are_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of another model's store, or written by a process that read other documents."""
    store, _ = written(tmp_path / "a")
    other = VectorStore(tmp_path / "b", 7, 3, 3, {**FACTS, "documents": "c"})
    assert other.start("store") == [0, 1, 2]
    shutil.copy(tmp_path / "a" / "00001.npy", tmp_path / "b")
    assert other.start("store") == [0, 1, 2]
    (tmp_path / "a" / "00002.npy").unlink()
    caplog.clear()
    assert store.start("store") == [2]
    assert not caplog.messages  # not there is not damaged


def test_one_process_writes_at_a_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    order: list[str] = []

    def second() -> None:
        with VectorStore(tmp_path, 7, 3, 3).locked():
            order.append("second")

    with ThreadPoolExecutor(1) as pool, VectorStore(tmp_path, 7, 3, 3).locked():
        waiting = pool.submit(second)
        while "waiting for another process" not in caplog.text and not waiting.done():
            time.sleep(0.01)
        order.append("first")
    assert order == ["first", "second"]


def test_a_shard_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also under its name only once it is on the disk: after a power cut its size would tell nothing."""
    store = VectorStore(tmp_path, 7, 3, 3, FACTS)
    store.start("store")

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
        VectorStore(tmp_path, 7, 3, 3, {**FACTS, "model": "another"}).start("store")
    with pytest.raises(UserError, match="differ in rows, shard_size "):
        VectorStore(tmp_path, 8, 3, 2, FACTS).start("store")
    (tmp_path / "store.json").unlink()
    with pytest.raises(UserError, match=r"without their store\.json"):
        store.start("store")
    for shard in tmp_path.glob("*.npy"):
        shard.unlink()
    (tmp_path / "hnsw.usearch").touch()  # the index of other vectors
    with pytest.raises(UserError, match=r"without their store\.json"):
        store.start("store")
    usage = type("Usage", (), {"free": 10**9})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(UserError, match=r"need 4\.0 GB, and 1\.0 GB are free"):
        VectorStore(tmp_path / "large", 1_000_000, 1000, 10_000).start("store")
