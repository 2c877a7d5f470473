"""How time grows with the corpus, the batch, the glossary and the number of processes, as exponents."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import linear_regression, median

from bench.cases import grown
from bench.measure import Time
from bench.own_files import on_file
from bench.report import Run
from bench.workload import ROOT, Workload, splits
from idiomtune.expressions import ExpressionIndex

COPIES = (1, 4, 16)  # of the corpus; the last has a word for each copy
BATCH_SIZES = (32, 128, 512, 1024)
GLOSSARIES = (100, 1_000, 10_000, 100_000)
PROCESSES = (1, 2, 4, 8)
_STEPS = 3  # the first is not timed

Seconds = dict[int, float]  # by size


def growth(workload: Workload, run: Callable[[Sequence[str], Workload], list[Run]], output: Path) -> str:
    """The table; its figures go to `growth.json`, after each part, since all take long.

    Args:
        run: runs ways in a process of their own each.
    """
    parts: dict[str, Callable[[], Seconds]] = {
        "val's corpus … times, scored": lambda: corpora(workload, run),
        "a step with a batch of … pairs": lambda: batches(workload, run),
        "1,000 texts searched for … expressions, and their index built": lambda: glossaries(workload),
        "1,000 texts trained on by … processes, elapsed": lambda: processes(workload),
    }
    output.mkdir(parents=True, exist_ok=True)
    measured: dict[str, Seconds] = {}
    for name, measure in parts.items():
        measured[name] = measure()
        print(name, measured[name], file=sys.stderr, flush=True)
        (output / "growth.json").write_text(json.dumps(measured, indent=1), encoding="utf-8")
    return table(measured)


def exponent(seconds: Mapping[int, float]) -> float:
    """b of seconds ~ size^b: 1 = in proportion."""
    sizes, times = ([math.log(value) for value in values] for values in (seconds, seconds.values()))
    return linear_regression(sizes, times).slope


def table(measured: Mapping[str, Seconds]) -> str:
    """A line each: sizes with their seconds, and the exponent."""
    lines = ["| | … : seconds | exponent |", "|---|---|---|"]
    for name, seconds in measured.items():
        cells = ", ".join(f"{size:,}: {value:.3g}" for size, value in seconds.items())
        lines.append(f"| {name} | {cells} | {exponent(seconds):.2f} |")
    return "\n".join(lines)


def corpora(workload: Workload, run: Callable[[Sequence[str], Workload], list[Run]]) -> Seconds:
    """Processor seconds of the scorecard over so many times as many documents."""
    scoring, seconds = dataclasses.replace(workload, steps=0, score=True), {}
    for copies in COPIES:
        with tempfile.TemporaryDirectory() as folder:
            work = grown(scoring, copies, Path(folder)) if copies > 1 else scoring
            (done,) = run(["ours"], work)
        assert done.measured.score is not None
        seconds[copies] = done.measured.score.cpu
    return seconds


def batches(workload: Workload, run: Callable[[Sequence[str], Workload], list[Run]]) -> Seconds:
    """Processor seconds of a step on a file of pairs, texts of about the same lengths."""
    training, seconds = dataclasses.replace(workload, steps=_STEPS, score=False), {}
    with tempfile.TemporaryDirectory() as folder:
        on_pairs = on_file(training, "pairs", Path(folder))
        path = Path(on_pairs.data)
        with path.open(encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file)
        while len(rows) < max(BATCH_SIZES):  # another word before each text: no two are equal
            rows += [[f"Case {len(rows)}, {text}" for text in row] for row in rows]
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([head, *rows])
        for size in BATCH_SIZES:
            (done,) = run(["ours"], dataclasses.replace(on_pairs, batch_size=size))
            seconds[size] = median(step.cpu for step in done.measured.steps)
    return seconds


def glossaries(workload: Workload) -> Seconds:
    """Processor seconds to build an index of so many expressions, and to search 1,000 texts with it."""
    texts = [r.sentence for split in splits(workload.settings()) for r in (*split.documents, *split.queries)]
    words = sorted({word for text in texts for word in text.split() if word.isalpha()})
    seconds = {}
    for size in GLOSSARIES:
        pairs = itertools.islice(((a, b) for b in words for a in words if a != b), size)
        start = Time.now()
        index = ExpressionIndex([f"{a} {b}" for a, b in pairs])
        for text in itertools.islice(itertools.cycle(texts), 1000):
            index.find(text)
        seconds[size] = (Time.now() - start).cpu
    return seconds


def processes(workload: Workload) -> Seconds:
    """Elapsed seconds of training on 1,000 texts by so many processes of a thread each."""
    model = [] if workload.model is None else ["model=pretrained", f"model.path='{workload.model}'"]
    options = ["+experiment=idiolink_ft", "data=sample", "device=cpu", "precision=fp32", *model]
    options += ["trainer.max_steps=6", "eval.every=end", "benchmark=[idiolink]", "trainer.invariants=false"]
    seconds = {}
    for number in PROCESSES:
        with tempfile.TemporaryDirectory() as folder:
            launch = ["-m", "torch.distributed.run", f"--nproc_per_node={number}", "-m", "train"]
            done = subprocess.run(
                [sys.executable, *launch, *options, f"run_dir='{folder}/run'"],
                capture_output=True,
                text=True,
                check=False,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "IDIOM_CACHE": f"{folder}/cache"},
            )
            if done.returncode:
                sys.exit(f"{number} processes failed:\n{done.stderr}")
            lines = (Path(folder) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            records = [record for record in map(json.loads, lines) if "loss" in record]
            seconds[number] = median(1000 / record["texts_per_second"] for record in records[1:])
    return seconds
