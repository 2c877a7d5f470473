"""A local server that speaks as much of the Hugging Face Hub's interface as downloads need."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlparse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Repositories (`models/<id>` or `datasets/<id>`) and the local folders they serve.

    Attributes:
        url: what HF_ENDPOINT is set to.
        requests: `METHOD /path` of every request so far.
    """

    def __init__(self, repositories: dict[str, Path]) -> None:
        self.repositories = repositories
        self.requests: list[str] = []
        self.url = ""

    def files(self, repository: str) -> list[str]:
        folder = self.repositories[repository]
        return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@contextmanager
def serve(repositories: dict[str, Path]) -> Iterator[FakeHub]:
    """The server, until the block ends."""
    hub = FakeHub(repositories)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            hub.requests.append(f"{self.command} {self.path}")
            path = unquote(urlparse(self.path).path)
            for repository, folder in hub.repositories.items():
                kind, name = repository.split("/", 1)
                if path.startswith(f"/api/{repository}"):
                    rest = path.removeprefix(f"/api/{repository}").strip("/")
                    if rest.startswith("tree"):
                        self.send_json(
                            [
                                {
                                    "type": "file",
                                    "path": f,
                                    "size": (folder / f).stat().st_size,
                                    "oid": "0" * 40,
                                }
                                for f in hub.files(repository)
                            ]
                        )
                    else:
                        siblings = [{"rfilename": f} for f in hub.files(repository)]
                        self.send_json({"id": name, "sha": COMMIT, "siblings": siblings, "tags": []})
                    return
                prefix = f"/{name}/resolve/" if kind == "models" else f"/{repository}/resolve/"
                if path.startswith(prefix):
                    file = folder / path.removeprefix(prefix).split("/", 1)[1]
                    if file.is_file():
                        self.send_file(file, body)
                        return
                    self.send_missing("EntryNotFound")
                    return
            self.send_missing("RepoNotFound")

        def send_json(self, content: object) -> None:
            data = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def send_file(self, file: Path, body: bool) -> None:
            data = file.read_bytes()
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)

        def send_missing(self, code: str) -> None:
            self.send_response(404)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
