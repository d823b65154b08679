"""The delivered offset of each delay level: `config/delayOffset.json`.

    {
      "dataVersion":{ "counter":3, "stateVersion":0, "timestamp":1794785033297 },
      "offsetTable":{ 1:15, 2:15, 3:18, 18:0 }           level: queue offset of the next message to deliver
    }

A level is in the table once a message was found in its queue. As in RocketMQ, levels that are no longer configured
stay in it.
"""

from __future__ import annotations

from typing import Final

from flintlog.format.config_json import JsonObject
from flintlog.store.runtime.clock import Milliseconds
from flintlog.store.settings.config_shapes import parse_delay_offsets
from flintlog.store.settings.json_file import JsonFile

FILE_NAME: Final = "delayOffset.json"
VERSION_STEP: Final = 200
"""Updates after which the data version goes up: RocketMQ's `delayOffsetUpdateVersionStep`."""


class DelayOffsets:
    """The table and its file. Owned by the thread that delivers."""

    def __init__(self, file: JsonFile, now_ms: Milliseconds) -> None:
        self.file = file
        self._now_ms = now_ms
        self._table: dict[int, int] = {}
        self._counter = 0
        self._state_version = 0
        self._timestamp = now_ms()
        self._update_count = 0
        self.is_dirty = False

    def load(self) -> None:
        """Load the file. Raises when neither the file nor its backup has the right shape, and changes neither."""
        content = self.file.load(lambda found: parse_delay_offsets(found, self.file.path))
        if content is None:
            return
        self._table = parse_delay_offsets(content, self.file.path)
        version = {name: value for name, value in _object(content, "dataVersion").items() if isinstance(value, int)}
        self._counter = version.get("counter", 0)
        self._state_version = version.get("stateVersion", 0)
        self._timestamp = version.get("timestamp", self._timestamp)

    def get(self, level: int) -> int | None:
        """The next offset of a level; None when no message of it was ever seen."""
        return self._table.get(level)

    def set(self, level: int, offset: int) -> None:
        """Set a level's next offset; the next `save` writes it."""
        self._update_count += 1
        if self._update_count % VERSION_STEP == 0:
            self._counter += 1
            self._timestamp = self._now_ms()
            self.is_dirty = True
        if self._table.get(level) != offset:
            self._table[level] = offset
            self.is_dirty = True

    def save(self) -> None:
        """Write the file, unless its content would stay the same."""
        self.file.save(self.content())
        self.is_dirty = False

    def content(self) -> JsonObject:
        """The content to write."""
        version = {"counter": self._counter, "stateVersion": self._state_version, "timestamp": self._timestamp}
        return {"dataVersion": version, "offsetTable": self.as_table()}

    def as_table(self) -> dict[int, int]:
        """Every known level, the lowest first."""
        return dict(sorted(self._table.items()))


def _object(content: JsonObject, member: str) -> JsonObject:
    value = content.get(member)
    return value if isinstance(value, dict) else {}
