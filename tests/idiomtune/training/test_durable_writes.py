"""What a power failure may cost: files are on the disk before they are renamed, names before others go."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from idiomtune.io.files import write_json
from idiomtune.training.checkpoint import TrainerState, new_checkpoint, prune, write_best
from tests.planted_runs import table_of


class Disk:
    """Notes what is put on the disk, renamed and removed, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, Path]] = []
        for module, name in ((os, "fsync"), (os, "rename"), (os, "replace"), (shutil, "rmtree")):
            monkeypatch.setattr(module, name, self._noted(getattr(module, name)))

    def _noted(self, real: Callable[..., None]) -> Callable[..., None]:
        def do(first: Any, *rest: Any, **options: Any) -> None:
            if real.__name__ == "fsync":
                self.events.append(("sync", Path(f"/proc/self/fd/{first}").readlink()))
            elif real.__name__ in ("rename", "replace"):
                self._check_synced(Path(first))
                self.events.append(("rename", Path(rest[0])))
            elif Path(first).exists():
                self.events.append(("remove", Path(first)))
            real(first, *rest, **options)

        return do

    def _check_synced(self, source: Path) -> None:
        synced = {path for event, path in self.events if event == "sync"}
        renamed = {path for event, path in self.events if event == "rename"}
        for path in [source, *source.rglob("*")]:
            is_whole = path in synced or any(parent in renamed for parent in (path, *path.parents))
            assert is_whole, f"{path} is renamed, and may not be on the disk"

    def check_names_before_removals(self, folder: Path) -> None:
        pending = False
        for event, path in self.events:
            if event == "rename" and path.parent == folder and not path.name.startswith("."):
                pending = True
            elif event == "sync" and path == folder:
                pending = False
            elif event == "remove":
                assert not pending, f"{path} is removed before the new names are on the disk"
        assert not pending


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("descriptors have no names here")
    return Disk(monkeypatch)


def test_checkpoints_are_on_the_disk_before_their_names_and_these_before_older_ones_go(
    disk: Disk, tmp_path: Path
) -> None:
    for step in (1, 2, 3, 3):  # the last twice, as where a stop's checkpoint is saved again with scores
        state = TrainerState(step=step, best_step=1)
        with new_checkpoint(tmp_path, state, table_of({"mine/x": 0.5}), {"run": {}}) as folder:
            (folder / "1_Pooling").mkdir()
            (folder / "1_Pooling" / "config.json").write_text("{}")
            (folder / "model.safetensors").write_bytes(b"weights")
        if step == 1:
            write_best(tmp_path, tmp_path / "step_1", "card")
            write_best(tmp_path, tmp_path / "step_1", "another card")
        prune(tmp_path, 1, 1)
    disk.check_names_before_removals(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"step_1", "step_3", "best"}


def test_a_file_written_whole_is_on_the_disk_with_its_name(disk: Disk, tmp_path: Path) -> None:
    write_json(tmp_path / "new" / "run.json", {})
    renamed = disk.events.index(("rename", tmp_path / "new" / "run.json"))
    assert ("sync", tmp_path / "new") in disk.events[renamed:]
