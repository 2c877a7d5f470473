"""The README's picture, docs/results.png, from the figures of RESULTS.md: `python docs/results.py`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no screen needed
from matplotlib import pyplot as plt

DOCS = Path(__file__).resolve().parent
PICTURE = DOCS / "results.png"
SYSTEMS = ("untrained", "idiolink_released", "idiolink_ft")
MODES = ("sentence", "span")
METRICS = ("R-Precision", "nDCG@10")
_FIGURE = re.compile(r"([\d.]+)(?: ± ([\d.]+))? / ([\d.]+)(?: ± ([\d.]+))?")

Figures = dict[tuple[str, str], tuple[float, float, float, float]]


def figures(text: str) -> Figures:
    """(system, query mode) → R-Precision, its standard deviation, nDCG@10, its standard deviation.

    On val+train, in percent: the last column of three tables of RESULTS.md.
    """
    found: Figures = {}
    for system, heading in zip(
        SYSTEMS,
        ("| untrained, R-Precision", "| trained | scored |", "| three seeds, mean ± std |"),
        strict=True,
    ):
        rows = text[text.index(heading) :].split("\n\n")[0].splitlines()[2:]
        cells = [[cell.strip(" *") for cell in row.strip("|").split("|")] for row in rows]
        for mode in MODES:
            row = next(row for row in cells if row[-3] == mode)  # the first is the seeds' mean
            match = _FIGURE.fullmatch(row[-1])
            assert match is not None, row
            r_precision, r_std, ndcg, ndcg_std = (float(number or 0) for number in match.groups())
            found[system, mode] = r_precision, r_std, ndcg, ndcg_std
    return found


def draw(found: Figures, path: Path) -> None:
    """Bars by system, a panel for each metric; the figures also go into the file, as its description."""
    figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.4), constrained_layout=True)
    for number, (panel, metric) in enumerate(zip(panels, METRICS, strict=True)):
        for place, (system, colour) in enumerate(zip(SYSTEMS, ("0.7", "C0", "C1"), strict=True)):
            values = [found[system, mode][2 * number] for mode in MODES]
            spread = [found[system, mode][2 * number + 1] for mode in MODES]
            bars = panel.bar(
                [mode + (place - 1) * 0.27 for mode in range(len(MODES))],
                values,
                0.25,
                yerr=spread if any(spread) else None,
                color=colour,
                label=system,
                error_kw={"elinewidth": 1},
            )
            panel.bar_label(bars, fmt="%.1f", fontsize=8, padding=2)
        panel.set_xticks(range(len(MODES)), [f"{mode} queries" for mode in MODES])
        panel.set_ylim(0, 100)
        panel.set_title(f"{metric}, %", loc="left")
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=100, metadata={"Description": repr(sorted(found.items())), "Software": None})
    plt.close(figure)


def main(output: str = str(PICTURE)) -> None:
    draw(figures((DOCS.parent / "RESULTS.md").read_text(encoding="utf-8")), Path(output))


if __name__ == "__main__":
    main(*sys.argv[1:])
