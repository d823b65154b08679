"""The progress of long work on standard error: a line that a terminal redraws, or lines of JSON; nothing elsewhere.

    report ━━━━━━━━━━─────────── 42 %  1.2 GiB of 2.9 GiB, 310.2 MiB/s, 5 s left
    {"progress": "report", "state": "running", "done": 1288490188, "total": 3113851289, "unit": "bytes", …}

An interruption is answered here for every command: how much was done, and how to go on.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Protocol, TextIO

from flintlog.cli.drawing import bar, can_draw, show_bytes, show_count, show_span

if TYPE_CHECKING:
    from typing import Self

Mode = Literal["auto", "json"]
MODES: Final = ("auto", "json")
QUIET_S: Final = 0.5
"""Work that ends sooner shows no bar."""

_REDRAWN_EVERY_S: Final = 0.1
_WRITTEN_EVERY_S: Final = 0.5
_BAR_WIDTH: Final = 20
_CLEAR: Final = "\r\x1b[2K"


class Pace:
    """How much was done of how much, since when; `now` gives seconds."""

    def __init__(self, unit: str, now: Callable[[], float] = time.monotonic) -> None:
        self.unit = unit
        self.done, self.total = 0, 0
        self._now = now
        self._began = now()

    @property
    def elapsed_s(self) -> float:
        return self._now() - self._began

    @property
    def per_second(self) -> float | None:
        return self.done / self.elapsed_s if self.done and self.elapsed_s > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """None while nothing is known about it."""
        rate = self.per_second
        return None if rate is None or not self.total else max(0, self.total - self.done) / rate

    def words(self) -> str:
        """
        >>> seconds = iter([0.0, *[2.0] * 9])
        >>> pace = Pace("bytes", lambda: next(seconds))
        >>> pace.done, pace.total = 1 << 20, 4 << 20
        >>> pace.words()
        '1.0 MiB of 4.0 MiB, 512.0 KiB/s, 6 s left'
        """
        count = f"{self._show(self.done)} of {self._show(self.total)}" if self.total else self._show(self.done)
        rate, left = self.per_second, self.seconds_left
        parts = [count if self.unit == "bytes" else f"{count} {self.unit}"]
        parts += [] if rate is None else [f"{self._show(rate)}/s"]
        parts += [f"{show_span(left)} left"] if left else []
        return ", ".join(parts)

    def _show(self, count: float) -> str:
        return show_bytes(count) if self.unit == "bytes" else show_count(count)


class Line(Protocol):
    """Where progress is shown."""

    def show(self, what: str, pace: Pace, state: str) -> None:
        """Called often while the work goes on; `state` is running, done, failed or interrupted at its end."""


class Nowhere:
    """Shows nothing."""

    def show(self, what: str, pace: Pace, state: str) -> None:
        pass


class JsonLine:
    """A line of JSON from time to time, and one at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pace: Pace | None = None
        self._next_s = 0.0

    def show(self, what: str, pace: Pace, state: str) -> None:
        if pace is not self._pace:  # another part
            self._pace, self._next_s = pace, 0.0
        if state == "running" and pace.elapsed_s < self._next_s:
            return
        self._next_s = pace.elapsed_s + _WRITTEN_EVERY_S if state == "running" else 0.0
        left, rate = pace.seconds_left, pace.per_second
        line = {
            "progress": what,
            "state": state,
            "done": pace.done,
            "total": pace.total or None,
            "unit": pace.unit,
            "per_second": None if rate is None else round(rate, 1),
            "seconds_left": None if left is None or state != "running" else round(left, 1),
        }
        self._stream.write(json.dumps(line) + "\n")
        self._stream.flush()


class TerminalLine:
    """One line of a terminal, drawn over itself and removed at the end."""

    def __init__(self, stream: TextIO, width: int) -> None:
        self._stream = stream
        self._width = width
        self._pace: Pace | None = None
        self._next_s = QUIET_S
        self._is_drawn = False

    def show(self, what: str, pace: Pace, state: str) -> None:
        if pace is not self._pace:  # another part
            self._pace, self._next_s = pace, 0.0 if self._is_drawn else QUIET_S
        if state != "running":
            self._stream.write(_CLEAR if self._is_drawn else "")
            self._is_drawn = False
        elif pace.elapsed_s >= self._next_s:
            self._next_s = pace.elapsed_s + _REDRAWN_EVERY_S
            self._stream.write(_CLEAR + self._drawn(what, pace)[: self._width - 1])
            self._is_drawn = True
        self._stream.flush()

    def _drawn(self, what: str, pace: Pace) -> str:
        if not pace.total:
            return f"{what}  {pace.words()}"
        ratio = min(1.0, pace.done / pace.total)
        filled, rest = bar(ratio, _BAR_WIDTH, can_draw=can_draw(self._stream))
        return f"{what} {filled}{rest} {int(ratio * 100):3} %  {pace.words()}"


class Progress:
    """Long work of a command. Called with how much is done, and of how much; 0 where that is not known.

    Work in several parts calls `part` before each: it is counted by itself then, and the time left is its own.
    """

    def __init__(self, what: str, line: Line, unit: str, how_to_go_on: str) -> None:
        self._what = self._doing = what
        self._line = line
        self._unit = unit
        self._how_to_go_on = how_to_go_on
        self._pace = Pace(unit)

    def __call__(self, done: int, total: int) -> None:
        self._pace.done, self._pace.total = done, total
        self._line.show(self._doing, self._pace, "running")

    def part(self, name: str) -> None:
        self._doing, self._pace = f"{self._what}: {name}", Pace(self._unit)
        self._line.show(self._doing, self._pace, "running")

    def of_part(self, name: str) -> Callable[[int, int], None]:
        """A progress of a part that comes again between other parts."""

        def show(done: int, total: int) -> None:
            if self._doing != f"{self._what}: {name}" or done < self._pace.done:
                self.part(name)
            self(done, total)

        return show

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        state = "interrupted" if is_interrupted else "done" if kind is None else "failed"
        self._line.show(self._doing, self._pace, state)
        if is_interrupted:
            done = f" after {self._pace.words().partition(',')[0]}" if self._pace.done else ""
            sys.stderr.write(f"flintlog: {self._doing} was interrupted{done}; {self._how_to_go_on}\n")


def make_line(mode: Mode, stream: TextIO, *, is_quiet: bool) -> Line:
    """Where the progress of a command is shown."""
    if is_quiet:
        return Nowhere()
    if mode == "json":
        return JsonLine(stream)
    if not stream.isatty():
        return Nowhere()
    import shutil

    return TerminalLine(stream, shutil.get_terminal_size().columns)
