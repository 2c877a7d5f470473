"""Tensors in a cache folder: bounded, and never in a program's way."""

import os
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from idiomtune.errors import UserError
from idiomtune.io import cache
from idiomtune.io.cache import put_tensors, read_tensors

ONE = {"a": torch.arange(256, dtype=torch.float32)}
SIZE = 1024  # of it, without the file's head


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_not_used_for_longest_is_deleted(tmp_path: Path) -> None:
    for number, name in enumerate("xyz"):
        put_tensors(tmp_path / name, ONE, 10 * SIZE)
        os.utime(tmp_path / name, (number, number))
    assert read_tensors(tmp_path / "x") is not None  # used again
    put_tensors(tmp_path / "new", ONE, 3 * SIZE + SIZE // 2)
    assert names(tmp_path) == ["new", "x", "z"]
    put_tensors(tmp_path / "large", ONE, 1)  # the newest stays, whatever its size
    assert names(tmp_path) == ["large"]


def test_what_cannot_be_read_or_kept_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk leaves no part, nor does it harm what an earlier program kept there."""
    assert read_tensors(tmp_path / "none") is None
    assert not caplog.messages
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    put_tensors(tmp_path / "flipped", ONE, 10 * SIZE)
    content = (tmp_path / "flipped").read_bytes()
    (tmp_path / "flipped").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for name in ("empty", "folder", "flipped"):
        assert read_tensors(tmp_path / name) is None
        assert str(tmp_path / name) in caplog.messages[-1]
    put_tensors(tmp_path / "kept" / "x", ONE, SIZE)
    monkeypatch.setattr(cache, "sync", Mock(side_effect=OSError(28, "No space left on device")))
    put_tensors(tmp_path / "kept" / "x", {"a": torch.zeros(3)}, SIZE)
    assert "No space left" in caplog.messages[-1]
    assert names(tmp_path / "kept") == ["x"]
    tensors = read_tensors(tmp_path / "kept" / "x")
    assert tensors is not None
    assert torch.equal(tensors["a"], ONE["a"])


def test_what_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file or a folder, for each key; nothing is left of one that fails."""
    monkeypatch.setenv("IDIOM_CACHE", str(tmp_path))

    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    fill = Mock(side_effect=Path.mkdir)
    first, second = (cache.cached_file("kind", ["key", 1], fill) for _ in range(2))
    assert first == second
    assert fill.call_count == 1
    file = cache.cached_file("kind", ["key", 2], lambda path: path.write_text("2"), suffix=".txt")
    assert file.read_text() == "2"
    with pytest.raises(UserError, match=r"kind: .*No space.* IDIOM_CACHE="):
        cache.cached_file("kind", "other", fail)
    (first / "a").touch()
    cache.store_file(first, fill)  # another program was faster: its folder stays
    assert names(first) == ["a"]
    assert len(names(tmp_path / "kind")) == 2
