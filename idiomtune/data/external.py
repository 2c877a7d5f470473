"""External idiom data: other corpora's sentences in IdioLink's form, to train on as well (`data.extra`).

- The PIE corpus: idioms in use, their literal paraphrases, their senses. Zhou et al. 2021, "PIE: A Parallel
  Idiomatic Expression Corpus for Idiomatic Sentence Generation and Paraphrasing"; GitHub `zhjjn/MWE_PIE`.
- AStitchInLanguageModels: compounds in literal and idiomatic use, and their meanings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from idiomtune.data.astitch import SENSES_FILE, read_senses, read_usages
from idiomtune.data.fields import WORDED, Cell, TableRow, Worded, WordedCell
from idiomtune.data.idiolink import Document
from idiomtune.data.names import ASTITCH, PIE, AStitchFile
from idiomtune.data.sources import DataFiles, published
from idiomtune.errors import UserError
from idiomtune.expressions import plain_expression
from idiomtune.io.files import first_of
from idiomtune.io.tables import read_table

# The other files of AStitch have sentences of the compounds of its dev and test split, which stay unseen.
_ASTITCH_TRAINED: tuple[AStitchFile, ...] = ("train_zero_shot",)
PIE_FILE = "data_cleaned.csv"
PIE_FILES = published(PIE)
_NO_SPACE_BEFORE = re.compile(r"[.,!?;:%)\]…]+|n['’]t|['’](s|re|ve|ll|d|m)?", re.IGNORECASE)


_IGNORED_WORDS = frozenset({"a", "an", "the", "to", "be", "one", "ones", "your", "someone", "somebody", "s"})


class ExternalIdioms:
    """What of a corpus is used; its reader adds sentences one by one.

    An idiom is one of other data if, small words aside, the words of either are among the other's.

    Args:
        corpus: its name.
        unseen: idioms that must not be trained on.
        trained: idioms of the training split.

    Attributes:
        documents: its sentences. An idiom's name says the corpus, so that it differs from IdioLink's.
        num_without_span: sentences left out because no expression is marked or found in them.
        unseen: idioms left out because they are to be unseen.
        shared: idioms left out because the training split has them: as other idioms of the same name they
            would be each other's negatives.
        files: that were read.
    """

    def __init__(self, corpus: str, files: Sequence[Path], unseen: Iterable[str], trained: Iterable[str]):
        self.corpus = corpus
        self.files = tuple(files)
        self.documents: list[Document] = []
        self.num_without_span = 0
        self.unseen: dict[str, None] = {}
        self.shared: dict[str, None] = {}
        self._others = ([*map(_words, unseen)], self.unseen), ([*map(_words, trained)], self.shared)

    def excludes(self, idiom: str) -> bool:
        """Whether an idiom is left out, which is recorded."""
        words = _words(idiom)
        for others, names in self._others:
            if words and any(other and (words <= other or other <= words) for other in others):
                names[idiom] = None
                return True
        return False

    def add(self, id_: str, sentence: str, idiom: str, span: str, usage: str) -> None:
        """Take up a sentence."""
        values = {"id": id_, "sentence": sentence, "idiom": idiom, "span": span, "usage": usage}
        self.documents.append(Document.model_validate({**values, "subject": "", "is_gold": False}))

    @property
    def num_idioms(self) -> int:
        """Idioms in `documents`; each sense counts."""
        return len({document.idiom for document in self.documents})

    def describe(self) -> str:
        """One line for the log and the run's record."""
        return (
            f"with external idiom data ({self.corpus}): {len(self.documents)} sentences of "
            f"{self.num_idioms} idioms and senses; left out: {_counted(self.shared)} also in the training "
            f"split, {_counted(self.unseen)} of other splits, {self.num_without_span} sentences without a "
            "marked span"
        )


def _counted(idioms: Iterable[str]) -> str:
    names = list(idioms)
    return f"{len(names)} idioms ({first_of(names)})" if names else "no idiom"


def _words(idiom: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W_]+", idiom.lower())) - _IGNORED_WORDS


class _PieRow(TableRow):
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


def read_pie(path: Path, *, unseen: Iterable[str] = (), trained: Iterable[str] = ()) -> ExternalIdioms:
    """Read and check the corpus.

    Sentences are `idiomatic`, their paraphrases `simplification`, and each sense's wording is `sense`. Idioms
    with several senses get a number each.

    Args:
        path: `PIE_FILE`.
        unseen: idioms that must not be trained on.
        trained: idioms of the training split.

    Raises:
        UserError: if the file or a column is missing, or labels do not fit their sentence.
    """
    corpus = ExternalIdioms(PIE.title, [path], unseen, trained)
    senses: dict[str, dict[str, int]] = {}
    for row_number, row in read_table(path, _PieRow, kind=".csv"):
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
        raise UserError("contains no usable sentence", file=path)
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


def read_astitch_idioms(
    files: DataFiles, *, unseen: Iterable[str] = (), trained: Iterable[str] = ()
) -> ExternalIdioms:
    """Read and check its training sentences.

    A compound's only idiomatic meaning is a document of the usage `sense`. If it has several, there is no
    such document, since it is unknown which of them a sentence has.

    Args:
        files: of the data set.
        unseen: idioms that must not be trained on.
        trained: idioms of the training split.

    Raises:
        UserError: as :func:`~idiomtune.data.astitch.read_usages` and
            :func:`~idiomtune.data.astitch.read_senses`.
    """
    usages, senses_path = read_usages(files, _ASTITCH_TRAINED), files(SENSES_FILE)
    meanings = read_senses(senses_path)
    corpus = ExternalIdioms(ASTITCH.title, [*usages.files, senses_path], unseen, trained)
    idiomatic: dict[str, None] = {}
    for usage in usages.usages:
        name = plain_expression(usage.phrase)
        if corpus.excludes(name):
            continue
        if usage.span is None:
            corpus.num_without_span += 1
            continue
        if usage.is_idiomatic:
            idiomatic[name] = None
        kind = "idiomatic" if usage.is_idiomatic else "literal"
        span = usage.sentence[slice(*usage.span)]
        corpus.add(f"astitch_{usage.id}", usage.sentence, f"{name} (AStitch)", span, kind)
    for name in idiomatic:
        if name in meanings and len(senses := meanings[name].non_literal) == 1:
            corpus.add(f"astitch_{name}_sense", senses[0], f"{name} (AStitch)", senses[0], "sense")
    if not corpus.documents:
        raise UserError("contains no usable sentence", file=usages.files[0])
    return corpus
