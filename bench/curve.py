"""Score per minute: ours, the predecessor's way and sentence-transformers' trainer, to their best scores."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.curve_report import draw, table
from bench.curve_ways import WAYS, Task
from bench.workload import ROOT


def curve(tasks: Sequence[Task], output: Path) -> int:
    """Run what is not there yet, each way and seed in a process of its own, and tell of all.

    Args:
        tasks: one a seed.
        output: gets a file for each way and seed, `curve.json` and `curve.png`.

    Returns:
        The exit status: 1 if a run failed; what is there is kept.
    """
    folder = output / "curve"
    folder.mkdir(parents=True, exist_ok=True)
    runs: list[dict[str, Any]] = []
    for task in tasks:
        for way in WAYS:
            path = folder / f"{way}_{task.seed}.json"
            if not _is_done(path, task):
                problem = _run(way, task, path)
                if problem is not None:
                    print(f"{way}, seed {task.seed}: failed: {problem}", file=sys.stderr)
                    return 1
            runs.append({"way": way, "seed": task.seed, **json.loads(path.read_text(encoding="utf-8"))})
    (output / "curve.json").write_text(json.dumps(runs, indent=1), encoding="utf-8")
    draw(runs, output / "curve.png")
    print(table(runs))
    print(f"\nfigures in {output / 'curve.json'}, picture in {output / 'curve.png'}")
    return 0


def _is_done(path: Path, task: Task) -> bool:
    """Whether the file is there, of this very task."""
    return path.is_file() and json.loads(path.read_text(encoding="utf-8"))["task"] == asdict(task)


def _run(way: str, task: Task, path: Path) -> str | None:
    """Write the file of a way and seed; returns what went wrong."""
    print(f"{way}, seed {task.seed} …", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "bench.curve_ways", way, *task.arguments()]
    done = subprocess.run(
        [*command, f"--started={time.time()}"],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode:
        return f"{' '.join(command)} ended with status {done.returncode}"
    record = {"task": asdict(task), **json.loads(done.stdout.splitlines()[-1])}
    path.write_text(json.dumps(record, indent=1), encoding="utf-8")
    return None
