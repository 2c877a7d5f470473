"""The PIE corpus as extra training sentences: idioms in use, their literal paraphrases, their senses.

Zhou et al. 2021, "PIE: A Parallel Idiomatic Expression Corpus for Idiomatic Sentence Generation and
Paraphrasing"; GitHub `zhjjn/MWE_PIE`, file `data_cleaned.csv`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from train.data.datasets import PIE
from train.data.download import PublishedFile
from train.data.external import ExternalIdioms
from train.data.fields import WORDED, Cell, TableRow, Worded, WordedCell
from train.data.sources import DataFiles, GitHubData, dataset_folder
from train.errors import UserError
from train.io.paths import expanded, is_file, is_folder
from train.io.tables import read_table

_FILE = "data_cleaned.csv"
_COLUMNS = ("Idiom", "Sense", "Idiomatic_Sent", "Literal_Sent", "Idiomatic_Label", "Literal_Label")
FILES = GitHubData(
    PIE,
    "zhjjn/MWE_PIE",
    _FILE,
    {_FILE: PublishedFile(_FILE, "6c985dc3e9d195e5164384773f6c16674822dd3a", columns=_COLUMNS)},
)
_NO_SPACE_BEFORE = re.compile(r"[.,!?;:%)\]…]+|n['’]t|['’](s|re|ve|ll|d|m)?", re.IGNORECASE)


class _Row(TableRow):
    idiom: WordedCell = Field(alias="Idiom")
    sense: Annotated[Cell, AfterValidator(lambda sense: sense.strip(" ,")), WORDED] = Field(alias="Sense")
    idiomatic: Worded = Field(alias="Idiomatic_Sent")
    literal: Worded = Field(alias="Literal_Sent")
    idiomatic_labels: str = Field(alias="Idiomatic_Label")
    literal_labels: str = Field(alias="Literal_Label")

    @model_validator(mode="after")
    def _a_label_a_token(self) -> Self:
        for text, labels in ((self.idiomatic, self.idiomatic_labels), (self.literal, self.literal_labels)):
            if len(labels.split()) != len(text.split()):
                raise ValueError(f"{len(labels.split())} labels for {len(text.split())} tokens: {labels!r}")
        return self


def pie_file(named: str | None) -> Path:
    """The corpus: `data.pie` (the file, or a folder that holds it), `$IDIOM_DATA/pie`, the download.

    Raises:
        UserError: if `data.pie` names none, or the download fails.
    """
    if named is not None:
        path = expanded(named, PIE.setting)
        if is_file(path):
            return path
        if not is_folder(path):
            raise UserError(f"{PIE.setting}={named}: there is no such file or folder")
    return DataFiles(FILES, dataset_folder(PIE, named, None, sample=False))(_FILE)


def read_pie(path: Path, *, unseen: Iterable[str] = (), trained: Iterable[str] = ()) -> ExternalIdioms:
    """Read and check the corpus.

    Sentences are `idiomatic`, their paraphrases `simplification`, and each sense's wording is `sense`. Idioms
    with several senses are told apart by a number.

    Args:
        path: `data_cleaned.csv`.
        unseen: idioms that must not be trained on.
        trained: idioms of the training split.

    Raises:
        UserError: if the file or a column is missing, or labels do not fit their sentence.
    """
    corpus = ExternalIdioms(PIE.title, [path], unseen=unseen, trained=trained)
    senses: dict[str, dict[str, int]] = {}
    for row_number, row in read_table(path, _Row, kind=".csv"):
        number = row_number - 1  # without the header
        if corpus.excludes(row.idiom):
            continue
        numbers = senses.setdefault(row.idiom, {})
        is_new = row.sense not in numbers
        idiom = f"{row.idiom} (PIE {numbers.setdefault(row.sense, len(numbers) + 1)})"
        for text, labels, usage in (
            (row.idiomatic, row.idiomatic_labels, "idiomatic"),
            (row.literal, row.literal_labels, "simplification"),
        ):
            marked = [i for i, label in enumerate(labels.split()) if label in ("B", "I")]
            if not marked:
                corpus.num_without_span += 1
                continue
            sentence, (start, end) = detokenise(text.split(), marked[0], marked[-1])
            corpus.add(f"pie_{number}_{usage}", sentence, idiom, sentence[start:end], usage)
        if is_new:
            corpus.add(f"pie_{number}_sense", row.sense, idiom, row.sense, "sense")
    if not corpus.documents:
        raise UserError(f"{path}: contains no usable sentence")
    return corpus


def detokenise(tokens: list[str], first: int, last: int) -> tuple[str, tuple[int, int]]:
    """Text as people write it, and the offsets of the tokens `first` to `last` in it."""
    text = ""
    start = end = 0
    for i, token in enumerate(tokens):
        word = '"' if token in ("``", "''") else token
        glued = not text or _NO_SPACE_BEFORE.fullmatch(token) or text[-1] in "([$"
        text += word if glued else f" {word}"
        if i == first:
            start = len(text) - len(word)
        if i == last:
            end = len(text)
    return text, (start, end)
