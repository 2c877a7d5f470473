"""Hard negatives that were mined for a user's own pairs: the corpus, and what was found in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from train.data.own.forms import CORPUS
from train.data.own.rows import Example, OwnTable, Sentence
from train.data.own.sources import Source, find_sources
from train.data.own.table import Table
from train.errors import UserError

Mined = Mapping[str, Sequence[str]]  # anchor → its negatives


def read_corpus(names: Sequence[str], option: str = "data.negatives.corpus") -> tuple[list[str], list[Path]]:
    """The distinct texts of a corpus, and its files: tables with a column `text` (and `title`, before it).

    Raises:
        UserError: naming file, row and field of what is wrong, or the option.
    """
    texts: dict[str, None] = {}
    sources = find_sources(names, option)
    for source in sources:
        texts.update(dict.fromkeys(Table(source, [CORPUS]).read(lambda record: record.marked()[0])))
    return list(texts), [source.path for source in sources if source.path is not None]


def read_mined(path: Path) -> Mined:
    """What was mined, from a file of pairs with negatives, as training data have it.

    Raises:
        UserError: if it is damaged.
    """
    if not path.stat().st_size:  # nothing was found
        return {}
    try:
        examples = list(OwnTable(Source(str(path), path), {}, "pairs").examples())
    except UserError as error:
        raise UserError(f"{error}; delete it to mine again") from None
    return {
        example.sentences[0].text: [s.text for s in example.sentences[1 + example.num_positives :]]
        for example in examples
    }


def with_negatives(example: Example, mined: Mined) -> Example:
    """A pair with what was mined for its anchor after its own negatives."""
    own = {sentence.text for sentence in example.sentences}
    more = [Sentence(text) for text in mined.get(example.sentences[0].text, ()) if text not in own]
    return replace(example, sentences=(*example.sentences, *more))
