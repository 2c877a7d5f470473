"""Where data comes from: folders in their order, and downloads, of which nothing wrong stays in the cache.

A local server stands in for GitHub and for the Hub.
"""

import hashlib
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from idiomtune.data import astitch, idiolink, ncimp, semeval2022, sources
from idiomtune.data.idiolink import idiolink_root
from idiomtune.data.names import MAGPIE, SEMEVAL2022
from idiomtune.data.ncimp import SCORES_FILE
from idiomtune.data.semeval2022 import FOLDER, TRAIN_FILE, read_groups, read_pairs
from idiomtune.data.sources import SAMPLE_ROOT, DataFiles, GitHubData, PublishedFile
from idiomtune.errors import DataMissingError, UserError
from idiomtune.io.files import fingerprint
from tests.fake_hub import QuietServer, Repository, serve
from tests.programs import refused

CONTENT = b'name,text\r\none,"A sentence, with a comma."\r\ntwo,Another.\r\n' * 50
PINNED = PublishedFile("in/x.csv", "c0ffee", hashlib.sha256(CONTENT).hexdigest())
UNPINNED = PublishedFile("in/x.csv", "HEAD")
PAGE = b"<!DOCTYPE html><html><body>Please log in.</body></html>"
Server = Callable[[Any], None]  # of a handler
HUB = "datasets/Intellexus/IdioLink"
IDIOLINK_FILES = ("data/train/indexes.json", "data/val/queries.json", "data/train/triplets_train_full.jsonl")


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
        servers.append(QuietServer(("127.0.0.1", 0), handler))
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
    return DataFiles(GitHubData(MAGPIE, "a/b", {"x.csv": file}), None)("x.csv")


def answering(*answers: bytes | None) -> type[Quiet]:
    """A handler that gives one answer after the other: of the length that CONTENT or PAGE has; None sends the
    client to a file of its machine.
    """
    left = list(answers)

    class Handler(Quiet):
        def do_GET(self) -> None:
            answer = left.pop(0)
            self.send_response(302 if answer is None else 200)
            self.send_header(
                "Content-Length", str(len(PAGE if answer == PAGE else CONTENT if answer else b""))
            )
            self.send_header("Location", "file:///etc/hostname")
            self.end_headers()
            self.wfile.write(answer or b"")

    return Handler


@pytest.mark.parametrize(
    ("file", "wrong", "named"),
    [(PINNED, PAGE, "SHA-256"), (UNPINNED, PAGE, "a page"), (UNPINNED, None, "etc/hostname")],
)
def test_what_a_server_does_wrong_is_not_taken_for_the_file(
    file: PublishedFile, wrong: bytes | None, named: str, as_github: Server, cache: Path
) -> None:
    as_github(answering(wrong, CONTENT))
    refused(lambda: get(file), named, "x.csv", "a local copy", error=DataMissingError)
    assert not (cache / "magpie" / "x.csv").exists()
    assert get(file).read_bytes() == CONTENT


@pytest.mark.usefixtures("cache")
def test_an_answer_that_ends_early_is_asked_for_again(as_github: Server) -> None:
    as_github(answering(CONTENT[:-30], CONTENT[:-30], CONTENT))
    refused(lambda: get(UNPINNED), "x.csv", error=DataMissingError)  # a second time, and no further
    assert get(UNPINNED).read_bytes() == CONTENT


def test_a_copy_is_downloaded_once_and_named_when_it_was_changed(
    github: Path, caplog: pytest.LogCaptureFixture
) -> None:
    origin = github / "a/b" / PINNED.revision / PINNED.path
    origin.parent.mkdir(parents=True)
    origin.write_bytes(CONTENT)
    copy = get(PINNED)
    origin.write_bytes(CONTENT + b"three,More.\r\n")  # published again, differently
    assert get(PINNED).read_bytes() == CONTENT
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    copy.write_bytes(CONTENT + b"three,Mine.\r\n")
    sources.warn_if_altered.cache_clear()
    assert [get(PINNED), get(PINNED)] == [copy, copy]
    assert caplog.text.count(f"{copy} is not the published file") == 1
    copy.unlink()
    with pytest.raises(DataMissingError, match=PINNED.sha256):
        get(PINNED)


GITHUB = (semeval2022.FILES, ncimp.FILES, astitch.FILES)


def test_the_sums_are_those_of_the_real_files(real_data: Path) -> None:
    files = [(data.dataset.name, name, file) for data in GITHUB for name, file in data.files.items()]
    sums = {f"{data}/{name}": file.sha256 for data, name, file in files if file.sha256 is not None}
    sums |= {f"idiolink/{path.removeprefix('data/')}": sum_ for path, sum_ in idiolink.SHA256.items()}
    assert {name: fingerprint(real_data / name) for name in sums} == sums
    assert len(sums) == 21 + len(idiolink.SHA256)


def test_files_are_downloaded_one_by_one(github: Path, semeval_sample: DataFiles, cache: Path) -> None:
    assert semeval_sample.folder is not None
    assert sources.dataset_folder(SEMEVAL2022, None, None, sample=False) is None
    files = DataFiles(publish(semeval2022.FILES, semeval_sample.folder, github), None)
    assert read_pairs(files, "dev").gold == read_pairs(semeval_sample, "dev").gold
    assert read_pairs(files, "eval").gold is None
    assert read_groups(files(TRAIN_FILE)) == read_groups(semeval_sample(TRAIN_FILE))
    shutil.rmtree(github / "H-TayyarMadabushi")
    with pytest.raises(DataMissingError, match=r"test\.csv could not be downloaded .*404.*\n.*IDIOM_DATA="):
        read_pairs(files, "test")
    spaced = DataFiles(publish(ncimp.FILES, SAMPLE_ROOT / "ncimp", github), None)
    assert spaced(SCORES_FILE) == cache / "ncimp" / SCORES_FILE, "a name with a space"


def test_local_copies_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set's own option, then `data.idiolink`, then `IDIOM_DATA`; each with the folder of its name or
    being it.
    """
    mine, root, environment = (tmp_path / name for name in ("mine", "root", "environment"))
    for folder in (mine, root, environment):
        (folder / FOLDER).mkdir(parents=True)
    monkeypatch.setenv("IDIOM_DATA", str(environment))
    found = partial(sources.dataset_folder, SEMEVAL2022, sample=False)
    assert found(str(mine), str(root)) == found(str(mine / FOLDER), None) == mine / FOLDER
    assert found(None, str(root)) == root / FOLDER
    assert found(None, str(tmp_path)) == environment / FOLDER
    refused(lambda: found("nowhere", None), "data.semeval2022=nowhere")


@pytest.fixture
def hub(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """What is served as IdioLink's dataset on the Hub; some of the files' sums are known."""
    assert not cache.exists()
    served = tmp_path / "hub"
    shutil.copytree(SAMPLE_ROOT / "idiolink", served / "data")
    (served / "README.md").write_text("a file that is not needed", encoding="utf-8")
    sums = {name: fingerprint(served / name) for name in IDIOLINK_FILES}
    monkeypatch.setattr(idiolink, "SHA256", sums)
    with serve({HUB: served}) as server:
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        settings = {"HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True, "ENDPOINT": server.url}
        for name, value in (settings | {"HUGGINGFACE_CO_URL_TEMPLATE": template}).items():
            monkeypatch.setattr(huggingface_hub.constants, name, value)
        yield server.repositories[HUB]


def test_idiolink_in_the_cache(hub: Repository, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Only splits are fetched, whole or not at all: the names of a data set's files are the server's."""
    published = hub.main.keys() - {"README.md"}
    for name in ("data/../../outside.json", "data/../indexes.json", "data/x y/indexes.json"):
        hub.main[name] = b"[]"
    name = IDIOLINK_FILES[0]
    good, hub.main[name] = hub.main[name], PAGE
    for _ in range(2):  # a second start does not take what came for the right file
        remedies = ("data.idiolink=", "IDIOM_DATA=", "data=sample")
        refused(lambda: idiolink_root(None, sample=False), name, *remedies, error=DataMissingError)
    assert not (cache / "idiolink").exists()
    hub.main[name] = good
    root = idiolink_root(None, sample=False)
    assert sorted(path.name for path in root.iterdir()) == ["test", "train", "val"]
    downloaded = {f"data/{path.relative_to(root).as_posix()}" for path in root.rglob("*") if path.is_file()}
    assert downloaded == published
    hub.main.clear()
    idiolink_root(None, sample=False)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    (cache / "idiolink" / IDIOLINK_FILES[1]).write_bytes(PAGE)
    sources.warn_if_altered.cache_clear()
    idiolink_root(None, sample=False)
    assert IDIOLINK_FILES[1] in caplog.text


def test_another_revision_of_idiolink(hub: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known sums are those of the default; either has a folder of its own in the cache."""
    name = IDIOLINK_FILES[1]
    hub.branches["v2"] = hub.main | {name: hub.main[name] + b"\n\n"}
    hub.main[name] += b"\n"
    refused(lambda: idiolink_root(None, sample=False), name, error=DataMissingError)
    for revision in ("main", "v2"):
        monkeypatch.setenv("IDIOM_IDIOLINK_REVISION", revision)
        assert (idiolink_root(None, sample=False).parent / name).read_bytes() == hub.branches[revision][name]
    for wrong in ("../..", "a/b", "-x", " "):
        monkeypatch.setenv("IDIOM_IDIOLINK_REVISION", wrong)
        refused(lambda: idiolink_root(None, sample=False), "IDIOM_IDIOLINK_REVISION=")
    assert not (cache / "idiolink").exists()


def test_layouts_of_idiolink_and_order_of_its_sources(
    tmp_path: Path, sample_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The splits directly in a folder, under idiolink/ or data/; a folder of others lacks IdioLink."""
    for name, inside in (("plain", ""), ("all", "idiolink"), ("hub", "data")):
        shutil.copytree(sample_root / "val", tmp_path / name / inside / "val")
        assert idiolink_root(str(tmp_path / name), sample=False) == tmp_path / name / inside
    monkeypatch.setenv("IDIOM_DATA", str(tmp_path / "all"))
    assert idiolink_root(None, sample=True) == SAMPLE_ROOT / "idiolink"
    assert idiolink_root(str(tmp_path / "plain"), sample=False) == tmp_path / "plain"
    assert idiolink_root(None, sample=False) == tmp_path / "all" / "idiolink"
    (tmp_path / "others" / "magpie").mkdir(parents=True)
    for folder, kind in (("missing", UserError), ("hub/data/val", UserError), ("others", DataMissingError)):
        error = refused(partial(idiolink_root, str(tmp_path / folder), sample=False))
        assert (type(error), error.option, error.file) == (kind, "data.idiolink", tmp_path / folder)
    monkeypatch.setenv("IDIOM_DATA", str(tmp_path / "all" / "idiolink" / "val"))
    error = refused(lambda: idiolink_root(None, sample=False), error=DataMissingError)
    assert error.option == "IDIOM_DATA"
