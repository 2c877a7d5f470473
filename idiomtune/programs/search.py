"""Which texts are nearest to a query? `idiomtune search <model> corpus=<file> query="<text>"`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from idiomtune.config import TextSearchSettings, check
from idiomtune.errors import UserError
from idiomtune.io.files import printable
from idiomtune.io.terminal import log_to_stderr, print_tsv
from idiomtune.programs.failures import names_and_options, run_plain
from idiomtune.reports.tables import Table, print_table

HELP = """List the texts of a corpus that are nearest to a query, the nearest first.

  idiomtune search <model> corpus=<file> query="<text>" [option=value …]

corpus=<file>       a text per line, or a CSV, TSV, JSONL, Parquet or XLSX file with a column text
query=<text>        what to search for; for several: query=<text> query=<text>, or query='[<text>, <text>]'
queries=<file>      queries, in a file as corpus=
top_k=10            how many texts per query
glossary=<file>     a glossary that the model reads, as for idiomtune find; none: none. By default its own
device=auto         auto | cpu | cuda | mps
trust_remote_code=true   run Python code that comes with a model: read it first

In a pipe or a file the rows are printed as TSV."""
_COLUMNS = ["query", "rank", "score", "file", "line", "text"]


def search(options: TextSearchSettings) -> list[tuple[Any, ...]]:
    """The rows of all queries, each: query, rank, score, file, line, text.

    Raises:
        UserError: for everything that the user can fix.
    """
    # Heavy: after the command line is known to be right.
    from idiomtune.data.user.texts import read_texts
    from idiomtune.encoder.encoder import Encoder

    log_to_stderr()
    corpus = list(read_texts(options.corpus, "corpus"))
    further = [] if options.queries is None else read_texts(options.queries, "queries")
    queries = [*options.query, *(text for text, *_ in further)]
    encoder = Encoder(
        options.model,
        glossary=options.glossary,
        device=None if options.device == "auto" else options.device,
        trust_remote_code=options.trust_remote_code or None,
    )
    hits_of = encoder.search(queries, [text for text, *_ in corpus], k=options.top_k)
    return [
        (query, rank, round(hit.similarity, 4), *corpus[hit.index][1:], hit.text)
        for query, hits in zip(queries, hits_of, strict=True)
        for rank, hit in enumerate(hits, 1)
    ]


def parse(arguments: Sequence[str]) -> TextSearchSettings:
    """The command line, checked.

    Raises:
        UserError: for an unknown option or a value that it cannot have; if not one model is named.
    """
    models, values_of = names_and_options(
        arguments, [n for n in TextSearchSettings.model_fields if n != "model"]
    )
    if len(models) != 1:
        raise UserError(f"give one model, got {', '.join(models) or 'none'} (see --help)")
    options = {name: values if name == "query" else values[-1] for name, values in values_of.items()}
    return check(TextSearchSettings, {"model": models[0], **options})


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    return run_plain(_run, arguments, HELP)


def _run(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    print(printable(f"searching {options.corpus}"), file=sys.stderr, flush=True)
    rows = search(options)
    if sys.stdout.isatty():
        cells = [list(map(str, row)) for row in rows]
        print_table(Table("nearest texts", _COLUMNS, cells, len(_COLUMNS)))
    else:
        print_tsv(_COLUMNS, rows)
    return 0
