"""Where a queue continues after a place in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintlog.store.put.service_host import ServiceHost


def first_after(host: ServiceHost, topic: str, queue_id: int, physical_offset: int) -> int:
    """The first queue offset whose message lies at or after a physical offset; entries are in the log's order."""
    store = host.store
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    while low < high:
        middle = (low + high) // 2
        entry = host.entry(topic, queue_id, middle)
        if entry is None or entry.physical_offset < physical_offset:
            low = middle + 1
        else:
            high = middle
    return low
