"""AStitchInLanguageModels, English: sentences whose compound is idiomatic or literal; meanings of compounds.

Tayyar Madabushi et al. 2021, Findings of EMNLP, doi 10.18653/v1/2021.findings-emnlp.294; GitHub
`H-TayyarMadabushi/AStitchInLanguageModels`, subtask A without context, and the Extended Noun Compound Senses.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from train.data.download import github_file
from train.data.published import ASTITCH
from train.errors import UserError
from train.expressions import find_expression, plain_expression
from train.io.records import describe, read_table

log = logging.getLogger(__name__)

FOLDER = "astitch"
SENSES_FILE = "EN_Extended_Noun_Compound_Senses_Dataset.csv"
UsageFile = Literal["train_zero_shot", "train_one_shot", "train_few_shot", "dev", "test"]

_LABELS = {"0": True, "1": False}  # is it idiomatic?
_NO_MEANING = ("", "None")
_MEANINGS = ("Non-Literal Meaning 1", "Non-Literal Meaning 2", "Non-Literal Meaning 3")
_PUBLISHED = {
    **{f"EN/{f}.csv": "Dataset/Task1/SubTaskA/EN/ContextExcluded_IdiomIncluded" for f in get_args(UsageFile)},
    SENSES_FILE: "Dataset/Extended_Noun_Compound_Senses_Dataset",
}


@dataclass(frozen=True)
class Usage:
    """A sentence with a compound.

    Attributes:
        id: file and row.
        phrase: the compound, as the table names it.
        span: its offsets in the sentence; None where it was not found.
    """

    id: str
    phrase: str
    sentence: str
    span: tuple[int, int] | None
    is_idiomatic: bool


@dataclass(frozen=True)
class UsageCorpus:
    """Sentences of one file or several.

    Attributes:
        num_without_span: sentences in which the compound was not found.
        num_repeated: rows left out because an earlier one says the same.
    """

    usages: tuple[Usage, ...]
    files: tuple[Path, ...]
    num_without_span: int
    num_repeated: int


@dataclass(frozen=True)
class Meanings:
    """What a compound may mean.

    Attributes:
        literal: its literal meaning, or how it would be read word by word.
        non_literal: up to three; none where it only means what its words say.
    """

    compound: str
    literal: str
    non_literal: tuple[str, ...]


class AStitchFiles:
    """The dataset's files in a local folder, or downloaded one by one.

    Args:
        folder: with `EN/` and the senses table in it, or a copy of the repository; None = download.
        cache: where downloads go.
    """

    def __init__(self, folder: Path | None, cache: Path) -> None:
        self.folder = folder
        self.cache = cache

    def usages(self, name: UsageFile) -> Path:
        """A file of labelled sentences. Raises as :meth:`senses`."""
        return self._find(f"EN/{name}.csv")

    def senses(self) -> Path:
        """The table of meanings.

        Raises:
            UserError: if the folder has no such file, or it cannot be downloaded.
        """
        return self._find(SENSES_FILE)

    def _find(self, inside: str) -> Path:
        published = f"{_PUBLISHED[inside]}/{Path(inside).name}"
        if self.folder is None:
            return github_file(
                *(ASTITCH, published, self.cache / FOLDER / Path(inside).parent),
                otherwise="a local copy: data.astitch=<folder with EN/ and the senses table>, or "
                f"IDIOM_DATA=<folder with {FOLDER}/>",
            )
        for path in (self.folder / inside, self.folder / published):
            if path.is_file():
                return path
        raise UserError(
            f"{self.folder / inside}: there is no such file; {self.folder} is to be the folder of "
            "AStitchInLanguageModels (data.astitch=)"
        )


def read_usages(
    files: AStitchFiles, names: Sequence[UsageFile], *, keep_repeated: bool = False
) -> UsageCorpus:
    """Labelled sentences (0 = idiomatic, 1 = literal), in the order of the files.

    Args:
        keep_repeated: also rows that say the same as an earlier one (all of `train_one_shot` are in
            `train_few_shot` too).

    Raises:
        UserError: naming file, row and field of what is wrong: an empty field, an unknown label, a sentence
            with both labels.
    """
    usages: dict[tuple[str, str], Usage] = {}
    rows_read: list[Usage] = []
    paths = []
    for name in names:
        problems = []
        paths.append(files.usages(name))
        rows = read_table(paths[-1], ("label", "sentence1", "sentence2"), named_by="sentence2")
        if not rows:
            problems.append("there is no row")
        for number, row in rows:
            where = f"row {number} (sentence2 {row['sentence2']})"
            sentence, phrase = row["sentence1"].strip(), row["sentence2"].strip()
            empty = [f for f, value in (("sentence1", sentence), ("sentence2", phrase)) if not value]
            problems += [f"{where}, field {f!r}: is empty" for f in empty]
            if (label := row["label"].strip()) not in _LABELS:
                problems.append(f"{where}, field 'label': {label!r} is neither 0 (idiomatic) nor 1 (literal)")
            if empty or label not in _LABELS:
                continue
            try:
                span = find_expression(sentence, phrase)
            except ValueError as error:
                problems.append(f"{where}, field 'sentence2': {error}")
                continue
            usage = Usage(f"{name}_{number}", phrase, sentence, span, _LABELS[label])
            earlier = usages.setdefault((plain_expression(phrase), sentence), usage)
            if earlier.is_idiomatic != usage.is_idiomatic:
                problems.append(f"{where}, field 'label': the sentence has the other one too ({earlier.id})")
            rows_read.append(usage)
        if problems:
            raise describe(problems, str(paths[-1]))
    if not usages:
        raise describe(["there is no row"], ", ".join(map(str, paths)))
    kept = rows_read if keep_repeated else list(usages.values())
    without = [usage for usage in kept if usage.span is None]
    if without:
        log.info(
            "AStitchInLanguageModels: the compound was not found in %d of %d sentences (the first: %r in %r)",
            *(len(without), len(kept), without[0].phrase, without[0].sentence),
        )
    return UsageCorpus(tuple(kept), tuple(paths), len(without), len(rows_read) - len(kept))


def read_senses(path: Path) -> dict[str, Meanings]:
    """Meanings by compound, as :func:`~train.expressions.plain_expression` spells it.

    Raises:
        UserError: naming file, row and field of what is wrong: an empty field, a compound twice.
    """
    meanings: dict[str, Meanings] = {}
    problems = []
    columns = ("Multiword Expression", "Literal Meaning", *_MEANINGS)
    for number, row in read_table(path, columns, named_by=columns[0]):
        where = f"row {number} (Multiword Expression {row[columns[0]]})"
        compound, literal = row[columns[0]].strip(), row[columns[1]].strip()
        if not any(c.isalnum() for c in compound):
            problems.append(f"{where}, field {columns[0]!r}: is empty")
        if literal in _NO_MEANING:
            problems.append(f"{where}, field {columns[1]!r}: is empty")
        if plain_expression(compound) in meanings:
            problems.append(f"{where}, field {columns[0]!r}: the compound is there twice")
        given = [row[column].strip() for column in _MEANINGS]
        non_literal = tuple(dict.fromkeys(m for m in given if m not in _NO_MEANING))
        meanings[plain_expression(compound)] = Meanings(compound, literal, non_literal)
    if problems or not meanings:
        raise describe(problems or ["there is no row"], str(path))
    return meanings
