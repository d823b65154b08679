"""The full screen of `flintlog top`.

A thread of its own looks at the store, so that a large directory does not delay the keys; the screen belongs to
textual's loop. Between two looks it waits for the interval, and at least for four times the length of the last look, so
watching a store never costs more than a fifth of a core.
"""

from __future__ import annotations

import time
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from flintlog.cli.drawing import show_count
from flintlog.cli.top.top_tiles import headline, rate_chart, tiles
from flintlog.cli.top.top_view import GROUP_COLUMNS, RIGHT, TOPIC_COLUMNS, View
from flintlog.errors import FlintlogError
from flintlog.maintenance.inspect.live import Snapshot, Watch

ROWS = 500
CHART_HEIGHT = 5
OTHER_COLUMNS_WIDTH = 64  # of the topics' table, but for the name and the trend
REST_FACTOR = 4

_HELP = """\
[b #ffb454]flintlog top[/]  a store, beside the process that writes it

  [b]q[/]     quit
  [b]s[/]     next order of the topics: rate, bytes, messages, lag, name
  [b]/[/]     filter topics and groups by a part of a name; escape clears it
  [b]p[/]     pause the screen; the store is still watched
  [b]tab[/]   from the topics to the groups and back; arrows move
  [b]?[/]     show and hide this help

[dim]msg/s[/]         messages stored a second, counted in the log
[dim]messages[/]      messages in a topic's queues that the log still has
[dim]lag[/]           messages not consumed yet, of all groups together
[dim]done/s[/]        messages that a group commits; saved every few seconds
[dim]caught up in[/]  time until then, if both rates stay as they are

Nothing is opened, locked or written."""


class Help(ModalScreen[None]):
    """The keys and columns."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q", "dismiss", "back"),
    ]

    def compose(self) -> ComposeResult:
        yield Static(_HELP, id="help")


class Table(DataTable[Text]):
    """A table whose rows are replaced at every look without moving the cursor or the scroll position."""

    def __init__(self, title: str, columns: tuple[str, ...]) -> None:
        super().__init__(id=title, cursor_type="row", zebra_stripes=True, cursor_foreground_priority="renderable")
        self.border_title = title
        self._columns = columns

    def on_mount(self) -> None:
        for column in self._columns:
            self.add_column(Text(column, justify="right" if column in RIGHT else "left"), key=column)

    def show(self, rows: list[list[Text]], remark: str) -> None:
        place, scroll = self.cursor_row, self.scroll_y
        self.clear()
        for row in rows[:ROWS]:
            for column, cell in zip(self._columns, row, strict=True):
                cell.justify = "right" if column in RIGHT else "left"
            self.add_row(*row)
        if rows:
            self.move_cursor(row=min(place, len(rows) - 1), scroll=False)
            self.scroll_to(y=scroll, animate=False)
        self.border_subtitle = remark


class TopApp(App[None]):
    """A live view of one store."""

    CSS_PATH = None
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: $background; }
    #headline { height: 1; padding: 0 1; }
    #tiles { height: 4; }
    .tile { width: 1fr; height: 4; border: round #5c6773; padding: 0 1; border-title-color: #8a919c; }
    .tile, #headline { text-wrap: nowrap; text-overflow: ellipsis; }
    #chart { border: round #5c6773; border-title-color: #8a919c; padding: 0 1; }
    DataTable { background: $background; border: round #5c6773; padding: 0 1; }
    DataTable { border-title-color: #8a919c; border-subtitle-color: #8a919c; }
    DataTable:focus { background: $background; border: round #ffb454; }
    DataTable:focus { border-title-color: #ffb454; border-subtitle-color: #ffb454; background-tint: $background 0%; }
    DataTable > .datatable--header { background: $background; color: #8a919c; text-style: none; }
    DataTable > .datatable--cursor { background: $background; text-style: none; }
    DataTable:focus > .datatable--cursor { background: #2a3140; }
    DataTable > .datatable--odd-row { background: $background; }
    DataTable > .datatable--even-row { background: $boost; }
    #topics { height: 1fr; }
    #groups { height: auto; max-height: 35%; }
    #filter { height: 3; border: round #ffb454; }
    Help { align: center middle; background: $background 60%; }
    #help { width: auto; max-width: 100%; height: auto; padding: 1 2; border: round #ffb454; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
        Binding("s", "sort", "sort"),
        # With priority, so that keys typed quickly after it reach the field. No topic or group has a slash in its name.
        Binding("slash", "filter", "filter", key_display="/", priority=True),
        Binding("p", "pause", "pause"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("escape", "clear", "clear filter", show=False),
    ]

    def __init__(self, watch: Watch, view: View, interval_s: float) -> None:
        super().__init__(ansi_color=False)
        self._watch = watch
        self._view = view
        self._interval_s = interval_s
        self._snapshot: Snapshot | None = None
        self._shown: Snapshot | None = None
        self._is_paused = False
        self._trouble = ""

    def compose(self) -> ComposeResult:
        yield Static(id="headline")
        with Horizontal(id="tiles"):
            for number in range(4):
                yield Static(classes="tile", id=f"tile-{number}")
        yield Static(id="chart")
        with Vertical():
            yield Table("topics", TOPIC_COLUMNS)
            yield Table("groups", GROUP_COLUMNS)
        yield Input(self._view.filter, placeholder="a part of a topic's or group's name", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        chart = self.query_one("#chart", Static)
        chart.border_title = "messages a second"
        self._close_filter()
        self.look()

    # ------------------------------------------------------------------ looking

    def look(self) -> None:
        """Look once, in a thread, and again after a while."""
        self.run_worker(self._look, thread=True, exclusive=True, group="look")

    def _look(self) -> None:
        begin = time.monotonic()
        snapshot, trouble = None, ""
        try:
            snapshot = self._watch.look()
        except FlintlogError as error:
            trouble = error.what  # a file may be deleted during the look; the next look sees the rest
        rest = max(self._interval_s, REST_FACTOR * (time.monotonic() - begin))
        self.call_from_thread(self._take, snapshot, trouble, rest)

    def _take(self, snapshot: Snapshot | None, trouble: str, rest_s: float) -> None:
        # The first rate needs a second look, so that one is made soon, whatever the interval.
        is_first = self._snapshot is None and snapshot is not None
        self._trouble = trouble
        if snapshot is not None:
            self._snapshot = snapshot
            self._view.add(snapshot)
        if not self._is_paused:
            self._shown = self._snapshot
            self._draw()
        self.set_timer(min(rest_s, 1.0) if is_first else rest_s, self.look)

    # ------------------------------------------------------------------ drawing

    def _draw(self) -> None:
        snapshot, view = self._shown, self._view
        if snapshot is None:
            self.query_one("#headline", Static).update(Text(self._trouble))
            return
        notice = "paused" if self._is_paused else self._trouble
        self.query_one("#headline", Static).update(headline(snapshot, notice))
        for number, tile in enumerate(tiles(snapshot, view)):
            widget = self.query_one(f"#tile-{number}", Static)
            widget.border_title = tile.title
            widget.update(Text.assemble(tile.figure, "\n", tile.about))
        self._draw_chart()
        topics, groups = view.topics(snapshot), view.groups(snapshot)
        remark = f"by {view.sort}" + (f", with “{view.filter}”" if view.filter else "")
        count = show_count(len(topics)) + (f", {ROWS} shown" if len(topics) > ROWS else "")
        longest = max((len(topic.topic) for topic in topics[:ROWS]), default=0)
        room = self.size.width - longest - OTHER_COLUMNS_WIDTH
        cells = [view.topic_cells(topic, snapshot.at_ms, room) for topic in topics[:ROWS]]
        self.query_one("#topics", Table).show(cells, f"{count}, {remark}")
        table = self.query_one("#groups", Table)
        table.display = bool(groups)
        table.show([view.group_cells(group, snapshot) for group in groups[:ROWS]], show_count(len(groups)))

    def _draw_chart(self) -> None:
        chart = self.query_one("#chart", Static)
        height = CHART_HEIGHT if self.size.height >= 30 else 2
        chart.display = self.size.height >= 18
        chart.styles.height = height + 2
        chart.update(rate_chart(self._view, max(20, self.size.width - 4), height))

    def on_resize(self) -> None:
        if self._shown is not None:
            self._draw_chart()

    # ------------------------------------------------------------------ keys

    def action_sort(self) -> None:
        self._view.next_sort()
        self._draw()

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self._shown = self._shown if self._is_paused else self._snapshot
        self._draw()

    def action_help(self) -> None:
        self.push_screen(Help())

    def action_filter(self) -> None:
        if isinstance(self.screen, Help):
            return
        field = self.query_one("#filter", Input)
        field.display = True
        self.screen.set_focus(field)

    def action_clear(self) -> None:
        self.query_one("#filter", Input).value = ""
        self._close_filter()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._view.filter = event.value.strip()
        self._draw()

    def on_input_submitted(self) -> None:
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one("#topics").focus()
