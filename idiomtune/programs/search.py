"""Which texts are nearest to a query? `idiomtune search <model> corpus=<file> query="<text>"`."""

from __future__ import annotations

import sys
from typing import Any

from idiomtune.config.settings import TextSearchSettings
from idiomtune.io.files import printable
from idiomtune.io.terminal import print_tsv
from idiomtune.programs.find import encoder_of
from idiomtune.reports.tables import Table, print_table

_COLUMNS = ["query", "rank", "score", "file", "line", "text"]


def search(options: TextSearchSettings) -> list[tuple[Any, ...]]:
    """Print the rows of all queries, each: query, rank, score, file, line, text.

    Raises:
        UserError: for everything that the user can fix.
    """
    # Heavy: after the command line is known to be right.
    from idiomtune.data.user.texts import read_texts

    print(printable(f"searching {options.corpus}"), file=sys.stderr, flush=True)
    corpus = list(read_texts(options.corpus, "corpus"))
    further = [] if options.queries is None else read_texts(options.queries, "queries")
    queries = [*options.query, *(text for text, *_ in further)]
    hits_of = encoder_of(options).search(queries, [text for text, *_ in corpus], k=options.top_k)
    rows = [
        (query, rank, round(hit.similarity, 4), *corpus[hit.index][1:], hit.text)
        for query, hits in zip(queries, hits_of, strict=True)
        for rank, hit in enumerate(hits, 1)
    ]
    if sys.stdout.isatty():
        cells = [list(map(str, row)) for row in rows]
        print_table(Table("nearest texts", _COLUMNS, cells, len(_COLUMNS)))
    else:
        print_tsv(_COLUMNS, rows)
    return rows
