"""Hard negatives that were mined for a user's own pairs: the corpus, and what was found in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from train.data.own.cells import CellError
from train.data.own.columns import recognise
from train.data.own.rows import Example, RowReader, Sentence
from train.data.own.sources import Source, find_sources
from train.errors import UserError
from train.io.records import describe
from train.io.text import has_lone_surrogate

Mined = Mapping[str, Sequence[str]]  # anchor → its negatives


def read_corpus(names: Sequence[str], option: str = "data.negatives.corpus") -> tuple[list[str], list[Path]]:
    """The distinct texts of a corpus, and its files: tables with a column `text` (and `title`, before it).

    Raises:
        UserError: naming file, row and field of what is wrong, or the option.
    """
    texts: dict[str, None] = {}
    sources = find_sources(names, option)
    for source in sources:
        problems: list[str] = []
        for number, row in source.rows():
            text, title = row.get("text"), row.get("title")
            if not isinstance(text, str) or not text.strip():
                problems.append(f"row {number}, field 'text': is to be a text, found {text!r}")
            elif has_lone_surrogate(text):
                problems.append(f"row {number}, field 'text': holds half a character (a lone surrogate)")
            else:
                texts[f"{title} {text}" if isinstance(title, str) and title.strip() else text] = None
        if problems:
            raise describe(problems, source.name)
    if not texts:
        raise UserError(f"{option}: {', '.join(names)} holds no text")
    return list(texts), [source.path for source in sources if source.path is not None]


def read_mined(path: Path) -> Mined:
    """What was mined, from a file of pairs with negatives, as training data have it.

    Raises:
        UserError: if it is damaged.
    """
    if not path.stat().st_size:  # nothing was found
        return {}
    rows = list(Source(str(path), path).rows())
    reader = RowReader(recognise(list(rows[0].values), {}, "pairs", str(path)))
    try:
        examples = [reader.read(number, row) for number, row in rows]
    except CellError as error:
        raise UserError(f"{path}: {error}; delete it to mine again") from None
    return {
        example.sentences[0].text: [s.text for s in example.sentences[1 + example.num_positives :]]
        for example in examples
    }


def with_negatives(example: Example, mined: Mined) -> Example:
    """A pair with what was mined for its anchor behind its own negatives."""
    there = {sentence.text for sentence in example.sentences}
    found = [Sentence(text) for text in mined.get(example.sentences[0].text, ()) if text not in there]
    return replace(example, sentences=(*example.sentences, *found))
