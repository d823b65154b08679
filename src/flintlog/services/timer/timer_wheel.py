"""The timer wheel in use: `timerwheel`, mapped, and what changed in it since it was last flushed.

Changes are kept in memory until `flush`, which writes them into the map and syncs it. So the file never points at a
part of the timer log that is not durable yet, whatever the system writes back on its own: whoever flushes the wheel has
flushed the log before. A slot is 32 bytes within one sector, so it is old or new, never a mixture.

The times of slots that hold something are kept in a heap: what is due next is found without looking at the others.
One thread at a time changes a wheel; any thread may ask for a slot.
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
    """Slots by time; made with `open` for a file that is there and `make` for a new one."""

    def __init__(self, raw: RawFile, precision_ms: int) -> None:
        self.slots = raw.size // SLOT_SIZE
        self.precision_ms = precision_ms
        self._raw = raw
        self._changed: dict[int, Slot] = {}
        self._times: list[int] = []

    @classmethod
    def open(cls, path: Path, slots: int, precision_ms: int, medium: Medium) -> TimerWheel | None:
        """The wheel that is there; None when there is none, or one of another size."""
        held = medium.stat(path)
        if held is None or held.size != slots * SLOT_SIZE:
            return None
        medium.sync(path)  # a process that was killed may have left slots that only the page cache has
        return cls(medium.open(path, writable=True), precision_ms)

    @classmethod
    def make(cls, path: Path, slots: int, precision_ms: int, medium: Medium) -> TimerWheel:
        """An empty wheel, in the place of whatever is there."""
        medium.remove(path)
        return cls(medium.create(path, slots * SLOT_SIZE), precision_ms)

    @property
    def span_ms(self) -> int:
        """How much time the wheel holds."""
        return self.slots * self.precision_ms

    def slot_at(self, time_ms: int) -> Slot:
        """The slot of a time; one without units when the place is empty or another time's."""
        time = time_ms // self.precision_ms
        slot = self._slot(time % self.slots)
        return slot if slot.time == time else Slot(time, NO_UNIT, NO_UNIT)

    def _slot(self, index: int) -> Slot:
        changed = self._changed.get(index)
        return Slot(*SLOT.unpack_from(self._raw.buffer, index * SLOT_SIZE)) if changed is None else changed

    def put(self, slot: Slot) -> None:
        """Set a slot; one without units is given up."""
        index = slot.time % self.slots
        if self._slot(index).time != slot.time and slot.last != NO_UNIT:
            heapq.heappush(self._times, slot.time)
        self._changed[index] = slot if slot.last != NO_UNIT else Slot(0, 0, 0)

    def load(self, from_ms: int) -> list[int]:
        """Find the slots from a time on that hold something, once, after opening; their times in milliseconds."""
        first = -(-from_ms // self.precision_ms)
        with memoryview(self._raw.buffer).cast("B").cast("q")[::_FIELDS] as column:
            times = array("q", column.tolist())
        if sys.byteorder == "little":
            times.byteswap()
        # A time in another's place is no slot of this wheel; one far ahead is no time that could be entered.
        self._times = sorted(
            time
            for index, time in enumerate(times)
            if time and first <= time < first + self.slots and time % self.slots == index
        )
        return [time * self.precision_ms for time in self._times]

    def next_due(self, from_ms: int) -> int | None:
        """The time of the first slot from a time on that holds something."""
        first = -(-from_ms // self.precision_ms)
        while self._times and (
            self._times[0] < first or self._slot(self._times[0] % self.slots).time != self._times[0]
        ):
            heapq.heappop(self._times)
        return self._times[0] * self.precision_ms if self._times else None

    @property
    def is_changed(self) -> bool:
        return bool(self._changed)

    def flush(self) -> None:
        """Write what changed and make it durable; the log that it points into is durable already."""
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
