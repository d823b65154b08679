"""Whose reign a store belongs to: `flintlog/reign.json`, written before a master listens and before a slave follows.

    {"isMaster": true, "isPromoted": false, "reign": "5f0c…"}

A reign begins when a store first becomes a master, and with each promotion: a start as a master after it was a slave.
It goes on over restarts. A slave notes the reign that it follows, so it can tell a master that was promoted since,
which is right about what to keep, from one that only came back and may have lost what its slave acknowledged.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

import msgspec

from flintlog.errors import DamagedStore
from flintlog.store.runtime.note_file import NoteFile, Trust
from flintlog.store.store import Store

FOREIGN = ""
"""The reign of a master that knows of none: RocketMQ's."""


@dataclass(frozen=True, slots=True)
class Reign:
    """What is noted of a store's last role."""

    name: str
    is_master: bool
    is_promoted: bool = False


class _Note(msgspec.Struct, rename="camel"):
    is_master: bool
    is_promoted: bool
    reign: str


class ReignFile:
    """The note of one store. One thread at a time."""

    def __init__(self, store: Store) -> None:
        self._file = NoteFile(Path(store.path) / "flintlog" / "reign.json", store.medium, _Note)

    def load(self) -> Reign | None:
        """The note; None in a store that never was a replica."""
        found = self._file.load()
        if found.trust is Trust.DAMAGED:
            raise DamagedStore(
                f"the note of a replica's last role is damaged: {found.problem}",
                path=self._file.path,
                advice="remove it, and fill this replica from its master: it may hold what the master does not",
            )
        note = found.content
        return None if note is None else Reign(note.reign, note.is_master, note.is_promoted)

    def begin(self) -> Reign:
        """Take up the role of a master: the reign that goes on, or a new one."""
        last = self.load()
        if last is not None and last.is_master:
            return last
        return self._save(Reign(uuid.uuid4().hex, is_master=True, is_promoted=last is not None))

    def follow(self, name: str) -> None:
        """Take up the role of a slave in this reign."""
        reign = Reign(name, is_master=False)
        if self.load() != reign:
            self._save(reign)

    def _save(self, reign: Reign) -> Reign:
        self._file.save(_Note(reign.is_master, reign.is_promoted, reign.name))
        return reign
