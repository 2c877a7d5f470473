"""Where do a glossary's expressions occur? `idiomtune find <texts>…`: a concordance."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from idiomtune.config import FindSettings, check
from idiomtune.errors import UserError
from idiomtune.io.files import list_names
from idiomtune.io.outputs import reserved_output
from idiomtune.io.spreadsheets import spreadsheet_text
from idiomtune.io.tables import is_table
from idiomtune.io.terminal import log_to_stderr
from idiomtune.programs.failures import names_and_options, run_plain
from idiomtune.reports.tables import Table, print_notes, print_table

if TYPE_CHECKING:
    from idiomtune.encoder.encoder import Encoder, Occurrence

HELP = """List every expression of a glossary in texts: where it occurs, what it means, how idiomatic it is.

  idiomtune find <texts>… [option=value …]

Texts are a text file (one text per line), or a CSV, TSV, JSONL, Parquet or XLSX file with a column text.

glossary=english    tables with the columns expression and meaning, or names of ours (of several: a.tsv,b.tsv)
model=minilm        whose gate computes the usage, from 0 = literal to 1 = idiomatic; a name, folder or Hub id
output=<file>       write all rows there: .csv, .tsv or .jsonl (the screen has 50); texts count from 1
overwrite=true      replace a file that this program has written
device=auto         auto | cpu | cuda | mps
trust_remote_code=true   run Python code that comes with a model: read it first"""
_NUM_SHOWN = 50
_COLUMNS = ["expression", "text", "start", "end", "usage", "meaning", "sentence"]
_BEGINS = rb"(\{\"|)expression(\"|[,\t]text[,\t]start)"


def find(options: FindSettings) -> tuple[list[Occurrence], list[str]]:
    """The occurrences, also written to `output`, and the expressions that occur in no text.

    Raises:
        UserError: for everything that the user can fix.
    """
    # Heavy: after the command line is known to be right.
    import pandas as pd

    from idiomtune.encoder.encoder import Encoder

    log_to_stderr()
    texts, pairs = read_lines(options.texts)
    output, begins = options.output, _BEGINS
    claim = output and reserved_output("output", output, begins=begins, overwrite=options.overwrite)
    with claim or nullcontext() as file:
        encoder = Encoder(
            options.model,
            glossary=options.glossary,
            device=None if options.device == "auto" else options.device,
            trust_remote_code=options.trust_remote_code or None,
        )
        rows = find_in_lines(encoder, texts, pairs)
        cells = [(r.expression, r.text + 1, *r.span, round(r.usage, 4), r.meaning, r.sentence) for r in rows]
        frame = pd.DataFrame(cells, columns=_COLUMNS)
        if file and file.suffix == ".jsonl":
            frame.to_json(file, orient="records", lines=True, force_ascii=False)
        elif file and file.suffix == ".tsv":
            frame.to_csv(file, sep="\t", index=False)
        elif file:
            words = ["expression", "meaning", "sentence"]
            frame[words] = frame[words].map(spreadsheet_text)
            frame.to_csv(file, index=False)
    assert encoder.meanings is not None  # the settings name a glossary
    return rows, sorted(encoder.meanings.senses.keys() - {row.expression for row in rows})


def read_lines(locations: Sequence[str]) -> tuple[list[str], dict[int, tuple[str, str]]]:
    """The texts of files; number of a text file's line → the line and the next, which has no capital."""
    from idiomtune.data.user.load import read_texts

    texts: list[str] = []
    pairs: dict[int, tuple[str, str]] = {}
    for location in locations:
        lines = list(read_texts(location, "texts"))
        if not is_table(Path(location)):
            numbered = enumerate(pairwise(lines), len(texts))
            pairs |= {number: pair for number, pair in numbered if not pair[1][0].isupper()}
        texts += lines
    return texts, pairs


def find_in_lines(
    encoder: Encoder, texts: Sequence[str], pairs: Mapping[int, tuple[str, str]]
) -> list[Occurrence]:
    """The occurrences in texts, and those that begin in a line and end in the next one, as :func:`read_lines`
    has them."""
    rows = encoder.find(texts)
    assert encoder.meanings is not None  # or it would have refused to find
    find_expressions = encoder.meanings.find_all
    for number, (line, following) in pairs.items():
        text = f"{line}\n{following}"
        if any(start < len(line) < end for start, end, _ in find_expressions(text)):
            crossing = (row for row in encoder.find([text]) if row.span[0] < len(line) < row.span[1])
            rows += [replace(row, text=number) for row in crossing]
    return sorted(rows, key=lambda row: (row.text, row.span))


def table_of(rows: Sequence[Occurrence], num_texts: int) -> Table:
    """The first rows, each expression in brackets in its sentence."""
    cells = []
    for row in rows[:_NUM_SHOWN]:
        cells.append([row.expression, row.sentence, row.meaning, str(row.text + 1), f"{row.usage:.2f}"])
    about = "usage: 0 = literal, 1 = idiomatic, near .5 = not clear"
    title = f"{len(rows)} occurrences in {num_texts} texts; {about}"
    return Table(title, ["expression", "sentence", "meaning", "text", "usage"], cells, 3)


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
    print_table(table_of(rows, len({row.text for row in rows})))
    if absent:
        print_notes([f"in no text: {len(absent)} expressions ({list_names(absent, 5)})"])
    if options.output is not None:
        print(options.output)
    elif len(rows) > _NUM_SHOWN:
        print_notes([f"the first {_NUM_SHOWN} of {len(rows)}: output=<file.csv> has all"])
    return 0
