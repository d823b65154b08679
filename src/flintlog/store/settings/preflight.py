"""The config files that hold what nobody else knows: what they must look like before a store is opened for writing.

Recovery cuts what a crash has left, and builds queues of the kind that `topics.json` names. With one of these files
broken the store is not opened; so they are looked at before any of that, and the store is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from flintlog.disk.media.medium import Medium
from flintlog.errors import DamagedStore
from flintlog.format.config_json import JsonObject
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.paths import StorePaths
from flintlog.store.settings.config_table import ConfigTable
from flintlog.store.settings.consumer_offsets import load_from, parse_offsets
from flintlog.store.settings.groups import GroupConfig
from flintlog.store.settings.json_file import JsonFile, check_objects
from flintlog.store.settings.topics import TopicConfig

Check = Callable[[JsonFile, JsonObject], object]
"""Raises `DamagedStore` or `FormatError` for a content that the file's reader would not take."""

_DELAYS: Final = "offsetTable"


def refuse_broken(paths: StorePaths, config: StoreConfig, medium: Medium) -> None:
    """Raise if one of the files, and its backup, cannot be used; nothing is changed."""
    for file, check in _files(paths, config, medium):
        file.load(partial(check, file))


def _files(paths: StorePaths, config: StoreConfig, medium: Medium) -> Iterator[tuple[JsonFile, Check]]:
    yield JsonFile(paths.topics, medium), check_topics
    yield JsonFile(paths.groups, medium), check_groups
    offsets = (JsonFile(path, medium) for path in (paths.consumer_offsets, paths.other_consumer_offsets))
    yield load_from(*offsets), check_offsets
    yield JsonFile(paths.consumer_filter, medium), check_filters
    if "schedule" in config.services:
        yield JsonFile(paths.delay_offsets, medium), check_delay_offsets


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
