"""From dictionaries to a glossary: which expressions, in what words, and where they occur."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from torch.nn.functional import cosine_similarity

from idiomtune.config.settings import GlossarySettings
from idiomtune.data.dictionaries import (
    DictionaryEntry,
    Report,
    read_tables,
    read_wiktionary,
    read_wordnet,
    wiktionary_file,
)
from idiomtune.data.user.source import find_sources
from idiomtune.data.user.texts import read_texts
from idiomtune.errors import UserError
from idiomtune.expressions import ExpressionIndex, Forms, find_nested, plain_expression
from idiomtune.glossaries.encoder import GlossaryEncoder
from idiomtune.glossaries.tables import first_clause, has_content, is_findable
from idiomtune.io.files import list_names, one_line, sync, user_path
from idiomtune.io.outputs import reserved_output

log = logging.getLogger(__name__)

_SQUARE = re.compile(r"\[[^][]*\]")


def glossary(options: GlossarySettings) -> Path:
    """Write a glossary, and log what it contains.

    Returns:
        Its file.

    Raises:
        UserError: for everything that the user can fix.
    """
    output = user_path(options.output, "output")
    with reserved_output("output", output, overwrite=options.overwrite) as file:
        senses = _usable(options)
        forms = {name: entries[0].forms for name, entries in senses.items()}
        counts = None if options.texts is None else _occurrences(options.texts, senses, forms)
        if counts is not None:
            senses = {name: entries for name, entries in senses.items() if counts[name]}
        if not senses:
            scope = "" if counts is None else f" that occurs in={options.texts}"
            raise UserError(f"there is no expression{scope}", option="from", file=",".join(options.sources))
        if options.max_similarity is not None:
            senses = _drop_self_explaining(senses, options.similarity_model, options.max_similarity)
        hidden = [f"{name!r} hides {others[0]!r}" for name, others in find_nested(senses, forms).items()]
        if hidden:
            log.info("where the longer of two occurs, it counts: %s", list_names(hidden))
        rows: list[dict[str, Any]] = [
            {"expression": name, "meaning": entry.gloss, "sense": number}
            | {"part_of_speech": entry.part_of_speech, "forms": "; ".join(entry.forms)}
            | {"language": entry.language, "source": entry.source, "licence": entry.licence}
            | {"literal": entry.literal, "example": entry.example}
            | ({} if counts is None else {"texts": counts[name]})
            for name, entries in senses.items()
            for number, entry in enumerate(entries, 1)
        ]
        table = pd.DataFrame(rows)
        table = table.drop(columns=[name for name in ("literal", "example") if not table[name].any()])
        if output.suffix == ".parquet":
            table.to_parquet(file, index=False)
        else:
            table.to_csv(file, sep="\t" if output.suffix == ".tsv" else ",", index=False, lineterminator="\n")
        sync(file)
    licences = sorted({row["licence"] or "no licence" for row in rows})
    log.info("%d expressions, %d meanings (%s)", len(senses), len(rows), ", ".join(licences))
    return output


def _usable(options: GlossarySettings) -> dict[str, list[DictionaryEntry]]:
    """Expression → its senses in the first dictionary that has it, each in one clause."""
    num_bad = 0

    def skip(file: str | Path, row: str, problem: str) -> None:
        nonlocal num_bad
        num_bad += 1
        log.warning("%s, %s is skipped: %s", file, row, one_line(problem))
        if num_bad > options.bad_rows:
            message = f"{one_line(problem)}. More than bad_rows={options.bad_rows}: is it the right file?"
            raise UserError(message, file=file, row=row)

    senses: dict[str, list[DictionaryEntry]] = {}
    spellings: dict[str, str] = {}
    for name, origin in zip(options.sources, options.path or ["default"] * len(options.sources), strict=True):
        earlier, left_out = frozenset(spellings), dict[str, list[str]]()
        for entry in _entries(name, None if origin == "default" else origin, options, skip):
            key, gloss = plain_expression(entry.expression), meaning(entry)
            entries = senses.get(spellings.get(key, ""), [])
            if not gloss or not _is_usable(entry.expression):
                reason = "without a content word, or of unusual signs"
            elif key in earlier:
                reason = "of expressions that a source before it has"
            elif gloss.casefold() in {other.gloss.casefold() for other in entries}:
                reason = "that say the same again"
            else:
                senses.setdefault(spellings.setdefault(key, entry.expression), entries)
                entries.append(entry._replace(gloss=gloss))
                reason = "" if gloss == " ".join(entry.gloss.split()) else "but for their first clause"
            if reason:
                left_out.setdefault(reason, []).append(repr(entry.expression))
        log.info("%s: %d expressions that no source before it has", name, len(spellings) - len(earlier))
        for reason, names in left_out.items():
            level = logging.INFO if name in ("wiktionary", "wordnet") else logging.WARNING
            log.log(level, "%s: left out %d senses %s: %s", name, len(names), reason, list_names(names, 5))
    return senses


def _is_usable(expression: str) -> bool:
    try:
        return has_content(expression) and is_findable(expression)
    except ValueError:  # too many placeholders
        return False


def _entries(
    name: str, location: str | None, options: GlossarySettings, skip: Report
) -> Iterable[DictionaryEntry]:
    if name == "wiktionary":
        language = options.language or "en"
        path, source = wiktionary_file(location, language)
        entries = read_wiktionary(path, source, language, skip, all_senses=options.all_senses)
        return (entry._replace(language=language) for entry in entries)
    if name == "wordnet":
        return (entry._replace(language="en") for entry in read_wordnet(location, skip))
    if name == "files" and location is None:
        raise UserError("needs path=<file or folder of tables>", option="from", file=name)
    tables = find_sources([location or name], "path" if location else "from")
    rows = read_tables(tables, options.columns or {}, options.licence, skip)
    return (entry._replace(language=entry.language or options.language or "") for entry in rows)


def meaning(entry: DictionaryEntry) -> str:
    """The first clause of a definition, without labels in brackets; "" if no word is left.

    >>> meaning(DictionaryEntry("kick the bucket", "[intransitive] To die; to pass away.", "verb"))
    'die'
    """
    clause = first_clause(" ".join(_SQUARE.sub("", entry.gloss).split())).strip(" .:,")
    if entry.part_of_speech == "verb":
        clause = clause.removeprefix("To ").removeprefix("to ")
    return one_line(clause) if any(c.isalnum() for c in clause) else ""


def _drop_self_explaining(
    senses: dict[str, list[DictionaryEntry]], model: str, limit: float
) -> dict[str, list[DictionaryEntry]]:
    """The expressions without self-explaining ones, such as "birth rate".

    Raises:
        UserError: if none is left, or there is no such model.
    """
    encoder = GlossaryEncoder.from_pretrained(model, glossary=[])
    words, meanings = map(encoder.encode, (list(senses), [entries[0].gloss for entries in senses.values()]))
    similarity = cosine_similarity(words, meanings, dim=1).tolist()  # (N,)
    out = {name for name, value in zip(senses, similarity, strict=True) if value > limit}
    log.info("%d of %d expressions say what they mean: left out", len(out), len(senses))
    if len(out) == len(senses):
        raise UserError("leaves out every expression: raise it", option=f"max_similarity={limit:g}")
    return {name: entries for name, entries in senses.items() if name not in out}


def _occurrences(location: str, senses: Iterable[str], forms: Forms) -> Counter[str]:
    """Expression → number of texts that have it."""
    index = ExpressionIndex(senses, forms)
    counts: Counter[str] = Counter()
    for text, *_ in read_texts(location, "in"):
        counts.update({name for _, _, name in index.find(text)})
    return counts
