"""Writing the queue entries that the kernel's fast dispatch leaves: those of all but the plain case.

    new queue, full file        written here once; fast dispatch goes on after it
    extension, batch queue      every entry is written here
    light queues                one entry in each queue that the record names
    a gap in the offsets        filled first (`gap_filling.py`)

A record whose queue was deleted gets no entry. One that names an impossible queue or offset is logged and left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from flintlog import kernel
from flintlog.derive.entries import Place, places_of
from flintlog.errors import DiskFull
from flintlog.format.ledger import size_at
from flintlog.format.sys_flag import takes_queue_offset
from flintlog.kernel import FastDispatch, Row
from flintlog.store.dispatch.arrivals import Arrivals
from flintlog.store.dispatch.gap_filling import GapFiller
from flintlog.store.queues.consume_queue import ConsumeQueue
from flintlog.store.queues.logical_queue import LogicalQueue, QueueType
from flintlog.store.queues.queue_table import QueueTable

log = logging.getLogger(__name__)

PlacesBefore = Callable[[int, list[Place], bytes], list[Place]]
"""Given a record's physical offset, the places that it names, and its bytes, the places that get its entries."""
BitmapHook = Callable[[bytes], "bytes | None"]
"""Given a whole record, the filter bitmap of its queue extension, or None."""


class EntryWriter:
    """Writes entries of one store's queues. Used by the dispatching thread."""

    def __init__(
        self,
        queues: QueueTable,
        gaps: GapFiller,
        fast_dispatch: FastDispatch,
        arrivals: Arrivals,
        delay_levels_ms: Sequence[int],
    ) -> None:
        self.bitmap_hook: BitmapHook | None = None
        self.places_before: PlacesBefore | None = None
        """While a store is opened: where records had their entries. They may name another place."""
        self._queues = queues
        self._gaps = gaps
        self._fast_dispatch = fast_dispatch
        self._arrivals = arrivals
        self._delay_levels_ms = tuple(delay_levels_ms)

    def write(self, view: memoryview, position: int, base: int) -> None:
        """Write the entries of the record at this position of a log file that begins at `base`."""
        stop = position + size_at(view, position)
        scan = kernel.scan(view, position, stop, base, delay_levels_ms=self._delay_levels_ms)
        row = scan.row(0)
        topic, queue_id = scan.queues[0]
        record = bytes(view[stop - row.size : stop])
        places = places_of(topic, queue_id, row, record, is_batch=self._is_batch, lmq=self._fast_dispatch.lmq)
        if self.places_before is not None:
            places = self.places_before(row.physical_offset, places, record)
        if not places and not takes_queue_offset(row.sys_flag):
            return
        if not places:
            where = f"{topic[:80]!a}/{queue_id} at {row.queue_offset}"
            log.warning("the record at %d names an impossible queue: %s", row.physical_offset, where)
            return
        for number, place in enumerate(places):
            if not self._queues.deleted.holds(place.topic, place.queue_id, row.physical_offset):
                # Only the queue of the message's own topic refers to its extension, in RocketMQ too.
                self._put_place(row, place, None if number else record)
        own = places[0]
        queue = self._queues.get(own.topic, own.queue_id)
        if isinstance(queue, ConsumeQueue) and not self._fast_dispatch.all_slow:
            self._fast_dispatch.set_queue(own.topic, own.queue_id, queue.end)

    def _put_place(self, row: Row, place: Place, extended: bytes | None) -> None:
        """Put the entry of a record at the place that it names, if that is possible."""
        if self._is_batch(place.topic):
            self._put_entry(self._queues.get_or_create(place.topic, place.queue_id), row, place)
            return
        found = self._queues.get(place.topic, place.queue_id)
        if not self._gaps.make_way(found if isinstance(found, ConsumeQueue) else None, row, place):
            return
        queue = self._queues.get_or_create(place.topic, place.queue_id)
        bitmap = None if extended is None else self._bitmap_of(extended)
        self._put_entry(queue, row, place, bitmap, is_extended=extended is not None)

    def _is_batch(self, topic: str) -> bool:
        return self._queues.type_of(topic) is QueueType.BATCH

    def _bitmap_of(self, record: bytes) -> bytes | None:
        try:
            return None if self.bitmap_hook is None else self.bitmap_hook(record)
        except Exception:
            # The hook is the user's code. An entry without a bitmap passes every filter.
            log.exception("the bitmap hook failed")
            return None

    def _put_entry(
        self, queue: LogicalQueue, row: Row, place: Place, bitmap: bytes | None = None, *, is_extended: bool = True
    ) -> None:
        entry = (row.physical_offset, row.size, row.tags_code, place.queue_offset, row.store_timestamp)
        if not queue.put(*entry, bitmap, place.batch_count, is_extended=is_extended):
            raise DiskFull(f"no room for a file of queue {queue.topic}/{queue.queue_id}")
        self._arrivals.wake((queue.topic,))
