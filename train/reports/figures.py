"""What benchmarks have drawn at the end of a run, from its results of each query."""

from __future__ import annotations

from train.declarations.figures import Figures
from train.declarations.registry import benchmark_types, resolve
from train.reports.examples import RecordsOfRun
from train.reports.plots import gains_chart, sentence_maps
from train.reports.runs import Run


def draw_figures(run: Run) -> None:
    """Draw into the run's `plots/`; without results of each query nothing."""
    for benchmark in benchmark_types().values():
        records = RecordsOfRun(run, benchmark.name)
        if benchmark.figures is None or not records.is_there:
            continue
        figures: Figures = resolve(benchmark.figures)(records)
        folder = run.path / "plots"
        if figures.gains is not None:
            gains_chart(figures.gains, folder / f"{benchmark.name}_recall.png")
        if figures.maps is not None:
            sentence_maps(figures.maps, folder / f"{benchmark.name}_usage_map.png")
