"""The end of a running store: its files are made durable and written off as clean, and everything is given back.

The order is that in which things feed each other: log, index, queues, checkpoint, the marker of the stop, and at
last the `abort` file, whose absence says that all of it happened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack

from flintlog.errors import DiskFull
from flintlog.store.dispatch.dispatcher import Dispatcher
from flintlog.store.dispatch.external.handshake import DispatchSide
from flintlog.store.flush.flush_stages import Flushing
from flintlog.store.components import Parts
from flintlog.store.recovery.stop_marker import StopMarker

log = logging.getLogger(__name__)


def flush_everything(parts: Parts, flushing: Flushing) -> None:
    """Make everything durable, and let the checkpoint say so."""
    if flushing.queue_flush is None:
        return
    parts.segments.flush_all()
    flushing.note_flushed()
    if parts.index is not None:
        parts.index.flush()
        parts.checkpoint.set(index_msg_timestamp=parts.index.last_header.end_timestamp)
    flushing.queue_flush.flush_all()
    if parts.ledger is not None:
        parts.ledger.settle()


def write_off(parts: Parts, side: DispatchSide, marker: StopMarker) -> None:
    """Everything is durable: leave the directory as one that was stopped cleanly."""
    side.forget()
    index_files = 0 if parts.index is None else len(parts.index.files)
    parts.checkpoint.flush()
    try:
        marker.write(
            parts.checkpoint.values,
            log_end=parts.commit_log.max_offset,
            queue_count=len(parts.queues.all()),
            queue_file_count=parts.queues.file_count,
            index_file_count=index_files,
            queue_bytes=parts.queues.wrote_bytes,
        )
    except DiskFull as failure:
        # The stop is clean without it: the next opening believes the directory alone.
        log.warning("the stop was not written down: %s", failure)
    parts.medium.remove(parts.paths.abort)
    parts.medium.sync_directory(parts.paths.root)


def give_back(parts: Parts, dispatcher: Dispatcher, side: DispatchSide, release_lock: Callable[[], None]) -> None:
    """Give everything back, from the dispatcher to the lock; what fails on the way stops none of the rest."""
    with ExitStack() as last_to_first:
        last_to_first.callback(release_lock)
        last_to_first.callback(side.close)
        last_to_first.callback(parts.checkpoint.close)
        if parts.pool is not None:
            last_to_first.callback(parts.pool.shut_down)
        last_to_first.callback(parts.segments.shut_down)
        if parts.ledger is not None:
            last_to_first.callback(parts.ledger.release)
        if parts.index is not None:
            last_to_first.callback(parts.index.shut_down)
        last_to_first.callback(parts.queues.shut_down)
        last_to_first.callback(dispatcher.stop)
