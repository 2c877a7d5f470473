"""One question to a server that speaks OpenAI's protocol: within a deadline, and up to a size."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping
from typing import Any

import httpx2

from idiomtune.config.settings import WriteSettings
from idiomtune.errors import UserError
from idiomtune.io import secrets
from idiomtune.io.hub import without_secrets

_MAX_BYTES = 4_000_000  # of an answer with all that the server adds, unpacked
_MAX_SHOWN = 500  # characters of what a server says


class BusyError(Exception):
    """A server is too busy, cannot be reached or gives no answer; it asks for a pause of so many seconds."""

    def __init__(self, reason: str, pause: str = "") -> None:
        super().__init__(reason)
        self.pause = min(60, int(pause)) if pause.isdecimal() else 0


class Endpoint:
    """An address, with the key and a deadline for each whole answer.

    Args:
        settings: address, key, deadline.

    Raises:
        UserError: if the key has a character that no key has. It is never shown.
    """

    def __init__(self, settings: WriteSettings) -> None:
        self.address = settings.endpoint or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
        self._timeout, self.key = settings.timeout, os.environ.get(settings.key, "").strip()
        self._needs_key = settings.endpoint is None or "key" in settings.model_fields_set
        secrets.NAMED.add(settings.key)
        if not (self.key.isascii() and self.key.isprintable()):
            problem = (
                f"the value of the environment variable {settings.key} has a line break, another control "
            )
            raise UserError(f"{problem}character or a letter outside ASCII, as no key has", option="key")

    def client(self) -> httpx2.AsyncClient:
        """A client with the key, for one event loop.

        Raises:
            UserError: without a key for OpenAI, or if the variable of `key=` is not set. Its name may be the
                key itself, and is not shown.
        """
        if not self.key and self._needs_key:
            problem = "the environment variable with the key (OPENAI_API_KEY, or key=<another>) is not set"
            raise UserError(f"{problem}; a server without one needs endpoint=<address> alone", option="key")
        headers = {"Authorization": f"Bearer {self.key or 'none'}"}
        limits = httpx2.Limits(max_connections=None)
        return httpx2.AsyncClient(headers=headers, limits=limits, timeout=None, follow_redirects=True)

    def hide(self, text: str) -> str:
        """A text with the key starred out, also as JSON has it."""
        if self.key in secrets.variables().values():
            text = text.replace(self.key, "***").replace(json.dumps(self.key)[1:-1], "***")
        return text

    async def post(self, client: httpx2.AsyncClient, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Ask, and read the whole answer.

        Returns:
            The answer's JSON, with status 200; or the status of an error, which an answer with status 200 may
            have too, and what the server says, without the key.

        Raises:
            BusyError: if the server is busy, fails, or gives no answer in time or one that is too long.
            UserError: if the address is none.
        """
        try:
            async with asyncio.timeout(self._timeout):
                status, pause, data = await self._read(client, body)
        except TimeoutError:
            raise BusyError(f"no whole answer within timeout={self._timeout:g} seconds") from None
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise UserError(f"is no address: {error}", option="endpoint", file=self.address) from None
        except (httpx2.HTTPError, OSError) as error:
            raise BusyError(self._shown(str(error) or type(error).__name__)) from None
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            content = data[:_MAX_SHOWN].decode("utf-8", "replace")
        status, problem = _error_in(content, status)
        if status in (408, 409, 429) or status > 501:
            raise BusyError(f"{self._shown(problem)} (status {status})", pause)
        return status, self._shown(problem) if problem else content

    async def _read(self, client: httpx2.AsyncClient, body: Mapping[str, Any]) -> tuple[int, str, bytes]:
        data, address = bytearray(), f"{self.address.rstrip('/')}/chat/completions"
        async with client.stream("POST", address, json=body) as response:
            async for part in response.aiter_bytes():
                data += part
                if len(data) > _MAX_BYTES:
                    raise BusyError(f"an answer has more than {_MAX_BYTES:,} bytes")
        return response.status_code, response.headers.get("retry-after", ""), bytes(data)

    def _shown(self, problem: str) -> str:
        """What a server says, in one line."""
        return without_secrets(self.hide(" ".join(problem.split())))[:_MAX_SHOWN]


def _error_in(content: Any, status: int) -> tuple[int, str]:
    """The status, of an error in an answer with status 200 too, and what the server says is wrong or ""."""
    fields = content if isinstance(content, dict) else {}
    choices = fields["choices"] if isinstance(fields.get("choices"), list) else []
    parts = [fields, *(choice for choice in choices if isinstance(choice, dict))]
    error = next((part["error"] for part in parts if part.get("error")), None)
    if error is None and status == 200 and choices:
        return status, ""
    error = error or content
    if status == 200:
        code = str(error.get("code")) if isinstance(error, dict) else ""
        status = int(code) if re.fullmatch(r"[45]\d\d", code, re.ASCII) else 500
        if error is content:
            return status, f"not the protocol's JSON: does the address end in /v1? {content}"
    message = error.get("message") if isinstance(error, dict) and not error.get("param") else None
    return status, message if isinstance(message, str) else json.dumps(error, ensure_ascii=False)
