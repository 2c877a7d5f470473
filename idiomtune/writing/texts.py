"""Texts: asked for, checked by rules, judged."""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict

from idiomtune.config.settings import WriteSettings
from idiomtune.errors import UserError
from idiomtune.expressions import word_list
from idiomtune.io.files import read_text
from idiomtune.plugins.models import CONF
from idiomtune.writing.chat import Chat, Prompt
from idiomtune.writing.rules import WITH_EXPRESSION, Rules, clean
from idiomtune.writing.slots import USAGES, Draft, Slot, Usage

LANGUAGES = dict(name.split("=") for name in word_list("languages"))  # code → English name
PROMPTS = CONF / "prompt"
NAMES = [*USAGES, "judge"]  # of the prompts
UNREADABLE = "an answer that can be read"
_MAX_SHOWN = 400  # characters of a text in the next question
_MORE = 100  # is added to the number of a vote that is asked for again
# An object without another one in it, as texts and verdicts are. The search never steps
# back, so that its time is in proportion to the answer.
_OBJECT = re.compile(r'\{(?:[^{}"\\]|"(?:[^"\\]|\\.)*+")*+\}', re.DOTALL)
_CONDITIONS = ("meaning", "span", "natural", "domain")
_KINDS = {
    "literal": "the expression, used literally: its words mean what they say",
    "idiomatic": "the expression, used as an idiom",
    "sense": "other words, which convey what the idiom means; the expression does not occur",
    "simplification": "a sentence with the idiom, in which plain words of the same meaning replace it",
}


Form = TypeVar("Form", bound=BaseModel)


class _StrictForm(BaseModel):
    model_config = ConfigDict(json_schema_extra={"additionalProperties": False})  # as strict schemas are


class _AnsweredText(_StrictForm):
    text: str
    span: str


class _Texts(_StrictForm):
    texts: list[_AnsweredText]


_TEXTS = _Texts.model_json_schema()


class _Verdict(_StrictForm):
    number: int
    meaning: bool
    span: bool
    natural: bool
    domain: bool


class _Verdicts(_StrictForm):
    verdicts: list[_Verdict]


_VERDICTS = _Verdicts.model_json_schema()


class Written(NamedTuple):
    """What was written.

    Attributes:
        drafts: slot → the texts that keep all rules, with votes once they are judged.
        broken: (usage, rule) → the number of texts that broke it, and answers that could not be read.
        refused: expression → the number of its texts that broke a rule.
    """

    drafts: dict[Slot, list[Draft]]
    broken: Counter[tuple[str, str]]
    refused: Counter[str]


def slots_of(expressions: Sequence[str], domains: Sequence[str]) -> list[Slot]:
    """All slots of a data set, documents first."""
    pairs = [
        (number, name, domain_number, domain)
        for number, name in enumerate(expressions, 1)
        for domain_number, domain in enumerate(domains, 1)
    ]
    documents = [Slot(*pair, usage) for pair in pairs for usage in USAGES]
    queries: list[Usage] = ["literal", "idiomatic"]
    return documents + [Slot(*pair, usage, is_query=True) for pair in pairs for usage in queries]


class Writer:
    """Asks for the texts of slots and for verdicts on them.

    Args:
        prompts: name → its text, with `$expression` and the like.
        meanings: expression → its meaning, or "".
    """

    def __init__(
        self, settings: WriteSettings, prompts: Mapping[str, str], meanings: Mapping[str, str]
    ) -> None:
        self._settings, self._prompts, self._meanings = settings, prompts, meanings

    def question(
        self,
        slot: Slot,
        number: int = 1,
        count: int | None = None,
        sources: Sequence[Draft] = (),
        earlier: Sequence[str] = (),
    ) -> Prompt:
        """The question for texts.

        Args:
            number: of the attempt.
            count: how many; None: all of the slot.
            sources: of simplifications.
            earlier: texts of earlier attempts, with what is wrong with them.
        """
        again = "".join(f"\n- {line}" for line in earlier)
        again = f"\nThese exist, or broke a rule; write others:{again}\n" if earlier else ""
        texts = "\n".join(f"{i}. {source.text}" for i, source in enumerate(sources, 1))
        values = {"count": slot.count if count is None else count, "texts": texts, "again": again}
        model = self._settings.writer(is_query=slot.is_query)
        return self._prompt(slot.usage, slot, model, values, _TEXTS, number)

    def verdict_question(self, slot: Slot, drafts: Sequence[Draft], number: int) -> Prompt:
        """The question for one vote on each of a slot's texts."""
        marked = [draft.text.replace(draft.span, f"[[{draft.span}]]") for draft in drafts]
        values = {
            "texts": "\n".join(f"{i}. {text}" for i, text in enumerate(marked, 1)),
            "usage": _KINDS[slot.usage],
        }
        return self._prompt("judge", slot, self._settings.judge, values, _VERDICTS, number)

    def _prompt(
        self,
        name: str,
        slot: Slot,
        model: str,
        values: Mapping[str, Any],
        schema: Mapping[str, Any],
        number: int,
    ) -> Prompt:
        meaning = self._meanings[slot.expression]
        values = {
            "expression": f"»{slot.expression}«",
            "meaning": f" (it means: {meaning})" if meaning else "",
            "domain": slot.domain,
            "language": LANGUAGES.get(self._settings.language, self._settings.language),
        } | dict(values)
        text = Template(self._prompts[name]).substitute(values)
        settings = self._settings
        return Prompt(model, text, schema, number, settings.temperature, settings.answer_tokens)


def read_prompts(folder: Path | None) -> dict[str, str]:
    """The prompts by name: the project's, or those of a folder.

    Raises:
        UserError: naming a file that is missing, or has an unknown `$name`.
    """
    prompts = {}
    fields = {"count", "language", "domain", "expression", "meaning", "again", "texts", "usage"}
    for name in NAMES:
        path = (folder or PROMPTS) / f"{name}.txt"
        prompts[name] = read_text(path)
        template = Template(prompts[name])
        if not template.is_valid() or not set(template.get_identifiers()) <= fields:
            names = ", ".join(f"${name}" for name in sorted(fields))
            raise UserError(f"has a $ that is none of {names}", option="prompts", file=path)
    return prompts


def write_texts(chat: Chat, writer: Writer, slots: Sequence[Slot], rules: Rules, tries: int) -> Written:
    """The texts that keep all rules; what breaks one is asked for again, up to `tries` times in all."""
    drafts: dict[Slot, list[Draft]] = {slot: [] for slot in slots}
    broken, refused = Counter[tuple[str, str]](), Counter[str]()
    for usages in (("literal", "idiomatic", "sense"), ("simplification",)):
        earlier: dict[Slot, list[str]] = defaultdict(list)
        for attempt in range(1, tries + 1):
            sources = {slot: _sources(slot, drafts, rules) for slot in slots if slot.usage in usages}
            missing = {
                slot: len(left) if slot.usage == "simplification" else slot.count - len(drafts[slot])
                for slot, left in sources.items()
            }
            missing = {slot: count for slot, count in missing.items() if count}
            questions = [
                writer.question(slot, attempt, count, sources[slot], earlier[slot])
                for slot, count in missing.items()
            ]
            title = f"writing {usages[-1]}s" if len(usages) == 1 else "writing texts"
            for slot, answer in zip(missing, chat.ask(questions, f"{title}, attempt {attempt}"), strict=True):
                items = _items_of(answer, "texts", _AnsweredText)
                if not items:
                    broken[slot.usage, UNREADABLE] += 1
                for item in items:
                    draft, left = Draft(clean(item.text), clean(item.span)), _sources(slot, drafts, rules)
                    if len(drafts[slot]) == slot.count:
                        break
                    if rule := rules.broken_rule(slot, draft, left):
                        broken[slot.usage, rule] += 1
                        refused[slot.expression] += 1
                    else:
                        drafts[slot].append(draft)
                    line = draft.text[:_MAX_SHOWN]
                    earlier[slot].append(f"{line} (broken: {rule})" if rule else line)
            if attempt == 1 and usages[0] == "literal":
                _check_forms(slots, drafts, broken)
    return Written(drafts, broken, refused)


def _sources(slot: Slot, drafts: Mapping[Slot, Sequence[Draft]], rules: Rules) -> list[Draft]:
    """Of a simplification's slot the idiomatic texts that have none yet; else nothing."""
    if slot.usage != "simplification":
        return []
    idiomatic = drafts[replace(slot, usage="idiomatic")]
    return [text for text in idiomatic if not any(rules.source_of(draft, [text]) for draft in drafts[slot])]


def judge_texts(chat: Chat, writer: Writer, written: Written, num_votes: int) -> int:
    """Add the judge's votes to the texts.

    Returns:
        The number of verdicts that could not be read: such a vote is against the text.
    """
    filled = {slot: drafts for slot, drafts in written.drafts.items() if drafts}
    verdicts: dict[tuple[Slot, int], dict[int, bool]] = defaultdict(dict)  # of each vote, by text
    for attempt in range(2):  # an answer that cannot be read is asked for once more
        votes_left = [
            (slot, vote)
            for slot, drafts in filled.items()
            for vote in range(1, num_votes + 1)
            if len(verdicts[slot, vote]) < len(drafts)
        ]
        questions = [
            writer.verdict_question(slot, filled[slot], attempt * _MORE + vote) for slot, vote in votes_left
        ]
        for key, answer in zip(votes_left, chat.ask(questions, "judging"), strict=True):
            for verdict in _items_of(answer, "verdicts", _Verdict):
                is_right = all(getattr(verdict, condition) for condition in _CONDITIONS)
                if 1 <= verdict.number <= len(filled[key[0]]):
                    verdicts[key].setdefault(verdict.number, is_right)
    num_unread = 0
    for (slot, _), by_number in verdicts.items():
        num_unread += len(filled[slot]) - len(by_number)
        for number, draft in enumerate(filled[slot], 1):
            draft.votes.append(by_number.get(number, False))
    return num_unread


def _check_forms(
    slots: Sequence[Slot],
    drafts: Mapping[Slot, Sequence[Draft]],
    broken: Mapping[tuple[str, str], int],
) -> None:
    """After the first attempt: are the expressions recognized as the language inflects them?

    Raises:
        UserError: if nearly all texts that use an expression seem not to.
    """
    num = sum(len(drafts[slot]) for slot in slots if slot.has_expression)
    num_without = sum(broken.get((usage, WITH_EXPRESSION), 0) for usage in ("literal", "idiomatic"))
    if num_without > 10 * (num + 1):
        raise UserError(
            f"{num_without} of {num_without + num} literal and idiomatic texts seem not to use their "
            "expression. Rules inflect English words alone: give the table a column forms, with the "
            "inflected forms of each expression, separated by semicolons",
            option="expressions",
        )


def _items_of(answer: str, name: str, form: type[Form]) -> list[Form]:
    """The valid items of the list `name` in an answer's JSON.

    The JSON may stand among other words, after a model's reasoning, or be cut off. Of several lists the last
    one with a valid item counts.
    """
    starts = [match.end() for match in re.finditer(rf'"{name}"\s*:\s*\[', answer)]
    lists: dict[int, list[Form]] = defaultdict(list)
    for match in _OBJECT.finditer(answer):
        with suppress(ValueError, RecursionError):  # pydantic's errors are such
            item = form.model_validate(json.loads(match[0], strict=False))
            lists[bisect(starts, match.start())].append(item)
    return lists[max(lists)] if lists else []
