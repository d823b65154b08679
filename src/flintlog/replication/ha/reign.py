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

from flintlog.errors import DamagedStore
from flintlog.format.config_json import JsonObject
from flintlog.store.json_file import JsonFile
from flintlog.store.store import Store

FOREIGN = ""
"""The reign of a master that knows of none: RocketMQ's."""


@dataclass(frozen=True, slots=True)
class Reign:
    """What is noted of a store's last role."""

    name: str
    is_master: bool
    is_promoted: bool = False


class ReignFile:
    """The note of one store. One thread at a time."""

    def __init__(self, store: Store) -> None:
        self._file = JsonFile(Path(store.path) / "flintlog" / "reign.json", store.medium)

    def load(self) -> Reign | None:
        """The note; None in a store that never was a replica."""
        content = self._file.load(_parse)
        return None if content is None else _parse(content)

    def begin(self) -> Reign:
        """Take up the role of a master: the reign that goes on, or a new one."""
        last = self.load()
        if last is not None and last.is_master:
            return last
        return self._save(Reign(uuid.uuid4().hex, is_master=True, is_promoted=last is not None))

    def follow(self, name: str) -> None:
        """Take up the role of a slave in this reign."""
        self.load()
        self._save(Reign(name, is_master=False))

    def _save(self, reign: Reign) -> Reign:
        self._file.save({"isMaster": reign.is_master, "isPromoted": reign.is_promoted, "reign": reign.name})
        return reign


def _parse(content: JsonObject) -> Reign:
    name, is_master, is_promoted = (content.get(each) for each in ("reign", "isMaster", "isPromoted"))
    if isinstance(name, str) and isinstance(is_master, bool) and isinstance(is_promoted, bool):
        return Reign(name, is_master, is_promoted)
    raise DamagedStore("no note of a reign")
