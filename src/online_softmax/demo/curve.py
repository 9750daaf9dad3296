"""Draws a learning curve as an SVG file, with nothing but the standard library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 50, 50
CURVE, LEVEL = "#1b6ca8", "#c0504d"
Points = Sequence[tuple[float, float]]


def learning_curve(title: str, points: Points, level: float, level_name: str, marker: str) -> str:
    """An SVG of held-out perplexity (log scale) against steps, beside a level to beat.

    ``marker`` is written into the file as a comment.
    """
    values = [value for _, value in points] + [level]
    low, high = math.log10(min(values)), math.log10(max(values))
    last = max(step for step, _ in points) or 1
    span = (high - low) or 1.0

    def x(step: float) -> float:
        return LEFT + step / last * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(value) - low) / span * (HEIGHT - TOP - BOTTOM)

    def text(across: float, down: float, words: str, more: str = "") -> str:
        return f'<text x="{across:.1f}" y="{down:.1f}" {more}>{escape(words)}</text>'

    shapes = [text(LEFT, 26, title, 'font-size="15"')]
    for value in _ticks(min(values), max(values)):
        shapes.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        shapes.append(text(LEFT - 8, y(value) + 4, f"{value:g}", 'text-anchor="end"'))
    for quarter in range(5):
        step = last * quarter / 4
        shapes.append(text(x(step), HEIGHT - BOTTOM + 20, f"{step:g}", 'text-anchor="middle"'))
    shapes.append(text(WIDTH / 2, HEIGHT - 12, "training steps", 'text-anchor="middle"'))
    shapes.append(f'<path d="M{LEFT} {y(level):.1f}H{WIDTH - RIGHT}" stroke="{LEVEL}" stroke-dasharray="6 4"/>')
    shapes.append(text(WIDTH - RIGHT, y(level) - 6, level_name, f'text-anchor="end" fill="{LEVEL}"'))
    line = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in points)
    shapes.append(f'<polyline points="{line}" fill="none" stroke="{CURVE}" stroke-width="2"/>')
    body = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12">\n<!-- {escape(marker)} -->\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten inside the range."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [m * 10.0**e for e in exponents for m in (1, 2, 5) if low <= m * 10.0**e <= high]
