"""What is compared: training by batch and precision, and the scorecard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from bench.workload import Precision, Task, Workload

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
        is_repeated: else each way runs a single time.
    """

    name: str
    workload: Workload
    ways: tuple[Way, ...] = LIBRARY
    is_repeated: bool = False

    def opponent(self, way: Way) -> str:
        """What another way is, in words."""
        if way == "predecessor":
            return "the predecessor"
        return "the trainer" if self.workload.is_training else "plain encoding"


def quick_cases(workload: Workload, precisions: Sequence[Precision]) -> list[Case]:
    """Training in each precision, and the scorecard against the predecessor."""
    training = replace(workload, steps=QUICK_STEPS, dropout=True)
    return [
        *(
            Case(f"training in {PRECISIONS[p]}", replace(training, precision=p), is_repeated=True)
            for p in precisions
        ),
        Case(SCORECARD, replace(workload, task="scorecard"), ("ours", "predecessor"), is_repeated=True),
    ]


def usual_cases(
    workload: Workload, precisions: Sequence[Precision], sizes: Sequence[int], tasks: Sequence[Task]
) -> list[Case]:
    """All cases of these tasks.

    With dropout the ways draw different numbers, so that losses cannot be equal: a case without shows that
    the ways compute the same.
    """
    few = replace(workload, steps=min(workload.steps, _FEW_STEPS), dropout=False)
    cases = []
    for size, precision in product(sizes, precisions) if "tuples" in tasks else ():
        is_first = size == sizes[0]
        if not is_first and precision != precisions[-1]:
            continue
        steps = workload.steps if is_first else few.steps
        changed = replace(workload, precision=precision, batch_size=size, steps=steps)
        name = f"training in {PRECISIONS[precision]}" + ("" if is_first else f", batches of {size}")
        ways = ALL if is_first and precision == precisions[0] else LIBRARY  # for time's sake
        cases.append(Case(name, changed, ways, is_repeated=is_first))
    if "tuples" in tasks:
        cases.append(Case("training without dropout", replace(few, steps=2), ALL))
    if "scorecard" in tasks:
        cases.append(Case(SCORECARD, replace(few, task="scorecard"), ALL, is_repeated=True))
    return cases
