"""AStitchInLanguageModels, English: sentences whose compound is idiomatic or literal; meanings of compounds.

Tayyar Madabushi et al. 2021, Findings of EMNLP, doi 10.18653/v1/2021.findings-emnlp.294; GitHub
`H-TayyarMadabushi/AStitchInLanguageModels`, subtask A without context, and the Extended Noun Compound Senses.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from idiomtune.data.fields import FilledCell, TableRow, WordedCell
from idiomtune.data.names import ASTITCH, AStitchFile
from idiomtune.data.sources import DataFiles, published_files
from idiomtune.expressions import find_expression, plain_expression
from idiomtune.io.tables import Row, read_checked_table, read_table
from idiomtune.requests import LabelledUse

log = logging.getLogger(__name__)

FOLDER = ASTITCH.name
SENSES_FILE = "EN_Extended_Noun_Compound_Senses_Dataset.csv"

_NO_MEANING = ("", "None")
_SENSES_COLUMNS = (
    "Multiword Expression",
    "Literal Meaning",
    *(f"Non-Literal Meaning {i}" for i in (1, 2, 3)),
)
FILES = published_files(ASTITCH)


@dataclass(frozen=True)
class UsageCorpus:
    """Sentences of one file or several."""

    usages: tuple[LabelledUse, ...]
    files: tuple[Path, ...]


@dataclass(frozen=True)
class CompoundMeanings:
    """The literal and non-literal meanings of a compound.

    Attributes:
        literal: its literal meaning, or how it would be read word by word.
        non_literal: up to three; none where it only means what its words say.
    """

    compound: str
    literal: str
    non_literal: tuple[str, ...]


class _UsageRow(TableRow):
    phrase: WordedCell = Field(alias="sentence2")
    sentence: FilledCell = Field(alias="sentence1")
    label: Annotated[Literal["0", "1"], BeforeValidator(str.strip)]


def read_usages(
    files: DataFiles, names: Sequence[AStitchFile], *, keep_repeated: bool = False
) -> UsageCorpus:
    """Labelled sentences (0 = idiomatic, 1 = literal), in the order of the files.

    Args:
        keep_repeated: also rows that say the same as an earlier one (all of `train_one_shot` are in
            `train_few_shot` too).

    Raises:
        UserError: naming file, row and field of what is wrong: an empty field, an unknown label.
    """
    usages: dict[object, LabelledUse] = {}
    paths = [files(f"EN/{name}.csv") for name in names]
    for name, path in zip(names, paths, strict=True):
        for number, row in read_table(path, _UsageRow):
            id_, span = f"{name}_{number}", find_expression(row.sentence, row.phrase)
            key = id_ if keep_repeated else (plain_expression(row.phrase), row.sentence)
            usages.setdefault(key, LabelledUse(id_, row.phrase, row.sentence, span, row.label == "0"))
    without = [usage for usage in usages.values() if usage.span is None]
    if without:
        log.info(
            "AStitchInLanguageModels: the compound was not found in %d of %d sentences (the first: %r in %r)",
            *(len(without), len(usages), without[0].phrase, without[0].sentence),
        )
    return UsageCorpus(tuple(usages.values()), tuple(paths))


def read_senses(path: Path) -> dict[str, CompoundMeanings]:
    """Meanings by compound, as :func:`~idiomtune.expressions.plain_expression` spells it.

    Raises:
        UserError: naming file, row and field of an empty compound.
    """

    def meanings(row: Row) -> tuple[str, CompoundMeanings]:
        compound, literal, *others = (row.values[column].strip() for column in _SENSES_COLUMNS)
        non_literal = tuple(dict.fromkeys(meaning for meaning in others if meaning not in _NO_MEANING))
        return plain_expression(compound), CompoundMeanings(compound, literal, non_literal)

    return dict(read_checked_table(path, _SENSES_COLUMNS, meanings))
