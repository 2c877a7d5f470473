"""`python -m bench`: all ways in turn, each time in a fresh process, and the comparison."""

from __future__ import annotations

import argparse
import dataclasses
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
from statistics import median
from typing import Any, get_args

import torch

from bench.cases import ALL, Case, own_files, usual
from bench.curve import curve
from bench.curve_ways import Task
from bench.growth import growth
from bench.measure import STEP_ENDED, TURNS, Measured, Time, matmul_rate, peak_memory, useful_operations
from bench.plot import plot
from bench.quick import quick
from bench.report import LEGEND, Run, Work, disagreements, summary, table
from bench.start import processor_times
from bench.workload import (
    KINDS,
    MODES,
    ROOT,
    Precision,
    Workload,
    batches,
    real_data,
    set_threads,
    splits,
    usual_precisions,
)
from idiomtune.data.idiolink import document_request, query_request
from idiomtune.encoder.device import has_bf16_instructions
from idiomtune.encoder.loading import load_model, resolve_model_path
from idiomtune.encoder.reading import Prompts

MODULES = {"ours": "ours", "sentence_transformers": "library", "predecessor": "predecessor"}
DEFAULT_BATCH_SIZES = [32, 128]
SAMPLE_BATCH_SIZES = [8]  # the sample has 24 tuples
_NOUNS = {"tuples": "released tuples", "pairs": "pairs", "scored": "scored pairs"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 if the ways do not agree, or something has become slower."""
    parser = _parser()
    options = parser.parse_args(arguments)
    data = options.data or real_data() or "sample"
    sizes = options.batch_size or (SAMPLE_BATCH_SIZES if data == "sample" else DEFAULT_BATCH_SIZES)
    workload = Workload(
        data,
        options.model,
        options.steps,
        sizes[0],
        "fp32" if options.precision is None else options.precision[0],
        options.dropout,
        not options.no_score,
        options.threads,
        options.kind[0],
        options.device,
    )
    set_threads(workload)
    if options.way is not None:
        print(json.dumps(asdict(run_here(options.way, workload))))
        return 0
    if options.curve:
        tasks = [Task(s, data, options.model, workload.precision, options.epochs) for s in options.seeds]
        return curve(tasks, options.output)
    workload = dataclasses.replace(workload, kind="tuples")  # of which files are made
    if options.quick or options.record:
        rounds = options.pairs or (3 if options.record else 1)
        return quick(workload, rounds, run_in_turn, machine=_machine(), keeps=options.record)
    if options.steps < 2:
        parser.error("--steps: 2 or more, because the first is not timed")
    if options.growth:
        print(growth(workload, run_in_turn, options.output))
        return 0
    cases = own_files(workload, options.kind)
    if "tuples" in options.kind:
        cases = [*usual(workload, options.precision or usual_precisions(), sizes), *cases]
    starts = [processor_times(workload) for _ in range(options.pairs or 2)] if options.start else []
    return _compare(cases, options.pairs or 2, options.output, starts)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    instead = parser.add_argument_group("instead of the usual comparison")
    instead.add_argument(
        "--quick",
        action="store_true",
        help="the main ratios, beside those recorded; status 1 if one is worse",
    )
    instead.add_argument("--record", action="store_true", help="the same ratios, three times, to be kept")
    instead.add_argument(
        "--growth", action="store_true", help="exponents by corpus, batch, glossary, processes"
    )
    instead.add_argument("--curve", action="store_true", help="score by time, whole trainings; much longer")
    parser.add_argument("--seeds", type=int, nargs="+", default=[42], help="of --curve")
    parser.add_argument("--epochs", type=int, help="of --curve, instead of those of each recipe")
    parser.add_argument("--pairs", type=int, help="times that each way runs (2; --quick 1, --record 3)")
    parser.add_argument(
        "--steps", type=int, default=Workload.steps, help="optimizer steps of a run, 2 or more"
    )
    parser.add_argument(
        "--batch-size", type=int, nargs="+", help="tuples a step, one or several (32 128; on the sample 8)"
    )
    parser.add_argument(
        "--precision",
        nargs="+",
        choices=get_args(Precision),
        help="of training, one or both (both where the processor has bfloat16; --curve fp32)",
    )
    parser.add_argument("--data", help="sample, or a folder; default: the real data if found, else sample")
    parser.add_argument(
        "--kind",
        nargs="+",
        default=KINDS,
        choices=KINDS,
        help="trained on: IdioLink's tuples, a CSV of pairs, a CSV of scored pairs; default: all",
    )
    parser.add_argument("--model", help="a model folder; default: the packaged MiniLM")
    parser.add_argument(
        "--dropout",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="train with the model's dropout, as by default; losses can be compared without it alone",
    )
    parser.add_argument("--no-score", action="store_true", help="train alone")
    parser.add_argument(
        "--start",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure the wait before the first step too",
    )
    parser.add_argument("--device", default="cpu", help="that torch knows")
    parser.add_argument("--threads", type=int, help="of torch; default: its own choice")
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "checkpoints" / "bench",
        help="where bench.json and bench.png go",
    )
    parser.add_argument("--way", choices=ALL, help=argparse.SUPPRESS)  # one run, in this process
    return parser


def _compare(cases: Sequence[Case], pairs: int, output: Path, starts: Sequence[dict[str, float]] = ()) -> int:
    results: list[dict[str, Any]] = []
    failed = False
    output.mkdir(parents=True, exist_ok=True)
    if starts:
        print("\n".join(f"{name}: {median(s[name] for s in starts):.1f} cpu s" for name in starts[0]))
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            workload = case.prepared(Path(folder))
            work = work_of(workload)
            print(f"\n{case.name}: {_describe(case, work)}", flush=True)
            runs: dict[str, list[Run]] = {way: [] for way in case.ways}
            rounds = 1 if case.once else pairs
            for number in range(rounds):
                for way, run in zip(case.ways, run_in_turn(case.ways, workload), strict=True):
                    runs[way].append(run)
                print(f"round {number + 1} of {rounds} is done", file=sys.stderr, flush=True)
        figures = summary(work, runs)
        print("\n" + table(figures))
        for way in case.ways[1:]:
            for mine, theirs in zip(runs["ours"], runs[way], strict=True):
                near, problems = disagreements(
                    mine.measured,
                    theirs.measured,
                    dropout=workload.dropout,
                    bf16=workload.precision == "bf16",
                    own=workload.kind != "tuples",
                )
                failed |= bool(problems)
                print("\n".join([f"{way}: {near}", *(f"NOT THE SAME: {problem}" for problem in problems)]))
        results.append(
            {
                "name": case.name,
                "workload": asdict(case.workload),
                "work": asdict(work),
                "figures": figures,
                "runs": {way: [asdict(run) for run in way_runs] for way, way_runs in runs.items()},
            }
        )
        # After each case: what is there should not be lost.
        whole = {"machine": _machine(), "start": starts, "cases": results}
        (output / "bench.json").write_text(json.dumps(whole, indent=1))
        plot(results, output / "bench.png", starts)
    print(f"\n{LEGEND}\n\nfigures in {output / 'bench.json'}, picture in {output / 'bench.png'}")
    return int(failed)


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


def work_of(workload: Workload) -> Work:
    """What the workload asks for."""
    settings = workload.settings()
    model = load_model(resolve_model_path(settings.model.path), settings.model, device="cpu")
    timed = batches(settings)[1:] if workload.steps else []
    train_operations = sum(
        3 * useful_operations(model, (text for t in step for text in (t.query, t.positive, *t.negatives)))
        for step in timed
    )
    tuples = sum(len(step) for step in timed)
    if not workload.score:
        return Work(tuples, train_operations, 0.0, 0, 0)
    _, val = splits(settings)
    requests = [document_request(d) for d in val.documents]
    requests += [query_request(q, mode) for mode in MODES for q in val.queries]
    score_operations = useful_operations(model, (Prompts().render(request)[0] for request in requests))
    return Work(tuples, train_operations, score_operations, len(val.documents), len(val.queries))


def _describe(case: Case, work: Work) -> str:
    workload = case.workload
    data = "the sample" if workload.data == "sample" else workload.data
    parts = [f"model {workload.model or 'MiniLM'}, data {data}"]
    if workload.steps:
        parts.append(
            f"{workload.steps} steps of {workload.batch_size} {_NOUNS[case.kind]} in {workload.precision}, "
            f"dropout {'on' if workload.dropout else 'off'} "
            f"({work.train_operations / 1e9:.0f} GFLOP in those that are timed)"
        )
    if workload.score:
        parts.append(
            f"val scored: {work.queries} queries in {len(MODES)} modes, {work.documents} documents "
            f"({work.score_operations / 1e9:.0f} GFLOP)"
        )
    return "; ".join([*parts, f"CPU, {torch.get_num_threads()} threads"])


def run_here(way: str, workload: Workload) -> Run:
    """In this process."""
    dtype = torch.bfloat16 if workload.precision == "bf16" else torch.float32
    before = matmul_rate(dtype), matmul_rate()
    # Each imported where it is run: what the others import is memory that this way would not hold.
    measured = import_module(f"bench.{MODULES[way]}").run(workload)
    peak = peak_memory()
    return Run(measured, peak, max(before[0], matmul_rate(dtype)), max(before[1], matmul_rate()))


def run_in_turn(ways: Sequence[str], workload: Workload) -> list[Run]:
    """Each way in a process of its own; of training all take a step in turn.

    So what else the machine does meets all alike. Peak memory is a process's, and no cache is warm for the
    second.
    """
    turns = {way: _turns(way, workload) for way in ways}
    runs: dict[str, Run] = {}
    while len(runs) < len(ways):
        for way in ways:
            if way not in runs and (run := next(turns[way])) is not None:
                runs[way] = run
    return [runs[way] for way in ways]


def _turns(way: str, workload: Workload) -> Iterator[Run | None]:
    """None after each step, and at last the run."""
    if way == "sentence_transformers":
        workload = dataclasses.replace(workload, score=False)
    command = [sys.executable, "-m", "bench", f"--way={way}", *workload.arguments()]
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
            yield _from_record(json.loads(last))
        finally:
            child.terminate()


def _from_record(record: dict[str, Any]) -> Run:
    measured = record.pop("measured")
    measured["steps"] = [Time(**step) for step in measured["steps"]]
    measured["score"] = None if measured["score"] is None else Time(**measured["score"])
    return Run(Measured(**measured), **record)


if __name__ == "__main__":
    sys.exit(main())
