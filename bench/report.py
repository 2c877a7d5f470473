"""From measured runs to ratios and printed lines; what has become slower; whether the ways agree."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.cases import Case, Way
from bench.measure import Measured
from bench.workload import Workload

RECORDED = Path(__file__).with_name("recorded.json")
ALLOWED = 0.1  # share that a ratio may lose beyond its noise before it is an error
_ENOUGH = 3  # measurements, for a verdict
# Without dropout all ways compute the same function in another order: rounding alone, which Adam
# amplifies, parts them. A swap of two neighbouring ranks moves a mean over queries by less than this.
LOSS_TOLERANCE = 1e-3
SCORE_TOLERANCE = 5e-3
# In bfloat16 the others compute the loss itself in it too, at a temperature of 0.05.
LOSS_TOLERANCE_BF16 = 0.1

Runs = Mapping[Way, Sequence[Measured]]


def disagreements(ours: Measured, theirs: Measured, workload: Workload) -> list[str]:
    """What is further apart than it may be. With dropout losses cannot be compared step by step."""
    problems = []
    if workload.is_training and len(ours.losses) != len(theirs.losses):
        problems.append("the two ways took other steps")
    limit = LOSS_TOLERANCE_BF16 if workload.precision == "bf16" else LOSS_TOLERANCE
    loss = max((abs(a - b) for a, b in zip(ours.losses, theirs.losses, strict=False)), default=0.0)
    if not workload.dropout and not loss <= limit:
        problems.append(f"losses differ by {loss:.2g}, more than {limit:g}")
    return problems + [
        f"{key}: ours {ours.scores.get(key)}, theirs {score}"
        for key, score in theirs.scores.items()
        if not abs(ours.scores.get(key, float("nan")) - score) <= SCORE_TOLERANCE
    ]


def ratios(case: Case, runs: Runs) -> dict[str, list[float]]:
    """How many times as fast ours is, by processor time: of training each step, else each round.

    Of `runs[way][i]` all ways took their steps in turn.
    """
    seconds = {way: [time.cpu for run in way_runs for time in run.times] for way, way_runs in runs.items()}
    return {
        f"{case.name}, against {case.opponent(way)}": [
            theirs / ours for theirs, ours in zip(seconds[way], seconds["ours"], strict=True)
        ]
        for way in case.ways[1:]
    }


def table(runs: Runs) -> str:
    """A line a way: medians of seconds, and the most memory."""
    lines = [f"{'medians':<24}{'cpu s':>9}{'wall s':>9}{'peak MiB':>10}"]
    for way, way_runs in runs.items():
        times = [time for run in way_runs for time in run.times]
        cells = median(time.cpu for time in times), median(time.wall for time in times)
        memory = max(run.memory for run in way_runs)
        lines.append(f"{way:<24}{cells[0]:>9.2f}{cells[1]:>9.2f}{memory:>10.0f}")
    return "\n".join(lines)


def compare(values: Mapping[str, Sequence[float]], recorded: Mapping[str, Any]) -> tuple[str, bool]:
    """A line a ratio, and whether one has become slower by more than may be.

    Slower is a median below all that were recorded. It is an error if that is also `ALLOWED` below their
    median, and there are enough measurements to tell.
    """
    lines = [f"{'times as fast, processor time: median (min–max)':<68}{'now':>20}{'recorded':>24}"]
    failed = False
    for name, numbers in values.items():
        now, before = median(numbers), recorded.get(name)
        line = f"{name:<68}{_spread(now, min(numbers), max(numbers)):>20}"
        if before is None:
            lines.append(line)
            continue
        verdict = "slower" if now < before["min"] else "faster" if now > before["max"] else ""
        if now < before["min"] and now < (1 - ALLOWED) * before["median"]:
            verdict = f"SLOWER by {1 - now / before['median']:.0%}"
            failed |= len(numbers) >= _ENOUGH
            verdict += "" if len(numbers) >= _ENOUGH else f", but of {len(numbers)} only: no error"
        line += f"{_spread(before['median'], before['min'], before['max']):>24}  {verdict}"
        lines.append(line.rstrip())
    return "\n".join(lines), failed


def _spread(middle: float, low: float, high: float) -> str:
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def record(values: Mapping[str, Sequence[float]], machine: Mapping[str, Any], path: Path = RECORDED) -> None:
    """Keep the ratios, to be compared with on a processor of this kind."""
    kept = {
        name: {"median": round(median(v), 3), "min": round(min(v), 3), "max": round(max(v), 3)}
        for name, v in values.items()
    }
    known = read_recorded(path)
    before = known.get(machine["processor"], {}).get("ratios", {})
    known[machine["processor"]] = {"machine": machine, "ratios": before | kept}
    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def read_recorded(path: Path = RECORDED) -> dict[str, Any]:
    """Of each kind of processor."""
    recorded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return recorded
