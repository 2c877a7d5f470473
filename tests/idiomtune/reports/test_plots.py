"""Plots are drawn from what benchmarks give, also where there is little to draw."""

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest

from idiomtune.benchmarks.epsilon.report import violins
from idiomtune.reports.plots import Curves, Line, curves_svg
from tests.tiny_runs import metrics, train

pytestmark = pytest.mark.usefixtures("shown")


@pytest.mark.parametrize("values", [[[0.5, 0.4], [0.4, 0.2]], [[], []]])
def test_violins(values: list[list[float]], tmp_path: Path) -> None:
    groups = {"C": np.array(values), "NC": np.zeros((2, 0))}
    violins(groups, "title", "how to read it " * 20).savefig(tmp_path / "some.png")
    assert (tmp_path / "some.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("values", "at_least"),
    [([0.9175, 0.9183], 0.07), ([1.0, 1.0], 0.07), ([40.0, 42.0], 2.0), ([-0.2, 0.3], 0.4)],
)
def test_a_small_difference_of_scores_looks_small(values: list[float], at_least: float) -> None:
    """The marks of the axis span a tenth of the scale or all values, and no score above 1."""
    drawing = curves_svg([Curves("mine", [Line("ndcg@10", [*enumerate(values)], 0)], "score")])
    svg = base64.b64decode(drawing.partition("base64,")[2]).decode()
    labels = svg.partition('id="matplotlib.axis_2"')[2].partition("</g>\n   </g>\n  </g>")[0]
    ticks = [float(tick.replace("−", "-")) for tick in re.findall(r">(−?[\d.]+)</text>", labels)]
    assert ticks[-1] - ticks[0] >= at_least
    assert max(values) > 1 or ticks[-1] <= 1


@pytest.mark.slow
def test_a_run_leaves_epsilons_plot(tmp_path: Path, options: list[str]) -> None:
    run = tmp_path / "run"
    train(run, [*options, "trainer.max_steps=1", "benchmark=[idiolink,epsilon]"], draws=True)
    assert (run / "plots" / "epsilon.png").is_file()
    during = [line["scores"] for line in metrics(run) if "scores" in line]
    assert {key.partition("/")[0] for scores in during for key in scores} == {"idiolink"}  # the monitored one
    assert "without curves: epsilon" in (run / "report.html").read_text(encoding="utf-8")
    recorded = json.loads((run / "scores.json").read_text(encoding="utf-8"))
    assert "epsilon/NC/rank_biserial_order_free" in recorded["baseline"]
    assert recorded["meta"]["notes"][0].startswith("ε-compositionality: ")
