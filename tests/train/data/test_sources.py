"""Where data comes from: the order of sources, and the download through the real Hub client."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.fake_hub import serve
from tests.programs import assert_explained, run
from train.data.idiolink_source import idiolink_root
from train.data.sources import SAMPLE_ROOT
from train.errors import UserError
from train.io.files import fingerprint


@pytest.fixture
def three_layouts(tmp_path: Path, sample_root: Path) -> dict[str, Path]:
    """The splits directly in a folder, under idiolink/, and under data/ as on the Hub."""
    layouts = {"plain": tmp_path / "plain", "all": tmp_path / "all", "hub": tmp_path / "hub"}
    for name, inside in (("plain", ""), ("all", "idiolink"), ("hub", "data")):
        shutil.copytree(sample_root, layouts[name] / inside)
    return layouts


def test_each_layout_is_found(three_layouts: dict[str, Path]) -> None:
    assert idiolink_root(str(three_layouts["plain"]), sample=False) == three_layouts["plain"]
    assert idiolink_root(str(three_layouts["all"]), sample=False) == three_layouts["all"] / "idiolink"
    assert idiolink_root(str(three_layouts["hub"]), sample=False) == three_layouts["hub"] / "data"


def test_order_of_sources(three_layouts: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDIOM_DATA", str(three_layouts["all"]))
    assert idiolink_root(None, sample=True) == SAMPLE_ROOT / "idiolink"
    assert idiolink_root(str(three_layouts["plain"]), sample=False) == three_layouts["plain"]
    assert idiolink_root(None, sample=False) == three_layouts["all"] / "idiolink"


def test_folder_that_is_none_names_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"data\.root=.*missing: there is no such folder"):
        idiolink_root(str(tmp_path / "missing"), sample=False)
    monkeypatch.setenv("IDIOM_DATA", str(tmp_path))
    with pytest.raises(UserError, match=r"IDIOM_DATA=.*: found no IdioLink split there"):
        idiolink_root(None, sample=False)


@pytest.mark.slow
def test_download_is_done_once_verified_and_explained_when_damaged(
    tmp_path: Path, three_layouts: dict[str, Path], tiny_path: Path
) -> None:
    """`train.evaluate` with data and model from a Hub that is a local server."""
    cache = tmp_path / "cache"
    arguments = (
        "train.evaluate",
        "model=someone/tiny",
        "device=cpu",
        "benchmarks=[idiolink]",
        f"output={tmp_path / 'scores.json'}",
        "overwrite=true",
    )
    (three_layouts["hub"] / "README.md").write_text("a file that is not asked for", encoding="utf-8")
    with serve(
        {"datasets/Intellexus/IdioLink": three_layouts["hub"], "models/someone/tiny": tiny_path}
    ) as hub:
        environment: dict[str, str | None] = {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_OFFLINE": None,
            "IDIOM_DATA": None,
            "IDIOM_CACHE": str(cache),
            "IDIOM_IDIOLINK_REVISION": "main",  # the sums of the default one are not the sample's
            "HF_HUB_DISABLE_XET": "1",
        }
        first = run(*arguments, environment=environment, cold=True)  # as the client reads them at its import
        assert first.returncode == 0, first.stderr
        fetched = [r for r in hub.requests if r.startswith("GET") and "/resolve/" in r and "IdioLink" in r]
        assert len(fetched) == len(set(fetched)) == 7
        assert not any("README" in r for r in fetched)
        sums = json.loads((cache / "idiolink-main" / "checksums.json").read_text(encoding="utf-8"))
        name = "data/val/queries.json"
        assert sums[name] == fingerprint(three_layouts["hub"] / name)

        hub.requests.clear()
        damaged = cache / "idiolink-main" / name
        damaged.write_text(damaged.read_text(encoding="utf-8") + " ", encoding="utf-8")
        ours = {name: value for name, value in environment.items() if name.startswith("IDIOM")}
        second = run(arguments[0], f"model={tiny_path}", *arguments[2:], environment=ours)
        assert_explained(second, name, "differs from what was downloaded", "delete the folder")
        assert not any("IdioLink" in r for r in hub.requests)
    # The server is gone: data and model that were downloaded before still serve.
    shutil.copy(three_layouts["hub"] / name, damaged)
    offline = run(*arguments, environment=environment)
    assert offline.returncode == 0, offline.stderr
    assert "downloaded before" in offline.stderr


@pytest.mark.slow
def test_no_data_and_no_network_says_what_to_set(tmp_path: Path) -> None:
    done = run(
        "train.evaluate",
        timeout=60,
        environment={
            "HF_ENDPOINT": "http://127.0.0.1:9",
            "HF_HUB_OFFLINE": None,
            "IDIOM_DATA": None,
            "IDIOM_CACHE": str(tmp_path),
        },
    )
    assert_explained(done, "data.root=", "IDIOM_DATA=", "data=sample", "Reason:")
