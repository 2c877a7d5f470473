"""Sentences with tagged expressions, such as ID10M's, as rows with spans to train on.

python examples/bio_tags.py train_english.tsv train_english.jsonl

A line is a token, a tab and its tag: `B-…` begins an expression, `I-…` continues it, `O` is outside. A blank
line ends a sentence. Each expression is a row: its sentence, its span, and its words as group.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """A row for each tagged expression; blanks are put between tokens."""
    lines = enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
    for is_blank, sentence in groupby(lines, lambda line: not line[1].strip()):
        if is_blank:
            continue
        text, rows = "", list[dict[str, Any]]()
        for number, line in sentence:
            token, tab, tag = line.rstrip().partition("\t")
            if not tab or tag[:1] not in ("O", "B", "I"):
                sys.exit(f"{path}, line {number}: is not a token, a tab, and a tag: O, B-… or I-…")
            start = len(text) + bool(text)
            text = f"{text} {token}".lstrip(" ")
            if tag[0] == "B" or (tag[0] == "I" and not rows):
                rows.append({"text": "", "span_start": start, "group": ""})
            if tag[0] != "O":
                rows[-1] |= {"span_end": len(text), "group": f"{rows[-1]['group']} {token.lower()}".strip()}
        yield from ({**row, "text": text} for row in rows)


def main(tagged: str, output: str) -> None:
    lines = (json.dumps(row, ensure_ascii=False) for row in rows_of(Path(tagged)))
    Path(output).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
