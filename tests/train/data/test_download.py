"""Downloads from GitHub, verified afterwards; a local server stands in for it."""

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
from train.data.semeval2022 import FOLDER, TRAIN_FILE, SemEvalFiles, read_groups, read_pairs
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


def test_semeval_files_are_downloaded_one_by_one(github: Path, semeval_sample: SemEvalFiles) -> None:
    assert semeval_sample.folder is not None
    shutil.copytree(semeval_sample.folder, github / "H-TayyarMadabushi/SemEval_2022_Task2-idiomaticity/HEAD")
    folder = sources.dataset_folder(FOLDER, None, "data.semeval2022", None, sample=False)
    assert folder is None
    files = SemEvalFiles(folder, sources.cache_folder())
    assert read_pairs(files, "dev").gold == read_pairs(semeval_sample, "dev").gold
    assert read_pairs(files, "eval").gold is None
    assert read_groups(files(TRAIN_FILE)) == read_groups(semeval_sample(TRAIN_FILE))
    shutil.rmtree(github / "H-TayyarMadabushi")
    assert read_pairs(files, "dev").pairs == read_pairs(semeval_sample, "dev").pairs, "the copies serve"
    with pytest.raises(DataMissingError, match=r"test\.csv could not be downloaded .*\n.*IDIOM_DATA="):
        read_pairs(files, "test")


def test_where_semeval_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own override, then `data.root`, then `IDIOM_DATA`, each with the folder of its name or being it."""
    for name in ("mine", "root", "environment"):
        (tmp_path / name / FOLDER).mkdir(parents=True)
    monkeypatch.setenv("IDIOM_DATA", str(tmp_path / "environment"))

    def found(named: str | None, root: str | None) -> Path | None:
        return sources.dataset_folder(FOLDER, named, "data.semeval2022", root, sample=False)

    assert found(str(tmp_path / "mine"), str(tmp_path / "root")) == tmp_path / "mine" / FOLDER
    assert found(str(tmp_path / "mine" / FOLDER), None) == tmp_path / "mine" / FOLDER
    assert found(None, str(tmp_path / "root")) == tmp_path / "root" / FOLDER
    assert found(None, str(tmp_path)) == tmp_path / "environment" / FOLDER
    with pytest.raises(UserError, match=r"data\.semeval2022=nowhere: there is no such folder"):
        found("nowhere", None)


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
