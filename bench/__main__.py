"""`python -m bench`: all ways in turn, each time in a fresh process, and the comparison."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import torch

from bench.cases import ALL, Case, Way, quick_cases, usual_cases
from bench.measure import ROOT, STEP_ENDED, TURNS, Measured, Time
from bench.report import RECORDED, compare, disagreements, ratios, read_recorded, record, table
from bench.start import start_ratios
from bench.workload import TASKS, Precision, Workload, real_data, usual_precisions
from idiomtune.encoder.device import has_bf16_instructions

MODULES: dict[Way, str] = {way: way for way in ALL} | {"sentence_transformers": "library"}
DEFAULT_BATCH_SIZES = [32, 128]
SAMPLE_BATCH_SIZES = [8]  # the sample has 24 tuples


def main(arguments: Sequence[str] | None = None, recorded: Path = RECORDED) -> int:
    """Returns the exit status: 1 if the ways do not agree, or something has become slower."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.way is not None:  # one run, in this process
        workload = Workload(**json.loads(options.workload))
        # Only this way is imported: what others import is memory that it would not hold.
        print(json.dumps(asdict(import_module(f"bench.{MODULES[options.way]}").run(workload))))
        return 0
    data = options.data or real_data() or "sample"
    if options.curve:
        from bench.curve import Recipe, curve  # with all ways, which no other way's memory may hold

        precision = options.precision[0] if options.precision else "fp32"
        folds = options.fold or [None] * len(options.seeds)
        if len(folds) != len(options.seeds):
            parser.error("--fold: one for each of --seeds")
        recipes = [
            Recipe(seed, data, options.model, precision, fold, options.epochs, options=options.ours)
            for seed, fold in zip(options.seeds, folds, strict=True)
        ]
        return curve(recipes, options.output)
    if options.steps < 2:
        parser.error("--steps: 2 or more, because the first is not timed")
    sizes = options.batch_size or (SAMPLE_BATCH_SIZES if data == "sample" else DEFAULT_BATCH_SIZES)
    workload = Workload(
        data, options.model, steps=options.steps, batch_size=sizes[0], dropout=options.dropout
    )
    precisions = options.precision or usual_precisions()
    cases = usual_cases(workload, precisions, sizes, options.task)
    if options.quick or options.record:
        cases = quick_cases(workload, precisions)
    rounds = options.pairs or (3 if options.record else 1 if options.quick else 2)
    values, problems = _measure(cases, rounds, options.output)
    if options.start:
        values |= start_ratios(workload, rounds)
    machine = _machine()
    before = read_recorded(recorded).get(machine["processor"], {})
    text, is_slower = compare(values, before.get("ratios", {}))
    print(f"\n{text}")
    if options.record:
        record(values, machine, recorded)
        print(f"recorded in {recorded}")
        return 0
    if not before:
        kinds = ", ".join(read_recorded(recorded)) or "none"
        print(f"nothing is recorded of this kind of processor, {machine['processor']}, only of {kinds}")
    elif other := [name for name in machine if machine[name] != before["machine"].get(name)]:
        print(f"recorded where other things were: {', '.join(other)}")
    return int(is_slower or bool(problems))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    add, switch = parser.add_argument, argparse.BooleanOptionalAction
    add("--quick", action="store_true", help="only the main ratios; status 1 if one is worse than recorded")
    add("--record", action="store_true", help="the same ratios, three times, to be kept")
    add("--curve", action="store_true", help="score by time, whole trainings; much longer")
    add("--seeds", type=int, nargs="+", default=[42], help="of --curve")
    add("--fold", type=int, nargs="+", help="of --curve: of four folds one for each seed")
    add("--epochs", type=int, help="of --curve, instead of those of each recipe")
    add("--ours", nargs="+", default=[], help="of --curve: options of our run, as a=b")
    add("--pairs", type=int, help="times that each way runs (2; --quick 1, --record 3)")
    add("--steps", type=int, default=Workload.steps, help="optimizer steps, 2 or more")
    add("--batch-size", type=int, nargs="+", help="tuples a step (32 128; on the sample 8)")
    add("--precision", nargs="+", choices=get_args(Precision), help="default: those of the processor")
    add("--data", help="sample, or a folder; default: the real data if found, else sample")
    add("--task", nargs="+", default=TASKS, choices=TASKS, help="default: all")
    add("--model", help="a model folder; default: the packaged MiniLM")
    add("--dropout", action=switch, default=True, help="without, losses can be compared")
    add("--start", action=switch, default=True, help="measure the wait before the first step too")
    add("--output", type=Path, default=ROOT / "checkpoints" / "bench", help="a folder")
    add("--way", choices=MODULES, help=argparse.SUPPRESS)
    add("--workload", help=argparse.SUPPRESS)
    return parser


def _measure(cases: Sequence[Case], rounds: int, output: Path) -> tuple[dict[str, list[float]], list[str]]:
    """Ratios of all cases, and where the ways do not agree; `bench.json` is written after each case."""
    values: dict[str, list[float]] = {}
    problems, results = [], []
    output.mkdir(parents=True, exist_ok=True)
    for case in cases:
        runs: dict[Way, list[Measured]] = {way: [] for way in case.ways}
        for number in range(rounds if case.is_repeated else 1):
            print(f"{case.name}, round {number + 1} …", file=sys.stderr, flush=True)
            for way, run in zip(case.ways, run_in_turn(case.ways, case.workload), strict=True):
                runs[way].append(run)
        print(f"\n{case.name}\n{table(runs)}", flush=True)
        for way in case.ways[1:]:
            for mine, theirs in zip(runs["ours"], runs[way], strict=True):
                problems += [f"{case.name}, {way}: {p}" for p in disagreements(mine, theirs, case.workload)]
        values |= ratios(case, runs)
        measured = {way: [asdict(run) for run in way_runs] for way, way_runs in runs.items()}
        facts = {"name": case.name, "workload": asdict(case.workload)}
        results.append({**facts, "runs": measured, "ratios": ratios(case, runs)})
        whole = {"machine": _machine(), "cases": results}
        (output / "bench.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")
    print("\n".join(f"NOT THE SAME: {problem}" for problem in problems))
    return values, problems


def processor_kind() -> str:
    """Maker and instructions, which ratios depend on: `AuthenticAMD AVX512 bfloat16`."""
    facts = Path("/proc/cpuinfo")
    maker = re.search(r"vendor_id\s*: (\S+)", facts.read_text()) if facts.is_file() else None
    names = maker[1] if maker else platform.machine(), torch.backends.cpu.get_cpu_capability()
    return " ".join([*names, *["bfloat16"] * has_bf16_instructions()])


def _machine() -> dict[str, Any]:
    return {
        "processor": processor_kind(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("torch", "transformers", "sentence-transformers")},
    }


def run_in_turn(ways: Sequence[Way], workload: Workload) -> list[Measured]:
    """Each way in a process of its own; of training all take a step in turn.

    So what else the machine does meets all alike. Peak memory is a process's, and no cache is warm for the
    second.
    """
    turns = {way: _turns(way, workload) for way in ways}
    runs: dict[Way, Measured] = {}
    while len(runs) < len(ways):
        for way in ways:
            if way not in runs and (run := next(turns[way])) is not None:
                runs[way] = run
    return [runs[way] for way in ways]


def _turns(way: Way, workload: Workload) -> Iterator[Measured | None]:
    """None after each step, and at last the run."""
    command = [sys.executable, "-m", "bench", f"--way={way}", f"--workload={json.dumps(asdict(workload))}"]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, **pipes, stderr=errors, cwd=ROOT, env={**os.environ, TURNS: "1"}) as child,
    ):
        try:
            last = ""
            for last in child.stdout or ():
                if last.strip() == STEP_ENDED:
                    yield None
                    with suppress(BrokenPipeError):  # it died while it waited, and its status tells
                        print(file=child.stdin, flush=True)
            if child.wait():
                errors.seek(0)
                sys.exit(f"{' '.join(command)} failed:\n{errors.read()}")
            result = json.loads(last)
            yield Measured(**result | {"times": [Time(**time) for time in result["times"]]})
        finally:
            child.terminate()


if __name__ == "__main__":
    sys.exit(main())
