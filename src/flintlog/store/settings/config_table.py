"""A table of named entries in the `config` folder: `topics.json`, `subscriptionGroup.json`.

    {
      "dataVersion":{ "counter":6, "stateVersion":0, "timestamp":1794784994264 },
      "topicConfigTable":{ "orders":{ ... }, ... }         in the order of Java's ConcurrentHashMap
    }

Entries never change. The table is replaced as a whole after it was saved, so a reader needs no lock and a failed save
changes nothing. Unknown members of the file, in an entry or beside the table, are kept and written back.

Java's own order of entries depends on the history of its table; ours is that of a broker's first run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Generic, Protocol, TypeVar, cast

import msgspec

from flintlog.errors import DamagedStore
from flintlog.format.config_json import JsonObject, JsonValue
from flintlog.format.java import concurrent_map_order
from flintlog.store.runtime.clock import Milliseconds
from flintlog.store.settings.json_file import JsonFile

TABLE_CAPACITY = 1024
"""The initial capacity of Java's two tables."""


class DataVersion(msgspec.Struct, frozen=True, rename="camel"):
    """RocketMQ's version of a config file: how often it changed, and when it last did."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0

    def next(self, now_ms: int) -> DataVersion:
        return DataVersion(self.counter + 1, self.state_version, now_ms)

    def as_json(self) -> JsonValue:
        return cast(JsonValue, msgspec.to_builtins(self))


def parse_data_version(value: JsonValue, now_ms: int) -> DataVersion:
    """The version that a file carries; a new one, as Java makes it, when it carries none."""
    if isinstance(value, dict):
        try:
            return msgspec.convert(value, DataVersion, strict=False)
        except msgspec.ValidationError:
            pass
    return DataVersion(timestamp=now_ms)


class Entry(Protocol):
    """An entry of a table: a struct whose members are named as in the file."""

    @property
    def name(self) -> str: ...


E = TypeVar("E", bound=Entry)


class ConfigTable(Generic[E]):
    """Entries by name. Any thread may read or change them; a change is saved before it is visible."""

    def __init__(
        self,
        file: JsonFile,
        kind: type[E],
        member: str,
        now_ms: Milliseconds,
        *,
        predefined: Iterable[E] = (),
        entry_extras: JsonObject | None = None,
        file_extras: JsonObject | None = None,
    ) -> None:
        """`predefined` entries need no file. The extras are further members of Java's files."""
        self.file = file
        self.version = DataVersion(timestamp=now_ms())
        self._kind = kind
        self._member = member
        self._now_ms = now_ms
        self._entry_extras = dict(entry_extras or {})
        self._beside: JsonObject = {**(file_extras or {})}
        self._predefined: dict[str, E] = {entry.name: entry for entry in predefined}
        self._entries = self._predefined
        self._raw: dict[str, JsonObject] = {}
        self._changing = threading.Lock()

    def load(self) -> None:
        """Load the file. If neither it nor its backup has the right shape, this raises and changes nothing."""
        found: dict[str, tuple[JsonObject, E]] = {}

        def parse(content: JsonObject) -> None:
            nonlocal found
            found = self._parse_all(content)

        content = self.file.load(parse)
        if content is None:
            return
        content.pop(self._member, None)
        self.version = parse_data_version(content.pop("dataVersion", None), self._now_ms())
        self._beside.update(content)
        self._raw = {name: raw for name, (raw, _) in found.items()}
        self._entries = {**self._predefined, **{name: entry for name, (_, entry) in found.items()}}

    def check(self, content: JsonObject) -> None:
        """Raise `DamagedStore` for a content that `load` would not take."""
        self._parse_all(content)

    def _parse_all(self, content: JsonObject) -> dict[str, tuple[JsonObject, E]]:
        table = content.get(self._member, {})
        if not isinstance(table, dict):
            raise DamagedStore(f"the {self._member} of this file is no object", path=self.file.path)
        return {str(name): self._parse(str(name), entry) for name, entry in table.items()}

    def _parse(self, name: str, entry: JsonValue) -> tuple[JsonObject, E]:
        if not isinstance(entry, dict):
            raise DamagedStore(f"the entry {name!r} of {self._member} is no object", path=self.file.path)
        try:
            return entry, msgspec.convert(entry, self._kind, strict=False)
        except msgspec.ValidationError as error:
            raise DamagedStore(f"the entry {name!r} of {self._member}: {error}", path=self.file.path) from error

    @property
    def by_name(self) -> Mapping[str, E]:
        """Every entry, by its name in the file."""
        return self._entries

    def get(self, name: str) -> E | None:
        return self._entries.get(name)

    def all(self) -> list[E]:
        """Every entry, by name."""
        return [entry for _, entry in sorted(self._entries.items())]

    def put(self, entry: E) -> None:
        """Add or replace one entry, and save."""
        with self._changing:
            self._replace({**self._entries, entry.name: entry})

    def remove(self, name: str) -> None:
        """Delete one entry, and save."""
        with self._changing:
            self._replace({other: entry for other, entry in self._entries.items() if other != name})
            self._raw.pop(name, None)

    def _replace(self, entries: dict[str, E]) -> None:
        version = self.version.next(self._now_ms())
        table = {name: self._encode(name, entries[name]) for name in concurrent_map_order(entries, TABLE_CAPACITY)}
        content: JsonObject = {**self._beside, "dataVersion": version.as_json(), self._member: table}
        self.file.save(dict(sorted(content.items(), key=lambda item: str(item[0]))))
        self._entries, self.version = entries, version

    def _encode(self, name: str, entry: E) -> JsonValue:
        members: JsonObject = dict(self._raw.get(name, self._entry_extras))
        members.update(cast(JsonObject, msgspec.to_builtins(entry)))
        return dict(sorted(members.items(), key=lambda item: str(item[0])))
