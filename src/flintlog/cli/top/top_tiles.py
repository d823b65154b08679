"""The figures at the head of `flintlog top`: four tiles, the line above them and the chart below."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from flintlog.cli.drawing import bar, chart, show_bytes, show_count
from flintlog.cli.times import format_ms
from flintlog.cli.top.top_view import View
from flintlog.maintenance.inspect.live import Snapshot

BAR_WIDTH = 10
_WARM, _GOOD, _BAD = "#ffb454", "#7fd962", "#f26d78"
_NEARLY_FULL, _FULL = 0.75, 0.85


@dataclass(frozen=True, slots=True)
class Tile:
    """A title, the figure, and a line about it."""

    title: str
    figure: Text
    about: Text


def tiles(snapshot: Snapshot, view: View) -> list[Tile]:
    """Messages, volume, log and disk."""
    return [
        Tile(
            "messages",
            Text(f"{show_count(snapshot.messages_a_second)} msg/s", style=f"bold {_WARM}"),
            Text(f"{show_count(snapshot.messages)} in {_plural(len(snapshot.topics), 'topic')}", style="dim"),
        ),
        Tile(
            "volume",
            Text(f"{show_bytes(snapshot.bytes_a_second)}/s", style=f"bold {_WARM}"),
            Text(f"most {show_bytes(max((rate or 0 for rate in view.byte_rates), default=None))}/s", style="dim"),
        ),
        Tile(
            "log end",
            Text(f"{snapshot.max_offset:,}", style="bold"),
            Text(f"{_plural(snapshot.files, 'file')}, {show_bytes(snapshot.bytes)}", style="dim"),
        ),
        Tile("disk", _disk(snapshot, view), Text(_room(snapshot), style="dim")),
    ]


def headline(snapshot: Snapshot, notice: str = "") -> Text:
    """The store's state, the time and the path."""
    state, style = ("running", _GOOD) if snapshot.is_running else ("not running", "dim")
    parts = [
        Text("flintlog top", style=f"bold {_WARM}"),
        Text(state, style=style),
        Text(str(format_ms(snapshot.at_ms))[:-5].replace("T", " ") + "Z", style="dim"),
    ]
    if notice:
        parts.append(Text(notice, style=f"bold {_BAD}"))
    parts.append(Text(snapshot.path, style="bold"))  # last, because the end of the line may be cut
    return Text("  ").join(parts)


def rate_chart(view: View, width: int, height: int) -> Text:
    """Messages a second over time, with the greatest at its left."""
    greatest = max((rate or 0 for rate in view.rates), default=0.0)
    label = f"{show_count(greatest)} msg/s"
    margin = max(len(label), 12) + 1
    lines = chart(view.rates, max(1, width - margin), height, can_draw=view.can_draw)
    heads = [label, *[""] * (height - 2), "0"] if height > 1 else [label]
    drawn = Text()
    for number, (head, line) in enumerate(zip(heads, lines, strict=True)):
        drawn.append("\n" if number else "")
        drawn.append(head.rjust(margin - 1) + " ", style="dim")
        drawn.append(line, style=_WARM)
    return drawn


def _disk(snapshot: Snapshot, view: View) -> Text:
    ratio = snapshot.disk_used_ratio
    if ratio is None:
        return Text("not known", style="dim")
    style = _BAD if ratio >= _FULL else _WARM if ratio >= _NEARLY_FULL else _GOOD
    filled, rest = bar(ratio, BAR_WIDTH, can_draw=view.can_draw)
    return Text.assemble((f"{ratio * 100:.0f} % ", f"bold {style}"), (filled, style), (rest, "dim"))


def _room(snapshot: Snapshot) -> str:
    if snapshot.disk_free_bytes is None:
        return ""
    return f"{show_bytes(snapshot.disk_free_bytes)} free"


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
