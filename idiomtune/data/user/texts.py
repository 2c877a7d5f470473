"""Files of texts: one text per line, or a table with a column `text`. All programs read them here."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from idiomtune.data.notation import TextCleaner, clean_text
from idiomtune.data.user.forms import CORPUS
from idiomtune.data.user.source import find_sources
from idiomtune.data.user.table import UserRecord, UserTable
from idiomtune.errors import UserError
from idiomtune.io.files import is_file, user_path
from idiomtune.io.tables import KINDS, is_table, text_lines_of

log = logging.getLogger(__name__)

# What is no list of texts, by its name: code, pages, documents, JSON.
_SUFFIXES = re.compile(
    r"\.(py|ipynb|js|css|cpp|java|json|html?|xml|svg|ya?ml|toml|ini|tex|bib|rtf|srt|vtt)", re.I
)


class LocatedText(NamedTuple):
    """A text of a file, and its line there; of a table, its row."""

    text: str
    file: str
    line: int


def read_texts(location: str, option: str) -> Iterator[LocatedText]:
    """The texts of a file, without blank ones, which are counted in a warning if they are rows of a table.

    Raises:
        UserError: for a file of another kind, or without a text; naming file, row and field of a problem, or
            the option.
    """
    path, text = user_path(location, option), None
    if is_file(path) and not is_table(path):
        cleaner = TextCleaner()
        for number, line in text_lines_in(path):
            if bare := cleaner.clean(line, number).strip():
                yield (text := LocatedText(bare, location, number))
        cleaner.log(location)
    else:
        for source in find_sources([location], option):
            table = UserTable(source, [CORPUS])
            blank: list[int] = []
            for number, cell in table.read(lambda r: (r.number, r.marked_text()[0] if _has_text(r) else "")):
                if cell:
                    yield (text := LocatedText(cell, source.name, number))
                else:
                    blank.append(number)
            table.log_unread()
            if blank:
                log.warning("%s: %d rows without a text, the first row %d", source.name, len(blank), blank[0])
    if text is None:
        raise UserError("has no text", option=option, file=location)


def _has_text(record: UserRecord) -> bool:
    cells = [record.cell(role) for role in ("text", "title") if record.has(role)]
    return any(not isinstance(cell, str) or clean_text(cell).strip() for cell in cells)


def text_lines_in(path: Path) -> Iterator[tuple[int, str]]:
    r"""The lines of a text file that are not blank, with their numbers; they end at `\n`, `\r\n` or `\r`.

    Raises:
        UserError: if the file is of another kind.
    """
    if _SUFFIXES.fullmatch(path.suffix):
        expected = f"a file of texts has one text per line, or is a table ({KINDS}) with a column text"
        raise UserError(f"is no plain text; {expected}", file=path)
    parts = (part for line in text_lines_of(path) for part in line.rstrip("\r\n").split("\r"))
    return ((number, text) for number, part in enumerate(parts, 1) if (text := part.strip()))
