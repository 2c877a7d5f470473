"""The curve of scores by time: its clock, its figures by hand, and that each way gives points."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bench import curve as program
from bench.curve import curve
from bench.curve_report import best, draw, first_to_reach, key_of, table, times_as_soon
from bench.curve_ways import KEYS, WAYS, Clock, Task, drawn_triplets, predecessor, sentence_transformers
from idiomtune.data.idiolink import load_split
from idiomtune.data.sources import SAMPLE_ROOT

pytestmark = pytest.mark.slow

_NDCG = key_of("ndcg@10")


def _run(way: str, points: list[tuple[float, float]], seed: int = 42) -> dict[str, Any]:
    """Points of processor seconds and a score; of the seconds a tenth are evaluation."""
    return {
        "way": way,
        "seed": seed,
        "points": [
            {"step": step, "cpu": cpu, "wall": 2 * cpu, "scores": dict.fromkeys(KEYS, score)}
            | {"evaluation_cpu": cpu / 10, "evaluation_wall": cpu / 5}
            for step, (cpu, score) in enumerate(points)
        ],
    }


_RUNS = [
    _run("ours", [(10, 0.5), (20, 0.8), (30, 0.9)]),
    _run("predecessor", [(20, 0.6), (60, 0.8), (80, 0.7), (90, 0.8)]),
    _run("sentence_transformers", [(50, 0.95)]),
]


def test_ratios_by_hand(tmp_path: Path) -> None:
    """The predecessor is at its best, .8, after 60 seconds, where ours is after 20."""
    assert best(_RUNS[1], _NDCG)["cpu"] == 60
    assert times_as_soon(_RUNS, "predecessor", _NDCG, "cpu") == [3.0]
    assert times_as_soon(_RUNS, "predecessor", _NDCG, "wall", evaluations=False) == [3.0]
    assert first_to_reach(_RUNS[0], _NDCG, 0.95) is None
    assert times_as_soon(_RUNS, "sentence_transformers", _NDCG, "cpu") == [None]
    again = [_run("ours", [(30, 0.8)], 43), _run("predecessor", [(60, 0.8)], 43)]
    text = table([*_RUNS, *again])
    assert "predecessor: 2.5 times as soon (2.0–3.0) by processor time" in text
    assert "sentence_transformers: never" in text
    draw(_RUNS, tmp_path / "curve.png")
    (tmp_path / "curve.png").stat()


def test_the_clock_leaves_out_pauses_and_tells_evaluations_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100, 200))  # each look at it takes a second
    monkeypatch.setattr("bench.curve_ways.time.time", lambda: float(next(now)))
    clock = Clock(0.0)
    with clock.paused():
        pass
    with clock.evaluating(), clock.paused():
        pass
    seconds = clock.seconds()
    assert (seconds["wall"], seconds["evaluation_wall"]) == (104.0, 2.0)


def test_what_is_there_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that fails ends it, and what is there stays; another task is run anew."""
    runs = {run["way"]: run for run in _RUNS}
    asked: list[tuple[str, int]] = []

    def made_up(way: str, task: Task, path: Path) -> str | None:
        asked.append((way, task.seed))
        if len(asked) == 3:
            return "out of memory"
        path.write_text(json.dumps({"task": vars(task), "points": runs[way]["points"]}), encoding="utf-8")
        return None

    monkeypatch.setattr(program, "_run", made_up)
    monkeypatch.setattr(program, "draw", lambda _, path: path.touch())
    tasks = [Task(42, "sample"), Task(43, "sample")]
    assert curve(tasks, tmp_path) == 1
    assert "out of memory" in capsys.readouterr().err
    assert curve(tasks, tmp_path) == 0
    assert asked[2:] == [(WAYS[2], 42), (WAYS[2], 42), *((way, 43) for way in WAYS)]
    assert len(json.loads((tmp_path / "curve.json").read_text(encoding="utf-8"))) == 6
    (tmp_path / "curve.png").stat()
    assert curve(tasks, tmp_path) == 0
    assert len(asked) == 7
    assert curve([Task(42, "sample", precision="bf16")], tmp_path) == 0
    assert len(asked) == 10


def test_a_triplet_has_a_positive_and_a_hard_negative() -> None:
    split = load_split(SAMPLE_ROOT / "idiolink", "train")
    columns = drawn_triplets(split, 42)
    of_text = {record.sentence: record for record in (*split.documents, *split.queries)}
    assert len(columns["anchor"]) == len(split.documents) + len(split.queries)
    for texts in zip(*columns.values(), strict=True):
        anchor, positive, negative = (of_text[text] for text in texts)
        assert anchor.idiom == positive.idiom == negative.idiom
        assert anchor.meaning == positive.meaning != negative.meaning
        assert anchor.id != positive.id
    assert drawn_triplets(split, 42) == columns != drawn_triplets(split, 43)


@pytest.mark.parametrize("way", [predecessor, sentence_transformers])
def test_a_way_gives_a_point_an_epoch(
    way: Callable[[Task, Clock, Path], None], tiny_path: Path, tmp_path: Path
) -> None:
    clock = Clock(time.time())
    way(Task(42, "sample", str(tiny_path), epochs=2, batch_size=8), clock, tmp_path)
    first, second = clock.points
    assert first["step"] * 2 == second["step"]
    assert second["cpu"] > first["cpu"]
    assert 0 < second["evaluation_cpu"] < second["cpu"]
    assert list(first["scores"]) == KEYS
    before = load_file(tiny_path / "model.safetensors")
    kept = [load_file(path) for path in tmp_path.rglob("model.safetensors")]
    assert kept
    for weights in kept:
        assert any(not torch.equal(weights[name], tensor) for name, tensor in before.items())
