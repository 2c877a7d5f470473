"""A local server that speaks as much of the Hugging Face Hub's interface as pushing a model or a Space needs.

Accounts, repositories with branches, preupload, Git LFS (batch and basic upload), commits, and enough to read
back what was stored. Failures can be planted.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
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
    sdk: str | None = None  # of a Space
    branches: dict[str, dict[str, bytes]] = field(
        default_factory=lambda: {"main": {".gitattributes": b"*.safetensors filter=lfs\n"}}
    )
    num_commits: int = 0

    @property
    def main(self) -> dict[str, bytes]:
        return self.branches["main"]

    def files(self, revision: str) -> dict[str, bytes] | None:
        """Of a branch, or of the commit that one stands at."""
        if revision in self.branches:
            return self.branches[revision]
        return next((files for files in self.branches.values() if commit_id(files) == revision), None)


def owner_of(repo_id: str) -> str:
    return repo_id.removeprefix("spaces/").partition("/")[0]


def commit_id(files: dict[str, bytes]) -> str:
    """A name for this state of a branch."""
    digest = hashlib.sha1()
    for name, content in sorted(files.items()):
        digest.update(f"{name} {hashlib.sha1(content).hexdigest()}\n".encode())
    return digest.hexdigest()


@dataclass
class Failure:
    """What goes wrong with requests whose `METHOD /path` contains `request`.

    Attributes:
        status: the answer's; None cuts the connection in the middle of the upload.
        times: how often; -1 is always.
        seconds: that pass before.
    """

    request: str
    status: int | None
    times: int = -1
    text: str = "planted"
    seconds: float = 0.0


class FakeHub:
    """The server's state.

    Attributes:
        users: token → name of its user.
        repositories: by their names; those of Spaces begin with `spaces/`.
        objects: LFS objects that were uploaded whole, by their SHA-256.
        requests: `METHOD /path` of every request so far.
    """

    def __init__(self) -> None:
        self.url = ""
        self.users: dict[str, str] = {}
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.failures: list[Failure] = []
        self.requests: list[str] = []
        self.lock = threading.Lock()

    def count(self, part: str) -> int:
        return sum(part in request for request in self.requests)

    def download(self, repo_id: str, folder: Path, branch: str = "main") -> Path:
        """What is stored, as a folder."""
        for name, content in self.repositories[repo_id].branches[branch].items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder


@contextmanager
def serve() -> Iterator[FakeHub]:
    """The server, until the block ends."""
    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.handle_one()

        def do_GET(self) -> None:
            self.handle_one()

        def do_POST(self) -> None:
            self.handle_one()

        def do_PUT(self) -> None:
            self.handle_one()

        # ---- the request

        def handle_one(self) -> None:
            path = unquote(urlparse(self.path).path)
            request = f"{self.command} {path}"
            with hub.lock:
                hub.requests.append(request)
                planted = next((f for f in hub.failures if f.request in request and f.times != 0), None)
                if planted is not None:
                    planted.times -= 1
            length = int(self.headers.get("Content-Length", 0))
            if planted is not None:
                time.sleep(planted.seconds)
            if planted is not None and planted.status is None:
                self.rfile.read(length // 2)
                self.close_connection = True
                self.connection.close()
                return
            body = self.rfile.read(length)
            if planted is not None:
                assert planted.status is not None
                self.answer(planted.status, {"error": planted.text})
                return
            with hub.lock:
                self.route(path, body)

        @property
        def user(self) -> str | None:
            return hub.users.get(self.headers.get("Authorization", "").removeprefix("Bearer "))

        def route(self, path: str, body: bytes) -> None:
            parts = path.strip("/").split("/")
            if path == "/api/whoami-v2":
                if self.user is None:
                    self.answer(401, {"error": "Invalid credentials in Authorization header"})
                else:
                    self.answer(200, {"type": "user", "name": self.user, "orgs": []})
            elif path == "/api/validate-yaml":
                self.answer(200, {"errors": [], "warnings": []})
            elif path == "/api/repos/create":
                self.create(json.loads(body))
            elif parts[:1] == ["lfs"]:
                self.store(parts[1], body)
            elif parts[:2] == ["api", "models"]:
                self.repository_api("/".join(parts[2:4]), parts[4:], body)
            elif parts[:2] == ["api", "spaces"]:
                self.repository_api("/".join(parts[1:4]), parts[4:], body)
            elif "info/lfs/objects/batch" in path:
                self.batch(json.loads(body))
            elif "resolve" in parts[2:4]:
                at = parts.index("resolve", 2)
                self.resolve("/".join(parts[:at]), parts[at + 1], "/".join(parts[at + 2 :]))
            else:
                self.missing("EntryNotFound")

        def visible(self, repo_id: str) -> Repository | None:
            found = hub.repositories.get(repo_id)
            hidden = found is not None and found.private and self.user != owner_of(repo_id)
            return None if hidden else found

        # ---- answers

        def create(self, asked: dict[str, Any]) -> None:
            owner = asked.get("organization") or self.user
            kind = "spaces/" if asked.get("type") == "space" else ""
            repo_id = f"{kind}{owner}/{asked['name']}"
            if owner != self.user:
                self.answer(
                    403, {"error": "You don't have the rights to create a model under this namespace"}
                )
            elif repo_id in hub.repositories:
                self.answer(409, {"error": "You already created this model repo"})
            else:
                is_private = asked.get("visibility") == "private"
                hub.repositories[repo_id] = Repository(is_private, asked.get("sdk"))
                self.answer(200, {"url": f"{hub.url}/{repo_id}"})

        def repository_api(self, repo_id: str, rest: list[str], body: bytes) -> None:
            repository = self.visible(repo_id)
            if repository is None:
                self.missing("RepoNotFound")
                return
            if self.command == "POST" and self.user != owner_of(repo_id):
                self.answer(403, {"error": "You have read access but not write access to this repository"})
                return
            verb, revision = (rest[0], "/".join(rest[1:])) if rest else ("revision", "main")
            if verb == "branch":
                if revision in repository.branches:
                    self.answer(409, {"error": "Reference already exists"})
                else:
                    repository.branches[revision] = dict(repository.main)
                    self.answer(200, {})
                return
            revision = revision.partition("/")[0] if verb == "tree" else revision
            files = repository.files(revision)
            if files is None:
                self.missing("RevisionNotFound")
            elif verb == "revision":
                siblings = [{"rfilename": name} for name in sorted(files)]
                facts = {"id": repo_id, "sha": commit_id(files), "private": repository.private}
                self.answer(200, {**facts, "siblings": siblings, "tags": []})
            elif verb == "tree":
                listed = [
                    {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
                    for name, content in sorted(files.items())
                ]
                self.answer(200, listed)
            elif verb == "preupload":
                self.answer(200, {"files": [_mode(f, files) for f in json.loads(body)["files"]]})
            elif verb == "commit":
                self.apply([json.loads(line) for line in body.splitlines()], files)
                repository.num_commits += 1
                oid = commit_id(files)
                self.answer(200, {"commitUrl": f"{hub.url}/{repo_id}/commit/{oid}", "commitOid": oid})
            else:
                self.missing("EntryNotFound")

        def batch(self, asked: dict[str, Any]) -> None:
            objects = []
            for one in asked["objects"]:
                known = one["oid"] in hub.objects
                actions = {"upload": {"href": f"{hub.url}/lfs/{one['oid']}"}}
                objects.append({**one} if known else {**one, "actions": actions})
            self.answer(200, {"transfer": "basic", "objects": objects})

        def store(self, oid: str, body: bytes) -> None:
            if hashlib.sha256(body).hexdigest() != oid:
                self.answer(400, {"error": "the content is not what was announced"})
                return
            hub.objects[oid] = body
            self.answer(200, {})

        def apply(self, lines: list[dict[str, Any]], files: dict[str, bytes]) -> None:
            for line in lines:
                value = line["value"]
                if line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    files[value["path"]] = hub.objects[value["oid"]]
                elif line["key"] == "deletedFile":
                    del files[value["path"]]

        def resolve(self, repo_id: str, revision: str, name: str) -> None:
            repository = self.visible(repo_id)
            if repository is None:
                self.missing("RepoNotFound")
                return
            files = repository.files(revision)
            if files is None or name not in files:
                self.missing("RevisionNotFound" if files is None else "EntryNotFound")
                return
            content = files[name]
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", commit_id(files))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def missing(self, code: str) -> None:
            self.answer(404, {"error": code}, {"X-Error-Code": code})

        def answer(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
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
    oid = None
    if name in files:
        content = files[name]
        as_blob = hashlib.sha1(f"blob {len(content)}\0".encode() + content)
        oid = hashlib.sha256(content).hexdigest() if is_large else as_blob.hexdigest()
    return {
        "path": name,
        "uploadMode": "lfs" if is_large else "regular",
        "shouldIgnore": False,
        **({"oid": oid} if oid else {}),
    }
