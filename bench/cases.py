"""What is compared: the usual cases, equal losses, files of a user's own."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.own_files import on_file
from bench.workload import Kind, Precision, Workload
from idiomtune.data.locations import idiolink_folder

Way = Literal["ours", "sentence_transformers", "predecessor"]
ALL: tuple[Way, ...] = ("ours", "sentence_transformers", "predecessor")
SCORING: tuple[Way, ...] = ("ours", "predecessor")
TRAINERS: tuple[Way, ...] = ("ours", "sentence_transformers")
# Put before a sentence they change no idiom's meaning.
_WORDS = (
    *("today", "again", "indeed", "perhaps", "later", "still", "now", "then"),
    *("soon", "here", "there", "often", "never", "once", "always"),
)
_FEW_STEPS = 3  # at most, of all cases but the main ones


@dataclass(frozen=True)
class Case:
    """One workload, and the ways that do it.

    Attributes:
        name: for the page and the file of results.
        kind: of the data, which are written to a file of a user's own unless they are IdioLink's tuples.
        once: each way runs a single time.
    """

    name: str
    workload: Workload
    ways: tuple[Way, ...] = ALL
    kind: Kind = "tuples"
    once: bool = False

    def prepared(self, folder: Path) -> Workload:
        """The workload, with what has to be written for it in `folder`."""
        return self.workload if self.kind == "tuples" else on_file(self.workload, self.kind, folder)


def usual(workload: Workload, precisions: Sequence[Precision], batch_sizes: Sequence[int]) -> list[Case]:
    """Training by batch and precision, and the scorecard, which is in float32 whatever the precision.

    With dropout the ways draw different numbers, so that neither losses nor scores can be equal: a case
    without shows that the ways compute the same, and has the scorecard.
    """
    cases = []
    for size, precision in itertools.product(batch_sizes, precisions):
        is_small = size == batch_sizes[0]
        steps = workload.steps if is_small else min(workload.steps, _FEW_STEPS)
        changed = dataclasses.replace(
            workload, precision=precision, batch_size=size, steps=steps, score=False
        )
        ways = ALL if is_small and precision == precisions[0] else TRAINERS  # for time's sake
        cases.append(Case(f"training {precision}, batch {size}", changed, ways, once=not is_small))
    if workload.dropout or workload.score:
        changed = dataclasses.replace(
            workload,
            precision=precisions[0],
            batch_size=batch_sizes[0],
            dropout=False,
            steps=min(workload.steps, _FEW_STEPS),
        )
        name = "dropout off" + (" and scorecard" if workload.score else "")
        cases.append(Case(name, changed, once=not workload.score))
    return cases


def own_files(workload: Workload, kinds: Sequence[Kind]) -> list[Case]:
    """Training on a CSV of pairs, and on one of scored pairs, against the library's trainer."""
    names = {"pairs": "a CSV of pairs", "scored": "a CSV of scored pairs"}
    plain = dataclasses.replace(workload, score=False, dropout=False)
    return [Case(names[kind], plain, TRAINERS, kind=kind, once=True) for kind in kinds if kind in names]


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
