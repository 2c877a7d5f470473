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
from typing import Any

from idiomtune.config.settings import WriteSettings
from idiomtune.data.idiolink import Document
from idiomtune.data.names import WRITTEN
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.glossary import Glossary
from idiomtune.errors import UserError
from idiomtune.expressions import ExpressionIndex
from idiomtune.io.files import find_links, is_file, read_json, write_json, write_jsonl, write_text
from idiomtune.io.outputs import lock
from idiomtune.io.tables import read_rows
from idiomtune.writing import dataset
from idiomtune.writing.chat import ANSWERS, Chat, Prompt
from idiomtune.writing.expressions import read_expressions
from idiomtune.writing.review import SHEET, Review, agreement_of, read_reviews, update_sheet
from idiomtune.writing.slots import Draft, Slot
from idiomtune.writing.texts import Writer, Written, judge_texts, read_prompts, slots_of, write_texts

log = logging.getLogger(__name__)

TEXTS = "texts.jsonl"
_OWN = {WRITTEN, TEXTS, ANSWERS, SHEET, dataset.CARD, "prompts", "train", "val", "test", ".lock"}


def write(settings: WriteSettings) -> str:
    """Write a data set, or show what it would take; returns the last line to print.

    Raises:
        UserError: for everything that the user can fix.
    """
    glossary, prompts = read_expressions(settings.expressions), read_prompts(settings.prompts)
    meanings = {name: next(iter(senses), "") for name, senses in glossary.senses.items()}
    writer, slots = Writer(settings, prompts, meanings), slots_of(list(meanings), settings.domains)
    if settings.dry_run:
        return _show_costs(settings, writer, slots)
    _warn_of_one_model(settings)
    usages = None if settings.gate is None else Encoder(settings.gate, glossary=[]).usage
    folder = settings.output
    strays = {path.name for path in folder.glob("*") if path.name[0] not in ".~"} - _OWN
    if strays and not (is_file(folder / ANSWERS) or is_file(folder / WRITTEN)):
        problem = f"has {min(strays)}, which is of no data set: choose a new folder"
        raise UserError(problem, option="output", file=folder)
    with _hold(folder, "output"):
        for name, text in prompts.items():
            write_text(folder / "prompts" / f"{name}.txt", text)
        chat = Chat(settings, folder)
        written = write_texts(chat, writer, slots, ExpressionIndex(meanings, glossary.forms), settings.tries)
        broken = Counter({f"{usage}: {rule}": number for (usage, rule), number in written.broken.items()})
        reasons = "; ".join(f"{rule} {number}" for rule, number in broken.most_common(5))
        log.info("rules that were broken: %s", reasons or "none")
        if not any(written.drafts.values()):
            raise UserError(f"no text keeps all rules ({reasons})", option="model", file=settings.model)
        num_unread = judge_texts(chat, writer, written, settings.votes, usages)
        if num_unread:
            log.warning("%d votes could not be read, and count against their texts", num_unread)
        rows = [row for slot, drafts in written.drafts.items() for row in _rows(slot, drafts, meanings)]
        record = folder / WRITTEN
        split_of = read_json(record).get("split_of", {}) if is_file(record) else {}
        write_jsonl(folder / TEXTS, rows)
        write_json(record, {**_facts(settings, glossary, chat, written, rows), "split_of": split_of})
        return _build(folder)


def review(folder: Path) -> str:
    """Write the spreadsheet of a data set, or read its marks and build the data set again.

    Raises:
        UserError: if it is no data set, or naming the row of a mark that cannot be read.
    """
    if not is_file(folder / WRITTEN):
        raise UserError("is no data set of idiomtune write", option="folder", file=folder)
    with _hold(folder, "folder"):
        try:
            texts = _read_texts(folder)
            message = _build(folder) if read_reviews(folder, texts) else ""
            path = update_sheet(folder, texts)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"is damaged: {type(error).__name__}: {error}", file=folder) from None
    return message or f"{path}: fill the column accept (yes, no), correct text or span; then the same command"


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


def _build(folder: Path) -> str:
    """Write splits and card from the texts, the record and the reviews."""
    facts, texts = read_json(folder / WRITTEN), _read_texts(folder)
    reviews = read_reviews(folder, texts)
    records = [record for text in texts if (record := _record(text, reviews.get(text["key"])))]
    if not records:
        raise UserError(f"none of {len(texts)} texts is accepted: {TEXTS} has the votes", file=folder)
    refused = Counter(facts["refused"])
    num_texts = refused + Counter(text["expression"] for text in texts)
    refused.update(text["expression"] for text in texts if not text["accepted"])
    shares = {record.idiom: refused[record.idiom] / num_texts[record.idiom] for record in records}
    rest = 1 - facts["val"] - facts["test"]
    sizes = {"train": rest, "val": facts["val"], "test": facts["test"]}
    facts["split_of"] = dataset.split_expressions(shares, sizes, facts["split_of"])
    facts["splits"] = dataset.write_splits(folder, records, facts["split_of"])
    agreement = agreement_of(texts, reviews)
    facts["reviewed"] = None if agreement is None else agreement._asdict()
    write_json(folder / WRITTEN, facts)
    dataset.write_card(folder, facts, agreement)
    if absent := sorted(facts["expressions"].keys() - shares):
        log.warning("no text is left of: %s", ", ".join(absent))
    if agreement is not None:
        log.info("%d texts are reviewed: %s", agreement.num_reviewed, agreement)
    counts = "; ".join(f"{name} {n['documents']} + {n['queries']}" for name, n in facts["splits"].items())
    log.info("documents + queries: %s; judged: %d of %d accepted", counts, facts["accepted"], facts["judged"])
    return f"{folder}: data.root={folder} trains and scores; next idiomtune write review folder={folder}"


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


def _read_texts(folder: Path) -> list[dict[str, Any]]:
    return [dict(row.values) for row in read_rows(folder / TEXTS)]


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
    dates = sorted({answer["date"] for answer in answers})
    secret_or_local = {"expressions", "output", "endpoint", "key", "prompts"}
    return {
        **settings.model_dump(exclude=secret_or_local),
        "query_model": settings.writer(is_query=True),
        "judge_model": settings.judge,
        "expressions": dict(glossary.senses),
        "glossary_licences": ", ".join(glossary.describe().get("licences", ())),
        "calls": len(answers),
        "prompt_tokens": sum(answer["prompt_tokens"] for answer in answers),
        "answer_tokens": sum(answer["answer_tokens"] for answer in answers),
        "dates": " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "",
        "broken": [[*key, number] for key, number in sorted(written.broken.items())],
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
    verdicts = [writer.verdict_question(slot, [Draft("…", "…")] * slot.count, 1) for slot in slots]
    shown: dict[tuple[str, bool], Prompt] = {}
    for slot, question in zip(slots, questions, strict=True):
        shown.setdefault((slot.usage, slot.is_query), question)
    for (usage, is_query), question in shown.items():
        print(f"--- {'query, ' * is_query}{usage}, to {question.model}\n{question.text}")
    print(f"--- judge, to {verdicts[0].model}\n{verdicts[0].text}")
    num_calls = len(questions) + settings.votes * len(verdicts)
    texts = sum(slot.count for slot in slots)
    length = sum(len(q.text) for q in questions) + settings.votes * sum(len(q.text) for q in verdicts)
    tokens = (length + (1 + settings.votes) * 150 * texts) // 4
    at_most = settings.tries * len(questions) + 2 * settings.votes * len(verdicts)
    return f"{texts} texts: {num_calls} questions, about {tokens} tokens; at most {at_most} questions"
