"""What training changed, as figures: chosen from what a run left, and drawn."""

import struct
from pathlib import Path
from typing import Any

import pytest

from idiomtune.benchmarks.idiolink.report import idiom_changes, recalls, report, shown_queries
from idiomtune.reports.benchmark_report import RecordsOfRun
from idiomtune.reports.plots import draw_figures
from idiomtune.reports.runs import read_run
from tests.planted_runs import plant_queries, query, write_lines

CHANGES = {"a": 0.3, "b": 0.2, "c": 0.1, "d": 0.0, "e": -0.1, "f": -0.2, "g": -0.3}  # idiom → of nDCG@10


def a_map(idiom: str) -> dict[str, Any]:
    usages = ("literal", "idiomatic", "simplification", "sense")
    points = [{"id": f"{idiom}{i}", "usage": u, "x": 0.1 * i, "y": -0.1 * i} for i, u in enumerate(usages)]
    return {"split": "val", "idiom": idiom, "explained": [0.5, 0.25], "points": points}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = plant_queries(tmp_path / "run", {"a": 0.5})
    for side, change in (("per_query_baseline", 0.0), ("per_query", 1.0)):
        records = []
        for idiom, gain in CHANGES.items():
            facts = {"usage": "idiomatic", "recall_at_r": {"sense": 0.25 + change / 2}}
            facts = {"usage": "literal"} if idiom in "ab" else facts
            records.append(query(idiom, 0.5 + change * gain, **facts))
        write_lines(folder / side / "idiolink.jsonl", records)
        write_lines(folder / side / "idiolink.map.jsonl", [a_map(idiom) for idiom in CHANGES])
    return folder


def records_of(folder: Path) -> tuple[RecordsOfRun, Any]:
    """And the pairs of records, before and after training."""
    records = RecordsOfRun(read_run(folder, "run"), "idiolink")
    queries, untrained = shown_queries(records)
    return records, [(untrained[query.id], query) for query in queries]


def test_idioms_are_ordered_by_what_they_gained(run: Path) -> None:
    changes = idiom_changes(*records_of(run))
    assert "".join(change.idiom for change in changes) == "abcdefg"
    first = changes[0]
    assert (first.before, first.after) == (0.5, 0.8)
    assert first.maps[0].explained == [0.5, 0.25]
    assert first.maps[1].points[3].usage == "sense"


def test_recall_is_by_the_usage_of_queries_and_of_documents(run: Path) -> None:
    gains = {usage: sides for rows in recalls(records_of(run)[1]).values() for usage, sides in rows.items()}
    assert gains["literal"] == ([0.5, 0.5], [0.8, 0.7])
    assert gains["sense"] == ([0.25] * 5, [0.75] * 5)
    assert len(gains["idiomatic"][0]) == 5


def test_what_a_run_has_is_drawn(run: Path) -> None:
    odd = "$x$ {it} “\\frac” " * 9  # no formula, however it looks
    for side in ("per_query_baseline", "per_query"):
        write_lines(run / side / "idiolink.jsonl", [query("a", 0.5, idiom=odd)])
        write_lines(run / side / "idiolink.map.jsonl", [a_map(odd)])
    draw_figures(read_run(run, "run"))
    for name in ("idiolink_recall.png", "idiolink_usage_map.png"):
        width, _ = struct.unpack(">II", (run / "plots" / name).read_bytes()[16:24])
        assert width == 800  # as its page and a phone show it
    (run / "per_query" / "idiolink.map.jsonl").unlink()
    shown = report(RecordsOfRun(read_run(run, "run"), "idiolink"))
    assert shown is not None
    assert shown.figures["idiolink_usage_map"]() is None
    (run / "per_query_baseline" / "idiolink.jsonl").unlink()
    shown = report(RecordsOfRun(read_run(run, "run"), "idiolink"))
    assert (shown and shown.figures) == {}
