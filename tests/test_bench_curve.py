"""The curve of scores by time: its clock, its figures by hand, and that each way gives points."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.curve import (
    KEYS,
    Clock,
    Recipe,
    draw,
    drawn_triplets,
    ours,
    seconds_to,
    sentence_transformers,
    table,
    times_as_soon,
)
from idiomtune.data.idiolink import load_split
from idiomtune.data.sources import SAMPLE_ROOT

pytestmark = pytest.mark.slow

_NDCG = KEYS["sentence", "ndcg@10"]


def _run(way: str, points: list[tuple[float, float]], seed: int = 42) -> dict[str, Any]:
    """Points of processor seconds and a score."""
    return {
        "way": way,
        "recipe": vars(Recipe(seed, "sample")),
        "points": [
            {"step": step, "cpu": cpu, "wall": 2 * cpu, "scores": dict.fromkeys(KEYS.values(), score)}
            for step, (cpu, score) in enumerate(points)
        ],
    }


_RUNS = [
    _run("ours", [(10, 0.5), (20, 0.7), (30, 0.9)]),
    _run("other", [(20, 0.4), (60, 0.8), (80, 0.6), (90, 0.8)]),
    _run("sentence_transformers", [(50, 0.95)]),
]


def test_ratios_by_hand(tmp_path: Path) -> None:
    """The other's best is .8, after 60 seconds: ours is there after 25."""
    assert seconds_to(_RUNS[1]["points"], _NDCG, 0.7) == pytest.approx(50)
    assert seconds_to(_RUNS[0]["points"], _NDCG, 0.95) is None
    assert times_as_soon(_RUNS, "other", _NDCG) == [pytest.approx(60 / 25)]
    assert times_as_soon(_RUNS, "sentence_transformers", _NDCG) == [0]
    again = [_run("ours", [(30, 0.8)], 43), _run("other", [(60, 0.8)], 43)]
    text = table([*_RUNS, *again])
    assert "ours is there 2.20 times as soon" in text  # of 2.4 and 2
    assert "ours is there never" in text
    draw([_RUNS[0], _RUNS[2]], tmp_path / "curve.png")
    (tmp_path / "curve.png").stat()


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


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("way", [ours, sentence_transformers])
def test_a_way_gives_points(
    way: Callable[[Recipe, Clock, Path], None], tiny_path: Path, tmp_path: Path
) -> None:
    clock = Clock()
    way(Recipe(42, "sample", str(tiny_path), epochs=2, batch_size=32, every=3), clock, tmp_path)
    steps = [point["step"] for point in clock.points if point["step"]]
    assert steps[:2] == [3, 6]
    first, second = clock.points[0 if way is not ours else 1], clock.points[-1]
    assert 0 < first["cpu"] < second["cpu"]
    assert list(first["scores"]) == list(KEYS.values())
    assert first["scores"] != second["scores"]
