"""When a ledger's member last took settings and offsets from a Java broker that led its group: `flintlog/polled.json`.

    {"stateEnd": 17}     the end of the shared state's queue at that time

A Java leader writes no shared state into the log, so as long as that queue has not grown, what was taken from it is
newer than what the queue says. As soon as one of ours has led, the queue has: the mark is of no use any more.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import msgspec

from flintlog.disk.medium import Medium

log = logging.getLogger(__name__)

_MAX_BYTES: Final = 4096


class _Mark(msgspec.Struct, frozen=True, rename="camel"):
    state_end: int


class PolledMark:
    """The file, and whether it counts. Its owner calls it from one thread at a time."""

    def __init__(self, root: Path, medium: Medium) -> None:
        self._path = root / "flintlog" / "polled.json"
        self._medium = medium
        self._state_end: int | None = None

    def load(self) -> None:
        """Read the file; one that does not parse is of no use, and is said."""
        if not self._medium.exists(self._path):
            return
        try:
            self._state_end = msgspec.json.decode(self._medium.read(self._path, _MAX_BYTES), type=_Mark).state_end
        except msgspec.MsgspecError as error:
            log.warning("%s is of no use: %s", self._path, error)

    def counts(self, state_end: int) -> bool:
        """Whether what was taken from a broker is newer than a state's queue that ends here."""
        return self._state_end is not None and state_end <= self._state_end

    def save(self, state_end: int) -> None:
        """Something was taken from a broker now, and is in the files."""
        if self._state_end == state_end:
            return
        self._medium.make_directories(self._path.parent)
        self._medium.replace(self._path, msgspec.json.encode(_Mark(state_end)))
        self._state_end = state_end
