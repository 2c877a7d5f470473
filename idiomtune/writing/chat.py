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
from threading import Condition, Event
from typing import Any, NamedTuple

from idiomtune.config.settings import WriteSettings
from idiomtune.errors import UserError
from idiomtune.io.files import naming_errors, text_lines
from idiomtune.io.hub import reason_for
from idiomtune.io.terminal import progress_bar

log = logging.getLogger(__name__)

ANSWERS = "answers.jsonl"
_BYTES_PER_TOKEN = 2  # at least, of a prompt: for a budget that is never passed
_PAUSES = 1, 2, 4, 8, 16, 30  # seconds before a busy or unreachable server is asked again
_FIRST_PAUSES = (1,)  # of the first question, which is to tell a wrong address at once
_TOO_BUSY = (408, 409, 429)


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
        self._tokens = sum(entry["prompt_tokens"] + entry["answer_tokens"] for entry in self.answers.values())
        self._running: list[Prompt] = []
        self._num_lost = 0  # questions that were sent, and got no answer: a vendor may count them
        self._change = Condition()  # of all these
        self._stop = Event()
        self._form_of: dict[str, int] = {}  # model → the first form of a question that its server takes
        self._client: Any = None

    def ask(self, prompts: Sequence[Prompt], title: str) -> list[str]:
        """The answers, in the order of the prompts.

        The very first question goes alone, so that a wrong key or address is known at once.

        Raises:
            UserError: for a refused key, an unknown model, no network, a spent budget, a full disk. The
                answers that have come by then are stored.
        """
        missing = list({prompt.key: prompt for prompt in prompts if not self._has_answer(prompt)}.values())
        with progress_bar(title, len(prompts), len(prompts) - len(missing)) as advance:
            if missing and self._client is None:
                self._client = _connect(self._settings)
                self._answer(missing.pop(0), is_first=True)
                advance(1)
            with ThreadPoolExecutor(self._settings.concurrency) as pool:
                try:
                    for _ in pool.map(self._answer, missing):
                        advance(1)
                except BaseException:
                    log.info("waiting for the answers under way, which are stored")
                    self._stop.set()
                    raise
        return [self.answers[prompt.key]["answer"] for prompt in prompts]

    def _has_answer(self, prompt: Prompt) -> bool:
        """Whether it is stored, and was not cut off where this question allows more."""
        entry = self.answers.get(prompt.key)
        return entry is not None and not entry.get("cut_off_at", prompt.max_answer) < prompt.max_answer

    def _answer(self, prompt: Prompt, *, is_first: bool = False) -> None:
        for pause in (*(_FIRST_PAUSES if is_first else _PAUSES), None):
            if not self._begin(prompt):
                return
            try:
                entry = self._complete(prompt)
                with self._change:
                    self._store(entry)
                return
            except _BusyError as error:
                self._num_lost += 1
                if pause is None:
                    hint = "the answers so far are stored, and the same command goes on"
                    raise UserError(f"gives no answer: {error}; {hint}", **self._where) from None
                self._stop.wait(max(pause, error.pause))
            except OSError as error:
                raise UserError(f"cannot be written: {error.strerror}", file=self._path) from None
            finally:
                with self._change:
                    self._running.remove(prompt)
                    self._change.notify_all()

    def _begin(self, prompt: Prompt) -> bool:
        """Count a question that will be sent, once the budget allows it; False if nothing more is sent.

        Raises:
            UserError: if the budget might be passed.
        """
        with self._change:
            while not self._stop.is_set():
                running = [*self._running, prompt]
                needed = {
                    "max_calls": len(self.answers) + self._num_lost + len(running),
                    "max_tokens": self._tokens + sum(question.max_tokens for question in running),
                }
                limits = {name: getattr(self._settings, name) for name in needed}
                passed = [
                    name for name, limit in limits.items() if limit is not None and needed[name] > limit
                ]
                if not passed:
                    self._running.append(prompt)
                    return True
                if not self._running:
                    problem = "one more question might pass it; with a higher limit, the same command goes on"
                    raise UserError(problem, option=f"{passed[0]}={limits[passed[0]]}")
                self._change.wait()
        return False

    def _store(self, entry: dict[str, Any]) -> None:
        with naming_errors(self._path), self._path.open("a+b") as file:
            # A line that was torn as the disk got full stays, and is no answer.
            is_torn = file.tell() > 0 and file.seek(-1, os.SEEK_END) >= 0 and file.read() != b"\n"
            file.write(b"\n" * is_torn + json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.answers[entry["key"]] = entry
        self._tokens += entry["prompt_tokens"] + entry["answer_tokens"]

    def _complete(self, prompt: Prompt) -> dict[str, Any]:
        """The answer, in the first form of the question that the server takes."""
        import openai

        schema = {"name": "answer", "schema": prompt.schema, "strict": True}
        with_schema = {"response_format": {"type": "json_schema", "json_schema": schema}}
        limits = [{"max_completion_tokens": prompt.max_answer}, {"max_tokens": prompt.max_answer}]
        if self._settings.endpoint is not None:  # other servers know the older name
            limits.reverse()
        forms = [{**others, **limit} for others in (with_schema, {}) for limit in limits]
        messages = [{"role": "user", "content": prompt.text}]
        problem = ""
        for number in range(self._form_of.get(prompt.model, 0), len(forms)):
            try:
                completion = self._client.chat.completions.create(
                    model=prompt.model, messages=messages, temperature=prompt.temperature, **forms[number]
                )
                self._form_of.setdefault(prompt.model, number)
                return _entry(prompt, completion)
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                problem = reason_for(error)
            except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
                variable = f"the key in the environment variable {self._settings.key}"
                raise UserError(f"{variable} is refused: {reason_for(error)}", **self._where) from None
            except openai.NotFoundError as error:
                reason = f"has no model {prompt.model!r}, or the address is wrong (does it end in /v1?)"
                raise UserError(f"{reason}: {reason_for(error)}", **self._where) from None
            except openai.OpenAIError as error:
                response = getattr(error, "response", None)
                status = getattr(response, "status_code", 500)
                if status < 500 and status not in _TOO_BUSY:
                    raise UserError(f"gives no answer: {reason_for(error)}", **self._where) from None
                raise _BusyError(reason_for(error), _pause_of(response)) from None
            except (AttributeError, TypeError, ValueError, IndexError) as error:
                reason = f"not the protocol's JSON ({type(error).__name__}): does the address end in /v1?"
                raise _BusyError(reason, 0) from None
        if not self.answers:
            raise UserError(f"refuses the question: {problem}", **self._where)
        log.warning("%s refuses a question, which counts as answered: %s", prompt.model, problem)
        return _describe(prompt, "", 0, 0)

    @property
    def _where(self) -> dict[str, str]:
        return {"option": "endpoint", "file": self._settings.endpoint or "OpenAI's"}


class _BusyError(Exception):
    """A server is too busy or cannot be reached; it asks for a pause of so many seconds."""

    def __init__(self, reason: str, pause: float) -> None:
        super().__init__(reason)
        self.pause = pause


def _pause_of(response: Any) -> float:
    try:
        return min(60.0, float(response.headers["retry-after"]))
    except (AttributeError, KeyError, ValueError):
        return 0.0


def _entry(prompt: Prompt, completion: Any) -> dict[str, Any]:
    """An answer as it is stored.

    Raises:
        AttributeError, TypeError, IndexError: if the server's answer has another form.
    """
    choice, usage = completion.choices[0], completion.usage
    content = choice.message.content or ""
    if isinstance(content, list):  # of parts, of which some are the model's reasoning
        content = "".join(part.get("text") or "" for part in content)
    numbers = (getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens"))
    of_question, of_answer = (number if isinstance(number, int) else None for number in numbers)
    entry = _describe(
        prompt,
        content,
        len(prompt.text) // 4 if of_question is None else of_question,
        len(content) // 4 if of_answer is None else of_answer,
    )
    return entry | ({"cut_off_at": prompt.max_answer} if choice.finish_reason == "length" else {})


def _describe(prompt: Prompt, answer: str, num_asked: int, num_answered: int) -> dict[str, Any]:
    tokens = {"prompt_tokens": num_asked, "answer_tokens": num_answered}
    date = time.strftime("%Y-%m-%d")
    return {"key": prompt.key, "model": prompt.model, "answer": answer, **tokens, "date": date}


def _connect(settings: WriteSettings) -> Any:
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
    address, timeout = settings.endpoint, settings.timeout
    return OpenAI(api_key=key or "none", base_url=address, max_retries=0, timeout=timeout)


def _read_answers(path: Path) -> dict[str, dict[str, Any]]:
    """Key → stored answer, the last one of each. What is no answer is left alone."""
    answers: dict[str, dict[str, Any]] = {}
    num_bad = 0
    for line in text_lines(path.read_text(encoding="utf-8", errors="replace")) if path.exists() else ():
        try:
            entry = json.loads(line)
            entry["answer"] + entry["date"], entry["prompt_tokens"] + entry["answer_tokens"]
            answers[entry["key"]] = entry
        except (ValueError, KeyError, TypeError):
            num_bad += bool(line)
    if num_bad:
        log.warning("%s: %d lines are no answers (was the disk full?)", path, num_bad)
    return answers
