"""The master epoch of a store: `flintlog/reign.json`, written before a master listens and before a slave follows.

    {"isMaster": true, "isPromoted": false, "reign": "5f0c…"}

An epoch begins when a store first becomes a master, and with each promotion: a start as a master after being a slave.
Restarts keep it. A slave notes the epoch that it follows. So it can distinguish a master that was promoted since, whose
log is the valid one, from a master that only restarted and may have lost records that the slave acknowledged.

Reasons and costs: docs/decisions/0014.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import msgspec

from flintlog.store.runtime.note_file import NoteFile
from flintlog.store.store import Store

FOREIGN = ""
"""The epoch of a RocketMQ master, which has none."""


class MasterEpoch(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"is_master": "isMaster", "is_promoted": "isPromoted", "name": "reign"},
):
    """The noted last role of a store and its epoch's name."""

    is_master: bool
    is_promoted: bool
    name: str


class MasterEpochFile:
    """The note of one store. One thread at a time."""

    def __init__(self, store: Store) -> None:
        self._file = NoteFile(Path(store.path) / "flintlog" / "reign.json", store.replication.medium, MasterEpoch)

    def load(self) -> MasterEpoch | None:
        """The note; None for a store that was never a master or slave."""
        advice = "remove it, and fill this replica from its master: it may hold records that the master lacks"
        return self._file.load_or_refuse("the note of a replica's last role", advice).content

    def begin(self) -> MasterEpoch:
        """Become a master: continue the last epoch, or begin a new one."""
        last = self.load()
        if last is not None and last.is_master:
            return last
        return self._save(MasterEpoch(name=uuid.uuid4().hex, is_master=True, is_promoted=last is not None))

    def follow(self, name: str) -> None:
        """Become a slave in this epoch."""
        epoch = MasterEpoch(name=name, is_master=False, is_promoted=False)
        if self.load() != epoch:
            self._save(epoch)

    def _save(self, epoch: MasterEpoch) -> MasterEpoch:
        self._file.save(epoch)
        return epoch
