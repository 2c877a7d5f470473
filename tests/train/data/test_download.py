"""Downloads: what a server does wrong leaves nothing in the cache, and the next try succeeds.

A local server stands in for GitHub and for the Hub.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, get_args

import huggingface_hub.constants
import pytest

from tests.fake_hub import FakeHub, serve
from train.data import astitch, download, idiolink_source, ncimp, pie, semeval2022, sources
from train.data.datasets import SEMEVAL2022
from train.data.download import PublishedFile, github_file
from train.data.idiolink_source import idiolink_root
from train.data.names import AStitchFile
from train.data.ncimp import SCORES_FILE, read_ncimp
from train.data.pie import pie_file
from train.data.semeval2022 import FOLDER, TRAIN_FILE, read_groups, read_pairs
from train.data.sources import DataFiles, GitHubData
from train.errors import DataMissingError, UserError
from train.io.files import fingerprint
from train.io.paths import cache_folder

CONTENT = b'name,text\r\none,"A sentence, with a comma."\r\ntwo,Another.\r\n' * 50
PINNED = PublishedFile("in/x.csv", "c0ffee", hashlib.sha256(CONTENT).hexdigest())
UNPINNED = PublishedFile("in/x.csv", "HEAD", columns=("name", "text"))
PAGE = b"<!DOCTYPE html><html><body>Please log in.</body></html>"
Server = Callable[[Any], None]  # of a handler


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty `IDIOM_CACHE`, while `IDIOM_DATA` is unset."""
    monkeypatch.setenv("IDIOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("IDIOM_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def as_github(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Starts a server with a handler, in GitHub's place."""
    assert not cache.exists()
    servers = []

    def start(handler: Any) -> None:
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.02,), daemon=True).start()
        monkeypatch.setattr(download, "GITHUB_FILES", f"http://127.0.0.1:{servers[-1].server_port}")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def github(tmp_path: Path, as_github: Server) -> Path:
    """The folder that is served as GitHub."""
    served = tmp_path / "served"
    served.mkdir()
    as_github(partial(Quiet, directory=str(served)))
    return served


def publish(data: GitHubData, copy: Path, served: Path) -> GitHubData:
    """The data set as if a local copy were what is published: its files in their places, and
    the same declaration with other sums.
    """
    files = {}
    for path, file in data.files.items():
        local = copy / path
        if local.is_file():
            target = served / data.repo / file.revision / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(local, target)
            file = replace(file, sha256=file.sha256 and fingerprint(local))
        files[path] = file
    return replace(data, files=files)


def get(file: PublishedFile, cache: Path) -> Path:
    return github_file("a/b", file, cache / "x.csv", otherwise="a local copy")


def kept(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


@pytest.mark.parametrize("file", [PINNED, UNPINNED], ids=["known sum", "unknown sum"])
@pytest.mark.parametrize(
    ("status", "content", "length", "said"),
    [
        (200, PAGE, len(PAGE), ""),
        (200, CONTENT[:-30], len(CONTENT), "30 more"),
        (200, None, len(CONTENT), "timed out"),
        (404, b"404: Not Found", 14, "404"),
        (302, b"", 0, "etc/hostname"),
        (200, b"", 0, ""),
    ],
    ids=["login page", "cut", "silent", "missing", "redirect to a file", "empty"],
)
def test_what_a_server_does_wrong_leaves_no_trace(
    file: PublishedFile,
    status: int,
    content: bytes | None,
    length: int,
    said: str,
    as_github: Server,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = False

    class Handler(Quiet):
        def do_GET(self) -> None:
            self.send_response(200 if right else status)
            self.send_header("Content-Length", str(len(CONTENT) if right else length))
            self.send_header("Location", "file:///etc/hostname")
            self.end_headers()
            if content is None and not right:
                time.sleep(0.4)
            else:
                self.wfile.write(CONTENT if right else content or b"")

    as_github(Handler)
    monkeypatch.setattr(download, "_TIMEOUT", 0.2)
    with pytest.raises(DataMissingError) as caught:
        get(file, cache)
    assert all(part in str(caught.value) for part in (said, "x.csv", "a local copy"))
    assert not kept(cache)
    right = True
    assert get(file, cache).read_bytes() == CONTENT


@pytest.mark.parametrize("file", [PINNED, UNPINNED], ids=["known sum", "unknown sum"])
def test_a_copy_serves_until_it_is_changed(file: PublishedFile, github: Path, cache: Path) -> None:
    origin = github / "a/b" / file.revision / file.path
    origin.parent.mkdir(parents=True)
    origin.write_bytes(CONTENT)
    copy = get(file, cache)
    origin.unlink()
    assert get(file, cache).read_bytes() == CONTENT
    copy.write_bytes(CONTENT + b"three,Mine.\r\n")
    with pytest.raises(UserError, match=r"x\.csv differs .*delete it and x\.csv\.sha256"):
        get(file, cache)
    for damaged in kept(cache):
        damaged.unlink()
    origin.write_bytes(CONTENT + b"three,More.\r\n")  # published anew
    if file.sha256 is None:
        assert get(file, cache).read_bytes() == origin.read_bytes()
    else:
        with pytest.raises(DataMissingError, match=file.sha256):
            get(file, cache)


def test_nobody_answers(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "GITHUB_FILES", "http://127.0.0.1:9")
    with pytest.raises(DataMissingError, match=r"x\.csv.*refused"):
        get(PINNED, cache)


def test_every_file_that_is_asked_for_is_declared(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def note(repo: str, file: PublishedFile, target: Path, *, otherwise: str) -> Path:
        del otherwise
        assert target.is_relative_to(cache)
        asked.append((repo, file.path))
        return target

    monkeypatch.setattr(sources, "github_file", note)
    names = [TRAIN_FILE, semeval2022.ONE_SHOT_FILE, semeval2022._GOLD["dev"]]
    for name in (*names, *semeval2022._PAIRS.values(), *semeval2022._FORMS.values()):
        DataFiles(semeval2022.FILES, None)(name)
    tables = [
        f"{lang}/{t}"
        for lang in ("EN", "PT")
        for t in ("neutral", *(f"naturalistics_examplesent{i}" for i in (1, 2, 3)))
    ]
    for name in (SCORES_FILE, *(f"{table}.csv" for table in tables)):
        DataFiles(ncimp.FILES, None)(name)
    for usage in get_args(AStitchFile):
        DataFiles(astitch.FILES, None)(astitch.usages_file(usage))
    DataFiles(astitch.FILES, None)(astitch.SENSES_FILE)
    pie_file(None)
    everything = [(data.repo, file) for data in GITHUB for file in data.files.values()]
    assert set(asked) == {(repo, file.path) for repo, file in everything}
    assert all(file.sha256 is not None or file.columns for _, file in everything)


GITHUB = (semeval2022.FILES, ncimp.FILES, astitch.FILES, pie.FILES)


def test_the_sums_are_those_of_the_real_files(real_data: Path) -> None:
    num_known = 0
    for data in GITHUB:
        for name, file in data.files.items():
            if file.sha256 is not None:
                assert fingerprint(real_data / data.dataset.name / name) == file.sha256, name
                num_known += 1
    for path, sha256 in idiolink_source.SHA256.items():
        assert fingerprint(real_data / "idiolink" / path.removeprefix("data/")) == sha256
    assert num_known == 21


def test_unreachable_says_what_to_do(github: Path) -> None:
    assert not list(github.iterdir())
    with pytest.raises(UserError, match=r"could not be downloaded .*\n.*data\.pie="):
        pie_file(None)
    assert not list(cache_folder().rglob("*.csv"))


def test_semeval_files_are_downloaded_one_by_one(github: Path, semeval_sample: DataFiles) -> None:
    assert semeval_sample.folder is not None
    assert sources.dataset_folder(SEMEVAL2022, None, None, sample=False) is None
    files = DataFiles(publish(semeval2022.FILES, semeval_sample.folder, github), None)
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
        return sources.dataset_folder(SEMEVAL2022, named, root, sample=False)

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
    assert pie_file(None) == file
    named = tmp_path / "mine.csv"
    named.touch()
    assert pie_file(str(named)) == named
    assert pie_file(str(file.parent)) == file
    assert pie_file(str(tmp_path)) == file
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"data_cleaned\.csv: there is no such file.*data\.pie="):
        pie_file(str(tmp_path / "empty"))
    with pytest.raises(UserError, match=r"data\.pie=.*none\.csv"):
        pie_file(str(tmp_path / "none.csv"))


def test_ncimp_comes_file_by_file_names_with_spaces_too(github: Path, tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match=r"could not be downloaded .*\n.*data\.ncimp="):
        DataFiles(ncimp.FILES, None)(SCORES_FILE)
    files = DataFiles(publish(ncimp.FILES, sources.SAMPLE_ROOT / "ncimp", github), None)
    assert len(read_ncimp(files, "en").compounds) == 12
    shutil.rmtree(github / ncimp.FILES.repo)
    assert len(read_ncimp(files, "en").compounds) == 12, "the copies serve"
    assert (tmp_path / "cache" / "ncimp" / SCORES_FILE).is_file()


IDIOLINK_FILES = ("data/train/indexes.json", "data/val/queries.json", "data/train/triplets_train_full.jsonl")


@pytest.fixture
def idiolink(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """The files that are served as IdioLink's dataset on the Hub; some of their sums are known."""
    assert not cache.exists()
    served = tmp_path / "hub"
    shutil.copytree(sources.SAMPLE_ROOT / "idiolink", served / "data")
    (served / "README.md").write_text("a file that is not needed", encoding="utf-8")
    sums = {name: fingerprint(served / name) for name in IDIOLINK_FILES}
    monkeypatch.setattr(idiolink_source, "SHA256", sums)
    hub: FakeHub
    with serve({"datasets/Intellexus/IdioLink": served}) as hub:
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield hub.repositories["datasets/Intellexus/IdioLink"].main


@pytest.mark.parametrize("name", IDIOLINK_FILES)
@pytest.mark.parametrize("content", [PAGE, None], ids=["page", "missing"])
def test_idiolink_is_kept_whole_or_not_at_all(
    name: str, content: bytes | None, idiolink: dict[str, bytes], cache: Path
) -> None:
    good = idiolink.pop(name)
    if content is not None:
        idiolink[name] = content
    for _ in range(2):  # a second start does not take what came for the right file
        with pytest.raises(DataMissingError, match=name) as caught:
            idiolink_root(None, sample=False)
        assert "data.root=" in str(caught.value)
    assert not (cache / "idiolink" / "checksums.json").exists()
    idiolink[name] = good
    root = idiolink_root(None, sample=False)
    downloaded = {path.relative_to(root.parent).as_posix() for path in root.rglob("*") if path.is_file()}
    assert downloaded == idiolink.keys() - {"README.md"}


def test_idiolink_in_the_cache(idiolink: dict[str, bytes], cache: Path) -> None:
    recorded = idiolink_root(None, sample=False).parent / "checksums.json"
    sums = recorded.read_text(encoding="utf-8")
    assert json.loads(sums).keys() == idiolink.keys() - {"README.md"}
    idiolink.clear()
    idiolink_root(None, sample=False)
    for damage in ("", "[]", "\x00"):
        recorded.write_text(damage, encoding="utf-8")
        with pytest.raises(UserError, match=r"checksums\.json"):
            idiolink_root(None, sample=False)
    recorded.write_text(sums, encoding="utf-8")
    for name in (IDIOLINK_FILES[1], "data/test/queries.json"):
        copy = cache / "idiolink" / name
        good = copy.read_bytes()
        copy.write_bytes(PAGE)
        with pytest.raises(UserError, match=rf"{name} differs from what was downloaded: delete"):
            idiolink_root(None, sample=False)
        copy.unlink()
        with pytest.raises(UserError, match=rf"{name}: cannot be read.*delete"):
            idiolink_root(None, sample=False)
        copy.write_bytes(good)
    idiolink_root(None, sample=False)


def test_another_revision_of_idiolink(
    idiolink: dict[str, bytes], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known sums are those of the default; either has a folder of its own in the cache."""
    name = IDIOLINK_FILES[1]
    idiolink[name] += b"\n"
    with pytest.raises(DataMissingError, match=name):
        idiolink_root(None, sample=False)
    monkeypatch.setenv("IDIOM_IDIOLINK_REVISION", "main")
    assert (idiolink_root(None, sample=False).parent / name).read_bytes() == idiolink[name]
    for wrong in ("../..", "a/b", "-x", " "):
        monkeypatch.setenv("IDIOM_IDIOLINK_REVISION", wrong)
        with pytest.raises(UserError, match="IDIOM_IDIOLINK_REVISION="):
            idiolink_root(None, sample=False)
    assert (cache / "idiolink-main" / "checksums.json").is_file()
    assert not (cache / "idiolink" / "checksums.json").exists()


def test_paths_that_leave_the_folder_are_not_fetched(idiolink: dict[str, bytes]) -> None:
    """The names of a dataset's files are the server's."""
    for name in (
        "data/../../outside.json",
        "data/../indexes.json",
        "data//indexes.json",
        "data/x y/indexes.json",
    ):
        idiolink[name] = b"[]"
    root = idiolink_root(None, sample=False)
    assert sorted(path.name for path in root.iterdir()) == ["test", "train", "val"]
