"""Plots are drawn from what benchmarks give, also where there is little to draw."""

import base64
import re
from pathlib import Path

import pytest

from idiomtune.reports.plots import Curves, Line, curves_svg, draw_figures
from idiomtune.reports.runs import read_run
from idiomtune.reports.screens import show_finished_run
from tests.planted_runs import SCORES, plant, write_lines


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
