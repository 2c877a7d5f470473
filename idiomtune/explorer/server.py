"""The explorer's server, for this machine only."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from idiomtune.benchmarks.user import Mode
from idiomtune.errors import UserError
from idiomtune.explorer.search import Explorer, Passage
from idiomtune.io.pages import template
from idiomtune.requests import find_span

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response


PORT = 8765  # also in the help of `idiomtune explore`


def page(explorer: Explorer, title: str, *, live: bool) -> str:
    """The page as HTML.

    Args:
        live: it asks the server that it came from; otherwise the answers to the corpus' queries are in it.
    """
    corpus = explorer.corpus
    data: dict[str, Any] = {
        "live": live,
        "models": [
            {"name": m.name, "about": m.about, "exact": m.encoder.averages_tokens} for m in explorer.models
        ],
        "corpus": {"name": corpus.name, "size": len(corpus.documents)},
        "modes": explorer.modes,
        "queries": [page_of(query) for query in corpus.queries],
        "scores": explorer.scores(),
        "usages": list(dict.fromkeys(document.usage for document in corpus.documents if document.usage)),
        "documents": {},
    }
    if not live:
        data["answers"], data["words"] = explorer.answers()
        used = {document for words in data["words"] for document in words}
        data["documents"] = {document: page_of(corpus.documents[document]) for document in sorted(used)}
    file = Path(__file__).parent / "page.html.j2"
    return template(file, autoescape=True).render(title=title, data=data)


def page_of(text: Passage) -> dict[str, Any]:
    """The page's record of a text."""
    return {name: value for name, value in asdict(text).items() if value not in (None, "", ())}


_HOST = "127.0.0.1"
_MAX_CHARACTERS = 20_000
_MAX_BYTES = 100_000  # of a query


class Question(BaseModel):
    """A question that the page sends.

    Attributes:
        words: what is marked; `start` is where they begin, if they occur several times.
        query: the number of the corpus' query that it is.
        model, document: whose words are looked at.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    text: Annotated[str, Field(pattern=r"\S", max_length=_MAX_CHARACTERS)]
    words: str = ""
    start: int | None = None
    mode: Mode = "sentence"
    query: Annotated[int, Field(ge=0)] | None = None
    model: Annotated[int, Field(ge=0)] = 0
    document: Annotated[int, Field(ge=0)] = 0

    def text_with_span(self) -> Passage:
        """Raises UserError if the marked words are not in the text, or needed and not there."""
        span = None
        if self.words.strip():
            start = self.start if self.start is not None and self.start >= 0 else len(self.text)
            end = start + len(self.words)
            span = (start, end) if self.text[start:end] == self.words else find_span(self.text, self.words)
            if span is None:
                raise UserError(f"the marked words are not in the sentence: {self.words}")
        if self.mode == "span" and span is None:
            raise UserError("mark words of the sentence to search for only these")
        return Passage(self.text, span)


def check_can_serve() -> None:
    """Raises UserError if a package is missing."""
    for name in ("starlette", "uvicorn"):
        if find_spec(name) is None:
            raise UserError(
                f"the page needs the package {name}: pip install 'idiomtune[explore]', or write the "
                "page to a file with output=page.html"
            )


def bound_socket(port: int | None) -> socket.socket:
    """A socket on this machine alone.

    Args:
        port: None = 8765, or any that is free.

    Raises:
        UserError: if the given port is unavailable.
    """
    for number in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server((_HOST, number))
        except OSError as error:
            reason = os.strerror(error.errno or 0)
    raise UserError(f"port={port}: cannot be used ({reason}); name another, or leave port= out")


def serve(explorer: Explorer, page: str, listening: socket.socket) -> None:
    """Serve the page until Ctrl-C."""
    import uvicorn

    print(f"http://{_HOST}:{listening.getsockname()[1]}    (Ctrl-C ends it)", flush=True)
    config = uvicorn.Config(application(explorer, page), log_level="warning", access_log=False)
    with contextlib.suppress(KeyboardInterrupt):  # raised again once the server has ended
        uvicorn.Server(config).run(sockets=[listening])


def application(explorer: Explorer, page: str) -> Starlette:
    """The page at `/`, the answers to its questions at `/search` and `/why`."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import ClientDisconnect
    from starlette.responses import HTMLResponse, JSONResponse
    from starlette.routing import Route

    lock = Lock()  # a model and its tokenizer serve one at a time

    def question(answer: Callable[[Explorer, Question], dict[str, Any]]) -> Callable[[Request], Any]:
        def ask(question: Question) -> dict[str, Any]:
            with lock:
                return answer(explorer, question)

        async def endpoint(request: Request) -> Response:
            try:
                question = Question.model_validate_json(await _body(request))
                return JSONResponse(await run_in_threadpool(ask, question))
            except ValidationError as error:
                field = ".".join(map(str, error.errors()[0]["loc"]))
                return JSONResponse({"error": f"{field}: {error.errors()[0]['msg']}"}, 400)
            except (UserError, ClientDisconnect) as error:  # the latter goes nowhere
                return JSONResponse({"error": str(error)}, 400)

        return endpoint

    return Starlette(
        routes=[
            Route("/", lambda _: HTMLResponse(page)),
            Route("/search", question(_search), methods=["POST"]),
            Route("/why", question(_explain), methods=["POST"]),
        ],
        # Otherwise a page elsewhere could reach this server under another name.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[_HOST, "localhost"])],
    )


async def _body(request: Request) -> bytes:
    """What the page sends; any page that a browser shows could send something here.

    Raises:
        UserError: if another page has sent it, or it is longer than a query.
    """
    origin = request.headers.get("origin")
    if origin not in (None, f"http://{request.headers['host']}"):
        raise UserError(f"only this server's own page may ask it, not {origin}")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BYTES:
            raise UserError(f"a query may have {_MAX_BYTES:,} bytes")
    return body


def _search(explorer: Explorer, question: Question) -> dict[str, Any]:
    query, number = _query(explorer, question)
    answer = explorer.search(query, question.mode, number)
    documents = {row["document"] for column in answer["models"] for row in column["rows"]}
    return {**answer, "documents": {i: page_of(explorer.corpus.documents[i]) for i in sorted(documents)}}


def _explain(explorer: Explorer, question: Question) -> dict[str, Any]:
    if question.model >= len(explorer.models) or question.document >= len(explorer.corpus.documents):
        raise UserError(f"no model {question.model} or no document {question.document}")
    query, _ = _query(explorer, question)
    return explorer.explain(query, question.mode, question.model, question.document)


def _query(explorer: Explorer, question: Question) -> tuple[Passage, int | None]:
    """The query of a question, and its number if it is one of the corpus."""
    if question.query is not None and question.query < len(explorer.corpus.queries):
        return explorer.corpus.queries[question.query], question.query
    return question.text_with_span(), None
