"""The README's picture, docs/results.png, from the figures of our results: `python docs/results.py`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no screen needed
from matplotlib import pyplot as plt

DOCS = Path(__file__).resolve().parent
PICTURE = DOCS / "results.png"
PAGES = DOCS.parent / "RESULTS.md", DOCS / "results" / "knowledge.md"
WITH_GLOSSARY = "idiolink_glossary"
SYSTEMS = ("untrained", "idiolink_released", "idiolink_ft", WITH_GLOSSARY)
MODES = ("sentence", "span")
METRICS = ("R-Precision", "nDCG@10")
_FIGURE = re.compile(r"([\d.]+)(?: ± ([\d.]+))? / ([\d.]+)(?: ± ([\d.]+))?")

Figures = dict[tuple[str, str], tuple[float, float, float, float]]


def figures(results: str, knowledge: str) -> Figures:
    """(system, query mode) → R-Precision, its standard deviation, nDCG@10, its standard deviation.

    On val+train, in percent.

    Args:
        results: RESULTS.md, of three tables the last column.
        knowledge: docs/results/knowledge.md, the rows of three seeds with a glossary.
    """
    sources = (
        (results, "| untrained, R-Precision", -1),
        (results, "| trained | scored |", -1),
        (results, "| three seeds, mean ± std |", -1),
        (knowledge, f"| `{WITH_GLOSSARY}`", 2),
    )
    found: Figures = {}
    for system, (text, heading, column) in zip(SYSTEMS, sources, strict=True):
        rows = text[text.index(heading) :].split("\n\n")[0].splitlines()
        cells = [[cell.strip(" *") for cell in row.strip("|").split("|")] for row in rows]
        for mode in MODES:
            # The first is the seeds' mean.
            row = next(row for row in cells if mode in row and _FIGURE.fullmatch(row[column]))
            match = _FIGURE.fullmatch(row[column])
            assert match is not None, row
            r_precision, r_std, ndcg, ndcg_std = (float(number or 0) for number in match.groups())
            found[system, mode] = r_precision, r_std, ndcg, ndcg_std
    return found


def draw(found: Figures, path: Path) -> None:
    """Bars by system, a panel for each metric; the figures also go into the file, as its description."""
    figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.4), constrained_layout=True)
    for number, (panel, metric) in enumerate(zip(panels, METRICS, strict=True)):
        for place, (system, colour) in enumerate(zip(SYSTEMS, ("0.7", "C0", "C1", "C2"), strict=True)):
            values = [found[system, mode][2 * number] for mode in MODES]
            spread = [found[system, mode][2 * number + 1] for mode in MODES]
            bars = panel.bar(
                [mode + (place - 1.5) * 0.22 for mode in range(len(MODES))],
                values,
                0.2,
                yerr=spread if any(spread) else None,
                color=colour,
                label=f"{system}, with a glossary" if system == WITH_GLOSSARY else system,
                hatch="//" if system == WITH_GLOSSARY else None,
                edgecolor="white",
                error_kw={"elinewidth": 1},
            )
            panel.bar_label(bars, fmt="%.1f", fontsize=8, padding=2)
        panel.set_xticks(range(len(MODES)), [f"{mode} queries" for mode in MODES])
        panel.set_ylim(0, 100)
        panel.set_title(f"{metric}, %", loc="left")
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=100, metadata={"Description": repr(sorted(found.items())), "Software": None})
    plt.close(figure)


def main(output: str = str(PICTURE)) -> None:
    draw(figures(*(page.read_text(encoding="utf-8") for page in PAGES)), Path(output))


if __name__ == "__main__":
    main(*sys.argv[1:])
