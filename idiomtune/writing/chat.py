"""Language models behind an endpoint that speaks OpenAI's protocol; each answer is paid for once."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Condition
from typing import Any, NamedTuple

from idiomtune.config.settings import WriteSettings
from idiomtune.errors import UserError
from idiomtune.io.files import naming_errors, text_lines, write_jsonl
from idiomtune.io.hub import reason_for
from idiomtune.io.terminal import progress_bar

log = logging.getLogger(__name__)

ANSWERS = "answers.jsonl"
_BYTES_PER_TOKEN = 2  # at least, of a prompt: for a budget that is never passed
_RETRIES = 6  # after an error of the network, 429 or 5xx, with growing pauses: about a minute


class Prompt(NamedTuple):
    """A question to a model.

    Attributes:
        model: its name at the endpoint.
        text: the question.
        schema: of the answer, as JSON schema.
        number: of the attempt or vote, so that the same question can be asked again.
        temperature: of the answer.
        max_answer: tokens that it can have.
    """

    model: str
    text: str
    schema: Mapping[str, Any]
    number: int
    temperature: float
    max_answer: int

    @property
    def key(self) -> str:
        """The digest of all that decides the answer."""
        return hashlib.sha256(json.dumps(self[:-1]).encode()).hexdigest()

    @property
    def max_tokens(self) -> int:
        """The most that question and answer can have."""
        return len(self.text.encode()) // _BYTES_PER_TOKEN + self.max_answer


class Chat:
    """Asks models, several questions at once, within a budget. Answers are stored as they come.

    Args:
        settings: endpoint, key, budget and the like.
        folder: where the answers are; those of earlier starts are not asked for again.

    Attributes:
        answers: key → the answer, with its tokens and date.
    """

    def __init__(self, settings: WriteSettings, folder: Path) -> None:
        self._settings, self._path = settings, folder / ANSWERS
        self.answers = _read_answers(self._path)
        self._running: list[Prompt] = []
        self._change = Condition()  # of answers and of what runs
        self._has_failed = False
        self._plain: set[str] = set()  # models whose server takes no schema
        self._client: Any = None

    def ask(self, prompts: Sequence[Prompt], title: str) -> list[str]:
        """The answers, in the order of the prompts.

        The very first question goes alone, so that a wrong key or address is known at once.

        Raises:
            UserError: for a refused key, an unknown model, no network, a spent budget, a full disk. The
                answers that have come by then are stored.
        """
        missing = list({prompt.key: prompt for prompt in prompts if prompt.key not in self.answers}.values())
        with progress_bar(title, len(prompts), len(prompts) - len(missing)) as advance:
            if missing and self._client is None:
                self._client = _connect(self._settings, retries=1)
                self._answer(missing.pop(0))
                self._client = _connect(self._settings, _RETRIES)
                advance(1)
            with ThreadPoolExecutor(self._settings.concurrency) as pool:
                try:
                    for _ in pool.map(self._answer, missing):
                        advance(1)
                except BaseException:
                    log.info("waiting for the answers under way, which are stored")
                    self._has_failed = True
                    raise
        return [self.answers[prompt.key]["answer"] for prompt in prompts]

    def _answer(self, prompt: Prompt) -> None:
        if self._has_failed:
            return
        with self._change:
            while option := self._passed_limit(prompt):
                if not self._running:
                    problem = "one more question might pass it; with a higher limit, the same command goes on"
                    raise UserError(problem, option=option)
                self._change.wait()
            self._running.append(prompt)
        try:
            completion = self._complete(prompt)
            text = completion.choices[0].message.content or "" if completion.choices else ""
            used = completion.usage
            entry = {
                **{
                    "key": prompt.key,
                    "model": prompt.model,
                    "answer": text,
                    "date": time.strftime("%Y-%m-%d"),
                },
                "prompt_tokens": used.prompt_tokens if used else len(prompt.text) // 4,
                "answer_tokens": used.completion_tokens if used else len(text) // 4,
            }
            with self._change, naming_errors(self._path), self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
                file.flush()
                os.fsync(file.fileno())
                self.answers[prompt.key] = entry
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror}", file=self._path) from None
        finally:
            with self._change:
                self._running.remove(prompt)
                self._change.notify_all()

    def _passed_limit(self, prompt: Prompt) -> str | None:
        """The option whose limit this question might pass, with those that run."""
        running = [*self._running, prompt]
        used = sum(entry["prompt_tokens"] + entry["answer_tokens"] for entry in self.answers.values())
        most = used + sum(question.max_tokens for question in running)
        limits = self._settings.max_calls, self._settings.max_tokens
        for option, limit, needed in zip(
            ("max_calls", "max_tokens"), limits, (len(self.answers) + len(running), most), strict=True
        ):
            if limit is not None and needed > limit:
                return f"{option}={limit}"
        return None

    def _complete(self, prompt: Prompt) -> Any:
        import openai

        options: dict[str, Any] = {
            "model": prompt.model,
            "messages": [{"role": "user", "content": prompt.text}],
            "temperature": prompt.temperature,
            "max_completion_tokens": prompt.max_answer,
        }
        schema = {"name": "answer", "schema": prompt.schema, "strict": True}
        try:
            if prompt.model not in self._plain:
                try:
                    response_format = {"type": "json_schema", "json_schema": schema}
                    return self._client.chat.completions.create(**options, response_format=response_format)
                except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                    log.info("%s takes no JSON schema: %s", prompt.model, reason_for(error))
                    self._plain.add(prompt.model)
            return self._client.chat.completions.create(**options)
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            problem = f"the key in the environment variable {self._settings.key} is refused"
            raise UserError(f"{problem}: {reason_for(error)}", **self._where) from None
        except openai.NotFoundError as error:
            problem = f"has no model {prompt.model!r} (options model=, query_model=, judge_model=)"
            raise UserError(f"{problem}: {reason_for(error)}", **self._where) from None
        except openai.OpenAIError as error:
            hint = "the answers so far are stored, and the same command goes on"
            raise UserError(f"gives no answer: {reason_for(error)}; {hint}", **self._where) from None

    @property
    def _where(self) -> dict[str, str]:
        return {"option": "endpoint", "file": self._settings.endpoint or "OpenAI's"}


def _connect(settings: WriteSettings, retries: int) -> Any:
    """The client.

    Raises:
        UserError: if its package or the key is missing.
    """
    try:
        from openai import OpenAI
    except ImportError:
        raise UserError("needs the package openai: pip install 'idiomtune[write]'", option="model") from None
    key = os.environ.get(settings.key)
    if key is None and settings.endpoint is None:
        problem = f"needs a key in the environment variable {settings.key} (key=<another variable>)"
        raise UserError(f"{problem}, or endpoint=<address of a server>", option="model", file=settings.model)
    logging.getLogger("openai").setLevel(logging.WARNING)  # otherwise a line for each question
    return OpenAI(
        api_key=key or "none",
        base_url=settings.endpoint,
        max_retries=retries,
        timeout=settings.timeout,
    )


def _read_answers(path: Path) -> dict[str, dict[str, Any]]:
    """Key → stored answer. A line that was torn as the disk got full is no answer, and is removed.

    Raises:
        UserError: if the file is something else.
    """
    answers: dict[str, dict[str, Any]] = {}
    lines = text_lines(path.read_text(encoding="utf-8")) if path.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            answers[entry["key"]] = entry
        except (ValueError, KeyError, TypeError):
            if number < len(lines):
                raise UserError(
                    "is no answer of a model: move the file", file=path, row=f"line {number}"
                ) from None
            log.warning("%s: the incomplete last answer is asked for again", path)
            write_jsonl(path, answers.values())
    return answers
