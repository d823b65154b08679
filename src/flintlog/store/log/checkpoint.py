"""The checkpoint file in use: six numbers in memory, written together.

Any thread may set a field; `flush` writes all of them and syncs. A field never vouches for more than is durable: the
caller syncs before it sets one.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from flintlog.disk.media.medium import Medium, RawFile
from flintlog.errors import FormatError
from flintlog.format.checkpoint import CHECKPOINT_SIZE, Checkpoint, encode_checkpoint, parse_checkpoint


class CheckpointFile:
    """`checkpoint` of a store."""

    def __init__(self, path: Path, medium: Medium) -> None:
        self._path = path
        self._medium = medium
        self._lock = threading.Lock()
        self._file: RawFile | None = None
        self.existed = False
        self.values = Checkpoint()
        self._written = self.values

    def load(self) -> None:
        """Read the file if there is one; one that is too short is ignored."""
        if not self._medium.exists(self._path):
            return
        try:
            self.values = parse_checkpoint(self._medium.read(self._path))
            self.existed = True
        except FormatError:
            self.values = Checkpoint()
        self._written = self.values

    def set(self, **fields: int) -> None:
        with self._lock:
            self.values = replace(self.values, **fields)

    def vouch_for_index(self, end_timestamp: int) -> None:
        """Stop vouching for index files that reach further: they are about to be deleted."""
        if self.values.index_msg_timestamp > end_timestamp:
            self.set(index_msg_timestamp=end_timestamp)
            self.flush()

    def flush(self) -> None:
        """Write and sync, if anything changed."""
        with self._lock:
            values = self.values
            if self._file is None:
                self._file = self._open()
            elif values == self._written:
                return
            self._file.buffer[:CHECKPOINT_SIZE] = encode_checkpoint(values)
            self._file.sync()
            self._written = values

    def _open(self) -> RawFile:
        held = self._medium.stat(self._path)
        if held is not None and held.size != CHECKPOINT_SIZE:
            self._medium.remove(self._path)
            held = None
        if held is None:
            return self._medium.create(self._path, CHECKPOINT_SIZE)
        return self._medium.open(self._path, writable=True)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
