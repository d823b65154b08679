"""The shapes of config files: what their readers accept.

For commands and slaves that check a content without opening a store. An opening checks by loading (`config_files.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from flintlog.disk.media.medium import Medium
from flintlog.errors import DamagedStore
from flintlog.format.config_json import JsonObject
from flintlog.store.settings.config_table import ConfigTable
from flintlog.store.settings.consumer_offsets import parse_offsets
from flintlog.store.settings.groups import GroupConfig
from flintlog.store.settings.json_file import JsonFile, check_objects
from flintlog.store.settings.topics import TopicConfig

Check = Callable[[JsonFile, JsonObject], object]
"""Raises `DamagedStore` or `FormatError` for a content that the file's reader would not take."""

_DELAYS: Final = "offsetTable"


def check_shape(path: Path, medium: Medium, content: JsonObject) -> None:
    """Raise for a content that the reader of this file would not take; a file of another name is taken."""
    check = _BY_NAME.get(path.name)
    if check is not None:
        check(JsonFile(path, medium), content)


def check_topics(file: JsonFile, content: JsonObject) -> None:
    ConfigTable(file, TopicConfig, "topicConfigTable", lambda: 0).check(content)


def check_groups(file: JsonFile, content: JsonObject) -> None:
    ConfigTable(file, GroupConfig, "subscriptionGroupTable", lambda: 0).check(content)


def check_offsets(file: JsonFile, content: JsonObject) -> None:
    parse_offsets(content, file.path)


def check_filters(file: JsonFile, content: JsonObject) -> None:
    check_objects(content, "filterDataByTopic")


def check_delay_offsets(file: JsonFile, content: JsonObject) -> None:
    parse_delay_offsets(content, file.path)


def parse_delay_offsets(content: JsonObject, path: Path) -> dict[int, int]:
    """The offset of each level; `DamagedStore` or `FormatError` when the table has another shape."""
    check_objects(content, _DELAYS)
    table = content.get(_DELAYS, {})
    found: dict[int, int] = {}
    for level, offset in table.items() if isinstance(table, dict) else ():
        if not str(level).isdecimal() or not isinstance(offset, int) or offset < 0:
            raise DamagedStore(f"{_DELAYS} says {level!r}: {offset!r}", path=path)
        found[int(level)] = offset
    return found


_BY_NAME: Final[Mapping[str, Check]] = {
    "topics.json": check_topics,
    "subscriptionGroup.json": check_groups,
    "consumerOffset.json": check_offsets,
    "lmqConsumerOffset.json": check_offsets,
    "consumerFilter.json": check_filters,
    "delayOffset.json": check_delay_offsets,
}
