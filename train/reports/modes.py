"""Two modes of a benchmark's scores on the same queries, compared one by one: `train.report modes=`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from train.declarations.registry import benchmark_type
from train.errors import UserError
from train.io.records import read_text
from train.io.text import text_lines
from train.reports.statistics import compare

Values = Mapping[str, Mapping[str, float]]  # score key → query → value


def read_values(folders: Sequence[Path]) -> list[Values]:
    """What each run's per-query files hold: of the folders themselves, or of a sweep's runs in them.

    Raises:
        UserError: if a folder has no such files, or a line is damaged.
    """
    runs: list[Values] = []
    for folder in folders:
        written = sorted(path for above in (folder, *folder.glob("*")) for path in above.glob("per_query"))
        if not written:
            raise UserError(f"{folder}: no run with per_query/*.jsonl (eval.per_query=true writes them)")
        runs += [_values(run) for run in written]
    return runs


def _values(folder: Path) -> Values:
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for path in sorted(folder.glob("*.jsonl")):
        read_record = benchmark_type(path.stem).read_record
        if read_record is None:
            continue
        for number, line in enumerate(text_lines(read_text(path)), 1):
            try:
                for result in read_record(json.loads(line)):
                    if result.value is not None:
                        values[result.key][result.query] = result.value
            except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
                raise UserError(
                    f"{path}, line {number}: is no record of {path.stem}: the file was damaged after the "
                    "run; python -m train.evaluate scores the model again"
                ) from None
    return values


def means_by_query(runs: Sequence[Values], key: str) -> dict[str, float]:
    """Query → its value in this score, as the mean over the runs that scored it (over seeds, for example)."""
    values: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for query, value in run.get(key, {}).items():
            values[query].append(value)
    return {query: sum(found) / len(found) for query, found in values.items()}


def mode_table(runs: Sequence[Values], ours: str, theirs: str, split: str) -> str:
    """One line for each metric: means over queries, ± over runs, difference with interval, and the test.

    Raises:
        UserError: if no query was scored in both modes, or not the same ones.
    """
    nothing_common = f"no items of the split {split} with scores by both {ours} and {theirs}"
    lines = []
    for key in dict.fromkeys(key for run in runs for key in run):
        benchmark, *place = key.split("/")
        if place[:2] != [split, ours]:
            continue
        metric = "/".join(place[2:])  # of all queries, or of a slice of them
        keys = [key, f"{benchmark}/{split}/{theirs}/{metric}"]
        a, b = (means_by_query(runs, one) for one in keys)
        if not b:  # a metric of the one mode alone
            continue
        if a.keys() != b.keys():
            raise UserError(nothing_common)
        result = compare(list(a.values()), [b[query] for query in a])
        stds = [
            float(np.std([np.mean(list(run[one].values())) for run in runs if one in run])) for one in keys
        ]
        lines.append(
            f"{metric}: {ours} {result.ours:.4f} ± {stds[0]:.4f}, {theirs} {result.theirs:.4f} ± "
            f"{stds[1]:.4f} (std over {len(runs)} runs); difference {result.ours - result.theirs:+.4f} "
            f"[{result.low:+.4f}, {result.high:+.4f}], greater in {result.greater}, equal in {result.equal}, "
            f"smaller in {result.smaller} of {result.num_items} items, Wilcoxon p = {result.p_value:.2g}"
        )
    if not lines:
        raise UserError(nothing_common)
    return "\n".join(lines)
