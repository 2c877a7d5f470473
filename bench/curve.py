"""Score by seconds of training: ours, the predecessor's way and sentence-transformers' trainer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no screen needed
from matplotlib import pyplot as plt

from bench.curve_ways import KEYS, METRICS, MODES, WAYS, Recipe
from bench.workload import ROOT

TENTHS = range(1, 11)


def curve(recipes: Sequence[Recipe], output: Path, ways: Sequence[str] = WAYS) -> int:
    """Run what is not there yet, each way and seed in a process of its own, and tell of all.

    Args:
        recipes: one a seed.
        output: gets a file for each way and seed, `curve.json` and `curve.png`.

    Returns:
        The exit status: 1 if a run failed; what is there is kept.
    """
    folder = output / "curve"
    folder.mkdir(parents=True, exist_ok=True)
    runs: list[dict[str, Any]] = []
    for recipe in recipes:
        record = json.loads(json.dumps(asdict(recipe)))  # as a file has it
        for way in ways:
            path = folder / f"{way}_{recipe.seed}{'' if recipe.fold is None else f'_{recipe.fold}'}.json"
            run = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            if run.get("recipe") != record:
                points = _run(way, recipe)
                if isinstance(points, str):
                    print(f"{way}, seed {recipe.seed}: failed: {points}", file=sys.stderr)
                    return 1
                run = {"way": way, "recipe": record, "points": points}
                path.write_text(json.dumps(run, indent=1), encoding="utf-8")
            runs.append(run)
    (output / "curve.json").write_text(json.dumps(runs, indent=1), encoding="utf-8")
    draw(runs, output / "curve.png")
    print(table(runs))
    print(f"\nfigures in {output / 'curve.json'}, picture in {output / 'curve.png'}")
    return 0


def _run(way: str, recipe: Recipe) -> list[dict[str, Any]] | str:
    """Points of a way and seed; or what went wrong."""
    print(f"{way}, seed {recipe.seed} …", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "bench.curve_ways", way, json.dumps(asdict(recipe))]
    pipes: Any = {"stdout": subprocess.PIPE, "stdin": subprocess.DEVNULL, "text": True}
    done = subprocess.run(command, **pipes, check=False, cwd=ROOT)
    if done.returncode:
        return f"{' '.join(command)} ended with status {done.returncode}"
    points: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return points


def seconds_to(points: Sequence[dict[str, Any]], key: str, score: float) -> float | None:
    """Processor seconds until a score is reached, between two points in proportion; None: never."""
    first = points[0]
    if first["scores"][key] >= score:
        return float(first["cpu"])
    for before, after in pairwise(points):
        low, high = before["scores"][key], after["scores"][key]
        if high >= score:
            share = (score - low) / (high - low)
            return float(before["cpu"] + share * (after["cpu"] - before["cpu"]))
    return None


def times_as_soon(runs: Sequence[dict[str, Any]], way: str, key: str) -> list[list[float | None]]:
    """For each run of a way and each tenth of the way to its best, its time over that of ours; None: never.

    The way to the best begins with the first point's score, the lower of the two.
    """
    result = []
    for theirs in (run for run in runs if run["way"] == way):
        points = next(r for r in runs if (r["way"], r["recipe"]) == ("ours", theirs["recipe"]))["points"]
        best = max(point["scores"][key] for point in theirs["points"])
        start = min(run[0]["scores"][key] for run in (points, theirs["points"]))
        ratios: list[float | None] = []
        for tenth in TENTHS:
            level = start + (best - start) * tenth / len(TENTHS)
            mine, others = (seconds_to(run, key, level) for run in (points, theirs["points"]))
            ratios.append(others / mine if mine and others else None)
        result.append(ratios)
    return result


def table(runs: Sequence[dict[str, Any]]) -> str:
    """By metric: the best of each way and its time, means over runs; and how soon ours reaches each tenth."""
    lines = ["seconds of training, without scoring; means over seeds"]
    for (mode, metric), key in KEYS.items():
        lines += ["", f"{f'{mode}, {METRICS[metric]}':<26}{'best':>8}{'cpu s':>9}{'wall s':>9}{'last':>9}"]
        for way in dict.fromkeys(run["way"] for run in runs):
            of_way = [run["points"] for run in runs if run["way"] == way]
            best = [max(points, key=lambda point: point["scores"][key]) for points in of_way]
            figures = [mean(point[clock] for point in best) for clock in ("cpu", "wall")]
            scores = [mean(p["scores"][key] for p in (*best,)), mean(p[-1]["scores"][key] for p in of_way)]
            lines.append(f"{way:<26}{scores[0]:>8.2%}{figures[0]:>9.0f}{figures[1]:>9.0f}{scores[1]:>9.2%}")
            if way != "ours":
                tenths = zip(*times_as_soon(runs, way, key), strict=True)
                cells = " ".join(_middle(ratios) for ratios in tenths)
                lines.append(f"  ours is so many times as soon at each tenth: {cells}")
    return "\n".join(lines)


def _middle(ratios: Sequence[float | None]) -> str:
    """The median; a run that never comes there counts as 0."""
    middle = median(ratio or 0.0 for ratio in ratios)
    return f"{middle:.2f}" if middle else "never"


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """A panel a metric and query mode; a line a run, by processor time."""
    figure, axes = plt.subplots(
        len(METRICS), len(MODES), figsize=(10, 3.6 * len(METRICS)), constrained_layout=True
    )
    for row, metric in zip(axes, METRICS, strict=True):
        for axis, mode in zip(row, MODES, strict=True):
            for run in runs:
                number = WAYS.index(run["way"])
                axis.plot(
                    [point["cpu"] for point in run["points"]],
                    [100 * point["scores"][KEYS[mode, metric]] for point in run["points"]],
                    color=f"C{number}",
                    marker="os^"[number],
                    markersize=4,
                    label=run["way"].replace("_", "-") if run["recipe"] == runs[0]["recipe"] else None,
                )
            axis.set_xlim(left=0)
            axis.set_xlabel("processor seconds of training")
            axis.set_title(f"{METRICS[metric]}, {mode} queries, percent", loc="left", fontsize="medium")
            axis.grid(alpha=0.3)
            axis.legend(fontsize="small", loc="lower right")
    figure.savefig(path, dpi=110)
    plt.close(figure)
