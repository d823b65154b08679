"""The log as bytes, to copy it from one store to another.

    master    read(offset)  ─▶ bytes of one segment, up to the readable end ─▶ a slave
    slave     append(offset, data)  ─▶ whole records at the log's end ─▶ queues, index ─▶ its new end

Dispatch uses the same readable end: under sync flush only bytes that are on disk can be read. So a master that loses
power never restarts with a log that ends before its slave's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flintlog import kernel
from flintlog.errors import InvalidOffset, StoreClosed
from flintlog.store.engine import Engine
from flintlog.store.log.damage import Damage
from flintlog.store.read.copied_batches import CopiedBatches
from flintlog.store.recovery.pending_cut import PendingCut

DIGEST_BYTES: Final = 1024 * 1024


class RawLog:
    """The bytes of an open store's log. Any thread may read; one thread appends."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._segments = engine.parts.segments
        self._batches = CopiedBatches(engine)

    @property
    def start(self) -> int:
        """Where the log begins; 0 when there is no file yet."""
        return max(0, self._segments.min_offset)

    @property
    def end(self) -> int:
        """Where what may be copied ends; a slave's own end, which may lie inside a batch that it has a part of."""
        log = self._engine.log
        return max(self.start, log.copied_end() if self._engine.is_replica else log.visible_end())

    @property
    def is_empty(self) -> bool:
        """Whether no file was created yet."""
        return not self._segments.segments

    @property
    def segment_size(self) -> int:
        return self._segments.segment_size

    def read(self, offset: int, most_bytes: int) -> bytes:
        """Bytes from `offset` on, of one segment; none when the log has none there."""
        segment = self._segments.find(offset)
        if segment is None:
            return b""
        size = min(most_bytes, self.end - offset, segment.base + segment.read_position - offset)
        selected = segment.select(offset - segment.base, size) if size > 0 else None
        if selected is None:
            return b""
        with selected:
            return bytes(selected.view)

    def append(self, offset: int, data: bytes, *, damage: Sequence[tuple[int, int]] = ()) -> int:
        """Append whole records. Returns the new end. Under sync flush they are on disk when this returns.

        `damage` are ranges that are damaged in the other log too; dispatch and reading skip them here as they do there.
        """
        if not self._engine.is_replica:
            raise StoreClosed("only a slave takes bytes of another log", path=self._engine.path)
        if not self._engine.lifecycle.is_writeable:
            raise StoreClosed("the store takes nothing: its disk is full or a sync has failed", path=self._engine.path)
        for start, stop in damage:
            self._engine.parts.damage.add(Damage(start, stop, "the log that this was copied from is damaged here"))
        self._batches.append(offset, data)
        return self.end

    def follow(self, *, has_batches: bool) -> None:
        """Before the first `append`: whether the other log's batches are all closed, as those of flintlog's master are.

        RocketMQ as a master knows no batches. It may have taken messages after a part of one, so nothing is held back.
        """
        self._batches.follow(has_batches=has_batches)

    def record_start(self, offset: int) -> int:
        """The last offset, at or before `offset`, of a record, a blank or the log's end."""
        segment = self._segments.find(offset)
        if segment is None:
            return min(offset, self.end)
        selected = segment.select(0)
        if selected is None:
            return segment.base
        with selected:
            place, stop = 0, min(offset - segment.base, len(selected.view))
            while place < stop:
                place = kernel.scan(selected.view, place, stop, segment.base).end
                damage_end = self._engine.parts.damage.end_of(segment.base + place)
                if damage_end is None or damage_end - segment.base > stop:
                    break
                place = damage_end - segment.base
        return segment.base + place

    def ask_for_cut(self, end: int) -> None:
        """Make the next opening cut the log at `end` and set the bytes after it aside."""
        if not self.start <= end <= self.end:
            raise InvalidOffset(f"the log holds {self.start} to {self.end}", offset=end)
        PendingCut(self._engine.parts.paths, self._engine.medium).ask(end)

    def digest(self, start: int, stop: int) -> str:
        """SHA-256 of a range, in hexadecimal."""
        import hashlib

        if not self.start <= start <= stop <= self.end:
            raise InvalidOffset(f"the log holds {self.start} to {self.end}, not {start} to {stop}", offset=start)
        found = hashlib.sha256()
        while start < stop:
            data = self.read(start, min(stop - start, DIGEST_BYTES))
            if not data:
                raise InvalidOffset("the log has a hole", offset=start)
            found.update(data)
            start += len(data)
        return found.hexdigest()
