"""External idiom data: other corpora's sentences in IdioLink's form, to train on beside it (`data.extra`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from train.data.idiolink import Document

_MAX_NAMED = 10
_IGNORED_WORDS = frozenset({"a", "an", "the", "to", "be", "one", "ones", "your", "someone", "somebody", "s"})


@dataclass(frozen=True)
class ExternalIdioms:
    """What of a corpus is used.

    Attributes:
        corpus: its name.
        documents: its sentences. An idiom's name says the corpus, so that it is no idiom of IdioLink's.
        num_without_span: sentences left out because no expression is marked or found in them.
        unseen: idioms left out because they are to be unseen.
        shared: idioms left out because the training split has them: as other idioms of the same name they
            would be each other's negatives.
        files: that were read.
    """

    corpus: str
    documents: tuple[Document, ...]
    num_without_span: int
    unseen: tuple[str, ...]
    shared: tuple[str, ...]
    files: tuple[Path, ...]

    @property
    def num_idioms(self) -> int:
        """Idioms, with their senses told apart, that `documents` hold."""
        return len({document.idiom for document in self.documents})

    def describe(self) -> str:
        """One line for the log and the run's record."""
        return (
            f"with external idiom data ({self.corpus}): {len(self.documents)} sentences of "
            f"{self.num_idioms} idioms and senses; left out: {_named(self.shared)} also in the training "
            f"split, {_named(self.unseen)} of other splits, {self.num_without_span} sentences without a "
            "marked span"
        )


class Exclusion:
    """Tells which of a corpus's idioms are left out, and keeps their names.

    An idiom is one of the others if, small words aside, the words of either are among the other's.

    Args:
        unseen: idioms that must not be trained on.
        trained: idioms of the training split.
    """

    def __init__(self, unseen: Iterable[str], trained: Iterable[str]) -> None:
        self._unseen = [_words(idiom) for idiom in unseen]
        self._trained = [_words(idiom) for idiom in trained]
        self._unseen_names: dict[str, None] = {}
        self._shared_names: dict[str, None] = {}

    def excludes(self, idiom: str) -> bool:
        """Whether it is left out."""
        if _same(idiom, self._unseen):
            self._unseen_names[idiom] = None
            return True
        if _same(idiom, self._trained):
            self._shared_names[idiom] = None
            return True
        return False

    @property
    def unseen(self) -> tuple[str, ...]:
        """Idioms left out because they are to be unseen."""
        return tuple(self._unseen_names)

    @property
    def shared(self) -> tuple[str, ...]:
        """Idioms left out because the training split has them."""
        return tuple(self._shared_names)


def external_document(id_: str, sentence: str, idiom: str, span: str, usage: str) -> Document:
    """A sentence of another corpus."""
    values = {"id": id_, "sentence": sentence, "idiom": idiom, "span": span, "usage": usage}
    return Document.model_validate({**values, "subject": "", "is_gold": False})


def _named(idioms: tuple[str, ...]) -> str:
    """Their number and the first of them."""
    names = ", ".join(idioms[:_MAX_NAMED]) + (", …" if len(idioms) > _MAX_NAMED else "")
    return f"{len(idioms)} idioms ({names})" if idioms else "no idiom"


def _words(idiom: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W_]+", idiom.lower())) - _IGNORED_WORDS


def _same(idiom: str, others: list[frozenset[str]]) -> bool:
    words = _words(idiom)
    return bool(words) and any(other and (words <= other or other <= words) for other in others)
