"""The PIE corpus as extra training sentences: idioms in use, their literal paraphrases, their senses.

Zhou et al. 2021, "PIE: A Parallel Idiomatic Expression Corpus for Idiomatic Sentence Generation and
Paraphrasing"; GitHub `zhjjn/MWE_PIE`, file `data_cleaned.csv`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from train.data.datasets import PIE
from train.data.download import PublishedFile
from train.data.fields import WORDED, Cell, TableRow, Worded, WordedCell
from train.data.idiolink import Document
from train.data.sources import DataFiles, GitHubData, dataset_folder
from train.errors import UserError
from train.io.paths import expanded, is_file, is_folder
from train.io.tables import read_table

_FILE = "data_cleaned.csv"
_LABELS = ("O", "B", "I")
_COLUMNS = ("Idiom", "Sense", "Idiomatic_Sent", "Literal_Sent", "Idiomatic_Label", "Literal_Label")
FILES = GitHubData(
    PIE,
    "zhjjn/MWE_PIE",
    _FILE,
    {_FILE: PublishedFile(_FILE, "6c985dc3e9d195e5164384773f6c16674822dd3a", columns=_COLUMNS)},
)
_NO_SPACE_BEFORE = re.compile(r"[.,!?;:%)\]…]+|n['’]t|['’](s|re|ve|ll|d|m)?", re.IGNORECASE)
_MAX_NAMED = 10
_IGNORED_WORDS = frozenset({"a", "an", "the", "to", "be", "one", "ones", "your", "someone", "somebody", "s"})


class _Row(TableRow):
    idiom: WordedCell = Field(alias="Idiom")
    sense: Annotated[Cell, AfterValidator(lambda sense: sense.strip(" ,")), WORDED] = Field(alias="Sense")
    idiomatic: Worded = Field(alias="Idiomatic_Sent")
    literal: Worded = Field(alias="Literal_Sent")
    idiomatic_labels: str = Field(alias="Idiomatic_Label")
    literal_labels: str = Field(alias="Literal_Label")

    @model_validator(mode="after")
    def _a_label_a_token(self) -> Self:
        for column, text, labels in (
            ("Idiomatic_Label", self.idiomatic, self.idiomatic_labels.split()),
            ("Literal_Label", self.literal, self.literal_labels.split()),
        ):
            if len(labels) != len(text.split()):
                raise ValueError(f"field {column!r}: {len(labels)} labels for {len(text.split())} tokens")
            if unknown := [label for label in labels if label not in _LABELS]:
                raise ValueError(f"field {column!r}: {unknown[0]!r} is not O, B or I")
        return self


@dataclass(frozen=True)
class PieCorpus:
    """What of the corpus is used.

    Attributes:
        documents: `idiomatic` sentences, their paraphrases as `simplification`, and each sense's wording
            as `sense`. Idioms with several senses are told apart by a number.
        num_idioms: idioms (with their senses told apart) that `documents` hold.
        num_without_span: sentences left out because no span is marked in them.
        unseen: idioms left out because they are to be unseen.
        shared: idioms left out because the training split has them: as other idioms of the same name they
            would be each other's negatives.
    """

    documents: tuple[Document, ...]
    num_idioms: int
    num_without_span: int
    unseen: tuple[str, ...]
    shared: tuple[str, ...]

    def describe(self) -> str:
        """One line for the log and the run's record."""
        return (
            f"with external idiom data (PIE): {len(self.documents)} sentences of {self.num_idioms} idioms "
            f"and senses; left out: {_named(self.shared)} also in the training split, {_named(self.unseen)} "
            f"of other splits, {self.num_without_span} sentences without a marked span"
        )


def _named(idioms: tuple[str, ...]) -> str:
    """Their number and the first of them."""
    names = ", ".join(idioms[:_MAX_NAMED]) + (", …" if len(idioms) > _MAX_NAMED else "")
    return f"{len(idioms)} idioms ({names})" if idioms else "no idiom"


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


def read_pie(path: Path, *, unseen: Iterable[str] = (), trained: Iterable[str] = ()) -> PieCorpus:
    """Read and check the corpus.

    Args:
        path: `data_cleaned.csv`.
        unseen: idioms that must not be trained on. An idiom is one of them if, small words aside, the
            words of either are among the other's.
        trained: idioms of the training split, found in the same way.

    Raises:
        UserError: if the file or a column is missing, or labels do not fit their sentence.
    """
    unseen_words, trained_words = ([_words(idiom) for idiom in idioms] for idioms in (unseen, trained))
    documents: list[Document] = []
    senses: dict[str, dict[str, int]] = {}
    left_out: dict[str, None] = {}
    shared: dict[str, None] = {}
    num_without_span = 0
    for row_number, row in read_table(path, _Row, kind=".csv"):
        number = row_number - 1  # without the header
        if _same(row.idiom, unseen_words):
            left_out[row.idiom] = None
            continue
        if _same(row.idiom, trained_words):
            shared[row.idiom] = None
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
                num_without_span += 1
                continue
            sentence, (start, end) = detokenise(text.split(), marked[0], marked[-1])
            documents.append(_document(f"pie_{number}_{usage}", sentence, idiom, sentence[start:end], usage))
        if is_new:
            documents.append(_document(f"pie_{number}_sense", row.sense, idiom, row.sense, "sense"))
    if not documents:
        raise UserError(f"{path}: holds no sentence that could be used")
    num_idioms = len({d.idiom for d in documents})
    return PieCorpus(tuple(documents), num_idioms, num_without_span, tuple(left_out), tuple(shared))


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


def _document(id_: str, sentence: str, idiom: str, span: str, usage: str) -> Document:
    return Document.model_validate(
        {
            "id": id_,
            "sentence": sentence,
            "idiom": idiom,
            "span": span,
            "subject": "",
            "usage": usage,
            "is_gold": False,
        }
    )


def _words(idiom: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W_]+", idiom.lower())) - _IGNORED_WORDS


def _same(idiom: str, others: list[frozenset[str]]) -> bool:
    words = _words(idiom)
    return bool(words) and any(other and (words <= other or other <= words) for other in others)
