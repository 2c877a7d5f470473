"""A server that speaks OpenAI's protocol, with scripted answers."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from threading import Lock, Thread
from typing import Any

from tests.fake_hub import QuietServer

# Expression → a form of it, and plain words for it.
EXPRESSIONS = {
    "break the ice": ("broke the ice", "made everybody relax"),
    "miss the boat": ("missed the boat", "came too late"),
    "pull the plug": ("pulled the plug", "ended the project"),
    "hit the road": ("hit the road", "left for home"),
    "cut corners": ("cut corners", "worked carelessly"),
}
_WORDS = [
    "harbour", "lantern", "meadow", "violin", "copper", "winter", "market",
    "garden", "pilot", "thunder", "marble", "engine", "basket", "orchard",
    "feather", "mirror", "cannon", "saddle", "window", "tunnel", "velvet",
    "pepper", "anchor", "bridge", "candle", "dragon", "falcon", "gravel",
]  # fmt: skip


def sentence(words: str, seed: str) -> str:
    """A sentence with these words; two of them have few words in common."""
    a, b, c, d, e, f = random.Random(seed).sample(_WORDS, 6)
    return f"The {a} {b} man {words} near the {c} {d} as {e} {f} arrived."


def texts_for(prompt: str) -> list[dict[str, str]]:
    """Good texts, as the question asks for."""
    name = re.findall("»(.*?)«", prompt)[0]
    form, plain = EXPRESSIONS[name]
    if "Rewrite each text" in prompt:
        texts = re.findall(r"^\d+\. (.*)$", prompt, re.MULTILINE)
        return [{"text": text.replace(form, plain), "span": plain} for text in texts]
    kind = "LITERALLY" if "LITERALLY" in prompt else "IDIOMATICALLY" if "IDIOMATICALLY" in prompt else "plain"
    words = plain if kind == "plain" else form
    count = int(re.findall(r"Write (\d+) different", prompt)[0])
    return [{"text": sentence(words, f"{i} {len(prompt)} {prompt}"), "span": words} for i in range(count)]


def answer(prompt: str) -> str:
    """The good answer to a question: texts, or a verdict that all texts are right."""
    if "[[" in prompt:
        numbers = re.findall(r"^(\d+)\. ", prompt, re.MULTILINE)
        conditions = dict.fromkeys(("meaning", "span", "natural", "domain"), True)
        return json.dumps({"verdicts": [{"number": int(number), **conditions} for number in numbers]})
    return json.dumps({"texts": texts_for(prompt)})


class ChatServer:
    """What was asked, and what is answered.

    Attributes:
        reply: question (the whole body) → content of the answer, an HTTP status, bytes in place of JSON, a
            dictionary in place of the message, a status with JSON, or a function that writes the response.
        bodies: of all questions.
        keys: the keys they came with.
    """

    def __init__(self) -> None:
        self.reply: Callable[[dict[str, Any]], Any] = lambda body: answer(body["messages"][0]["content"])
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.address = ""
        self.finish_reason = "stop"
        self.lock = Lock()

    def change(self, change: Callable[[str, str], Any]) -> None:
        """Reply with what this makes of a question's text and its good answer."""
        good = self.reply
        self.reply = lambda body: change(body["messages"][0]["content"], str(good(body)))

    def models(self, since: int = 0) -> Counter[str]:
        """How many questions each model was asked, but for the first so many."""
        return Counter(body["model"] for body in self.bodies[since:])


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    """A server at `address`, with scripted answers."""
    chat = ChatServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with chat.lock:
                chat.bodies.append(body)
                chat.keys.add(self.headers["Authorization"])
            reply = chat.reply(body)
            if callable(reply):
                with suppress(OSError):  # the client has gone
                    reply(self.wfile)
                self.close_connection = True
                return
            status = reply if isinstance(reply, int) else 200
            content: Any = {"error": {"message": f"scripted {status}"}}
            if isinstance(reply, tuple):
                status, content = reply
            elif not isinstance(reply, int | bytes):
                answer = reply if isinstance(reply, dict) else {"content": reply}
                message = {"index": 0, "finish_reason": chat.finish_reason, "message": answer}
                content = {
                    **{"id": "x", "object": "chat.completion", "created": 0, "model": body["model"]},
                    "choices": [message],
                    "usage": {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150},
                }
            data = reply if isinstance(reply, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = QuietServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    chat.address = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield chat
    finally:
        server.shutdown()
        server.server_close()
