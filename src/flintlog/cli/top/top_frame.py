"""`flintlog top --once`: one frame as text, for a pipe, a log or a mail."""

from __future__ import annotations

from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flintlog.cli.output import make_console
from flintlog.cli.top.top_tiles import headline, rate_chart, tiles
from flintlog.cli.top.top_view import GROUP_COLUMNS, RIGHT, TOPIC_COLUMNS, View
from flintlog.maintenance.inspect.live import Snapshot

PIPE_WIDTH = 120
ROWS = 50


def print_frame(snapshot: Snapshot, view: View, stream: TextIO, *, rows: int = ROWS) -> None:
    """Write one frame; a single look has no history, so there is no trend and the chart is left out."""
    console = make_console(stream, width=PIPE_WIDTH)
    console.print(headline(snapshot), soft_wrap=True)
    console.print()
    console.print(_tile_table(snapshot, view))
    if len(view.rates) > 1:
        console.print(rate_chart(view, console.width, 3))
    topics = [view.topic_cells(topic, snapshot.at_ms) for topic in view.topics(snapshot)]
    _print_table(console, TOPIC_COLUMNS[:-1], [cells[:-1] for cells in topics], "topics", rows)
    groups = [view.group_cells(group, snapshot) for group in view.groups(snapshot)]
    _print_table(console, GROUP_COLUMNS, groups, "groups", rows)


def _tile_table(snapshot: Snapshot, view: View) -> Table:
    drawn = tiles(snapshot, view)
    table = Table(box=None, show_header=True, header_style="dim", pad_edge=False, padding=(0, 4, 0, 0))
    for tile in drawn:
        table.add_column(tile.title)
    table.add_row(*(tile.figure for tile in drawn))
    table.add_row(*(tile.about for tile in drawn))
    return table


def _print_table(console: Console, columns: tuple[str, ...], rows: list[list[Text]], what: str, limit: int) -> None:
    if not rows:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in RIGHT else "left", overflow="fold")
    for row in rows[:limit]:
        table.add_row(*row)
    console.print(table)
    if len(rows) > limit:
        console.print(Text(f"and {len(rows) - limit:,} {what} more", style="dim"))
