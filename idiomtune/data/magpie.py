"""MAGPIE: sentences of real text, mostly the British National Corpus, that use an expression idiomatically or
literally; and the project's own sentences, of both kinds.

Haagsma, Bos and Nissim 2020, "MAGPIE: A Large Corpus of Potentially Idiomatic Expressions" (LREC 2020);
GitHub `hslh/magpie-corpus`, CC BY 4.0: the filtered corpus, whose annotators agree.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from idiomtune.data.fields import TableRow, Worded, WordedCell
from idiomtune.data.names import MAGPIE
from idiomtune.data.sources import DataFiles, published_files
from idiomtune.expressions import ExpressionIndex, is_among
from idiomtune.io.files import list_names
from idiomtune.io.tables import read_table
from idiomtune.requests import LabelledUse

log = logging.getLogger(__name__)

_FILE = "MAGPIE_filtered_split_typebased.jsonl"
_SENTENCES = "magpie.jsonl"  # the same, each row with its `sentence` alone instead of the `context`
FILES = published_files(MAGPIE)
# The project's own (CC0-1.0), written without a look at any data set: for gates, and for learning besides.
PROJECT_USES, MORE_USES, NEUTRAL = (
    Path(__file__).parent / name for name in ("uses.tsv", "sentences.tsv", "neutral.txt")
)
_MAX_WORDS = 60
_MIN, _MAX = 3, 30  # sentences of each usage of an expression


class _MagpieRow(TableRow):
    idiom: WordedCell
    label: Literal["i", "l"]
    offsets: Annotated[list[tuple[int, int]], Field(min_length=1)]
    sentence: Worded | None = None
    context: tuple[str, ...] = ()  # five sentences, of which the one in the middle has the expression

    @model_validator(mode="after")
    def _has_a_sentence(self) -> Self:
        if self.sentence is None and not self.context:
            raise ValueError("has neither a context nor a sentence")
        return self


def magpie_file(files: DataFiles) -> Path:
    """The corpus: rows with `idiom`, `label` (i or l) and, as published, `confidence`.

    Raises:
        DataMissingError: if it cannot be downloaded.
    """
    return files.optional(_SENTENCES) or files(_FILE)


def read_magpie(files: DataFiles, unseen: Iterable[str]) -> list[LabelledUse]:
    """Sentences to fit a gate to: up to 30 per usage of each expression with three or more of both usages.

    Those are drawn with a fixed seed from sentences of fewer than 60 words.

    Args:
        files: of the data set.
        unseen: idioms that are scored. Expressions whose words are among theirs, or theirs among these, are
            left out, and so are sentences with one of them.

    Raises:
        UserError: naming file, line and field of what is wrong.
    """
    path = magpie_file(files)
    names = sorted(set(unseen))
    scored, left_out = ExpressionIndex(names), dict[str, None]()
    uses: dict[str, dict[bool, list[LabelledUse]]] = {}
    num_outside = num_scored = 0
    for number, row in read_table(path, _MagpieRow):
        sentence = row.sentence or row.context[len(row.context) // 2]
        if row.idiom in left_out or (row.idiom not in uses and is_among(row.idiom, names)):
            left_out[row.idiom] = None
            continue
        usages = uses.setdefault(row.idiom, {True: [], False: []})
        span = min(start for start, _ in row.offsets), max(end for _, end in row.offsets)
        if not 0 <= span[0] < span[1] <= len(sentence):
            num_outside += 1
        elif len(sentence.split()) < _MAX_WORDS:
            is_idiomatic = row.label == "i"
            usages[is_idiomatic].append(
                LabelledUse(f"magpie_{number}", row.idiom, sentence, span, is_idiomatic)
            )
    draw = random.Random(0)
    chosen: list[LabelledUse] = []
    for name in sorted(uses):
        uses_of: list[Sequence[LabelledUse]] = []
        for of_usage in uses[name].values() if min(map(len, uses[name].values())) >= _MIN else ():
            unscored = [usage for usage in of_usage if not scored.find(usage.sentence)]
            num_scored += len(of_usage) - len(unscored)
            uses_of.append(draw.sample(unscored, min(len(unscored), _MAX)))
        if uses_of and min(map(len, uses_of)) >= _MIN:
            chosen += chain.from_iterable(uses_of)
    log.info(
        "MAGPIE: %d sentences of %d expressions; left out: %d expressions of IdioLink's%s, %d sentences with "
        "one, %d whose offsets are outside",
        *(len(chosen), len({usage.phrase for usage in chosen}), len(left_out)),
        *(f" ({list_names(list(left_out))})" if left_out else "", num_scored, num_outside),
    )
    return chosen


class _ProjectRow(TableRow):
    expression: WordedCell
    usage: Literal["idiomatic", "literal"]
    sentence: Annotated[str, Field(pattern=r"\[.+\]")]  # its span is between brackets

    @property
    def span(self) -> tuple[int, int]:
        """In the text."""
        return self.sentence.index("["), self.sentence.index("]") - 1

    @property
    def text(self) -> str:
        """The sentence without the brackets."""
        return self.sentence.replace("[", "").replace("]", "")


def read_project_uses(unseen: Iterable[str]) -> list[LabelledUse]:
    """The project's own sentences to fit a gate to: short ones, three of each usage of an expression.

    Args:
        unseen: idioms that are scored: expressions and sentences are left out as by :func:`read_magpie`.
    """
    names = sorted(set(unseen))
    scored = ExpressionIndex(names)
    usages = []
    for number, row in read_table(PROJECT_USES, _ProjectRow):
        if not is_among(row.expression, names) and not scored.find(row.text):
            is_idiomatic = row.usage == "idiomatic"
            usages.append(LabelledUse(f"own_{number}", row.expression, row.text, row.span, is_idiomatic))
    return usages


def project_sentences() -> list[str]:
    """All of the project's own sentences: of 2,273 expressions, and 2,000 without any."""
    uses = [row.text for path in (PROJECT_USES, MORE_USES) for _, row in read_table(path, _ProjectRow)]
    return uses + NEUTRAL.read_text(encoding="utf-8").splitlines()
