"""From dictionaries to a glossary: which expressions, in what words, and where they occur."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from torch.nn.functional import cosine_similarity

from idiomtune.config.settings import GlossarySettings
from idiomtune.data.dictionaries import Entry, Report, read_wiktionary, read_wordnet, wiktionary_file
from idiomtune.data.user.source import find_sources
from idiomtune.data.user.texts import read_texts
from idiomtune.errors import UserError
from idiomtune.expressions import ExpressionIndex, plain_expression
from idiomtune.glossaries.encoder import GlossaryEncoder
from idiomtune.glossaries.tables import first_clause, has_content, is_findable, read_leniently
from idiomtune.io.files import list_names, one_line, sync, user_path
from idiomtune.io.outputs import reserved_output

log = logging.getLogger(__name__)

_LITERAL: dict[object, object] = {True: "yes", False: "no", None: ""}
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
        senses, counts = _usable(options), Counter[str]()
        if options.texts is not None:
            index = ExpressionIndex(senses, {name: entries[0].forms for name, entries in senses.items()})
            for text, *_ in read_texts(options.texts, "in"):
                counts.update({name for _, _, name in index.find(text)})
            senses = {name: entries for name, entries in senses.items() if counts[name]}
        if not senses:
            scope = "" if options.texts is None else f" that occurs in={options.texts}"
            raise UserError(f"there is no expression{scope}", option="from", file=",".join(options.sources))
        if options.max_similarity is not None:
            senses = _drop_self_explaining(senses, options.similarity_model, options.max_similarity)
        rows = [
            {fact: "" if value is None else value for fact, value in entry._asdict().items()}
            | {"expression": name, "forms": "; ".join(entry.forms), "sense": number}
            | {"literal": _LITERAL.get(entry.literal, entry.literal)}
            for name, entries in senses.items()
            for number, entry in enumerate(entries, 1)
        ]
        table = pd.DataFrame(rows)
        table.insert(2, "sense", table.pop("sense"))
        table = table.drop(columns=[name for name in ("literal", "example") if not table[name].any()])
        if options.texts is not None:
            table["texts"] = table["expression"].map(counts)
        if output.suffix == ".parquet":
            table.to_parquet(file, index=False)
        else:
            table.to_csv(file, sep="\t" if output.suffix == ".tsv" else ",", index=False, lineterminator="\n")
        sync(file)
    licences = sorted({row["licence"] or "no licence" for row in rows})
    log.info("%d expressions, %d meanings (%s)", len(senses), len(rows), ", ".join(licences))
    return output


def _usable(options: GlossarySettings) -> dict[str, list[Entry]]:
    """Expression → its senses in the first dictionary that has it, each in one clause."""
    num_bad = 0

    def skip(file: str | Path, row: str, problem: str) -> None:
        nonlocal num_bad
        num_bad += 1
        log.warning("%s, %s is skipped: %s", file, row, one_line(problem))
        if num_bad > options.bad_rows:
            message = f"{one_line(problem)}. More than bad_rows={options.bad_rows}: is it the right file?"
            raise UserError(message, file=file, row=row)

    senses: dict[str, list[Entry]] = {}
    spellings: dict[str, str] = {}
    for name, origin in zip(options.sources, options.path or ["default"] * len(options.sources), strict=True):
        earlier, left_out = frozenset(spellings), list[str]()
        for entry in _entries(name, None if origin == "default" else origin, options, skip):
            key, clause = plain_expression(entry.expression), meaning(entry)
            entries = senses.get(spellings.get(key, ""), [])
            is_repeated = clause.casefold() in {other.meaning.casefold() for other in entries}
            if not clause or key in earlier or is_repeated or not _is_usable(entry.expression):
                left_out.append(repr(entry.expression))
            else:
                senses.setdefault(spellings.setdefault(key, entry.expression), entries)
                entries.append(entry._replace(meaning=clause))
        log.info("%s: %d expressions that no source before it has", name, len(spellings) - len(earlier))
        if left_out:
            level = logging.INFO if name in ("wiktionary", "wordnet") else logging.WARNING
            reasons = "repeated, without a content word, or of unusual signs"
            log.log(
                level, "%s: left out %d senses, %s: %s", name, len(left_out), reasons, list_names(left_out)
            )
    return senses


def _is_usable(expression: str) -> bool:
    try:
        return has_content(expression) and is_findable(expression)
    except ValueError:  # too many placeholders
        return False


def _entries(name: str, location: str | None, options: GlossarySettings, skip: Report) -> Iterator[Entry]:
    if name == "wiktionary":
        language = options.language or "en"
        path, source = wiktionary_file(location, language)
        yield from read_wiktionary(path, source, language, skip, all_senses=options.all_senses)
    elif name == "wordnet":
        yield from read_wordnet(location, skip)
    elif name == "files" and location is None:
        raise UserError("needs path=<file or folder of tables>", option="from", file=name)
    else:
        for table in find_sources([location or name], "path" if location else "from"):
            source = table.name + (f"@{table.revision}" if table.revision else "")
            for entry in read_leniently(table, options.columns or {}, skip):
                yield entry._replace(
                    language=entry.language or options.language,
                    source=entry.source or source,
                    licence=entry.licence or options.licence,
                )


def meaning(entry: Entry) -> str:
    """The first clause of a definition, without labels in brackets; "" if no word is left.

    >>> meaning(Entry("kick the bucket", "[intransitive] To die; to pass away.", "verb"))
    'die'
    """
    clause = first_clause(" ".join(_SQUARE.sub("", entry.meaning).split())).strip(" .:,")
    if entry.part_of_speech == "verb":
        clause = clause.removeprefix("To ").removeprefix("to ")
    return one_line(clause) if any(c.isalnum() for c in clause) else ""


def _drop_self_explaining(senses: dict[str, list[Entry]], model: str, limit: float) -> dict[str, list[Entry]]:
    """The expressions without self-explaining ones, such as "birth rate".

    Raises:
        UserError: if none is left, or there is no such model.
    """
    encoder = GlossaryEncoder.from_pretrained(model, glossary=[])
    words, meanings = map(encoder.encode, (list(senses), [entries[0].meaning for entries in senses.values()]))
    similarity = cosine_similarity(words, meanings, dim=1).tolist()  # (N,)
    out = {name for name, value in zip(senses, similarity, strict=True) if value > limit}
    log.info("%d of %d expressions say what they mean: left out", len(out), len(senses))
    if len(out) == len(senses):
        raise UserError("leaves out every expression: raise it", option=f"max_similarity={limit:g}")
    return {name: entries for name, entries in senses.items() if name not in out}
