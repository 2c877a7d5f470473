"""Questions to language models within a budget; each answer is stored, and paid for once."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Annotated, Any, NamedTuple

import httpx2
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from idiomtune.config.settings import WriteSettings
from idiomtune.errors import UserError
from idiomtune.io.files import list_names, naming_errors, text_lines
from idiomtune.io.secrets import hide_secrets
from idiomtune.io.terminal import progress_bar
from idiomtune.writing.endpoint import BusyError, Endpoint

log = logging.getLogger(__name__)

ANSWERS = "answers.jsonl"
_MAX_CHARACTERS = 20  # for each token that an answer can have
_NUM_FIRST = 3  # answers of a model, of which one must not be empty
MORE_TOKENS = 4  # times as many, which is the advice after answers that were cut off
_PAUSES = 1, 2, 4, 8, 16, 30  # seconds before a busy or unreachable server is asked again
_FIRST_PAUSES = (1,)  # of the first question, which is to tell a wrong address at once
_LIMITS = "max_tokens", "max_completion_tokens"  # of an answer: the older name, and OpenAI's
_SCHEMA = "response_format"

Count = Annotated[int, Field(ge=0)]


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


class StoredAnswer(BaseModel):
    """A line of `answers.jsonl`.

    Attributes:
        key: of its question.
        prompt_tokens, answer_tokens: that the server counts; 0 if it does not.
        truncated_at: the limit, in tokens, where it was cut off; None: it is complete.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    key: str
    model: str
    answer: str
    prompt_tokens: Count = 0
    answer_tokens: Count = 0
    date: str = Field(default_factory=partial(time.strftime, "%Y-%m-%d"), pattern=r"^\d{4}-\d\d-\d\d$")
    truncated_at: Count | None = Field(default=None, alias="cut_off_at")


class Chat:
    """Asks models, several questions at once, within a budget. Answers are stored as they come.

    Args:
        settings: budget and the like.
        folder: where the answers are; those of earlier starts are not asked for again.

    Attributes:
        answers: key → the answer.
    """

    def __init__(self, settings: WriteSettings, endpoint: Endpoint, folder: Path) -> None:
        self._settings, self._endpoint, self._path = settings, endpoint, folder / ANSWERS
        self.answers = _read_answers(self._path)
        self._num_calls = len(self.answers)  # and questions that got no answer: a vendor may count them
        self._left_out: dict[str, frozenset[str]] = {}  # model → options that its server does not take
        self._texts_of: dict[str, list[str]] = defaultdict(list)  # model → its first answers
        self._warnings: set[str] = set()  # each is told once
        self._is_first = True

    def ask(self, prompts: Sequence[Prompt], title: str) -> list[str]:
        """The answers, in the order of the prompts.

        The very first question goes alone, so that a wrong key or address is known at once.

        Raises:
            UserError: for a refused key, an unknown model, no network, a spent budget, a full disk, or if all
                answers are empty. The answers that have come by then are stored.
        """
        missing = list({prompt.key: prompt for prompt in prompts if not self._has_answer(prompt)}.values())
        with progress_bar(title, len(prompts), len(prompts) - len(missing)) as advance:
            if missing:
                self._ask_in_thread(missing, advance)
        return [self.answers[prompt.key].answer for prompt in prompts]

    def _has_answer(self, prompt: Prompt) -> bool:
        """Whether it is stored, and was not cut off where this question allows more."""
        answer = self.answers.get(prompt.key)
        return answer is not None and (answer.truncated_at or prompt.max_answer) >= prompt.max_answer

    def _ask_in_thread(self, prompts: list[Prompt], advance: Callable[[int], None]) -> None:
        """Ask in an event loop that is not a notebook's, and which an interrupt does not break."""
        future = Future[None]()

        def run() -> None:
            try:
                future.set_result(asyncio.run(self._ask_all(prompts, advance)))
            except BaseException as error:
                future.set_exception(error)

        Thread(target=run, daemon=True).start()  # the process does not wait for it
        try:
            future.result()
        except KeyboardInterrupt:
            log.info("waiting for the answers under way, which are stored; Ctrl-C again ends at once")
            with suppress(RuntimeError):  # the last answer has just come
                self._loop.call_soon_threadsafe(self._stop.set)
            wait([future])
            raise

    async def _ask_all(self, prompts: list[Prompt], advance: Callable[[int], None]) -> None:
        self._loop, slots = asyncio.get_running_loop(), asyncio.Semaphore(self._settings.concurrency)
        self._stop = asyncio.Event()
        async with self._endpoint.client() as client:

            async def answer(prompt: Prompt, pauses: Sequence[float]) -> None:
                async with slots:
                    try:
                        await self._answer(client, prompt, pauses)
                    except Exception:
                        self._stop.set()  # before a waiting question takes this slot
                        raise
                    advance(1)

            if self._is_first:
                await answer(prompts.pop(0), _FIRST_PAUSES)
                self._is_first = False
            tasks = [asyncio.create_task(answer(prompt, _PAUSES)) for prompt in prompts]
            try:
                await asyncio.gather(*tasks)
            except Exception:
                log.info("waiting for the answers under way, which are stored")
                await asyncio.gather(*tasks, return_exceptions=True)
                raise

    async def _answer(self, client: httpx2.AsyncClient, prompt: Prompt, pauses: Sequence[float]) -> None:
        for attempt, pause in enumerate((*pauses, None)):
            if self._stop.is_set():
                return
            self._count_call()
            try:
                self._store(await self._complete(client, prompt, is_repeated=attempt > 0))
                return
            except BusyError as error:
                if pause is None:
                    hint = "the answers so far are stored, and the same command goes on"
                    raise self._error(f"gives no answer: {error}; {hint}") from None
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), max(pause, error.pause))
            except OSError as error:
                raise UserError(f"cannot be written: {error.strerror}", file=self._path) from None

    def _count_call(self) -> None:
        """Count a question before it is sent.

        Raises:
            UserError: if the budget is spent.
        """
        limit = self._settings.max_calls
        if limit and self._num_calls >= limit:
            problem = "one more question would pass it; with a higher limit, the same command goes on"
            raise UserError(problem, option=f"max_calls={limit}")
        self._num_calls += 1

    def _store(self, answer: StoredAnswer) -> None:
        """Append an answer to the file.

        Raises:
            UserError: if the first answers of a model are empty.
        """
        with naming_errors(self._path), self._path.open("a+b") as file:
            # A line that was torn as the disk got full stays, and is no answer.
            is_torn = file.tell() > 0 and file.seek(-1, os.SEEK_END) >= 0 and file.read() != b"\n"
            file.write(b"\n" * is_torn + answer.model_dump_json(exclude_none=True).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.answers[answer.key] = answer
        texts = self._texts_of[answer.model]
        texts += [answer.answer] * (len(texts) < _NUM_FIRST)
        if len(texts) == _NUM_FIRST and not any(texts):
            problem = f"the first {_NUM_FIRST} answers of {answer.model} are empty"
            if limit := answer.truncated_at:
                problem += f", cut off within the model's reasoning: type answer_tokens={MORE_TOKENS * limit}"
            raise UserError(problem, option="answer_tokens" if limit else "model")

    async def _complete(
        self, client: httpx2.AsyncClient, prompt: Prompt, *, is_repeated: bool
    ) -> StoredAnswer:
        """The answer, to a question without the options that the server does not take.

        Those that it refuses by name are left out. If it names none, the other name of the limit is tried,
        then no schema. What it takes holds for this start.

        Args:
            is_repeated: the server has failed at this question. It may be the schema.
        """
        first, second = _LIMITS if self._settings.endpoint is not None else reversed(_LIMITS)
        schema = {"name": "answer", "schema": prompt.schema, "strict": True}
        body = {"model": prompt.model, "messages": [{"role": "user", "content": prompt.text}]}
        named, trial = self._left_out.get(prompt.model, frozenset()), frozenset[str]()
        trials, problem = [{first}, {_SCHEMA}, {first, _SCHEMA}], ""
        while True:
            left_out = named | trial
            options = {
                "temperature": prompt.temperature,
                _SCHEMA: {"type": "json_schema", "json_schema": schema},
                second if first in left_out else first: prompt.max_answer,  # never without a limit
            }
            sent = {name: value for name, value in options.items() if name not in left_out - {second}}
            status, content = await self._endpoint.post(client, {**body, **sent})
            accepted = self._left_out.get(prompt.model)
            if status == 200:
                answer = self._read(prompt, content)
                self._left_out[prompt.model] = left_out
                if (others := left_out.difference(_LIMITS)) and left_out != accepted:
                    names = ", ".join(sorted(others))
                    log.warning("%s: the server refuses %s, now left out: %s", prompt.model, names, problem)
                return answer
            problem = str(content)
            if status in (500, 501):
                if accepted is not None or not is_repeated or _SCHEMA in left_out:
                    raise BusyError(f"{problem} (status {status})")
                named |= {_SCHEMA}
            elif status not in (400, 422):
                raise self._error(self._explain(status, prompt) + problem)
            elif refused := _names_in(problem, sent) - left_out:
                named |= refused
            elif accepted is not None and not accepted <= left_out:  # as another question has found out
                named, trial = named | accepted, frozenset()
            elif accepted is None and trials:
                trial = frozenset(trials.pop(0))
            else:
                break
        if not self.answers:
            raise self._error(f"refuses the question: {problem}")
        log.warning("%s refuses a question, which counts as answered: %s", prompt.model, problem)
        return StoredAnswer(key=prompt.key, model=prompt.model, answer="")

    def _explain(self, status: int, prompt: Prompt) -> str:
        if status in (401, 403):
            return f"the key in the environment variable {self._settings.key} is refused: "
        if status == 404:
            return f"has no model {prompt.model!r}, or the address is wrong (does it end in /v1?): "
        return f"gives no answer (status {status}): "

    def _error(self, problem: str) -> UserError:
        return UserError(problem, option="endpoint", file=hide_secrets(self._endpoint.address))

    def _read(self, prompt: Prompt, content: Any) -> StoredAnswer:
        """The answer in a reply.

        Raises:
            BusyError: if the reply has another form than the protocol's.
        """
        try:
            choice, usage = content["choices"][0], content.get("usage") or {}
            message, is_truncated = choice["message"], choice.get("finish_reason") == "length"
            text = message.get("content") or ""
            thought = message.get("reasoning_content") or message.get("reasoning") or ""
            if isinstance(text, list):  # of parts, of which some are the model's reasoning
                text = "".join(part.get("text") or "" for part in text)
            text, thought = (part.encode("utf-8", "replace").decode().strip() for part in (text, thought))
            counts = usage.get("prompt_tokens"), usage.get("completion_tokens")
        except (AttributeError, KeyError, IndexError, TypeError) as error:
            problem = f"not the protocol's JSON ({type(error).__name__}): does the address end in /v1?"
            raise BusyError(problem) from None
        if is_truncated and "</think>" not in text and text.startswith("<think>"):
            text = ""
        elif not (text or is_truncated):
            instead = "the answer is read in reasoning_content" if thought else "there is no answer"
            reason = self._endpoint.hide(str(message.get("refusal") or choice.get("finish_reason")))[:200]
            self._warn(f"{prompt.model}: content is empty ({reason}): {instead}")
            text = thought
        text = self._endpoint.hide(text[: _MAX_CHARACTERS * prompt.max_answer])
        return StoredAnswer(
            key=prompt.key,
            model=prompt.model,
            answer=text,
            prompt_tokens=_token_count(counts[0]),
            answer_tokens=_token_count(counts[1]),
            cut_off_at=prompt.max_answer if is_truncated else None,
        )

    def _warn(self, message: str) -> None:
        if message not in self._warnings:
            self._warnings.add(message)
            log.warning("%s", message)


def _names_in(problem: str, sent: Mapping[str, Any]) -> set[str]:
    """The options that a refusal names; of a limit not its value, as in *too large: 2000*."""
    words = {*re.findall(r"\w+", problem.replace("json_schema", _SCHEMA))}
    return {name for name in sent if name in words and not (name in _LIMITS and str(sent[name]) in words)}


def _token_count(reported: Any) -> int:
    """The number of tokens that a server reports; 0 if it does not."""
    return reported if isinstance(reported, int) and reported > 0 else 0


def _read_answers(path: Path) -> dict[str, StoredAnswer]:
    """Key → stored answer, the last one of each. Lines that are none are told, and asked for again."""
    answers: dict[str, StoredAnswer] = {}
    wrong: list[str] = []
    lines = text_lines(path.read_text(encoding="utf-8", errors="replace")) if path.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            answer = StoredAnswer.model_validate_json(line)
            answers[answer.key] = answer
        except ValidationError:
            wrong += [str(number)] * bool(line)
    if wrong:
        log.warning("%s: no answers, and asked for again: line %s", path, list_names(wrong))
    return answers
