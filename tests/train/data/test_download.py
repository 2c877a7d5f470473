"""Where data comes from: folders in their order, and downloads, of which nothing wrong stays in the cache.

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
from email.message import Message
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request

import huggingface_hub.constants
import pytest

from tests.fake_hub import FakeHub, serve
from tests.programs import assert_explained, run
from train.data import astitch, external, idiolink, ncimp, semeval2022, sources
from train.data.external import pie_file
from train.data.idiolink import idiolink_root
from train.data.names import PIE, SEMEVAL2022
from train.data.ncimp import SCORES_FILE
from train.data.semeval2022 import FOLDER, TRAIN_FILE, read_groups, read_pairs
from train.data.sources import SAMPLE_ROOT, DataFiles, GitHubData, NoDowngrade, PublishedFile
from train.errors import DataMissingError, UserError
from train.io.files import cache_folder, fingerprint

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
        monkeypatch.setattr(sources, "GITHUB_FILES", f"http://127.0.0.1:{servers[-1].server_port}")

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


def get(file: PublishedFile) -> Path:
    return DataFiles(GitHubData(PIE, "a/b", "x.csv", {"x.csv": file}), None)("x.csv")


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
    monkeypatch.setattr(sources, "_TIMEOUT", 0.2)
    with pytest.raises(DataMissingError) as caught:
        get(file)
    assert all(part in str(caught.value) for part in (said, "x.csv", "a local copy"))
    assert not kept(cache)
    right = True
    assert get(file).read_bytes() == CONTENT


@pytest.mark.parametrize("file", [PINNED, UNPINNED], ids=["known sum", "unknown sum"])
def test_a_copy_is_downloaded_once_and_named_when_it_was_changed(
    file: PublishedFile, github: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    origin = github / "a/b" / file.revision / file.path
    origin.parent.mkdir(parents=True)
    origin.write_bytes(CONTENT)
    copy = get(file)
    origin.write_bytes(CONTENT + b"three,More.\r\n")  # published again, differently
    assert get(file).read_bytes() == CONTENT
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    copy.write_bytes(CONTENT + b"three,Mine.\r\n")
    sources.warn_if_altered.cache_clear()
    assert get(file) == copy
    assert f"{copy} is not the published file" in caplog.text
    copy.unlink()
    (cache / "pie" / "x.csv.sha256").unlink(missing_ok=True)
    if file.sha256 is None:
        assert get(file).read_bytes() == origin.read_bytes()
    else:
        with pytest.raises(DataMissingError, match=file.sha256):
            get(file)


def test_a_redirect_to_an_unencrypted_address_is_refused() -> None:
    """Nobody on the way may put another file in the place of one whose sum is not known."""
    redirect = partial(NoDowngrade().redirect_request, fp=None, code=302, msg="Found", headers=Message())
    secure = Request("https://example.org/x.csv")
    with pytest.raises(HTTPError, match="without encryption"):
        redirect(secure, newurl="http://example.org/x.csv")
    followed = redirect(secure, newurl="https://elsewhere.org/x.csv")
    assert followed is not None
    assert followed.full_url == "https://elsewhere.org/x.csv"


@pytest.mark.usefixtures("cache")
def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "GITHUB_FILES", "http://127.0.0.1:9")
    with pytest.raises(DataMissingError, match=r"x\.csv.*refused"):
        get(PINNED)


GITHUB = (semeval2022.FILES, ncimp.FILES, astitch.FILES, external.PIE_FILES)


def test_the_sums_are_those_of_the_real_files(real_data: Path) -> None:
    num_known = 0
    for data in GITHUB:
        for name, file in data.files.items():
            if file.sha256 is not None:
                assert fingerprint(real_data / data.dataset.name / name) == file.sha256, name
                num_known += 1
    for path, sha256 in idiolink.SHA256.items():
        assert fingerprint(real_data / "idiolink" / path.removeprefix("data/")) == sha256
    assert num_known == 21


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


@pytest.mark.usefixtures("cache")
def test_a_name_with_a_space(github: Path) -> None:
    with pytest.raises(DataMissingError, match=r"could not be downloaded .*\n.*data\.ncimp="):
        DataFiles(ncimp.FILES, None)(SCORES_FILE)
    files = DataFiles(publish(ncimp.FILES, SAMPLE_ROOT / "ncimp", github), None)
    assert files(SCORES_FILE) == cache_folder() / "ncimp" / SCORES_FILE


IDIOLINK_FILES = ("data/train/indexes.json", "data/val/queries.json", "data/train/triplets_train_full.jsonl")


@pytest.fixture
def served_idiolink(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, bytes]]:
    """The files that are served as IdioLink's dataset on the Hub; some of their sums are known."""
    assert not cache.exists()
    served = tmp_path / "hub"
    shutil.copytree(SAMPLE_ROOT / "idiolink", served / "data")
    (served / "README.md").write_text("a file that is not needed", encoding="utf-8")
    sums = {name: fingerprint(served / name) for name in IDIOLINK_FILES}
    monkeypatch.setattr(idiolink, "SHA256", sums)
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
    name: str, content: bytes | None, served_idiolink: dict[str, bytes], cache: Path
) -> None:
    good = served_idiolink.pop(name)
    if content is not None:
        served_idiolink[name] = content
    for _ in range(2):  # a second start does not take what came for the right file
        with pytest.raises(DataMissingError, match=name) as caught:
            idiolink_root(None, sample=False)
        assert "data.root=" in str(caught.value)
    assert not (cache / "idiolink" / "checksums.json").exists()
    served_idiolink[name] = good
    root = idiolink_root(None, sample=False)
    downloaded = {path.relative_to(root.parent).as_posix() for path in root.rglob("*") if path.is_file()}
    assert downloaded == served_idiolink.keys() - {"README.md"}


def test_idiolink_in_the_cache(
    served_idiolink: dict[str, bytes], cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = idiolink_root(None, sample=False).parent / "checksums.json"
    assert json.loads(recorded.read_text()).keys() == served_idiolink.keys() - {"README.md"}
    served_idiolink.clear()
    idiolink_root(None, sample=False)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    for name in (IDIOLINK_FILES[1], "data/test/queries.json"):
        (cache / "idiolink" / name).write_bytes(PAGE)
        sources.warn_if_altered.cache_clear()
        idiolink_root(None, sample=False)
        assert f"{name} is not the published file" in caplog.text


def test_another_revision_of_idiolink(
    served_idiolink: dict[str, bytes], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known sums are those of the default; either has a folder of its own in the cache."""
    name = IDIOLINK_FILES[1]
    served_idiolink[name] += b"\n"
    with pytest.raises(DataMissingError, match=name):
        idiolink_root(None, sample=False)
    monkeypatch.setenv("IDIOM_IDIOLINK_REVISION", "main")
    assert (idiolink_root(None, sample=False).parent / name).read_bytes() == served_idiolink[name]
    for wrong in ("../..", "a/b", "-x", " "):
        monkeypatch.setenv("IDIOM_IDIOLINK_REVISION", wrong)
        with pytest.raises(UserError, match="IDIOM_IDIOLINK_REVISION="):
            idiolink_root(None, sample=False)
    assert (cache / "idiolink-main" / "checksums.json").is_file()
    assert not (cache / "idiolink" / "checksums.json").exists()


def test_paths_that_leave_the_folder_are_not_fetched(served_idiolink: dict[str, bytes]) -> None:
    """The names of a dataset's files are the server's."""
    for name in (
        "data/../../outside.json",
        "data/../indexes.json",
        "data//indexes.json",
        "data/x y/indexes.json",
    ):
        served_idiolink[name] = b"[]"
    root = idiolink_root(None, sample=False)
    assert sorted(path.name for path in root.iterdir()) == ["test", "train", "val"]


def test_layouts_of_idiolink_and_order_of_its_sources(
    tmp_path: Path, sample_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The splits directly in a folder, under idiolink/, and under data/ as on the Hub."""
    for name, inside in (("plain", ""), ("all", "idiolink"), ("hub", "data")):
        shutil.copytree(sample_root / "val", tmp_path / name / inside / "val")
        assert idiolink_root(str(tmp_path / name), sample=False) == tmp_path / name / inside
    monkeypatch.setenv("IDIOM_DATA", str(tmp_path / "all"))
    assert idiolink_root(None, sample=True) == SAMPLE_ROOT / "idiolink"
    assert idiolink_root(str(tmp_path / "plain"), sample=False) == tmp_path / "plain"
    assert idiolink_root(None, sample=False) == tmp_path / "all" / "idiolink"
    with pytest.raises(UserError) as caught:
        idiolink_root(str(tmp_path / "missing"), sample=False)
    assert (caught.value.option, caught.value.file) == ("data.root", tmp_path / "missing")
    monkeypatch.setenv("IDIOM_DATA", str(tmp_path / "all" / "idiolink" / "val"))
    with pytest.raises(DataMissingError) as caught:
        idiolink_root(None, sample=False)
    assert caught.value.option == "IDIOM_DATA"


@pytest.mark.slow
def test_data_and_model_are_downloaded_once(tmp_path: Path, tiny_path: Path) -> None:
    """`train.evaluate` with both from a Hub that is a local server, then without it."""
    shutil.copytree(SAMPLE_ROOT / "idiolink", tmp_path / "hub" / "data")
    arguments = ["train.evaluate", "model=someone/tiny", "device=cpu", "benchmarks=[idiolink]"]
    arguments += [f"output={tmp_path / 'scores.json'}", "overwrite=true"]
    with serve({"datasets/Intellexus/IdioLink": tmp_path / "hub", "models/someone/tiny": tiny_path}) as hub:
        environment: dict[str, str | None] = {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_OFFLINE": None,
            "IDIOM_DATA": None,
            "IDIOM_CACHE": str(tmp_path / "cache"),
            "IDIOM_IDIOLINK_REVISION": "main",  # the sums of the default one are not the sample's
            "HF_HUB_DISABLE_XET": "1",
        }
        first = run(*arguments, environment=environment, cold=True)  # as the client reads them at its import
        assert first.returncode == 0, first.stderr
        fetched = [r for r in hub.requests if r.startswith("GET") and "/resolve/" in r and "IdioLink" in r]
        assert len(fetched) == len(set(fetched)) == 7
    offline = run(*arguments, environment=environment)
    assert offline.returncode == 0, offline.stderr
    assert "downloaded before" in offline.stderr


@pytest.mark.slow
def test_no_data_and_no_network_says_what_to_set(tmp_path: Path) -> None:
    environment = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": None, "IDIOM_DATA": None}
    done = run("train.evaluate", timeout=60, environment={**environment, "IDIOM_CACHE": str(tmp_path)})
    assert_explained(done, "data.root=", "IDIOM_DATA=", "data=sample", "Reason:")
