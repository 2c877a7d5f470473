"""The PIE corpus as extra training sentences: idioms in use, their literal paraphrases, their senses.

Zhou et al. 2021, "PIE: A Parallel Idiomatic Expression Corpus for Idiomatic Sentence Generation and
Paraphrasing"; GitHub `zhjjn/MWE_PIE`, file `data_cleaned.csv`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from train.data.idiolink import Document
from train.errors import UserError
from train.io.records import describe, read_table

_LABELS = ("O", "B", "I")
_COLUMNS = ("Idiom", "Sense", "Idiomatic_Sent", "Literal_Sent", "Idiomatic_Label", "Literal_Label")
_NO_SPACE_BEFORE = re.compile(r"[.,!?;:%)\]…]+|n['’]t|['’](s|re|ve|ll|d|m)?", re.IGNORECASE)
_MAX_NAMED = 10
_IGNORED_WORDS = frozenset({"a", "an", "the", "to", "be", "one", "ones", "your", "someone", "somebody", "s"})


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
    problems: list[str] = []
    senses: dict[str, dict[str, int]] = {}
    left_out: dict[str, None] = {}
    shared: dict[str, None] = {}
    num_without_span = 0
    for number, row in ((n - 1, row) for n, row in read_table(path, _COLUMNS, named_by="Idiom")):
        idiom, sense = row["Idiom"].strip(), row["Sense"].strip().strip(" ,")
        texts = {"Idiom": idiom, "Sense": sense, **{f: row[f] for f in ("Idiomatic_Sent", "Literal_Sent")}}
        if empty := [field for field, text in texts.items() if not any(c.isalnum() for c in text)]:
            problems += [f"record {number}, field {field!r}: is empty" for field in empty]
            continue
        if _same(idiom, unseen_words):
            left_out[idiom] = None
            continue
        if _same(idiom, trained_words):
            shared[idiom] = None
            continue
        known = senses.setdefault(idiom, {})
        new_sense = sense not in known
        which = known.setdefault(sense, len(known) + 1)
        label = f"{idiom} (PIE {which})"
        parts = [("Idiomatic", "idiomatic"), ("Literal", "simplification")]
        for column, usage in parts:
            tokens, tags = row[f"{column}_Sent"].split(), row[f"{column}_Label"].split()
            if len(tokens) != len(tags):
                problems.append(
                    f"record {number}, field '{column}_Label': {len(tags)} labels for {len(tokens)} tokens"
                )
                continue
            if unknown := [tag for tag in tags if tag not in _LABELS]:
                problems.append(f"record {number}, field '{column}_Label': {unknown[0]!r} is not O, B or I")
                continue
            marked = [i for i, tag in enumerate(tags) if tag in ("B", "I")]
            if not marked:
                num_without_span += 1
                continue
            text, (start, end) = detokenise(tokens, marked[0], marked[-1])
            documents.append(_document(f"pie_{number}_{usage}", text, label, text[start:end], usage))
        if new_sense:
            documents.append(_document(f"pie_{number}_sense", sense, label, sense, "sense"))
    if problems:
        raise describe(problems, str(path))
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
    own = _words(idiom)
    return bool(own) and any(other and (own <= other or other <= own) for other in others)
