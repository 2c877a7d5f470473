"""The README's first picture, docs/terms.png, of what the words on the page mean: `python docs/terms.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no screen needed
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

PICTURE = Path(__file__).resolve().parent / "terms.png"
# (what it is, sentence, its span), query first; then what should be near it, and far from it
QUERY = ("query, idiomatic", "He broke the ice with a joke.", "broke the ice")
NEAR = (
    ("the same idiom", "A song broke the ice at the party.", "broke the ice"),
    ("simplification: the idiom in plain words", "He made them relax with a joke.", "made them relax"),
    ("sense document: the meaning in a sentence of its own", "Soon the guests felt at ease.", "felt at ease"),
)
FAR = (
    ("the same words, used literally", "The ship broke the ice in the bay.", "broke the ice"),
    ("another idiom", "She sat on the fence for weeks.", "sat on the fence"),
)
WIDTH, HEIGHT = 5.2, 5.7  # inches; on a phone it is shown at two thirds of that
GREEN, RED, BLUE = "#1a7f37", "#cf222e", "#0969da"


def sentence(axes: Axes, y: float, row: tuple[str, str, str], colour: str) -> None:
    """A box with a sentence, its span marked, and what it is."""
    what, text, span = row
    box = FancyBboxPatch(
        (0.12, y), WIDTH - 0.24, 0.62, boxstyle="round,pad=0,rounding_size=0.08", fc="#f6f8fa"
    )
    box.set_edgecolor(colour)
    axes.add_patch(box)
    x = 0.26
    for part, marked in zip((*text.partition(span),), (False, True, False), strict=True):
        weight = "bold" if marked else "normal"
        drawn = axes.text(x, y + 0.41, part, fontsize=14, va="center", weight=weight)
        if marked:
            drawn.set_bbox({"facecolor": "#fff3b0", "edgecolor": "none", "pad": 1.5})
        # Spaces at the end have no width of their own in the extent.
        measured = axes.text(0, 0, part.replace(" ", "\N{NO-BREAK SPACE}"), fontsize=14, weight=weight)
        end = axes.transData.inverted().transform(measured.get_window_extent())
        x += end[1][0] - end[0][0]
        measured.remove()
    axes.text(0.26, y + 0.13, what, fontsize=11, va="center", color=colour)


def draw(path: Path) -> None:
    figure = plt.figure(figsize=(WIDTH, HEIGHT), dpi=130)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, WIDTH)
    axes.set_ylim(0, HEIGHT)
    axes.axis("off")
    y = HEIGHT - 0.78
    sentence(axes, y, QUERY, BLUE)
    axes.text(0.26, y - 0.17, "marked: the span, the words that carry the idiom", fontsize=11, va="center")
    y -= 0.62
    for heading, rows, colour in (("should be near", NEAR, GREEN), ("should be far", FAR, RED)):
        axes.text(0.12, y, heading, fontsize=13, weight="bold", color=colour, va="center")
        for row in rows:
            y -= 0.84 if row is rows[0] else 0.72
            sentence(axes, y, row, colour)
        y -= 0.26
    figure.savefig(
        path, dpi="figure", facecolor="white", metadata={"Description": content(), "Software": None}
    )
    plt.close(figure)


def content() -> str:
    """What the picture shows, which its file also says."""
    return repr((QUERY, NEAR, FAR))


def main(output: str = str(PICTURE)) -> None:
    draw(Path(output))


if __name__ == "__main__":
    main(*sys.argv[1:])
