"""`python -m tests.bench`: both ways in turn, each time in a fresh process, and the comparison."""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from dataclasses import asdict

import torch

from tests.bench import ours, predecessor
from tests.bench.measure import Measured, peak_memory, sgemm_rate, useful_operations
from tests.bench.report import Run, disagreements, table
from tests.bench.workload import MODES, Workload, batches, real_data, set_threads, splits
from train.build import resolve_model_path
from train.data.idiolink import document_request, query_request
from train.loading import load_model
from train.prompts import Prompts

WAYS = {"ours": ours.run, "predecessor": predecessor.run}


def main() -> int:
    """Returns the exit status: 1 if the two ways do not agree."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--pairs", type=int, default=3, help="times that each way runs")
    parser.add_argument("--steps", type=int, default=Workload.steps, help="optimizer steps of a run")
    parser.add_argument("--batch-size", type=int, default=Workload.batch_size, help="tuples a step")
    parser.add_argument("--data", help="sample, or a folder; default: the real data if found, else sample")
    parser.add_argument("--model", help="a model folder; default: the packaged MiniLM")
    parser.add_argument("--dropout", action="store_true", help="train with the model's dropout on")
    parser.add_argument("--threads", type=int, help="of torch; default: its own choice")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)  # one run, in this process
    options = vars(parser.parse_args())
    pairs, way = options.pop("pairs"), options.pop("way")
    workload = Workload(**options | {"data": options["data"] or real_data() or "sample"})
    set_threads(workload)
    if way is not None:
        print(json.dumps(asdict(_run_here(way, workload))))
        return 0

    train_operations, score_operations = _describe(workload)
    runs: dict[str, list[Run]] = {name: [] for name in WAYS}
    for number, name in itertools.product(range(pairs), WAYS):
        run = _run_apart(name, workload)
        runs[name].append(run)
        print(f"run {number + 1} of {pairs}, {name}: {run.seconds:.1f} s", file=sys.stderr, flush=True)
    print("\n" + table(runs["ours"], runs["predecessor"], train_operations, score_operations))
    failed = False
    for mine, theirs in zip(runs["ours"], runs["predecessor"], strict=True):
        near, problems = disagreements(mine.measured, theirs.measured, dropout=workload.dropout)
        failed |= bool(problems)
        print("\n".join([near, *(f"NOT THE SAME: {problem}" for problem in problems)]))
    return int(failed)


def _describe(workload: Workload) -> tuple[float, float]:
    """Say what is run; returns the useful operations of training and of scoring."""
    settings = workload.settings()
    train_split, val = splits(settings)
    model = load_model(resolve_model_path(settings.model.path), device="cpu")
    sentence_of = {r.id: r.sentence for r in (*train_split.documents, *train_split.queries)}
    train_operations = sum(
        3
        * useful_operations(
            model, (sentence_of[i] for t in step for i in (t.anchor, *t.positives, *t.hard, *t.soft))
        )
        for step in batches(settings)
    )
    requests = [document_request(d) for d in val.documents]
    requests += [query_request(q, mode) for mode in MODES for q in val.queries]
    score_operations = useful_operations(model, (Prompts().render(request)[0] for request in requests))
    data = "the sample" if workload.data == "sample" else workload.data
    print(
        f"workload: model {settings.model.path}, data {data};"
        f" {workload.steps} steps of {workload.batch_size} released tuples, then val scored:"
        f" {len(val.queries)} queries in {len(MODES)} modes, {len(val.documents)} documents;"
        f" float32, CPU, {torch.get_num_threads()} threads, dropout {'on' if workload.dropout else 'off'};"
        " loading is not counted"
    )
    return train_operations, score_operations


def _run_here(way: str, workload: Workload) -> Run:
    before = sgemm_rate()
    measured = WAYS[way](workload)
    return Run(measured, peak_memory(), max(before, sgemm_rate()))


def _run_apart(way: str, workload: Workload) -> Run:
    """In a process of its own: peak memory is a process's, and no cache is warm for the second."""
    command = [sys.executable, "-m", "tests.bench", f"--way={way}", *workload.arguments()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    record = json.loads(done.stdout.splitlines()[-1])
    return Run(**record | {"measured": Measured(**record["measured"])})


if __name__ == "__main__":
    sys.exit(main())
