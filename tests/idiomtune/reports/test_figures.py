"""What training changed, as figures: chosen from what a run left, and drawn."""

import struct
from pathlib import Path
from typing import Any

import pytest

from idiomtune.benchmarks.idiolink.report import recalls, report, shown_queries
from idiomtune.reports.benchmark_report import RecordsOfRun
from idiomtune.reports.plots import draw_figures
from idiomtune.reports.runs import read_run
from tests.planted_runs import plant_queries, query, write_lines

CHANGES = {"a": 0.3, "b": 0.2, "c": 0.1, "d": 0.0, "e": -0.1, "f": -0.2, "g": -0.3}  # idiom → of nDCG@10


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = plant_queries(tmp_path / "run", {"a": 0.5})
    for side, change in (("per_query_baseline", 0.0), ("per_query", 1.0)):
        recall = {"usage": "idiomatic", "recall_at_r": {"sense": 0.25 + change / 2}}
        facts = {idiom: {"usage": "literal"} if idiom in "ab" else recall for idiom in CHANGES}
        records = [query(i, 0.5 + change * gain, **facts[i]) for i, gain in CHANGES.items()]
        write_lines(folder / side / "idiolink.jsonl", records)
    return folder


def test_recall_is_by_the_usage_of_queries_and_of_documents(run: Path) -> None:
    queries, untrained = shown_queries(RecordsOfRun(read_run(run, "run"), "idiolink"))
    pairs: Any = [(untrained[query.id], query) for query in queries]
    gains = {usage: sides for rows in recalls(pairs).values() for usage, sides in rows.items()}
    assert gains["literal"] == ([0.5, 0.5], [0.8, 0.7])
    assert gains["sense"] == ([0.25] * 5, [0.75] * 5)
    assert len(gains["idiomatic"][0]) == 5


def test_what_a_run_has_is_drawn(run: Path) -> None:
    odd = "$x$ {it} “\\frac” " * 9  # no formula, however it looks
    for side in ("per_query_baseline", "per_query"):
        write_lines(run / side / "idiolink.jsonl", [query("a", 0.5, idiom=odd)])
    draw_figures(read_run(run, "run"))
    width, _ = struct.unpack(">II", (run / "plots" / "idiolink_recall.png").read_bytes()[16:24])
    assert width == 800  # as its page and a phone show it
    (run / "per_query_baseline" / "idiolink.jsonl").unlink()
    shown = report(RecordsOfRun(read_run(run, "run"), "idiolink"))
    assert (shown and shown.figures) == {}
