"""What is compared: the usual case, other precisions, files of a user's own, growth in corpus and batch."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.bench.own_files import on_file
from tests.bench.workload import Kind, Precision, Workload, num_tuples
from train.factory.data import idiolink_folder

Way = Literal["ours", "sentence_transformers", "predecessor"]
ALL: tuple[Way, ...] = ("ours", "sentence_transformers", "predecessor")
SCORING: tuple[Way, ...] = ("ours", "predecessor")
TRAINERS: tuple[Way, ...] = ("ours", "sentence_transformers")
# Put before a sentence they change no idiom's meaning.
_WORDS = (
    *("today", "again", "indeed", "perhaps", "later", "still", "now", "then"),
    *("soon", "here", "there", "often", "never", "once", "always"),
)
COPIES = (1, 4, 16)  # the last has a word for each copy
BATCH_SIZES = (32, 64, 128, 256)


@dataclass(frozen=True)
class Case:
    """One workload, and the ways that do it.

    Attributes:
        name: for the page and the file of results.
        copies: the scored corpus is so many times the real one.
        kind: of the data, which are written to a file of a user's own unless they are IdioLink's tuples.
    """

    name: str
    workload: Workload
    ways: tuple[Way, ...] = ALL
    copies: int = 1
    kind: Kind = "tuples"

    def prepared(self, folder: Path) -> Workload:
        """The workload, with what has to be written for it in `folder`."""
        if self.kind != "tuples":
            return on_file(self.workload, self.kind, folder)
        return grown(self.workload, self.copies, folder) if self.copies > 1 else self.workload


def usual(workload: Workload, precisions: Sequence[Precision]) -> list[Case]:
    """Training and scoring in the first precision; in others training alone: scores are in float32."""
    return [
        Case(
            f"training {precision}" + (" and scorecard" if number == 0 and workload.score else ""),
            dataclasses.replace(workload, precision=precision, score=workload.score and number == 0),
        )
        for number, precision in enumerate(precisions)
    ]


def own_files(workload: Workload, kinds: Sequence[Kind]) -> list[Case]:
    """Training on a CSV of pairs, and on one of scored pairs, against the library's trainer."""
    names = {"pairs": "a CSV of pairs", "scored": "a CSV of scored pairs"}
    plain = dataclasses.replace(workload, score=False)
    return [Case(names[kind], plain, TRAINERS, kind=kind) for kind in kinds if kind in names]


def growth(workload: Workload) -> list[Case]:
    """The scorecard over 1, 4 and 16 times the corpus, and training in batches of 32 to 256 tuples."""
    largest = num_tuples(workload)
    sizes = [size for size in BATCH_SIZES if size <= largest] or [largest // 2, largest]
    scoring = dataclasses.replace(workload, steps=0, score=True)
    training = dataclasses.replace(workload, score=False)
    return [
        *(Case(f"scorecard, corpus × {copies}", scoring, SCORING, copies) for copies in COPIES),
        *(
            Case(
                f"training {workload.precision}, batch {size}", dataclasses.replace(training, batch_size=size)
            )
            for size in sizes
        ),
    ]


def grown(workload: Workload, copies: int, folder: Path) -> Workload:
    """The same with a corpus of `copies` times as many documents, written into `folder`.

    A copy differs from its document in one word, which stands before the sentence, so that no text is
    another's, and no way can embed two as one.
    """
    settings = workload.settings()
    root = idiolink_folder(settings)
    for split in ("train", "val"):
        (folder / "idiolink" / split).mkdir(parents=True)
        for path in (root / split).iterdir():
            shutil.copy(path, folder / "idiolink" / split)
    path = folder / "idiolink" / "val" / "indexes.json"
    documents: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    copied = [
        document
        | {
            "id": f"{document['id']}_{number}",
            "sentence": f"{_WORDS[number].capitalize()}, {document['sentence']}",
        }
        for number in range(copies - 1)
        for document in documents
    ]
    path.write_text(json.dumps(documents + copied), encoding="utf-8")
    return dataclasses.replace(workload, data=str(folder))
