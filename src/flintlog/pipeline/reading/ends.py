"""Where logs end now, for readers that ask again and again: a stream at each trigger, an export that follows.

    the file system's facts      unchanged      changed
    fetched files                nothing is read, the end is the one that is known
    mapped files                 a look at the known end; no search
                                                a walk over the new records, and now and then a search

The facts are names, sizes and times of the log's files, and the versions of those that may grow. A writer on this
machine may write through a map without a new time, so the known end of a mapped log is always looked at. The search
finds records after a place where none begins, and a log that was cut; both change the facts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from flintlog.disk.media.medium import FileInfo
from flintlog.disk.media.source import ByteSource
from flintlog.disk.places import is_uri
from flintlog.errors import DiskError
from flintlog.format.names import CHECKPOINT
from flintlog.pipeline.reading.logs import Log, find_end, open_source, written_log
from flintlog.pipeline.reading.positions import stands

SEARCH_INTERVAL_S: Final = 10.0
"""How often a log that does not grow is searched, if its files changed."""

Facts = tuple[tuple[str, FileInfo, str], ...]
"""By directory and name: what the listing says, and the version of a file that may grow."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """The end of a log, the facts before it was found, and those before the last search."""

    end: int = 0
    facts: Facts | None = None
    searched: Facts | None = None
    searched_at: float = 0.0


class EndFinder:
    """Finds the ends of logs and remembers them, by broker. One thread uses it."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    @property
    def known(self) -> Mapping[str, int]:
        """The ends as they were last found."""
        return {broker: seen.end for broker, seen in self._seen.items()}

    def find(self, log: Log, read_up_to: int = 0, known: int = 0) -> int:
        """The end of a log now. If it is before `read_up_to`, a search makes sure.

        `known` is where a record ends, from an earlier run, for a log that was not seen yet.
        """
        seen = self._seen.get(log.broker) or _Seen(known)
        facts = _facts(log, seen.end)
        if facts == seen.facts and is_uri(log.uri):
            return seen.end
        end, now = find_end(log, seen.end, search=False), time.monotonic()
        searched, searched_at = seen.searched, seen.searched_at
        is_time = end <= seen.end and now - searched_at >= SEARCH_INTERVAL_S
        if (is_time or end < read_up_to) and facts != searched:
            searched, searched_at = facts, now
            end = find_end(log, seen.end if stands(log, seen.end) else 0)
        self._seen[log.broker] = _Seen(end, facts, searched, searched_at)
        return end


def _facts(log: Log, known: int) -> Facts:
    """The facts on which a log's end depends. They are read before it: a change in between is noticed next time."""
    source, path = open_source(log.uri)
    written = written_log(log, path)
    growing = {PurePath(file.path) for file in written.files if file.end >= known} | {written.batches}
    folders = {PurePath(file.path).parent for file in written.files}
    if written.ledger is not None:
        folders |= {written.ledger, written.ledger / "index"}
        growing |= {written.ledger / CHECKPOINT}
    return tuple(
        (str(folder), info, _version(source, folder / info.name) if folder / info.name in growing else "")
        for folder in sorted(folders | {written.batches.parent})
        for info in source.listing(folder)
        if not info.is_directory
    )


def _version(source: ByteSource, path: PurePath) -> str:
    try:
        return source.version(path)
    except DiskError:
        return ""  # deleted since it was listed, or not readable: reading it says so
