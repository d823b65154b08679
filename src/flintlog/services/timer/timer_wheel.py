"""The timer wheel in use: the mapped file `timerwheel`, and its changes since the last flush.

Changes stay in memory until `flush`, which writes them into the map and syncs it. The caller flushes the timer log
first. So the file never points at a part of the timer log that is not durable, even if the system writes pages back on
its own. A slot is 32 bytes within one sector, so after a crash it is old or new, never mixed.

The times of occupied slots are kept in a heap, so the next due slot is found without reading the others. One thread at
a time changes a wheel; any thread may read a slot.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from pathlib import Path

from flintlog.disk.media.medium import Medium, RawFile
from flintlog.format.timer import NO_UNIT, SLOT, SLOT_SIZE, Slot

_FIELDS = SLOT_SIZE // 8


class TimerWheel:
    """Slots by time. `open` opens an existing file, `make` creates a new one."""

    def __init__(self, raw: RawFile, precision_ms: int) -> None:
        self.slots = raw.size // SLOT_SIZE
        self.precision_ms = precision_ms
        self._raw = raw
        self._changed: dict[int, Slot] = {}
        self._times: list[int] = []

    @classmethod
    def open(cls, path: Path, slots: int, precision_ms: int, medium: Medium) -> TimerWheel | None:
        """Open the existing wheel; None when it is missing or has another size."""
        held = medium.stat(path)
        if held is None or held.size != slots * SLOT_SIZE:
            return None
        medium.sync(path)  # a killed process may have left slots that are only in the page cache
        return cls(medium.open(path, writable=True), precision_ms)

    @classmethod
    def make(cls, path: Path, slots: int, precision_ms: int, medium: Medium) -> TimerWheel:
        """Create an empty wheel, in place of an existing file."""
        medium.remove(path)
        return cls(medium.create(path, slots * SLOT_SIZE), precision_ms)

    @property
    def span_ms(self) -> int:
        """The length of time that the wheel covers."""
        return self.slots * self.precision_ms

    def slot_at(self, time_ms: int) -> Slot:
        """The slot of a time; an empty slot when its place is unused or holds another time."""
        time = time_ms // self.precision_ms
        slot = self._slot(time % self.slots)
        return slot if slot.time == time else Slot(time, NO_UNIT, NO_UNIT)

    def _slot(self, index: int) -> Slot:
        changed = self._changed.get(index)
        return Slot(*SLOT.unpack_from(self._raw.buffer, index * SLOT_SIZE)) if changed is None else changed

    def put(self, slot: Slot) -> None:
        """Set a slot; a slot without units is cleared."""
        index = slot.time % self.slots
        if self._slot(index).time != slot.time and slot.last != NO_UNIT:
            heapq.heappush(self._times, slot.time)
        self._changed[index] = slot if slot.last != NO_UNIT else Slot(0, 0, 0)

    def load(self, from_ms: int) -> list[int]:
        """Find the occupied slots from a time on, once after opening; returns their times in milliseconds."""
        first = -(-from_ms // self.precision_ms)
        with memoryview(self._raw.buffer).cast("B").cast("q")[::_FIELDS] as column:
            times = array("q", column.tolist())
        if sys.byteorder == "little":
            times.byteswap()
        # A time in the wrong place, or beyond the wheel's span, was not entered by this wheel.
        self._times = sorted(
            time
            for index, time in enumerate(times)
            if time and first <= time < first + self.slots and time % self.slots == index
        )
        return [time * self.precision_ms for time in self._times]

    def next_due(self, from_ms: int) -> int | None:
        """The time of the first occupied slot from a time on."""
        first = -(-from_ms // self.precision_ms)
        while self._times and (
            self._times[0] < first or self._slot(self._times[0] % self.slots).time != self._times[0]
        ):
            heapq.heappop(self._times)
        return self._times[0] * self.precision_ms if self._times else None

    def flush(self) -> None:
        """Write the changes and make them durable. The caller has flushed the timer log before."""
        changed = self._changed
        if not changed:
            return
        buffer = self._raw.buffer
        for index, slot in changed.items():
            SLOT.pack_into(buffer, index * SLOT_SIZE, slot.time, slot.first, slot.last, slot.number, slot.magic)
        self._raw.sync(min(changed) * SLOT_SIZE, (max(changed) + 1) * SLOT_SIZE)
        changed.clear()

    def close(self) -> None:
        self._raw.close()
