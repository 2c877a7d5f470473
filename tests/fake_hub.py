"""A local server that speaks as much of the Hugging Face Hub's interface as downloads and pushes need.

Accounts, repositories with branches, preupload, Git LFS (batch and basic upload), commits, downloads;
failures can be planted.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

_LFS_FROM = 100_000  # bytes, from which a file is stored as LFS; safetensors always are


@dataclass
class Repository:
    """One repository: branch → path → content."""

    private: bool = False
    branches: dict[str, dict[str, bytes]] = field(
        default_factory=lambda: {"main": {".gitattributes": b"*.safetensors filter=lfs\n"}}
    )

    @property
    def main(self) -> dict[str, bytes]:
        return self.branches["main"]

    def files(self, revision: str) -> dict[str, bytes] | None:
        """Of a branch, or of the commit that one is at."""
        return next((f for name, f in self.branches.items() if revision in (name, commit_id(f))), None)


def commit_id(files: dict[str, bytes]) -> str:
    """A name for this state of a branch."""
    sums = [(name, hashlib.sha1(content).hexdigest()) for name, content in sorted(files.items())]
    return hashlib.sha1(repr(sums).encode()).hexdigest()


@dataclass
class Failure:
    """What goes wrong with requests whose `METHOD /path` contains `request`."""

    request: str
    status: int | None  # None cuts the connection in the middle of the upload
    times: int = -1  # -1 is always
    text: str = "planted"
    seconds: float = 0.0  # that pass before


@dataclass
class FakeHub:
    """The server's state."""

    url: str = ""  # what HF_ENDPOINT is set to
    users: dict[str, str] = field(default_factory=dict)  # token → name
    repositories: dict[str, Repository] = field(default_factory=dict)  # a/b, datasets/a/b
    objects: dict[str, bytes] = field(default_factory=dict)  # uploaded completely, by their SHA-256
    failures: list[Failure] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)  # `METHOD /path` of each so far
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, part: str) -> int:
        return sum(part in request for request in self.requests)


class QuietServer(ThreadingHTTPServer):
    """One that shows no traceback when a client has not waited for an answer.

    Of more connections at once than the queue holds, the system drops some, and a client tries again after a
    second.
    """

    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *_: object) -> None:
        pass

    def handle_one(self) -> None:
        path = unquote(urlparse(self.path).path)
        request = f"{self.command} {path}"
        with self.hub.lock:
            self.hub.requests.append(request)
            planted = next((f for f in self.hub.failures if f.request in request and f.times != 0), None)
            if planted is not None:
                planted.times -= 1
        length = int(self.headers.get("Content-Length", 0))
        if planted is None:
            body = self.rfile.read(length)
            with self.hub.lock:
                self.route(path, body)
            return
        time.sleep(planted.seconds)
        if planted.status is None:
            self.rfile.read(length // 2)
            self.close_connection = True
            self.connection.close()
        else:
            self.rfile.read(length)
            self.answer(planted.status, {"error": planted.text})

    do_HEAD = do_GET = do_POST = do_PUT = handle_one  # noqa: N815

    @property
    def user(self) -> str | None:
        return self.hub.users.get(self.headers.get("Authorization", "").removeprefix("Bearer "))

    def may_write(self, repo_id: str) -> bool:
        return self.user == repo_id.split("/")[-2]

    def visible(self, repo_id: str) -> Repository | None:
        repository = self.hub.repositories.get(repo_id)
        is_hidden = repository is None or (repository.private and not self.may_write(repo_id))
        return None if is_hidden else repository

    def route(self, path: str, body: bytes) -> None:
        match path.strip("/").split("/"):
            case ["api", "whoami-v2"] if self.user is None:
                self.answer(401, {"error": "Invalid credentials in Authorization header"})
            case ["api", "whoami-v2"]:
                self.answer(200, {"type": "user", "name": self.user, "orgs": []})
            case ["api", "validate-yaml"]:
                self.answer(200, {"errors": [], "warnings": []})
            case ["api", "repos", "create"]:
                self.create(json.loads(body))
            case ["api", "models" | "datasets" as kind, owner, name, *rest]:
                self.repository(f"{kind}/{owner}/{name}".removeprefix("models/"), rest, body)
            case [*_, "info", "lfs", "objects", "batch"]:
                objects = json.loads(body)["objects"]
                for missing in (object_ for object_ in objects if object_["oid"] not in self.hub.objects):
                    missing["actions"] = {"upload": {"href": f"{self.hub.url}/lfs/{missing['oid']}"}}
                self.answer(200, {"transfer": "basic", "objects": objects})
            case ["lfs", oid]:
                is_right = hashlib.sha256(body).hexdigest() == oid
                self.hub.objects |= {oid: body} if is_right else {}
                self.answer(200 if is_right else 400, {})
            case parts if "resolve" in parts:
                repo_id, _, file = path.strip("/").partition("/resolve/")
                self.resolve(repo_id, *file.split("/", 1))
            case _:
                self.missing("EntryNotFound")

    def create(self, asked: dict[str, Any]) -> None:
        kind = "datasets/" if asked.get("type") == "dataset" else ""
        repo_id = f"{kind}{asked.get('organization') or self.user}/{asked['name']}"
        if not self.may_write(repo_id):
            self.answer(403, {"error": "no rights"})
        else:
            is_private = asked.get("visibility") == "private"
            self.hub.repositories[repo_id] = Repository(is_private)
            self.answer(200, {"url": f"{self.hub.url}/{repo_id}"})

    def repository(self, repo_id: str, rest: list[str], body: bytes) -> None:
        repository = self.visible(repo_id)
        if repository is None:
            self.missing("RepoNotFound")
            return
        verb, revision, *_ = [*rest, "main"] if rest else ("revision", "main")
        files = repository.files(revision)
        if verb in ("branch", "preupload", "commit") and not self.may_write(repo_id):
            self.answer(403, {"error": "no rights"})
        elif verb == "branch":
            repository.branches.setdefault(revision, dict(repository.main))
            self.answer(200 if files is None else 409, {})
        elif files is None:
            self.missing("RevisionNotFound")
        elif verb == "revision":
            siblings = [{"rfilename": name} for name in sorted(files)]
            facts = {"id": repo_id, "sha": commit_id(files), "private": repository.private}
            self.answer(200, {**facts, "siblings": siblings, "tags": []})
        elif verb == "tree":
            entry = {"type": "file", "oid": "0" * 40}
            self.answer(200, [entry | {"path": n, "size": len(files[n])} for n in sorted(files)])
        elif verb == "preupload":
            self.answer(200, {"files": [_mode(file, files) for file in json.loads(body)["files"]]})
        elif verb == "commit":
            for line in body.splitlines():
                self.apply(**json.loads(line), files=files)
            oid = commit_id(files)
            self.answer(200, {"commitUrl": f"{self.hub.url}/{repo_id}/commit/{oid}", "commitOid": oid})
        else:
            self.missing("EntryNotFound")

    def apply(self, key: str, value: dict[str, Any], files: dict[str, bytes]) -> None:
        if key == "file":
            files[value["path"]] = base64.b64decode(value["content"])
        elif key == "lfsFile":
            files[value["path"]] = self.hub.objects[value["oid"]]
        elif key == "deletedFile":
            del files[value["path"]]

    def resolve(self, repo_id: str, revision: str, name: str) -> None:
        repository = self.visible(repo_id)
        files = None if repository is None else repository.files(revision)
        if files is None or name not in files:
            reason = "Repo" if repository is None else "Revision" if files is None else "Entry"
            self.missing(f"{reason}NotFound")
            return
        tag = f'"{hashlib.sha256(files[name]).hexdigest()}"'
        self.answer(200, files[name], {"ETag": tag, "X-Repo-Commit": commit_id(files)})

    def missing(self, code: str) -> None:
        self.answer(404, {"error": code}, {"X-Error-Code": code})

    def answer(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        kind = "application/octet-stream" if data is content else "application/json"
        for name, value in {"Content-Type": kind, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def serve(folders: Mapping[str, Path] | None = None) -> Iterator[FakeHub]:
    """The server, until the block ends.

    Args:
        folders: by `models/<id>` or `datasets/<id>`, public repositories with these files.
    """
    hub = FakeHub()
    for name, folder in (folders or {}).items():
        repository = hub.repositories[name.removeprefix("models/")] = Repository()
        repository.branches["main"] = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
    server = QuietServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _mode(file: dict[str, Any], files: dict[str, bytes]) -> dict[str, Any]:
    """How a file is to be uploaded, and the id of what is stored under its name."""
    name = file["path"]
    is_large = name.endswith(".safetensors") or file["size"] >= _LFS_FROM
    content = files.get(name, b"")
    sums = hashlib.sha1(f"blob {len(content)}\0".encode() + content), hashlib.sha256(content)
    oid = {"oid": sums[is_large].hexdigest()} if name in files else {}
    return {"path": name, "uploadMode": ("regular", "lfs")[is_large], "shouldIgnore": False, **oid}
