"""Where do a glossary's expressions occur? `idiomtune find <texts>…`: a concordance."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idiomtune.config.settings import FindSettings, TextSearchSettings
from idiomtune.io.files import list_names, printable
from idiomtune.io.outputs import reserved_output
from idiomtune.io.spreadsheets import spreadsheet_text
from idiomtune.io.tables import is_table
from idiomtune.io.terminal import print_note, print_tsv
from idiomtune.reports.tables import Table, print_table

if TYPE_CHECKING:
    from idiomtune.data.user.texts import LocatedText
    from idiomtune.glossaries.encoder import GlossaryEncoder, Occurrence

_NUM_SHOWN = 50
_COLUMNS = ["expression", "text", "start", "end", "usage", "meaning", "sentence", "file", "line"]


def find(options: FindSettings) -> Path | None:
    """Print the concordance, or write it to `output`; returns that file.

    Raises:
        UserError: for everything that the user can fix.
    """
    # Heavy: after the command line is known to be right.
    import pandas as pd

    from idiomtune.data.user.texts import read_texts

    print(printable(f"finding expressions in {', '.join(options.texts)}"), file=sys.stderr, flush=True)
    texts = [text for location in options.texts for text in read_texts(location, "texts")]
    output = options.output
    claim = output and reserved_output("output", output, overwrite=options.overwrite)
    with claim or nullcontext() as file:
        encoder = encoder_of(options)
        rows = [
            (row.expression, row.text + 1, *row.span, usage, row.meaning, row.sentence, *texts[row.text][1:])
            for row in find_in_lines(encoder, texts)
            for usage in [None if isnan(row.usage) else round(row.usage, 4)]
        ]
        frame = pd.DataFrame(rows, columns=_COLUMNS)
        if file and file.suffix == ".jsonl":
            frame.to_json(file, orient="records", lines=True, force_ascii=False)
        elif file and file.suffix == ".tsv":
            frame.to_csv(file, sep="\t", index=False)
        elif file:
            words = ["expression", "meaning", "sentence"]
            frame[words] = frame[words].map(spreadsheet_text)
            frame.to_csv(file, index=False)
    if sys.stdout.isatty():
        print_table(table_of(rows))
    elif output is None:
        print_tsv(_COLUMNS, rows)
    assert encoder.meanings is not None  # the settings name a glossary
    if absent := sorted(encoder.meanings.senses.keys() - {expression for expression, *_ in rows}):
        print_note(f"in no text: {len(absent)} expressions ({list_names(absent, 5)})")
    if output is None and len(rows) > _NUM_SHOWN and sys.stdout.isatty():
        print_note(f"the first {_NUM_SHOWN} of {len(rows)}: output=<file.csv> has all")
    return output


def encoder_of(options: FindSettings | TextSearchSettings) -> GlossaryEncoder:
    """The model that the options name, with the glossary."""
    from idiomtune.glossaries.encoder import GlossaryEncoder

    return GlossaryEncoder(
        options.model,
        glossary=options.glossary,
        device=None if options.device == "auto" else options.device,
        trust_remote_code=options.trust_remote_code or None,
    )


def find_in_lines(encoder: GlossaryEncoder, texts: Sequence[LocatedText]) -> list[Occurrence]:
    """The occurrences in texts of files, also those that begin in a line and end in the next one.

    A line that begins with a capital ends no expression of the line before.
    """
    locations = [f"{file}, line {line}" for _, file, line in texts]
    rows = encoder.find([text for text, *_ in texts], locations=locations)
    assert encoder.meanings is not None  # or it would have refused to find
    for number, (first, second) in enumerate(pairwise(texts)):
        is_next = (first.file, first.line + 1) == second[1:] and not is_table(Path(first.file))
        if not is_next or second.text[0].isupper():
            continue
        text, end = f"{first.text}\n{second.text}", len(first.text)
        if any(start < end < stop for start, stop, _ in encoder.meanings.find_all(text)):
            crossing = (row for row in encoder.find([text]) if row.span[0] < end < row.span[1])
            rows += [replace(row, text=number) for row in crossing]
    return sorted(rows, key=lambda row: (row.text, row.span))


def table_of(rows: Sequence[tuple[Any, ...]]) -> Table:
    """The first rows."""
    cells = [
        [expression, sentence, meaning, f"{file}:{line}", "" if usage is None else f"{usage:.2f}"]
        for expression, _, _, _, usage, meaning, sentence, file, line in rows[:_NUM_SHOWN]
    ]
    about = "usage: 0 = literal, 1 = idiomatic, near .5 = not clear"
    title = f"{len(rows)} occurrences in {len({row[1] for row in rows})} texts; {about}"
    return Table(title, ["expression", "sentence", "meaning", "line", "usage"], cells, 5)
