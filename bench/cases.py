"""What is compared: training by batch and precision, the scorecard, users' files, a larger model."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.workload import Precision, Task, Workload, base_model, on_file

Way = Literal["ours", "sentence_transformers", "predecessor"]
ALL: tuple[Way, ...] = ("ours", "sentence_transformers", "predecessor")
LIBRARY: tuple[Way, ...] = ("ours", "sentence_transformers")
PRECISIONS: dict[Precision, str] = {"fp32": "float32", "bf16": "bfloat16"}
SCORECARD = "scorecard"
QUICK_STEPS = 7
_FEW_STEPS = 3  # at most, of all cases but the main ones


@dataclass(frozen=True)
class Case:
    """One workload, and the ways that do it.

    Attributes:
        name: for the page and the file of results.
        prepare: writes what the workload needs into a folder.
        is_repeated: else each way runs a single time.
    """

    name: str
    workload: Workload
    ways: tuple[Way, ...] = LIBRARY
    prepare: Callable[[Workload, Path], Workload] = lambda workload, _: workload
    is_repeated: bool = False

    def opponent(self, way: Way) -> str:
        """What another way is, in words."""
        if way == "predecessor":
            return "the predecessor"
        return "the trainer" if self.workload.is_training else "plain encoding"


def quick_cases(workload: Workload, precisions: Sequence[Precision]) -> list[Case]:
    """Training in each precision, and the scorecard against the predecessor."""
    training = dataclasses.replace(workload, steps=QUICK_STEPS, dropout=True)
    scoring = dataclasses.replace(workload, task="scorecard")
    return [
        *(
            Case(f"training in {PRECISIONS[p]}", dataclasses.replace(training, precision=p), is_repeated=True)
            for p in precisions
        ),
        Case(SCORECARD, scoring, ("ours", "predecessor"), is_repeated=True),
    ]


def usual_cases(
    workload: Workload, precisions: Sequence[Precision], sizes: Sequence[int], tasks: Sequence[Task]
) -> list[Case]:
    """All cases of these tasks.

    With dropout the ways draw different numbers, so that losses cannot be equal: a case without shows that
    the ways compute the same.
    """
    few = dataclasses.replace(workload, steps=min(workload.steps, _FEW_STEPS), dropout=False)
    cases = []
    for size, precision in itertools.product(sizes, precisions) if "tuples" in tasks else ():
        is_first = size == sizes[0]
        if not is_first and precision != precisions[-1]:
            continue
        steps = workload.steps if is_first else few.steps
        changed = dataclasses.replace(workload, precision=precision, batch_size=size, steps=steps)
        name = f"training in {PRECISIONS[precision]}" + ("" if is_first else f", batches of {size}")
        ways = ALL if is_first and precision == precisions[0] else LIBRARY  # for time's sake
        cases.append(Case(name, changed, ways, is_repeated=is_first))
    if "tuples" in tasks:
        cases.append(Case("training without dropout", dataclasses.replace(few, steps=2), ALL))
    if "scorecard" in tasks:
        cases.append(Case(SCORECARD, dataclasses.replace(few, task="scorecard"), ALL, is_repeated=True))
    files: dict[Task, str] = {"pairs": "a CSV of pairs", "scored_pairs": "a CSV of scored pairs"}
    for task, name in files.items():
        if task in tasks:
            cases.append(Case(name, dataclasses.replace(few, task=task), prepare=on_file))
    if "gate" in tasks:
        cases.append(Case("fit of a gate", dataclasses.replace(few, task="gate")))
    small = dataclasses.replace(few, data="sample", precision=precisions[-1], batch_size=min(sizes[0], 16))
    of_base: dict[Task, str] = {
        "tuples": f"training in {PRECISIONS[precisions[-1]]}",
        "scorecard": SCORECARD,
        "gate": "fit of a gate",
    }
    for task, name in of_base.items():
        if task in tasks:
            larger = dataclasses.replace(small, task=task, num_usages=few.num_usages // 2)
            cases.append(Case(f"{name}, 110 million parameters", larger, prepare=_on_base_model))
    return cases


def _on_base_model(workload: Workload, folder: Path) -> Workload:
    return dataclasses.replace(workload, model=base_model(folder / "base"))
