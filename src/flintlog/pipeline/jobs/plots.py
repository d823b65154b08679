"""Small plots as inline SVG: columns over time, bars by name. No script, no network; colours are the page's.

A drawing is scaled to the page's width, and its letters with it. So each is drawn twice, for a wide page and for a
narrow one, and the page shows the one that fits.

Each mark carries its exact value as a tooltip (`<title>`); every text is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, log10

HEIGHT = 220
LEFT = 64
RIGHT = 12
TOP = 12
BOTTOM = 34
ROW = 24
_VALUE_WIDTH = 110
_MIN_GAP = 1.5
_MOST_COLUMN_WIDTH = 72.0
_LETTER_WIDTH = 7
_NAME_LETTER_WIDTH = 8

Format = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Sheet:
    """What a plot is drawn on: its width, the width of names beside bars, and how many labels fit below columns."""

    width: int
    name_width: int
    most_labels: int

    @property
    def most_letters(self) -> int:
        return (self.name_width - 10) // _NAME_LETTER_WIDTH


WIDE = Sheet(760, 220, 6)
NARROW = Sheet(440, 150, 4)
SHEETS = (WIDE, NARROW)


def columns(
    values: Sequence[float],
    labels: Sequence[str],
    title: str,
    show: Format,
    tips: Sequence[str] | None = None,
    *,
    base: int = 10,
    sheet: Sheet = WIDE,
) -> str:
    """A column for each value, in order, with a scale on the left; `base` 1024 gives round numbers of bytes."""
    top = nice_top(max(values, default=0.0), base)
    plot_width, plot_height = sheet.width - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    step = plot_width / max(1, len(values))
    width = max(0.5, min(step - min(_MIN_GAP, step * 0.2), _MOST_COLUMN_WIDTH))
    parts = [_grid(top, show, sheet)]
    for place, value in enumerate(values):
        height = plot_height * max(0.0, value) / top
        x, y = LEFT + (place + 0.5) * step - width / 2, TOP + plot_height - height
        tip = labels[place] if tips is None else tips[place]
        parts.append(
            f'<rect class="mark" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" '
            f'height="{height:.2f}"><title>{escape(tip)}: {escape(show(value))}</title></rect>'
        )
    every = max(1, ceil(len(values) / sheet.most_labels))
    for place in range(0, len(values), every):
        x = LEFT + (place + 0.5) * step
        # A label that would leave the picture on the right ends where the picture does.
        room = len(labels[place]) * _LETTER_WIDTH / 2
        x, anchor = (x, "middle") if x + room <= sheet.width else (sheet.width, "end")
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 12}" text-anchor="{anchor}">{escape(labels[place])}</text>')
    return _svg(parts, sheet.width, HEIGHT, title)


def bars(rows: Sequence[tuple[str, float]], title: str, show: Format, *, sheet: Sheet = WIDE) -> str:
    """A horizontal bar for each name, with its value after it."""
    most = max((value for _, value in rows), default=0.0) or 1.0
    begin = sheet.name_width
    room = sheet.width - begin - _VALUE_WIDTH
    parts = []
    for place, (name, value) in enumerate(rows):
        y = 4 + place * ROW
        width = max(1.0, room * max(0.0, value) / most)
        parts.append(
            f'<text x="{begin - 10}" y="{y + 15}" text-anchor="end">{escape(shortened(name, sheet.most_letters))}'
            f"<title>{escape(name)}</title></text>"
            f'<rect class="mark" x="{begin}" y="{y + 2}" width="{width:.1f}" height="{ROW - 7}" rx="2">'
            f"<title>{escape(name)}: {escape(show(value))}</title></rect>"
            f'<text class="value" x="{begin + width + 8:.1f}" y="{y + 15}">{escape(show(value))}</text>'
        )
    return _svg(parts, sheet.width, 8 + ROW * len(rows), title)


def nice_top(value: float, base: int = 10) -> float:
    """The end of a scale that holds a value: 1, 2 or 5 times a power of ten, of whole KiB, MiB, … with base 1024.

    >>> nice_top(0), nice_top(7), nice_top(180)
    (1.0, 10.0, 200.0)
    >>> nice_top(900, 1024), nice_top(3 << 20, 1024) / (1 << 20), nice_top(1010 << 20, 1024) / (1 << 30)
    (1000.0, 5.0, 1.0)
    """
    if value <= 0:
        return 1.0
    if base == 1024 and value > 1000:
        unit = 1024.0
        while value > 1000 * unit:
            unit *= 1024
        return min(unit * nice_top(value / unit), unit * 1024)
    power = 10.0 ** int(log10(value) // 1)
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0, 20.0) if value <= factor * power * 1.000001)


def shortened(name: str, most: int = 30) -> str:
    """
    >>> shortened("a" * 40)
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaa…'
    """
    return name if len(name) <= most else name[: most - 1] + "…"


def _grid(top: float, show: Format, sheet: Sheet) -> str:
    plot_height = HEIGHT - TOP - BOTTOM
    lines = []
    for share in (0.0, 0.5, 1.0):
        y = TOP + plot_height * (1 - share)
        lines.append(
            f'<line class="grid" x1="{LEFT}" x2="{sheet.width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(show(top * share))}</text>'
        )
    return "".join(lines)


def _svg(parts: Sequence[str], width: int, height: int, title: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title, quote=True)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )
