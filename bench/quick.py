"""The main ratios with few steps, beside those that were recorded last: what has become slower?"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.cases import SCORING, TRAINERS, Way
from bench.measure import Measured
from bench.report import Run
from bench.start import FIRST_STEP, HELP, IMPORTS, processor_times
from bench.workload import Precision, Workload, usual_precisions

RECORDED = Path(__file__).with_name("recorded.json")
ALLOWED = 0.1  # share that a ratio may lose beyond its noise before it is an error
_STEPS = 7
_ENOUGH = 3  # measurements, for a verdict
_NAMES: dict[Precision, str] = {"fp32": "float32", "bf16": "bfloat16"}

Ratios = dict[str, list[float]]


RunInTurn = Callable[[Sequence[Way], Workload], list[Run]]


def measure(workload: Workload, rounds: int, run_in_turn: RunInTurn) -> Ratios:
    """How many times as fast ours is, by processor time: of training each step, of the rest each round.

    Args:
        workload: its data, model and threads; the rest is set here.
        run_in_turn: runs ways in a process of their own each.
    """
    training = dataclasses.replace(workload, steps=_STEPS, dropout=True, score=False, kind="tuples")
    scoring = dataclasses.replace(workload, steps=0, score=True, kind="tuples")
    compared: dict[str, tuple[Workload, tuple[Way, ...]]] = {
        f"training in {_NAMES[precision]}, against the trainer": (
            dataclasses.replace(training, precision=precision),
            TRAINERS,
        )
        for precision in usual_precisions()
    }
    compared["scorecard, against the predecessor"] = scoring, SCORING
    ratios: Ratios = {}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds} …", file=sys.stderr, flush=True)
        for name, (work, ways) in compared.items():
            mine, theirs = (_seconds(run.measured) for run in run_in_turn(ways, work))
            ratios.setdefault(name, []).extend(b / a for a, b in zip(mine, theirs, strict=True))
        seconds = processor_times(workload)
        for name in (HELP, FIRST_STEP):
            ratios.setdefault(f"{name}, against importing the libraries", []).append(
                seconds[IMPORTS] / seconds[name]
            )
    return ratios


def _seconds(measured: Measured) -> list[float]:
    if measured.score is not None:
        return [measured.score.cpu]
    return [step.cpu for step in measured.steps]


def record(ratios: Ratios, machine: Mapping[str, Any], path: Path = RECORDED) -> None:
    """Keep the ratios, to be compared with on a processor of this kind."""
    figures: dict[str, Callable[[list[float]], float]] = {"median": median, "min": min, "max": max}
    kept = {name: {f: round(of(v), 3) for f, of in figures.items()} for name, v in ratios.items()}
    known = _recorded(path) | {machine["processor"]: {"machine": machine, "ratios": kept}}
    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def _recorded(path: Path) -> dict[str, Any]:
    """Of each kind of processor."""
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return known


def compare(ratios: Ratios, recorded: Mapping[str, Mapping[str, float]]) -> tuple[str, bool]:
    """A line a ratio, and whether one has become slower by more than may be.

    Slower is a median below all that were recorded. It is an error if that is also `ALLOWED` below their
    median, and there are enough measurements to tell.
    """
    lines = [f"{'times as fast, processor time':<66}{'now':>8}{'recorded':>24}"]
    failed = False
    for name, values in ratios.items():
        now, before = median(values), recorded.get(name)
        if before is None:
            lines.append(f"{name:<66}{now:>8.2f}{'not recorded':>24}")
            continue
        verdict = "slower" if now < before["min"] else "faster" if now > before["max"] else ""
        if now < before["min"] and now < (1 - ALLOWED) * before["median"]:
            verdict = f"SLOWER by {1 - now / before['median']:.0%}"
            failed |= len(values) >= _ENOUGH
            verdict += "" if len(values) >= _ENOUGH else f", but of {len(values)} only: no error"
        spread = f"{before['median']:.2f} ({before['min']:.2f}–{before['max']:.2f})"
        lines.append(f"{name:<66}{now:>8.2f}{spread:>24}  {verdict}".rstrip())
    return "\n".join(lines), failed


def quick(
    workload: Workload,
    rounds: int,
    run_in_turn: RunInTurn,
    *,
    machine: Mapping[str, Any],
    keeps: bool,
    path: Path = RECORDED,
) -> int:
    """Measure, and compare with what was recorded; or record. Returns the exit status."""
    ratios = measure(workload, rounds, run_in_turn)
    kinds, kind = _recorded(path), machine["processor"]
    known: Mapping[str, Any] = kinds.get(kind, {})
    text, failed = compare(ratios, known.get("ratios", {}))
    print(text)
    if keeps:
        record(ratios, machine, path)
        print(f"recorded in {path}")
        return 0
    if not known:
        print(f"nothing is recorded of this kind of processor, {kind}, only of {', '.join(kinds) or 'none'}")
    elif differing := _differing(machine, known["machine"]):
        print(f"recorded where other things were: {differing}")
    return int(failed)


def _differing(machine: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    names: Sequence[str] = [name for name in machine if machine[name] != other.get(name)]
    return ", ".join(f"{name} {other.get(name)} (here {machine[name]})" for name in names)
