"""One download from GitHub, verified afterwards; a local server stands in for it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from train.data import download, sources
from train.data.ncimp import REPO, SCORES_FILE, NcimpFiles, read_ncimp
from train.errors import DataMissingError, UserError


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that is served; `IDIOM_CACHE` is empty and `IDIOM_DATA` unset."""
    served = tmp_path / "served"
    served.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(download, "GITHUB_FILES", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("IDIOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("IDIOM_DATA", raising=False)
    yield served
    server.shutdown()
    server.server_close()


def test_a_file_is_downloaded_once_and_verified(github: Path) -> None:
    origin = github / "zhjjn" / "MWE_PIE" / "HEAD" / "data_cleaned.csv"
    origin.parent.mkdir(parents=True)
    origin.write_text("content", encoding="utf-8")
    path = sources.pie_file(None)
    assert path.read_text(encoding="utf-8") == "content"
    origin.unlink()
    assert sources.pie_file(None) == path, "the copy serves"
    path.write_text("damaged", encoding="utf-8")
    with pytest.raises(UserError, match="differs from what was downloaded"):
        sources.pie_file(None)


def test_unreachable_says_what_to_do(github: Path) -> None:
    assert not list(github.iterdir())
    with pytest.raises(UserError, match=r"could not be downloaded .*\n.*data\.pie="):
        sources.pie_file(None)
    assert not list(sources.cache_folder().rglob("*.csv"))


def test_local_copies_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pie" / "data_cleaned.csv"
    file.parent.mkdir()
    file.touch()
    monkeypatch.setenv("IDIOM_DATA", str(tmp_path))
    assert sources.pie_file(None) == file
    named = tmp_path / "mine.csv"
    named.touch()
    assert sources.pie_file(str(named)) == named
    assert sources.pie_file(str(file.parent)) == file
    with pytest.raises(UserError, match=r"data\.pie: there is no file"):
        sources.pie_file(str(tmp_path))


def test_ncimp_comes_file_by_file_names_with_spaces_too(github: Path, tmp_path: Path) -> None:
    files = NcimpFiles(None, sources.cache_folder())
    with pytest.raises(DataMissingError, match=r"could not be downloaded .*\n.*data\.ncimp="):
        files(SCORES_FILE)
    shutil.copytree(sources.SAMPLE_ROOT / "ncimp", github / REPO / "HEAD" / "dataset")
    assert len(read_ncimp(files, "en").compounds) == 12
    shutil.rmtree(github / REPO)
    assert len(read_ncimp(files, "en").compounds) == 12, "the copies serve"
    assert (tmp_path / "cache" / "ncimp" / SCORES_FILE).is_file()
