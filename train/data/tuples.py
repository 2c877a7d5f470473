"""IdioLink training tuples (query, positives, soft and hard negatives): released, or drawn."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from train.data.fields import TableRow
from train.data.idiolink import Document, Split, is_relevant
from train.errors import UserError
from train.io.records import raise_problems
from train.io.tables import read_table


@dataclass(frozen=True, slots=True)
class TrainingTuple:
    """Records by id, never by text.

    Attributes:
        anchor: id of the query (or of a document that serves as one).
        positives: ids of documents of the same idiom in the same meaning.
        hard: ids of documents of the same idiom in the opposite meaning.
        soft: ids of documents of other idioms.
    """

    anchor: str
    positives: tuple[str, ...]
    hard: tuple[str, ...]
    soft: tuple[str, ...]


class _Row(TableRow):
    query: str
    positive: str
    negatives: Annotated[list[str], Field(min_length=1)]


def released_file(root: Path, split: str) -> Path:
    """Where the authors' released tuples of a split are."""
    return root / split / f"triplets_{split}_full.jsonl"


def read_released(path: Path, split: Split) -> list[TrainingTuple]:
    """The authors' released tuples, their texts mapped to ids.

    Raises:
        UserError: if the file is missing, a line is not JSON, a field is missing, or a text is not
            that of a record of the split.
    """
    if not path.is_file():
        raise UserError(
            f"{path}: there are no released training tuples; use objective.tuples=drawn, or put "
            "the authors' file there"
        )
    by_text: dict[str, Document] = {}
    ambiguous: set[str] = set()
    for record in (*split.documents, *split.queries):
        if by_text.setdefault(record.sentence, record) is not record:
            ambiguous.add(record.sentence)
    tuples: list[TrainingTuple] = []
    problems: list[str] = []
    for number, row in read_table(path, _Row):
        texts = [row.query, row.positive, *row.negatives]
        unknown = [t for t in texts if t not in by_text]
        doubled = [t for t in texts if t in ambiguous]
        if unknown or doubled:
            what = "is not a sentence of" if unknown else "is the sentence of several records of"
            problems.append(f"line {number}: {(unknown or doubled)[0]!r} {what} split {split.name}")
            continue
        query, positive, *negatives = (by_text[text] for text in texts)
        relevant = [positive.id != query.id and is_relevant(query, positive)]
        relevant += [is_relevant(query, negative) for negative in negatives]
        if relevant != [True] + [False] * len(negatives):
            problems.append(f"line {number}: has a positive or negative that is not one of {query.id}")
            continue
        tuples.append(
            TrainingTuple(
                query.id,
                (positive.id,),
                tuple(n.id for n in negatives if n.idiom == query.idiom),
                tuple(n.id for n in negatives if n.idiom != query.idiom),
            )
        )
    raise_problems(problems, path)
    return tuples


def draw_tuples(
    anchors: Sequence[Document],
    documents: Sequence[Document],
    *,
    num_positives: int,
    num_hard: int,
    num_soft: int,
    seed: Sequence[int],
) -> list[TrainingTuple]:
    """One tuple an anchor, drawn without replacement; a function of the seed alone.

    An anchor for which there are fewer documents of a kind than asked gets those there are; one
    without any positive gets a tuple without positives (the caller counts and leaves it out). An
    anchor is never its own positive.

    Args:
        anchors: queries, or documents that serve as queries.
        documents: where positives and negatives are drawn from.
        num_positives, num_hard, num_soft: how many of each an anchor gets at most.
        seed: non-negative integers, as for `numpy.random.default_rng`.
    """
    rng = np.random.default_rng(seed)
    by_class: dict[tuple[str, str], list[int]] = defaultdict(list)
    by_idiom: dict[str, list[int]] = defaultdict(list)
    for i, document in enumerate(documents):
        by_class[document.idiom, document.meaning].append(i)
        by_idiom[document.idiom].append(i)
    everything = np.arange(len(documents))
    others = {idiom: np.delete(everything, numbers) for idiom, numbers in by_idiom.items()}

    def draw(pool: Sequence[int] | NDArray[np.int64], count: int) -> tuple[str, ...]:
        if not len(pool):
            return ()
        chosen = rng.choice(pool, size=min(count, len(pool)), replace=False)
        return tuple(documents[i].id for i in chosen.tolist())

    opposite = {"literal": "idiomatic", "idiomatic": "literal"}
    tuples = []
    for anchor in anchors:
        same_class = by_class.get((anchor.idiom, anchor.meaning), [])
        positives = [i for i in same_class if documents[i].id != anchor.id]
        tuples.append(
            TrainingTuple(
                anchor.id,
                draw(positives, num_positives),
                draw(by_class.get((anchor.idiom, opposite[anchor.meaning]), []), num_hard),
                draw(others.get(anchor.idiom, everything), num_soft),
            )
        )
    return tuples
