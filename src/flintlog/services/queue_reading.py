"""Reading a queue: where it continues after a place in the log, and its messages page by page."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from flintlog.errors import DamagedRecord
from flintlog.store.model.stored_message import StoredMessage

if TYPE_CHECKING:
    from flintlog.store.put.service_host import ServiceHost
    from flintlog.store.store import Store

log = logging.getLogger(__name__)

PAGE_MESSAGES: Final = 1024


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


def read_pages(
    store: Store, topic: str, queue_id: int, start: int, stop: int
) -> Iterator[tuple[list[StoredMessage], int]]:
    """Pages of a queue's messages, each with the offset after its last message; damaged messages are skipped."""
    offset = start
    while offset < stop:
        try:
            page = store.get(topic, queue_id, offset, max_count=min(PAGE_MESSAGES, stop - offset))
        except DamagedRecord as damage:
            log.error("message %d of %s is skipped: %s", offset, topic, damage)
            offset += 1
            yield [], offset
            continue
        if page.next_offset <= offset:
            return
        offset = page.next_offset
        yield page.messages, offset
