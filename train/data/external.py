"""External idiom data: other corpora's sentences in IdioLink's form, to train on as well (`data.extra`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from train.data.idiolink import Document

_MAX_NAMED = 10
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

    def __init__(
        self, corpus: str, files: Sequence[Path], *, unseen: Iterable[str], trained: Iterable[str]
    ) -> None:
        self.corpus = corpus
        self.files = tuple(files)
        self.documents: list[Document] = []
        self.num_without_span = 0
        self.unseen: dict[str, None] = {}
        self.shared: dict[str, None] = {}
        self._others = (
            ([_words(idiom) for idiom in unseen], self.unseen),
            ([_words(idiom) for idiom in trained], self.shared),
        )

    def excludes(self, idiom: str) -> bool:
        """Whether an idiom is left out; its name is kept then."""
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
    """Their number and the first of them."""
    names = list(idioms)
    shown = ", ".join(names[:_MAX_NAMED]) + (", …" if len(names) > _MAX_NAMED else "")
    return f"{len(names)} idioms ({shown})" if names else "no idiom"


def _words(idiom: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W_]+", idiom.lower())) - _IGNORED_WORDS
