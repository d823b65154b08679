"""Makes segments ahead of the writer: RocketMQ's AllocateMappedFileService.

A caller that asks for a segment also names the next one. The first was made with the previous call, so it is returned
at once: synced, warm, and with a durable name. One thread makes the next one meanwhile. Larger files are made first,
then smaller offsets. A file is identified by its offset, so there are never two files for one offset, even if the path
for it changes in between.

Files that were made but never asked for are deleted at shutdown; after a crash they remain as files of zeros.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from flintlog.disk.bell import Bell
from flintlog.disk.media.medium import Medium, RawFile
from flintlog.disk.segments.buffer_pool import TransientStorePool
from flintlog.disk.segments.segment import DEFAULT_TOUCH_AHEAD_BYTES, FIRST_STEP_BYTES, Segment, WriteBuffer
from flintlog.disk.segments.segment_queue import NewFile
from flintlog.errors import DiskError, FlintlogError

log = logging.getLogger(__name__)

OBTAIN_TIMEOUT_MS = 5_000
_LOOK_AGAIN_S: Final = 0.5
"""The thread checks this often by itself, because a caller may be interrupted before it rings."""


class _Request:
    """One file to be made; `bell` rings when it has a segment or an error."""

    __slots__ = ("bell", "error", "file", "segment")

    def __init__(self, file: NewFile) -> None:
        self.file = file
        self.bell = Bell()
        self.segment: Segment | None = None
        self.error: FlintlogError | None = None

    @property
    def is_done(self) -> bool:
        return self.segment is not None or self.error is not None

    @property
    def is_taken(self) -> bool:
        """Whether the log has listed it; a caller may be interrupted before that."""
        return self.segment is not None and self.segment.is_listed

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is done; False when the time is over."""
        deadline = time.monotonic() + timeout_s
        while not self.is_done:
            if not self.bell.listen(max(0.0, deadline - time.monotonic())) and not self.is_done:
                return False
        return True

    def __lt__(self, other: _Request) -> bool:
        return (-self.file.size, self.file.base) < (-other.file.size, other.file.base)


class SegmentAllocator:
    """The thread that makes files, and its finished files. One writer asks at a time."""

    def __init__(
        self,
        medium: Medium,
        *,
        pool: TransientStorePool | None = None,
        fast_fail_if_no_buffer: bool = False,
        warm_up: bool = False,
        warm_up_flush_bytes: int = DEFAULT_TOUCH_AHEAD_BYTES,
        timeout_ms: int = OBTAIN_TIMEOUT_MS,
        touch_ahead_bytes: int = DEFAULT_TOUCH_AHEAD_BYTES,
        for_syncs: bool = False,
    ) -> None:
        """`warm_up` touches whole files and locks them in memory; otherwise only their first pages are touched.

        `for_syncs` also writes the touched pages out, so that a sync does not wait for that; a warm-up does so in
        steps of `warm_up_flush_bytes`.
        """
        self._medium = medium
        self._pool = pool
        self._fast_fail = fast_fail_if_no_buffer
        self._warm_up = warm_up
        self._warm_up_flush_bytes = warm_up_flush_bytes if for_syncs else None
        self._timeout_ms = timeout_ms
        self._touch_ahead_bytes = touch_ahead_bytes
        self._for_syncs = for_syncs
        self._lock = threading.Lock()
        self._bell = Bell()
        self._requests: dict[tuple[int, int], _Request] = {}
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._has_complained = False

    def start(self) -> None:
        """Start the thread; without it, files are made on demand."""
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="flintlog-allocate", daemon=True)
        self._thread.start()

    def obtain(self, wanted: NewFile, ahead: NewFile) -> Segment:
        """Return the wanted segment; the next one is being made when this returns."""
        if self._thread is None:
            return self._make(wanted)
        self._check_buffers(wanted)
        request = self._request(wanted)
        self._request(ahead)
        self._wait(request)
        if request.segment is None:
            # The failure may be old, from making the file in advance: the disk may have room again.
            with self._lock:
                self._requests.pop((wanted.base, wanted.size), None)
            request = self._request(wanted)
            self._wait(request)
        if request.segment is None:
            assert request.error is not None
            raise request.error
        return request.segment

    def _wait(self, request: _Request) -> None:
        self._bell.ring()
        if not request.wait(self._timeout_ms / 1000):
            raise DiskError(f"the next file was not created within {self._timeout_ms} ms", path=request.file.path)

    def _check_buffers(self, wanted: NewFile) -> None:
        pool = self._pool
        if pool is None or not self._fast_fail or (wanted.base, wanted.size) in self._requests:
            return
        if pool.available_buffers <= len(self._waiting()):
            raise DiskError("no write buffer is free", path=wanted.path, advice="raise transientStorePoolSize")

    def _request(self, file: NewFile) -> _Request:
        key = (file.base, file.size)
        with self._lock:
            self._requests = {each: request for each, request in self._requests.items() if not request.is_taken}
            request = self._requests.get(key)
            if request is None:
                request = self._requests[key] = _Request(file)
            return request

    def _waiting(self) -> list[_Request]:
        with self._lock:
            return [request for request in self._requests.values() if not request.is_done]

    def _run(self) -> None:
        while not self._is_stopping:
            waiting = self._waiting()
            if not waiting:
                self._bell.listen(_LOOK_AGAIN_S)
                continue
            request = min(waiting)
            try:
                request.segment = self._make(request.file)
            except FlintlogError as error:
                request.error = error
            request.bell.ring()

    def _make(self, file: NewFile) -> Segment:
        buffer = self._borrow(file)
        allocated = file.size if self._warm_up else min(FIRST_STEP_BYTES, file.size)
        try:
            raw = self._create(file, allocated)
        except BaseException:
            if buffer is not None:
                buffer.give_back()
            raise
        segment = Segment(
            file.path, file.base, file.size, self._medium, raw=raw, write_buffer=buffer, allocated=allocated
        )
        if self._warm_up:
            self._keep_in_memory(segment)
        else:
            segment.warm_ahead(self._touch_ahead_bytes, for_syncs=self._for_syncs)
        return segment

    def _keep_in_memory(self, segment: Segment) -> None:
        if not segment.warm_up(self._warm_up_flush_bytes) and not self._has_complained:
            self._has_complained = True  # once: the limit is the same for every file
            log.warning("%s is warm, but the system refuses to lock it in memory", segment.path)

    def _create(self, file: NewFile, allocated: int) -> RawFile:
        raw = self._medium.create(file.path, file.size, allocated)
        try:
            raw.sync()  # so that the first group commit in this file does not wait for its name
        except BaseException:
            raw.close()
            self._medium.remove(file.path)
            raise
        return raw

    def _borrow(self, file: NewFile) -> WriteBuffer | None:
        if self._pool is None:
            return None
        buffer = self._pool.borrow()
        if buffer is None and self._fast_fail:
            raise DiskError("no write buffer is free", path=file.path, advice="raise transientStorePoolSize")
        return buffer

    def shut_down(self) -> None:
        """Stop, and delete the files that were never asked for."""
        self._is_stopping = True
        self._bell.ring()
        thread = self._thread
        if thread is not None:
            thread.join()
        self._thread = None
        with self._lock:
            unused = [request for request in self._requests.values() if not request.is_taken]
        for request in unused:
            if request.segment is not None:
                request.segment.destroy(0, 0)
        self._requests = {}
