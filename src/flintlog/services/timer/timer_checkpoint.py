"""The timer's checkpoint in use: `config/timercheck`.

It never claims more than is durable. Its writer first syncs the commit log (deliveries), then the timer log and the
wheel (entered messages). Its fields lie in one sector, so they change together.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flintlog.disk.media.medium import Medium, RawFile
from flintlog.errors import FormatError
from flintlog.format.timer import (
    TIMER_CHECKPOINT_SIZE,
    TimerCheckpoint,
    encode_timer_checkpoint,
    parse_timer_checkpoint,
)


class TimerCheckpointFile:
    """Loads and writes one timer checkpoint."""

    def __init__(self, path: Path, medium: Medium) -> None:
        self._path = path
        self._medium = medium
        self._file: RawFile | None = None
        self.values = TimerCheckpoint()

    def load(self) -> bool:
        """Read the file; False when it is missing, malformed or all zeros."""
        held = self._medium.stat(self._path)
        if held is None or held.is_directory or held.size != TIMER_CHECKPOINT_SIZE:
            return False
        data = self._medium.read(self._path)
        try:
            self.values = parse_timer_checkpoint(data)
        except FormatError:
            return False
        return any(data)

    def write(self, *, read_ms: int, log_flushed: int, queue_offset: int, now_ms: int) -> None:
        """Write the progress durably; the version grows when the progress changed."""
        values, old = self.values, self.values
        if (read_ms, queue_offset) != (old.read_ms, old.queue_offset):
            values = replace(values, timestamp=now_ms, counter=values.counter + 1)
        values = replace(
            values,
            read_ms=read_ms,
            log_flushed=log_flushed,
            queue_offset=queue_offset,
            master_queue_offset=queue_offset,
        )
        if values == old and self._file is not None:
            return
        if self._file is None:
            self._file = self._open()
        self._file.buffer[:TIMER_CHECKPOINT_SIZE] = encode_timer_checkpoint(values)
        self._file.sync()
        self.values = values

    def _open(self) -> RawFile:
        self._medium.make_directories(self._path.parent)
        held = self._medium.stat(self._path)
        if held is not None and held.size == TIMER_CHECKPOINT_SIZE:
            return self._medium.open(self._path, writable=True)
        self._medium.remove(self._path)
        return self._medium.create(self._path, TIMER_CHECKPOINT_SIZE)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
