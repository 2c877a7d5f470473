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

from idiomtune.config import FindSettings, check
from idiomtune.errors import UserError
from idiomtune.io.files import list_names
from idiomtune.io.outputs import reserved_output
from idiomtune.io.spreadsheets import spreadsheet_text
from idiomtune.io.tables import is_table
from idiomtune.io.terminal import log_to_stderr, print_note, print_tsv
from idiomtune.programs.failures import names_and_options, run_plain
from idiomtune.reports.tables import Table, print_table

if TYPE_CHECKING:
    from idiomtune.data.user.texts import LocatedText
    from idiomtune.encoder.encoder import Encoder, Occurrence

HELP = """List every expression of a glossary in texts: where it occurs, what it means, how idiomatic it is.

  idiomtune find <texts>… [option=value …]

Texts are a text file (one text per line), or a CSV, TSV, JSONL, Parquet or XLSX file with a column text.

glossary=english    tables or .json with expression and meaning, or names of ours (of several: a.tsv,b.tsv)
model=minilm        whose gate computes the usage, from 0 = literal to 1 = idiomatic; a name, folder or Hub id
output=<file>       write all rows there: .csv, .tsv or .jsonl (the screen has 50); texts are numbered from 1
overwrite=true      replace the file of output=
device=auto         auto | cpu | cuda | mps
trust_remote_code=true   run Python code that comes with a model: read it first

In a pipe or a file all rows are printed as TSV, with the same columns."""
_NUM_SHOWN = 50
_COLUMNS = ["expression", "text", "start", "end", "usage", "meaning", "sentence", "file", "line"]


def find(options: FindSettings) -> tuple[list[tuple[Any, ...]], list[str]]:
    """The rows of the concordance, also written to `output`; and the expressions that occur in no text.

    Raises:
        UserError: for everything that the user can fix.
    """
    # Heavy: after the command line is known to be right.
    import pandas as pd

    from idiomtune.data.user.texts import read_texts
    from idiomtune.encoder.encoder import Encoder

    log_to_stderr()
    texts = [text for location in options.texts for text in read_texts(location, "texts")]
    output = options.output
    claim = output and reserved_output("output", output, overwrite=options.overwrite)
    with claim or nullcontext() as file:
        encoder = Encoder(
            options.model,
            glossary=options.glossary,
            device=None if options.device == "auto" else options.device,
            trust_remote_code=options.trust_remote_code or None,
        )
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
    assert encoder.meanings is not None  # the settings name a glossary
    return rows, sorted(encoder.meanings.senses.keys() - {expression for expression, *_ in rows})


def find_in_lines(encoder: Encoder, texts: Sequence[LocatedText]) -> list[Occurrence]:
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


def parse(arguments: Sequence[str]) -> FindSettings:
    """The command line, checked.

    Raises:
        UserError: for an unknown option or a value that it cannot have, or if no texts are named.
    """
    texts, values_of = names_and_options(arguments, [n for n in FindSettings.model_fields if n != "texts"])
    if not texts:
        raise UserError("give a file of texts (see --help)")
    return check(FindSettings, {"texts": texts, **{name: values[-1] for name, values in values_of.items()}})


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    return run_plain(_run, arguments, HELP)


def _run(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    print(f"finding expressions in {', '.join(options.texts)}", file=sys.stderr, flush=True)
    rows, absent = find(options)
    if sys.stdout.isatty():
        print_table(table_of(rows))
    elif options.output is None:
        print_tsv(_COLUMNS, rows)
    if absent:
        print_note(f"in no text: {len(absent)} expressions ({list_names(absent, 5)})")
    if options.output is not None:
        print(options.output)
    elif len(rows) > _NUM_SHOWN and sys.stdout.isatty():
        print_note(f"the first {_NUM_SHOWN} of {len(rows)}: output=<file.csv> has all")
    return 0
