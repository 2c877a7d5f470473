"""What training changed, as figures: chosen from what a run left, and drawn, also where there is little."""

import base64
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from idiomtune.benchmarks.idiolink.report import recalls, report, shown_queries
from idiomtune.reports.benchmark_report import RecordsOfRun
from idiomtune.reports.plots import Curves, Line, curves_svg, draw_figures
from idiomtune.reports.runs import read_run
from idiomtune.reports.screens import show_finished_run
from tests.planted_runs import SCORES, plant, plant_queries, query, write_lines

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


@pytest.mark.parametrize(
    ("values", "at_least"),
    [([0.9175, 0.9183], 0.07), ([1.0, 1.0], 0.07), ([40.0, 42.0], 2.0)],
)
def test_a_small_difference_of_scores_looks_small(values: list[float], at_least: float) -> None:
    """The marks of the axis span a tenth of the scale or all values, and no score above 1."""
    drawing = curves_svg([Curves("mine", [Line("ndcg@10", [*enumerate(values)], 0)], "score")])
    svg = base64.b64decode(drawing.partition("base64,")[2]).decode()
    labels = svg.partition('id="matplotlib.axis_2"')[2].partition("</g>\n   </g>\n  </g>")[0]
    ticks = [float(tick.replace("−", "-")) for tick in re.findall(r">(−?[\d.]+)</text>", labels)]
    assert ticks[-1] - ticks[0] >= at_least
    assert max(values) > 1 or ticks[-1] <= 1


def test_a_run_leaves_epsilons_plots(tmp_path: Path) -> None:
    """One a language, and no curve of what no checkpoint was scored on."""
    free = {f"epsilon/{class_}/p_value_order_free": 0.5 for class_ in ("C", "PC", "NC")}
    run = plant(tmp_path / "run", scores=SCORES | free)
    write_lines(run / "metrics.jsonl", [{"step": 1, "loss": 2.0}, {"step": 1, "scores": SCORES}])
    records = [
        {"language": language, "class": class_, "idiomaticity": 0.1 * n, "baseline": None if n == 4 else 0.2}
        for language, class_ in (("en", "C"), ("en", "NC"), ("pt", "C"))
        for n in range(5)
    ]
    write_lines(run / "per_query" / "epsilon.jsonl", records)
    draw_figures(read_run(run, "run"))
    names = {"learning_curve.png", "epsilon.png", "epsilon_pt.png"}
    assert {path.name for path in (run / "plots").iterdir()} == names
    show_finished_run(run, all_scores=False)
    assert "without curves: epsilon" in (run / "report.html").read_text(encoding="utf-8")
