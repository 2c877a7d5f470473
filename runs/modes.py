"""Two modes of a benchmark's scores in the same runs, compared item by item.

    python runs/modes.py <run or folder of runs> experts_text caption [split]

For AdMIRe's experts (docs/results/admire.md): each item is the mean over the runs that have it. The runs need
`eval.per_query=true`; the split is `train_cv` by default.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from idiomtune.reports.frames import Group
from idiomtune.reports.runs import find_runs, read_runs
from idiomtune.reports.statistics import mean_interval, permutation_p


def compared(folder: str, ours: str, theirs: str, split: str = "train_cv") -> Iterator[str]:
    """A line for each score that is a mean over items, and that both modes have."""
    group = Group("", read_runs(find_runs([Path(folder)])), {})
    for key, score in group.parts.items():
        sides = [group.queries.get((False, str(replace(score, mode=mode)))) for mode in (ours, theirs)]
        a, b = sides
        if (score.split, score.mode) != (split, ours) or a is None or b is None:
            continue
        if (a.statistic == "mean").all() and set(a.index) == set(b.index):
            changes = a.value - b.value
            low, high = mean_interval(changes)
            yield (
                f"{key}: {a.value.mean():.4f} − {b.value.mean():.4f} = {changes.mean():+.4f} "
                f"[{low:+.4f}, {high:+.4f}], p {permutation_p(changes):.4f} ({len(changes)} items)"
            )


if __name__ == "__main__":
    print("\n".join(compared(*sys.argv[1:])))
