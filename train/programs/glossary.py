"""From dictionaries to a glossary: which expressions, in what words, and where they occur."""

from __future__ import annotations

import csv
import io
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from train.config.settings import GlossarySettings
from train.data.dictionaries import (
    DictionaryEntry,
    is_expression,
    read_tables,
    read_wiktionary,
    read_wordnet,
    wiktionary_file,
)
from train.data.own.forms import CORPUS
from train.data.own.table import Table, find_sources
from train.encoder.glossary import first_clause, is_findable
from train.errors import UserError
from train.expressions import ExpressionIndex, contained, plain_expression
from train.io.claims import claimed
from train.io.files import expanded, first_of, is_file, one_line, read_text, sync, text_lines, write_text
from train.io.tables import is_table
from train.io.terminal import log_to_stderr

log = logging.getLogger(__name__)

_SEPARATORS = {".tsv": "\t", ".csv": ","}
_SQUARE = re.compile(r"\[[^][]*\]")


class _Skipped:
    """Rows that cannot be read: each is logged, and there is a limit."""

    def __init__(self, limit: int) -> None:
        self.limit, self.count = limit, 0

    def __call__(self, file: str | Path, row: str, problem: str) -> None:
        self.count += 1
        if self.count > self.limit:
            raise UserError(
                f"{one_line(problem)}. More than bad_rows={self.limit} cannot be read: is it the right file?",
                file=file,
                row=row,
            )
        log.warning("%s, %s is skipped: %s", file, row, one_line(problem))


def glossary(options: GlossarySettings) -> Path:
    """Write a glossary, and log what it contains.

    Returns:
        Its file.

    Raises:
        UserError: for everything that the user can fix.
    """
    log_to_stderr()
    with claimed("output", options.output, overwrite=options.overwrite) as file:
        senses = _usable(options)
        forms = {name: some[0].forms for name, some in senses.items()}
        counts: Counter[str] | None = None
        if options.texts is not None:
            counts, num_texts = _occurrences(options.texts, senses, forms)
            senses = {name: some for name, some in senses.items() if counts[name]}
            log.info("%d expressions occur in %d texts", len(senses), num_texts)
        if not senses:
            raise UserError(
                "the dictionaries have no expression of several words that is "
                + ("in these texts" if counts is not None else "marked as idiomatic: try all_senses=true"),
                option="from" if counts is None else "in",
                file=",".join(options.sources) if counts is None else options.texts,
            )
        hidden = [f"{name!r} hides {others[0]!r}" for name, others in contained(senses, forms).items()]
        if hidden:
            log.info("where the longer of two occurs, it counts: %s", first_of(hidden))
        rows = [
            {
                **{"expression": name, "meaning": entry.gloss, "sense": number},
                **{"part_of_speech": entry.part_of_speech, "forms": "; ".join(entry.forms)},
                **{"language": options.language, "source": entry.source, "licence": entry.licence},
                **({} if counts is None else {"texts": counts[name]}),
            }
            for name, some in senses.items()
            for number, entry in enumerate(some, 1)
        ]
        _write(file, rows, options.output.suffix)
    licences = sorted({entry.licence or "no licence" for some in senses.values() for entry in some})
    log.info("%d expressions, %d meanings (%s)", len(senses), len(rows), ", ".join(licences))
    return options.output


def _usable(options: GlossarySettings) -> dict[str, list[DictionaryEntry]]:
    """Expression → its senses in the first dictionary that has it, each in one clause."""
    skipped = _Skipped(options.bad_rows)
    senses: dict[str, list[DictionaryEntry]] = {}
    spellings: dict[str, str] = {}
    for name, place in zip(options.sources, options.path or [None] * len(options.sources), strict=True):
        known, refused = frozenset(spellings), 0
        for entry in _entries(name, None if place == "default" else place, options, skipped):
            key = plain_expression(entry.expression)
            gloss = meaning(entry)
            if key in known:
                continue
            if not gloss or not is_findable(entry.expression):
                refused += 1
                continue
            some = senses.setdefault(spellings.setdefault(key, entry.expression), [])
            if gloss.casefold() not in {other.gloss.casefold() for other in some}:
                some.append(entry._replace(gloss=gloss))
        log.info("%s: %d expressions that no source before it has", name, len(spellings) - len(known))
        if refused:
            log.info("%s: %d senses left out, without words or with unusual characters", name, refused)
    return senses


def _entries(
    name: str, place: str | None, options: GlossarySettings, skipped: _Skipped
) -> Iterable[DictionaryEntry]:
    if name == "wiktionary":
        path, source = wiktionary_file(place, options.language)
        return read_wiktionary(path, source, options.language, skipped, all_senses=options.all_senses)
    if name == "wordnet":
        return read_wordnet(place, skipped)
    if name == "files" and place is None:
        raise UserError("needs path=<file or folder of tables>", option="from", file=name)
    tables = find_sources([place or name], "path" if place else "from")
    rows = read_tables(tables, options.columns, options.licence, skipped)
    return (entry for entry in rows if is_expression(entry.expression))


def meaning(entry: DictionaryEntry) -> str:
    """The first clause of a definition, without labels in brackets; "" if no word is left.

    >>> meaning(DictionaryEntry("kick the bucket", "[intransitive] To die; to pass away.", "verb"))
    'die'
    """
    clause = first_clause(" ".join(_SQUARE.sub("", entry.gloss).split())).strip(" .:,")
    if entry.part_of_speech == "verb":
        clause = clause.removeprefix("To ").removeprefix("to ")
    return one_line(clause) if any(c.isalnum() for c in clause) else ""


def _occurrences(
    place: str, senses: Iterable[str], forms: dict[str, tuple[str, ...]]
) -> tuple[Counter[str], int]:
    """(expression → number of texts that have it, number of texts)."""
    index = ExpressionIndex(senses, forms)
    counts: Counter[str] = Counter()
    num_texts = 0
    for text in _texts(place):
        num_texts += 1
        counts.update({name for _, _, name in index.find(text)})
    return counts, num_texts


def _texts(place: str) -> Iterator[str]:
    path = expanded(place, "in")
    if is_file(path) and not is_table(path):
        yield from filter(None, map(str.strip, text_lines(read_text(path))))
    else:
        for source in find_sources([place], "in"):
            yield from Table(source, [CORPUS]).read(lambda record: record.marked()[0])


def _write(file: Path, rows: Sequence[dict[str, Any]], suffix: str) -> None:
    if suffix in _SEPARATORS:
        content = io.StringIO(newline="")
        writer = csv.DictWriter(content, list(rows[0]), delimiter=_SEPARATORS[suffix], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(file, content.getvalue())
        return
    try:
        from pyarrow import Table as ArrowTable
        from pyarrow.parquet import write_table
    except ImportError:
        raise UserError("Parquet needs the package pyarrow: pip install pyarrow", file=file) from None
    write_table(ArrowTable.from_pylist(list(rows)), file)
    sync(file)
