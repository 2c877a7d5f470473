"""Two modes of AdMIRe's scores on the same items, compared item by item: `train.report modes=`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from train.errors import UserError
from train.io.records import read_text
from train.io.text import text_lines
from train.reports.statistics import compare
from train.scores import ADMIRE_METRICS, ADMIRE_SENSES


def by_item(
    runs: Sequence[Sequence[Mapping[str, Any]]],
    mode: str,
    metric: str,
    split: str,
    sense: str | None = None,
) -> dict[str, float]:
    """Item → its metric in this mode, as the mean over the runs that scored it (over seeds, for example).

    Args:
        runs: for each run, the records of its `per_query/admire.jsonl`.
        sense: of items of this sense alone; None = all.
    """
    values: dict[str, list[float]] = defaultdict(list)
    for records in runs:
        for record in records:
            is_wanted = sense is None or record.get("sense") == sense
            if record["mode"] == mode and record["split"] == split and metric in record and is_wanted:
                values[record["id"]].append(record[metric])
    return {item: sum(scores) / len(scores) for item, scores in values.items()}


def read_items(folders: Sequence[Path]) -> list[list[dict[str, Any]]]:
    """The records of each run: of the folders themselves, or of a sweep's runs in them.

    Raises:
        UserError: if a folder has no records, or a line is damaged.
    """
    runs = []
    for folder in folders:
        files = sorted(
            path for above in (folder, *folder.glob("*")) for path in above.glob("per_query/admire.jsonl")
        )
        if not files:
            raise UserError(f"{folder}: no run with per_query/admire.jsonl (eval.per_query=true writes it)")
        runs += [_records(path) for path in files]
    return runs


def _records(path: Path) -> list[dict[str, Any]]:
    records = []
    for number, line in enumerate(text_lines(read_text(path)), 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict) or not {"mode", "split", "id"} <= record.keys():
            raise UserError(
                f"{path}, line {number}: is no record of an AdMIRe item: the file was damaged after the run; "
                "python -m train.evaluate scores the model again"
            )
        records.append(record)
    return records


def mode_table(runs: Sequence[Sequence[Mapping[str, Any]]], ours: str, theirs: str, split: str) -> str:
    """A line for each metric, of all items and by sense: means, ± over runs, difference with interval, test.

    Senses without items have no line.

    Raises:
        UserError: if no item was scored in both modes.
    """
    lines = []
    for metric, sense in product(ADMIRE_METRICS, (None, *ADMIRE_SENSES)):
        a, b = (by_item(runs, mode, metric, split, sense) for mode in (ours, theirs))
        if not a and not b and sense is not None:
            continue
        if not a or a.keys() != b.keys():
            raise UserError(f"no items of the split {split} with scores by both {ours} and {theirs}")
        items = list(a)
        result = compare([a[i] for i in items], [b[i] for i in items])
        spread = []
        for mode in (ours, theirs):
            by_run = [by_item([run], mode, metric, split, sense) for run in runs]
            spread.append(float(np.std([np.mean(list(scores.values())) for scores in by_run if scores])))
        heading = metric if sense is None else f"{metric}, {sense} items"
        lines.append(
            f"{heading}: {ours} {result.ours:.4f} ± {spread[0]:.4f}, {theirs} {result.theirs:.4f} ± "
            f"{spread[1]:.4f} (std over {len(runs)} runs); difference {result.ours - result.theirs:+.4f} "
            f"[{result.low:+.4f}, {result.high:+.4f}], greater in {result.greater}, equal in {result.equal}, "
            f"smaller in {result.smaller} of {result.num_items} items, Wilcoxon p = {result.p_value:.2g}"
        )
    return "\n".join(lines)
