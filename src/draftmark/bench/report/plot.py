"""Charts as inline SVG, drawn by hand: one file, no script, colours from the page's own styles.

A chart is a frame with scales; what is drawn on it is a list of pieces of SVG.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import msgspec

WIDTH, HEIGHT = 560, 250
LEFT, RIGHT, TOP, BOTTOM = 54, 14, 12, 38
# About the width of a letter of the legend.
_LETTER = 6.4

Points = Sequence[tuple[float, float]]


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Values of one axis. `ticks` are at round values within it."""

    low: float
    high: float
    label: str
    ticks: list[float]
    is_share: bool = False

    def words(self, value: float) -> str:
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else 1.0
        digits = -math.floor(math.log10(step) + 1e-9)
        if self.is_share:
            return f"{value:.{max(0, digits - 2)}%}"
        return f"{value:,.{max(0, digits)}f}"


class Chart(msgspec.Struct, kw_only=True):
    """`parts` are drawn in their order, over the frame."""

    title: str
    x: Scale
    y: Scale
    parts: list[str]

    def at_x(self, value: float) -> float:
        share = (value - self.x.low) / (self.x.high - self.x.low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def at_y(self, value: float) -> float:
        share = (value - self.y.low) / (self.y.high - self.y.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def band(self, begin: float, end: float, said: str) -> None:
        """A span of x from top to bottom, behind what comes after."""
        left, right = self.at_x(begin), self.at_x(end)
        self.parts.append(
            f'<rect class="band" x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" '
            f'height="{HEIGHT - TOP - BOTTOM}"><title>{escape(said)}</title></rect>'
        )

    def line(self, points: Points, style: str = "a") -> None:
        self.parts.append(f'<path class="line {style}" d="{self._path(points)}"/>')

    def steps(self, points: Points, style: str = "a", *, filled: bool = False) -> None:
        """Each value holds until the next point."""
        corners: list[tuple[float, float]] = []
        for x, y in points:
            if corners:
                corners.append((x, corners[-1][1]))
            corners.append((x, y))
        if filled and corners:
            floor = [(corners[-1][0], self.y.low), (corners[0][0], self.y.low)]
            area = self._path([*corners, *floor])
            self.parts.append(f'<path class="area {style}" d="{area}Z"/>')
        self.line(corners, style)

    def mark(self, x: float, said: str, style: str = "mark") -> None:
        """A line from top to bottom with a word at its head."""
        place = self.at_x(x)
        anchor, shift = ("end", -4) if place > WIDTH * 0.8 else ("start", 4)
        self.parts.append(
            f'<path class="{style}" d="M{place:.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
            f'<text class="said" x="{place + shift:.1f}" y="{TOP + 11}" '
            f'text-anchor="{anchor}">{escape(said)}</text>'
        )

    def rug(self, values: Sequence[float], style: str = "a") -> None:
        """A short stroke at the foot for each value."""
        foot = HEIGHT - BOTTOM
        strokes = "".join(f"M{self.at_x(value):.1f} {foot - 6}v6" for value in values)
        self.parts.append(f'<path class="rug {style}" d="{strokes}"/>')

    def bars(self, heights: Sequence[float], style: str = "a") -> None:
        """One at each of x = 1, 2, ..., its height said at its head."""
        width = min(46.0, 0.7 * (self.at_x(2) - self.at_x(1)))
        foot = self.at_y(self.y.low)
        for place, height in enumerate(heights, 1):
            top = self.at_y(height)
            self.parts.append(
                f'<rect class="bar {style}" x="{self.at_x(place) - width / 2:.1f}" y="{top:.1f}" '
                f'width="{width:.1f}" height="{foot - top:.1f}" rx="2"/>'
                f'<text class="said" x="{self.at_x(place):.1f}" y="{top - 5:.1f}" '
                f'text-anchor="middle">{escape(self.y.words(height))}</text>'
            )

    def legend(self, entries: Sequence[tuple[str, str]]) -> None:
        """Styles and what they stand for, at the right end below the chart."""
        right = float(WIDTH - RIGHT)
        for style, said in reversed(entries):
            text_at = right - _LETTER * len(said)
            self.parts.append(
                f'<path class="line {style}" d="M{text_at - 20:.1f} {HEIGHT - 9}h14"/>'
                f'<text x="{text_at:.1f}" y="{HEIGHT - 5}">{escape(said)}</text>'
            )
            right = text_at - 32

    def svg(self) -> str:
        frame = [self._y_tick(value) for value in self.y.ticks]
        frame += [self._x_tick(value) for value in self.x.ticks]
        frame.append(f'<text x="{LEFT}" y="{HEIGHT - 5}">{escape(self.x.label)}</text>')
        inside = "".join([*frame, *self.parts])
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.title)}">'
            f"{inside}</svg>"
        )

    def _path(self, points: Points) -> str:
        return "M" + "L".join(f"{self.at_x(x):.1f} {self.at_y(y):.1f}" for x, y in points)

    def _y_tick(self, value: float) -> str:
        y = self.at_y(value)
        return (
            f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/><text class="tick" '
            f'x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{self.y.words(value)}</text>'
        )

    def _x_tick(self, value: float) -> str:
        x, foot = self.at_x(value), HEIGHT - BOTTOM
        return (
            f'<path class="grid" d="M{x:.1f} {foot}v4"/><text class="tick" '
            f'x="{x:.1f}" y="{foot + 16}" text-anchor="middle">{self.x.words(value)}</text>'
        )


def scale(low: float, high: float, label: str, *, is_share: bool = False) -> Scale:
    """From `low` to `high`, with about five ticks at round values."""
    if high <= low:
        high = low + 1.0
    step = _round_step((high - low) / 5)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    ticks = [place * step for place in range(first, last + 1)]
    return Scale(low=low, high=high, label=label, ticks=ticks, is_share=is_share)


def numbered(count: int, label: str) -> Scale:
    """Of `count` things, each in the middle of its place."""
    places = [float(place) for place in range(1, count + 1)]
    return Scale(low=0.4, high=count + 0.6, label=label, ticks=places)


def _round_step(least: float) -> float:
    size = 10.0 ** math.floor(math.log10(least))
    return next(size * factor for factor in (1, 2, 5, 10) if size * factor >= least * (1 - 1e-9))
