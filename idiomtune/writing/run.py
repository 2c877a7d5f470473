"""A data set, from expressions to splits and card. A start with the same folder goes on with the last one."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, model_validator

from idiomtune.config.settings import WriteSettings
from idiomtune.data.idiolink import Document
from idiomtune.data.names import WRITTEN
from idiomtune.errors import UserError
from idiomtune.expressions import ExpressionIndex
from idiomtune.glossaries.tables import Glossary
from idiomtune.io.files import find_links, is_file, jsonl_text, list_names
from idiomtune.io.outputs import lock
from idiomtune.io.tables import read_table
from idiomtune.writing import dataset
from idiomtune.writing.chat import MORE_TOKENS, Chat, Prompt
from idiomtune.writing.endpoint import Endpoint
from idiomtune.writing.expressions import read_expressions
from idiomtune.writing.folder import Folder
from idiomtune.writing.review import Review, agreement_of, read_reviews, update_sheet
from idiomtune.writing.rules import Rules
from idiomtune.writing.slots import Draft, Slot, Usage
from idiomtune.writing.texts import Writer, Written, judge_texts, read_prompts, slots_of, write_texts

log = logging.getLogger(__name__)

TEXTS = "texts.jsonl"
SENTENCES = "sentences.txt"  # of `idiomtune write uses`
_REVIEW = "next idiomtune write review folder="


def write(settings: WriteSettings) -> str:
    """Write a data set, or sentences to learn from, or show the costs; returns the last line to print.

    Raises:
        UserError: for everything that the user can fix.
    """
    glossary, prompts = read_expressions(settings.expressions), read_prompts(settings.prompts)
    meanings = {name: next(iter(senses), "") for name, senses in glossary.senses.items()}
    writer, slots = Writer(settings, prompts, meanings), slots_of(list(meanings), settings.domains)
    if settings.uses:  # of an expression four literal ones, of one domain, and four idiomatic ones, of two
        domains = {"literal": 1, "idiomatic": 2}
        slots = [s for s in slots if not s.is_query and s.domain_number <= domains.get(s.usage, 0)]
        never = glossary.never_literal
        slots = [s for s in slots if s.usage == "idiomatic" or s.expression not in never]
    if settings.dry_run:
        return _show_costs(settings, writer, slots)
    if not settings.uses:
        _warn_of_one_model(settings)
    endpoint = Endpoint(settings)
    Folder(settings.output, "output")  # another one is refused before a lock is put there
    with _hold(settings.output, "output"):
        folder = Folder(settings.output, "output", endpoint.hide)
        folder.write({f"prompts/{name}.txt": text for name, text in prompts.items()})
        chat = Chat(settings, endpoint, folder.path)
        rules = Rules(ExpressionIndex(meanings, glossary.forms), settings.language)
        written = write_texts(chat, writer, slots, rules, settings.tries)
        broken = Counter({f"{usage}: {rule}": number for (usage, rule), number in written.broken.items()})
        reasons = "; ".join(f"{rule} {number}" for rule, number in broken.most_common()) or "none"
        limit = settings.answer_tokens
        if num_truncated := sum(answer.truncated_at == limit for answer in chat.answers.values()):
            advice = f"answer_tokens={MORE_TOKENS * limit} asks for them again"
            log.warning("%d answers were cut off at answer_tokens=%d: %s", num_truncated, limit, advice)
        if not any(written.drafts.values()):
            raise UserError(f"no text keeps all rules ({reasons})", option="model", file=settings.model)
        if settings.uses:
            texts = [draft.text for drafts in written.drafts.values() for draft in drafts]
            folder.write({SENTENCES: "\n".join(texts) + "\n"})
            folder.warn_of_strangers()
            file = folder.path / SENTENCES
            return (
                f"{file}: {len(texts)} sentences; next idiomtune learn <model> glossary=<file> corpus={file}"
            )
        num_unread = judge_texts(chat, writer, written, settings.votes)
        if num_unread:
            log.warning("%d votes could not be read, and count against their texts", num_unread)
        rows = [row for slot, drafts in written.drafts.items() for row in _rows(slot, drafts, meanings)]
        folder.write({TEXTS: jsonl_text(rows)})
        folder.update(**_facts(settings, glossary, chat, written, rows))
        planned = Counter((slot.expression, slot.usage) for slot in slots for _ in range(slot.count))
        counts = planned.total(), len(rows), sum(row["accepted"] for row in rows), reasons
        log.info("planned %d texts; written %d; accepted by the judge %d; broken rules: %s", *counts)
        records = _build(folder)
        missing = planned - Counter((record.idiom, record.usage) for record in records)
        if missing:
            names = list_names([f"{name}: {usage} {count}" for (name, usage), count in missing.items()])
            problem = "%d of %d planned texts are missing (%s); tries=<more> asks for them more often"
            log.warning(problem, missing.total(), planned.total(), names)
        shares = f"{len(records)} of {planned.total()} planned texts"
        return (
            f"{folder.path}: {shares}; data.idiolink={folder.path} trains and scores; {_REVIEW}{folder.path}"
        )


def review(path: Path) -> str:
    """Write the spreadsheet of a data set, or read its marks and build the data set again.

    Raises:
        UserError: if it is no data set, or naming the row of a mark that cannot be read.
    """
    if not (is_file(path / WRITTEN) and is_file(path / TEXTS)):
        raise UserError("is no data set of idiomtune write", option="folder", file=path)
    with _hold(path, "folder"):
        folder, texts = Folder(path, "folder"), _read_texts(path)
        has_marks = bool(read_reviews(path, texts))
        if has_marks:
            _build(folder)
        sheet = update_sheet(path, texts)
    if has_marks:
        return f"{path}: data.idiolink={path} trains and scores; {_REVIEW}{path}"
    return f"{sheet}: fill the column accept (yes, no), correct text or span; then the same command"


@contextmanager
def _hold(folder: Path, option: str) -> Iterator[None]:
    """The folder for this process alone.

    Raises:
        UserError: if another one works there, or there is a link: what it leads to would be overwritten.
    """
    with lock(folder, f"{option}={folder}"):
        if links := find_links(folder):
            raise UserError(f"has a link, {links[0].name}: put a copy there", option=option, file=folder)
        yield


def _build(folder: Folder) -> list[Document]:
    """Write splits and card from the texts, the record and the reviews; returns the texts of the data set."""
    texts, record = _read_texts(folder.path), folder.record
    reviews = read_reviews(folder.path, texts)
    records = [document for text in texts if (document := _record(text, reviews.get(text["key"])))]
    if not records:
        raise UserError(f"none of {len(texts)} texts is accepted: {TEXTS} has the votes", file=folder.path)
    refused = Counter(record.refused)
    num_texts = refused + Counter(text["expression"] for text in texts)
    refused.update(text["expression"] for text in texts if not text["accepted"])
    shares = {document.idiom: refused[document.idiom] / num_texts[document.idiom] for document in records}
    sizes = {"train": 1 - record.val - record.test, "val": record.val, "test": record.test}
    split_of = dataset.split_expressions(shares, sizes, record.split_of)
    splits = dataset.write_splits(folder, records, split_of)
    agreement = agreement_of(texts, reviews)
    reviewed = None if agreement is None else agreement._asdict()
    folder.update(split_of=split_of, splits=splits, reviewed=reviewed)
    dataset.write_card(folder, agreement)
    folder.warn_of_strangers()
    if absent := sorted(record.expressions.keys() - shares):
        log.warning("no text is left of: %s", ", ".join(absent))
    if agreement is not None:
        log.info("%d texts are reviewed: %s", agreement.num_reviewed, agreement)
    counts = "; ".join(f"{name} {n['documents']} + {n['queries']}" for name, n in splits.items())
    log.info("documents + queries: %s", counts)
    return records


def _record(text: Mapping[str, Any], mark: Review | None) -> Document | None:
    """The text as IdioLink has it, if a person accepts it, or else the judge."""
    if not (text["accepted"] if mark is None else mark.accept):
        return None
    slot = Slot(*(text[field.name] for field in fields(Slot)))
    words, span = (text["text"], text["span"]) if mark is None else (mark.text, mark.span)
    return slot.record(text["position"], words, span, is_gold=mark is not None)


def _rows(slot: Slot, drafts: Sequence[Draft], meanings: Mapping[str, str]) -> list[dict[str, Any]]:
    about = vars(slot) | {"meaning": meanings[slot.expression]}
    return [
        {"id": slot.id(position), **about, "position": position, **vars(draft)}
        | {"accepted": draft.is_accepted, "key": _key(slot, draft)}
        for position, draft in enumerate(drafts, 1)
    ]


def _key(slot: Slot, draft: Draft) -> str:
    """What a text is known by, wherever it stands."""
    content = [slot.expression, slot.usage, slot.is_query, draft.text, draft.span]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


class _Text(BaseModel):
    """A row of `texts.jsonl`, which people may have edited."""

    id: str
    number: Annotated[int, Field(ge=1)]
    expression: Annotated[str, Field(min_length=1)]
    domain_number: Annotated[int, Field(ge=1)]
    domain: str
    usage: Usage
    is_query: bool
    meaning: str
    position: Annotated[int, Field(ge=1)]
    text: str
    span: Annotated[str, Field(min_length=1)]
    votes: list[bool]
    accepted: bool
    key: str

    @model_validator(mode="after")
    def _has_span(self) -> Self:
        if self.span not in self.text:
            raise ValueError(f"field 'span': {self.span!r} does not stand in the text")
        return self


def _read_texts(folder: Path) -> list[dict[str, Any]]:
    """The texts; an error names the line of what cannot be read."""
    return [text.model_dump() for _, text in read_table(folder / TEXTS, _Text)]


def _facts(
    settings: WriteSettings,
    glossary: Glossary,
    chat: Chat,
    written: Written,
    rows: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """What the record and the card say."""
    votes = [row["votes"] for row in rows if row["votes"]]
    answers = list(chat.answers.values())
    dates = sorted({answer.date for answer in answers})
    secret_or_local = {"expressions", "output", "endpoint", "key", "prompts"}
    return {
        **settings.model_dump(exclude=secret_or_local),
        "query_model": settings.writer(is_query=True),
        "judge_model": settings.judge,
        "expressions": dict(glossary.senses),
        "glossary_licences": ", ".join(glossary.describe().get("licences", ())),
        "calls": len(answers),
        "prompt_tokens": sum(answer.prompt_tokens for answer in answers),
        "answer_tokens": sum(answer.answer_tokens for answer in answers),
        "dates": " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "",
        "broken": [(*key, number) for key, number in sorted(written.broken.items())],
        "refused": dict(written.refused),
        "judged": len(rows),
        "accepted": sum(row["accepted"] for row in rows),
        "agreement_of_votes": sum(len(set(of_text)) == 1 for of_text in votes) / max(1, len(votes)),
    }


def _warn_of_one_model(settings: WriteSettings) -> None:
    if settings.writer(is_query=True) == settings.model:
        log.warning("one model writes documents and queries, in one style: name another as query_model=")
    if settings.judge in (settings.model, settings.writer(is_query=True)):
        log.warning("the judge has written texts itself: name another model as judge_model=")


def _show_costs(settings: WriteSettings, writer: Writer, slots: Sequence[Slot]) -> str:
    """Print a prompt of each kind; returns what all of them take."""
    source = [Draft("…", "…")] * 2
    questions = [
        writer.question(slot, sources=source if slot.usage == "simplification" else ()) for slot in slots
    ]
    judged = [] if settings.uses else slots
    verdicts = [writer.verdict_question(slot, [Draft("…", "…")] * slot.count, 1) for slot in judged]
    shown: dict[tuple[str, bool], Prompt] = {}
    for slot, question in zip(slots, questions, strict=True):
        shown.setdefault((slot.usage, slot.is_query), question)
    for (usage, is_query), question in shown.items():
        print(f"--- {'query, ' * is_query}{usage}, to {question.model}\n{question.text}")
    for verdict in verdicts[:1]:
        print(f"--- judge, to {verdict.model}\n{verdict.text}")
    num_calls = len(questions) + settings.votes * len(verdicts)
    texts = sum(slot.count for slot in slots)
    length = sum(len(q.text) for q in questions) + settings.votes * sum(len(q.text) for q in verdicts)
    tokens = (length + (1 + settings.votes) * 150 * texts) // 4
    at_most = settings.tries * len(questions) + 2 * settings.votes * len(verdicts)
    return f"{texts} texts: {num_calls} questions, about {tokens} tokens; at most {at_most} questions"
