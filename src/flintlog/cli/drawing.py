"""Lines, bars and figures as text, from plain values, for the full screen and the single frame of `flintlog top`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TextIO

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_PLAIN = " .:-=+*#@"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
NOTHING = "-"


def chart(values: Sequence[float | None], width: int, height: int = 1, *, can_draw: bool = True) -> list[str]:
    """The last `width` values as columns of blocks, `height` lines from top to bottom, the newest at the right.

    >>> chart([0, 1, 2, 3, 4], 5)
    ['▁▂▄▆█']
    >>> chart([8, 16], 4, height=2)
    ['   █', '  ██']
    """
    shown = [0.0 if value is None else value for value in islice(values, max(0, len(values) - width), None)]
    greatest = max(shown, default=0.0)
    marks = _EIGHTHS if can_draw else _PLAIN
    steps = len(marks) - 1
    levels = [_level(value, greatest, steps * height) for value in shown]
    return [
        "".join(marks[min(steps, max(0, level - line * steps))] for level in levels).rjust(width)
        for line in reversed(range(height))
    ]


def _level(value: float, greatest: float, steps: int) -> int:
    """At least 1, so that a quiet second looks different from a missing one."""
    return max(1, round(value / greatest * steps)) if greatest > 0 else 1


def bar(ratio: float, width: int, *, can_draw: bool = True) -> tuple[str, str]:
    """A bar's filled part and its rest.

    >>> bar(0.25, 8)
    ('━━', '──────')
    """
    filled = round(min(1.0, max(0.0, ratio)) * width)
    mark, rest = ("━", "─") if can_draw else ("#", ".")
    return mark * filled, rest * (width - filled)


def can_draw(stream: TextIO) -> bool:
    """Whether blocks and lines exist in the encoding of a stream."""
    try:
        "▁━─█".encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def show_count(value: float | None) -> str:
    """A count in full, with thousands apart; a fraction only where it says something.

    >>> show_count(1234567.8), show_count(0.25), show_count(0), show_count(None)
    ('1,234,568', '0.2', '0', '-')
    """
    if value is None:
        return NOTHING
    return f"{value:,.1f}" if 0 < value < 10 and value != int(value) else f"{value:,.0f}"


def show_bytes(count: float | None) -> str:
    """Bytes in the unit that fits.

    >>> show_bytes(0), show_bytes(1536), show_bytes(5 << 30), show_bytes(None)
    ('0 B', '1.5 KiB', '5.0 GiB', '-')
    """
    if count is None:
        return NOTHING
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"


def show_age(age_ms: int | None) -> str:
    """How long ago, as a person says it.

    >>> show_age(400), show_age(61_000), show_age(7_300_000), show_age(200_000_000), show_age(None)
    ('now', '1 min', '2 h', '2 d', '-')
    """
    if age_ms is None:
        return NOTHING
    seconds = max(0, age_ms) // 1000
    if seconds < 2:
        return "now"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def show_span(seconds: float) -> str:
    """A span of time to the second; to the minute where it is long.

    >>> show_span(0.2), show_span(75), show_span(7_300)
    ('1 s', '1 min 15 s', '2 h 1 min')
    """
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def show_wait(lag: int, done_a_second: float | None, put_a_second: float | None) -> str:
    """How long until a group has caught up, if both rates stay as they are.

    >>> show_wait(600, 20.0, 10.0), show_wait(600, 10.0, 20.0), show_wait(0, None, None), show_wait(5, None, 1.0)
    ('1 min', 'falling behind', 'caught up', '-')
    """
    if lag == 0:
        return "caught up"
    if done_a_second is None or put_a_second is None:
        return NOTHING
    gain = done_a_second - put_a_second
    if gain <= 0:
        return "standing" if done_a_second == 0 else "falling behind"
    return show_age(max(2000, int(lag / gain * 1000)))
