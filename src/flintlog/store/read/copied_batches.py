"""Closed batches in a log that a slave copies from its master.

    data   … │ opening marker │ message │ message │ … │ closing marker │ …
             note: opened                                               ─▶ flush ─▶ note: closed

A master sends a batch once it is whole, but in pieces. The slave keeps the same note as the batch's writer
(`store/recovery/batch_notes.py`): it is durable before the opening marker is in the log, and it is closed after the
closing marker was synced. Until then nothing of the batch is dispatched. If the slave stops inside a batch, the next
opening cuts the part off, whether it is to be a slave or a master then, and a promoted slave knows which batches its
writers have written.

An opening marker that follows another one says that the batch before was abandoned: its part stays, as it does in the
master's log.
"""

from __future__ import annotations

from typing import Final

from flintlog.store.engine import Engine
from flintlog.store.log.batch_markers import MARKER_TOPIC, ClosingMarker, FoundMarker, OpeningMarker, find_markers

_TOPIC: Final = MARKER_TOPIC.encode()


class CopiedBatches:
    """Appends records of another log, with the notes that their markers ask for. Belongs to the thread that appends."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._has_batches = True

    def follow(self, *, has_batches: bool) -> None:
        """Whether the batches of the log that is copied are followed; if not, what was held back is shown."""
        self._has_batches = has_batches
        if not has_batches and self._engine.log.is_batch_open:
            self._engine.batch_notes.leave()
            self._engine.log.batch_range = None
            self._engine.flushing.after_append()

    def append(self, offset: int, data: bytes) -> None:
        """Append whole records; under sync flush they are on disk when this returns."""
        start = offset
        for found in self._markers(offset, data):
            # Up to an opening marker, or with a closing one.
            stop = found.offset if isinstance(found.marker, OpeningMarker) else found.end
            self._append(start, data[start - offset : stop - offset])
            start = stop
            self._take(found)
        self._append(start, data[start - offset :])

    def _markers(self, offset: int, data: bytes) -> list[FoundMarker]:
        if not self._has_batches or _TOPIC not in data:
            return []
        return list(find_markers(memoryview(data), offset, offset))

    def _append(self, offset: int, data: bytes) -> None:
        if not data:
            return
        engine = self._engine
        engine.log.append_raw(offset, data)
        if engine.flushing.is_sync:
            engine.flush()
        else:
            engine.flushing.after_append()

    def _take(self, found: FoundMarker) -> None:
        engine, marker = self._engine, found.marker
        if isinstance(marker, OpeningMarker):
            engine.open_batch(found.offset, marker)
        else:
            self._close(marker, found.end)

    def _close(self, marker: ClosingMarker, end: int) -> None:
        """The batch of a log without opening markers is noted too."""
        engine = self._engine
        engine.flush()
        if marker.is_remembered:
            engine.batch_notes.close_as(marker.writer_id, marker.batch_id)
        elif engine.batch_notes.opened is not None:
            engine.batch_notes.close()
        engine.log.batch_range = None
        engine.flushing.after_append()
