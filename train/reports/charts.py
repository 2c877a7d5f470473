"""Line charts as inline SVG, in the page's own colours, light or dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT = 480, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 10, 10, 40
NUM_COLOURS = 8  # in the page's style; then the dashes change
_MAX_POINTS = 200
_DASHES = ("", "6 3", "2 3")


@dataclass(frozen=True)
class Line:
    """Points of a line; lines of one `number` have one colour."""

    label: str
    points: Sequence[tuple[float, float]]
    number: int


def line_chart(lines: Sequence[Line], x_label: str, y_label: str, *, markers: bool = True) -> Markup:
    """An SVG of lines over common axes, with a text that says what it shows.

    Args:
        markers: a dot at each point.
    """
    drawn = [line for line in lines if line.points]
    if not drawn:
        return Markup("")
    xs = [x for line in drawn for x, _ in line.points]
    ys = [y for line in drawn for _, y in line.points]
    x_ticks, y_ticks = ticks(min(xs), max(xs), whole=True), ticks(min(ys), max(ys))
    x_low, x_high = min(x_ticks[0], min(xs)), max(x_ticks[-1], max(xs))
    y_low, y_high = y_ticks[0], y_ticks[-1]

    def at(x: float, y: float) -> tuple[str, str]:
        across = (x - x_low) / ((x_high - x_low) or 1)
        up = (y - y_low) / ((y_high - y_low) or 1)
        return (
            f"{_LEFT + across * (WIDTH - _LEFT - _RIGHT):.1f}",
            f"{HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM):.1f}",
        )

    what = f"{y_label} by {x_label}: " + "; ".join(line.label for line in drawn)
    parts = [
        Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            WIDTH, HEIGHT, what
        )
    ]
    for tick in y_ticks:
        _, y = at(x_low, tick)
        parts.append(
            Markup(
                '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text x="{}" y="{}" dy=".35em" '
                'text-anchor="end">{}</text>'
            ).format(_LEFT, WIDTH - _RIGHT, y, y, _LEFT - 6, y, f"{tick:.6g}")
        )
    for tick in x_ticks:
        x, _ = at(tick, y_low)
        parts.append(
            Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
                x, HEIGHT - _BOTTOM + 16, f"{tick:g}"
            )
        )
    parts.append(
        Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
            (WIDTH + _LEFT - _RIGHT) / 2, HEIGHT - 6, x_label
        )
    )
    for line in drawn:
        points = [at(x, y) for x, y in thinned(line.points)]
        style = css(line.number)
        dash = Markup(' stroke-dasharray="{}"').format(style[1]) if style[1] else ""
        parts.append(
            Markup('<polyline class="{}" points="{}"{}><title>{}</title></polyline>').format(
                style[0], " ".join(f"{x},{y}" for x, y in points), dash, line.label
            )
        )
        if markers:
            parts += [
                Markup('<circle class="{}" cx="{}" cy="{}" r="3"/>').format(style[0], x, y) for x, y in points
            ]
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def css(number: int) -> tuple[str, str]:
    """Class and dashes of the line number `number`."""
    return f"c{number % NUM_COLOURS}", _DASHES[number // NUM_COLOURS % len(_DASHES)]


def ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """About five round numbers that hold [low, high] between them.

    Args:
        whole: whole numbers only, the last one within the range.
    """
    if high <= low:
        low, high = (low, low + 1) if whole else (low - 0.05, low + 0.05)
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= rough * 0.999)
    step = max(1.0, step) if whole else step
    first = math.floor(low / step + 1e-9)
    last = math.floor(high / step + 1e-9) if whole else math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(first, last) + 1)]


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most a few hundred points: means over neighbours."""
    size = math.ceil(len(points) / _MAX_POINTS)
    blocks = [points[at : at + size] for at in range(0, len(points), size)]
    return [(sum(x for x, _ in b) / len(b), sum(y for _, y in b) / len(b)) for b in blocks]
