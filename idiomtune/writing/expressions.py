"""Expressions to write about: chosen from labelled sentences, and read from a table."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AliasChoices, BeforeValidator, Field

from idiomtune.config.settings import SelectSettings
from idiomtune.data.fields import TableRow, WordedCell
from idiomtune.data.magpie import FILES, magpie_file
from idiomtune.data.names import MAGPIE
from idiomtune.data.sources import DataFiles, dataset_folder
from idiomtune.data.user.source import find_sources
from idiomtune.errors import UserError
from idiomtune.expressions import plain_expression
from idiomtune.glossaries.tables import Glossary, read_glossary
from idiomtune.io.files import is_file, list_names, user_path
from idiomtune.io.outputs import reserved_output
from idiomtune.io.tables import read_checked_table, read_rows

log = logging.getLogger(__name__)

_LABELS = {
    **dict.fromkeys(("i", "idiomatic", "figurative", "1", "true", "yes"), "idiomatic"),
    **dict.fromkeys(("l", "literal", "0", "false", "no"), "literal"),
}


class _UseRow(TableRow):
    expression: Annotated[WordedCell, Field(validation_alias=AliasChoices("expression", "idiom"))]
    usage: Annotated[
        Literal["idiomatic", "literal"],
        Field(validation_alias=AliasChoices("usage", "label")),
        BeforeValidator(lambda value: _LABELS.get(str(value).strip().casefold(), value)),
    ]
    confidence: float = 1.0


def _uses(location: str) -> Iterator[_UseRow]:
    if location == MAGPIE.name:
        files = DataFiles(FILES, dataset_folder(MAGPIE, None, None, sample=False))
        paths = [magpie_file(files)]
    else:
        paths = [path for source in find_sources([location], "from") if (path := source.path)]
    for path in paths:
        first = next(iter(read_rows(path)), None)
        column = "idiom" if first and "idiom" in first.values else "expression"  # names rows in messages
        yield from read_checked_table(path, (column,), lambda row: _UseRow.model_validate(row.values))


def select_expressions(settings: SelectSettings) -> list[str]:
    """Write the expressions that are used both ways, often enough, to a table, where people strike out rows.

    Counted are the sentences whose annotators agree (`confidence`).

    Returns:
        The expressions.

    Raises:
        UserError: if none is left.
    """
    counts: dict[str, list[bool]] = defaultdict(list)
    names: dict[str, str] = {}  # an expression in other spellings is the same
    num_all = 0
    for use in _uses(settings.source):
        num_all += 1
        if use.confidence >= settings.confidence:
            name = names.setdefault(plain_expression(use.expression), " ".join(use.expression.split()))
            counts[name].append(use.usage == "idiomatic")
    low, high = settings.idiomatic
    rows = []
    for name, uses in counts.items():
        share = 100 * sum(uses) / len(uses)
        if len(uses) >= settings.min_uses and low <= share <= high:
            rows.append(f"{name}\t\tyes\t{len(uses)}\t{share:.0f}\n")
    if not rows:
        problem = f"none of {len(counts)} expressions has min_uses={settings.min_uses} sentences, of which "
        raise UserError(f"{problem}{low:g} to {high:g}% are idiomatic", option="from", file=settings.source)
    log.info("%d of %d expressions, from %d labelled sentences", len(rows), len(counts), num_all)
    output = settings.output
    with reserved_output("output", output, overwrite=settings.overwrite) as file:
        file.write_text(
            "expression\tmeaning\tkeep\tuses\tidiomatic_percent\n" + "".join(sorted(rows)), "utf-8"
        )
    return [row.partition("\t")[0] for row in sorted(rows)]


def read_expressions(location: str) -> Glossary:
    """The expressions of a table, with their meanings if it has any.

    Raises:
        UserError: naming file and row of what is wrong.
    """
    path = user_path(location, "expressions")
    if not is_file(path):
        raise UserError("there is no such table of expressions", option="expressions", file=location)
    glossary = read_glossary([path], needs_meanings=False)
    if not glossary.senses:
        raise UserError("every expression is left out (column keep)", option="expressions", file=location)
    if nameless := [name for name, senses in glossary.senses.items() if not senses]:
        log.warning("without a meaning, the models write what they take it for: %s", list_names(nameless))
    return glossary
