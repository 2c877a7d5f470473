"""Downloads: what a server may do wrong leaves nothing in the cache, and the next try succeeds.

A local server stands in for GitHub and for the Hub.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import get_args

import huggingface_hub.constants
import pytest

from tests.fake_hub import serve
from train.data import astitch, download, idiolink_source, ncimp, pie, semeval2022, sources
from train.data.datasets import SEMEVAL2022
from train.data.download import Limits, PublishedFile, github_file
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
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PINNED = PublishedFile("in/x.csv", "c0ffee", SHA256)
UNPINNED = PublishedFile("in/x.csv", "HEAD", columns=("name", "text"))
PAGE = b"<!DOCTYPE html><html><body>Please log in.</body></html>"


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
def github(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that is served as GitHub."""
    assert not cache.exists()
    served = tmp_path / "served"
    served.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served)))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setattr(download, "GITHUB_FILES", f"http://127.0.0.1:{server.server_port}")
    yield served
    server.shutdown()
    server.server_close()


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


Misbehaviour = Callable[[BaseHTTPRequestHandler], None]


def say(content: bytes, status: int = 200, length: int | None = None, **headers: str) -> Misbehaviour:
    """An answer; `length` is what it announces, where that is not the truth, or -1 for nothing."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        if length != -1:
            handler.send_header("Content-Length", str(len(content) if length is None else length))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def chunks(*parts: bytes, ends: bool = True) -> Misbehaviour:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in parts:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        if ends:
            handler.wfile.write(b"0\r\n\r\n")

    return answer


def endless(handler: BaseHTTPRequestHandler) -> None:
    chunks(*[b"a,b\n" * 1000] * 2000, ends=False)(handler)


def dripping(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(CONTENT)))
    handler.end_headers()
    for byte in CONTENT:
        handler.wfile.write(bytes([byte]))
        time.sleep(0.02)


def dripping_header(handler: BaseHTTPRequestHandler) -> None:
    for byte in b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000:
        handler.wfile.write(bytes([byte]))
        time.sleep(0.02)


def silent(_: BaseHTTPRequestHandler) -> None:
    time.sleep(1.5)


def round_and_round(handler: BaseHTTPRequestHandler) -> None:
    say(b"", 302, Location=handler.path)(handler)


MISBEHAVIOURS: dict[str, tuple[Misbehaviour, str]] = {
    "login page": (say(PAGE, Content_Type="text/html"), "web page"),
    "empty": (say(b""), "empty"),
    "cut": (say(CONTENT[:-30], length=len(CONTENT)), f"{len(CONTENT) - 30} of {len(CONTENT)}"),
    "cut in a chunk": (chunks(CONTENT[:-30], ends=False), ""),
    "raw gzip": (say(gzip.compress(CONTENT)), ""),
    "cut gzip": (say(gzip.compress(CONTENT)[:-9], Content_Encoding="gzip"), "gzip"),
    "no gzip": (say(CONTENT, Content_Encoding="gzip"), "gzip"),
    "a bomb": (say(gzip.compress(bytes(10**7)), Content_Encoding="gzip"), "bytes"),
    "unknown encoding": (say(CONTENT, Content_Encoding="br"), "br"),
    "announced as too large": (say(b"", length=10**12), "bytes"),
    "endless": (endless, "bytes"),
    "dripping": (dripping, "1 seconds"),
    "dripping header": (dripping_header, "1 seconds"),
    "silent": (silent, "0.5 seconds"),
    "no end": (say(CONTENT, length=-1), "Content-Length"),
    "a part": (say(CONTENT, 206), "206"),
    "no such file": (say(b"404: Not Found", 404), "404"),
    "server error": (say(b"", 500), "500"),
    "redirect loop": (round_and_round, "redirect"),
    "another protocol": (say(b"", 302, Location="file:///etc/hostname"), ""),
    "no address": (say(b"", 302, Location="http://[\x1b"), ""),
    "a terminal escape": (say(b"", 302, Location="gopher://x/\x1b[2J"), "x1b"),
}


@pytest.fixture
def flawed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Misbehaviour]]:
    """A server that does what stands in the list, which is to be filled."""
    assert not cache.exists()
    behaviour: list[Misbehaviour] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self.close_connection = True
            with suppress(OSError):  # the client may have given up
                behaviour[0](self)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setattr(download, "GITHUB_FILES", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(download, "LIMITS", Limits(silence=0.5, total=1, size=10**6))
    yield behaviour
    server.shutdown()
    server.server_close()


def get(file: PublishedFile, cache: Path) -> Path:
    return github_file("a/b", file, cache / "x.csv", otherwise="a local copy")


@pytest.mark.parametrize("file", [PINNED, UNPINNED], ids=["known sum", "unknown sum"])
@pytest.mark.parametrize("what", MISBEHAVIOURS)
def test_what_a_server_does_wrong_leaves_no_trace(
    what: str, file: PublishedFile, flawed: list[Misbehaviour], cache: Path
) -> None:
    behaviour, expected = MISBEHAVIOURS[what]
    flawed.append(behaviour)
    started = time.monotonic()
    with pytest.raises(DataMissingError) as caught:
        get(file, cache)
    assert time.monotonic() - started < 5
    assert all(part in str(caught.value) for part in (expected, "x.csv", "a local copy"))
    assert "\x1b" not in str(caught.value)
    assert not [path for path in cache.rglob("*") if path.is_file()]
    flawed[0] = say(CONTENT)
    assert get(file, cache).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "answer",
    [
        chunks(CONTENT[:100], CONTENT[100:]),
        say(gzip.compress(CONTENT), Content_Encoding="gzip"),
        say(CONTENT, Content_Encoding="identity"),
    ],
    ids=["chunks", "gzip", "identity"],
)
def test_other_ways_to_send_a_file(answer: Misbehaviour, flawed: list[Misbehaviour], cache: Path) -> None:
    flawed.append(answer)
    assert get(PINNED, cache).read_bytes() == CONTENT


def test_another_content_than_the_published_one(flawed: list[Misbehaviour], cache: Path) -> None:
    """A whole table serves where the sum is not known, and only there; what is no table never does."""
    other = CONTENT + b"three,More.\r\n"
    flawed.append(say(other))
    with pytest.raises(DataMissingError, match=SHA256):
        get(PINNED, cache)
    assert get(UNPINNED, cache).read_bytes() == other
    shutil.rmtree(cache)
    for wrong in (
        b"a,b\r\n1,2\r\n",
        b"name,text\r\n",
        b"name,text\r\none,A sent"[:14],
        b"name,text\r\n\xff,x\r\n",
    ):
        flawed[0] = say(wrong)
        with pytest.raises(DataMissingError, match=r"x\.csv"):
            get(UNPINNED, cache)
        assert not [path for path in cache.rglob("*") if path.is_file()]


def test_nobody_answers(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "GITHUB_FILES", "http://127.0.0.1:9")
    with pytest.raises(DataMissingError, match=r"x\.csv.*refused"):
        get(PINNED, cache)


def test_a_copy_that_is_not_the_published_file_is_downloaded_again(
    flawed: list[Misbehaviour], cache: Path
) -> None:
    """As one kept by a version that accepted any answer: with a sum, which is its own."""
    flawed.append(say(CONTENT))
    for file in (PINNED, UNPINNED):
        copy = get(file, cache)
        copy.write_bytes(PAGE)
        copy.with_name("x.csv.sha256").write_text(hashlib.sha256(PAGE).hexdigest() + "\n", encoding="utf-8")
        assert get(file, cache).read_bytes() == CONTENT


def test_a_copy_that_was_changed_since(flawed: list[Misbehaviour], cache: Path) -> None:
    flawed.append(say(CONTENT))
    for file in (PINNED, UNPINNED):
        copy = get(file, cache)
        copy.write_bytes(CONTENT + b"three,Mine.\r\n")
        with pytest.raises(UserError, match=r"x\.csv differs .*delete it and x\.csv\.sha256"):
            get(file, cache)
        copy.unlink()
        assert get(file, cache).read_bytes() == CONTENT


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b"no sum\n", b"0" * 10**6])
def test_a_damaged_sum(damage: bytes, flawed: list[Misbehaviour], cache: Path) -> None:
    """It is needed where the file's sum is not known, and then said what to do."""
    flawed.append(say(CONTENT))
    recorded = get(UNPINNED, cache).with_name("x.csv.sha256")
    recorded.write_bytes(damage)
    with pytest.raises(UserError, match=r"x\.csv\.sha256 is damaged.*[Dd]elete"):
        get(UNPINNED, cache)
    assert get(PINNED, cache).read_bytes() == CONTENT
    recorded.unlink()
    assert get(UNPINNED, cache).read_bytes() == CONTENT
    recorded.unlink()
    recorded.mkdir()
    with pytest.raises(UserError, match=r"x\.csv"):
        get(UNPINNED, cache)


def test_a_token_stays_with_its_host(flawed: list[Misbehaviour]) -> None:
    seen: list[str | None] = []

    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers.get("Authorization"))
        if len(seen) == 1:
            say(b"", 302, Location=f"http://localhost:{handler.headers['Host'].split(':')[1]}/")(handler)
        else:
            say(CONTENT)(handler)

    flawed.append(elsewhere)
    assert download.fetch(download.GITHUB_FILES, authorization="Bearer secret") == CONTENT
    assert seen == ["Bearer secret", None]


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


def test_a_file_is_downloaded_once_and_verified(github: Path) -> None:
    (file,) = pie.FILES.files.values()
    origin = github / pie.FILES.repo / file.revision / "data_cleaned.csv"
    origin.parent.mkdir(parents=True)
    content = ",".join(file.columns) + "\n" + ",".join("x" * len(file.columns)) + "\n"
    origin.write_text(content, encoding="utf-8")
    path = pie_file(None)
    assert path.read_text(encoding="utf-8") == content
    origin.unlink()
    assert pie_file(None) == path, "the copy serves"
    path.write_text("damaged", encoding="utf-8")
    with pytest.raises(UserError, match="differs from what was downloaded"):
        pie_file(None)


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
def idiolink(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that is served as IdioLink's dataset on the Hub; some sums of its files are known."""
    assert not cache.exists()
    served = tmp_path / "hub"
    shutil.copytree(sources.SAMPLE_ROOT / "idiolink", served / "data")
    sums = {name: fingerprint(served / name) for name in IDIOLINK_FILES}
    monkeypatch.setattr(idiolink_source, "SHA256", sums)
    with serve({"datasets/Intellexus/IdioLink": served}) as hub:
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield served


@pytest.mark.parametrize("name", [*IDIOLINK_FILES, "data/test/queries.json", "data/val/indexes.json"])
@pytest.mark.parametrize(
    "content", [PAGE, b"[]", gzip.compress(b"[]"), None], ids=["page", "no record", "gzip", "cut"]
)
def test_idiolink_is_kept_whole_or_not_at_all(
    name: str, content: bytes | None, idiolink: Path, cache: Path
) -> None:
    good = (idiolink / name).read_bytes()
    (idiolink / name).write_bytes(good[: len(good) // 2] if content is None else content)
    with pytest.raises(DataMissingError, match=name) as caught:
        idiolink_root(None, sample=False)
    assert "data.root=" in str(caught.value)
    assert not [path for path in cache.rglob("*") if path.is_file()]
    (idiolink / name).write_bytes(good)
    root = idiolink_root(None, sample=False)
    assert {path.relative_to(root.parent) for path in root.rglob("*.json*")} == {
        path.relative_to(idiolink) for path in idiolink.rglob("*.json*")
    }


def test_idiolink_in_the_cache(idiolink: Path, cache: Path) -> None:
    """Damaged, with damaged sums, or whole but not what is published."""
    recorded = idiolink_root(None, sample=False).parent / "checksums.json"
    sums = json.loads(recorded.read_text(encoding="utf-8"))
    for damage in ("", "[]", "{}", '{"data/val/queries.json": 3}', "\x00"):
        recorded.write_text(damage, encoding="utf-8")
        with pytest.raises(UserError, match=r"checksums\.json.*(\n.*)?[Dd]elete the folder"):
            idiolink_root(None, sample=False)
    copy = cache / "idiolink" / IDIOLINK_FILES[1]
    copy.write_bytes(PAGE)
    recorded.write_text(json.dumps(sums), encoding="utf-8")
    with pytest.raises(UserError, match=rf"{IDIOLINK_FILES[1]} differs from what was downloaded: delete"):
        idiolink_root(None, sample=False)
    sums[IDIOLINK_FILES[1]] = fingerprint(copy)  # as by a version that accepted it
    recorded.write_text(json.dumps(sums), encoding="utf-8")
    idiolink_root(None, sample=False)
    assert copy.read_bytes() == (idiolink / IDIOLINK_FILES[1]).read_bytes()


def test_another_revision_of_idiolink(idiolink: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known sums are those of the default; either has a folder of its own in the cache."""
    name = IDIOLINK_FILES[1]
    before = (idiolink / name).read_bytes()
    (idiolink / name).write_bytes(before + b"\n")
    monkeypatch.setenv("IDIOM_IDIOLINK_REVISION", "v2")
    assert (idiolink_root(None, sample=False).parent / name).read_bytes() == before + b"\n"
    for wrong in ("../..", "a/b", "-x", " "):
        monkeypatch.setenv("IDIOM_IDIOLINK_REVISION", wrong)
        with pytest.raises(UserError, match="IDIOM_IDIOLINK_REVISION="):
            idiolink_root(None, sample=False)
    monkeypatch.delenv("IDIOM_IDIOLINK_REVISION")
    with pytest.raises(DataMissingError, match=name):
        idiolink_root(None, sample=False)
    assert (cache / "idiolink-v2" / "checksums.json").is_file()
    assert not (cache / "idiolink" / "checksums.json").exists()


def test_paths_that_leave_the_folder_are_not_fetched(
    idiolink: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of a dataset's files are the server's."""
    (tmp_path / "outside.json").write_text("[]", encoding="utf-8")
    (idiolink / "data" / "x y").mkdir()
    (idiolink / "data" / "x y" / "indexes.json").write_text("[]", encoding="utf-8")
    from train.io import hub

    asked = hub.dataset_files

    def more(repo_id: str, revision: str) -> tuple[str, list[str]]:
        commit, names = asked(repo_id, revision)
        return commit, [*names, "data/../../outside.json", "data/../indexes.json", "data//indexes.json"]

    monkeypatch.setattr(hub, "dataset_files", more)
    root = idiolink_root(None, sample=False)
    assert sorted(path.name for path in root.iterdir()) == ["test", "train", "val"]
