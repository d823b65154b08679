"""Brings a store into agreement with its log: opens and stops it once, and lowers the offsets of delay levels.

The opening recovers the store: it builds queues, index and checkpoint, and lowers the offsets of groups.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from flintlog.disk.media.medium import Medium
from flintlog.format import names
from flintlog.format.config_json import JsonObject
from flintlog.format.record import SCHEDULE_TOPIC
from flintlog.maintenance.inspect.queue_ends import queue_end
from flintlog.maintenance.inspect.store_files import look_at
from flintlog.store.paths import StorePaths
from flintlog.store.settings.consumer_offsets import LIGHT_TABLE, parse_offsets
from flintlog.store.settings.json_file import JsonFile

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig


def settle(root: Path, config: StoreConfig, medium: Medium, *, is_guessed: bool) -> tuple[int, int]:
    """Open the store and stop it cleanly; returns the log's end and the number of queues. Nothing is put or deleted.

    `is_guessed`: no configuration was named. Light queues are then enabled, because a store that has some would lose
    them otherwise, and one that has none is not changed by it. The offsets of groups stay in the file that had them.
    """
    from flintlog.store.open_store import open_store

    quiet = config.with_changes(services=frozenset(), retention="off")
    if is_guessed:
        quiet = quiet.with_changes(enable_lmq=True, enable_multi_dispatch=True)
    paths = StorePaths.of(root, quiet)
    light, plain = JsonFile(paths.consumer_offsets, medium), JsonFile(paths.other_consumer_offsets, medium)
    is_plain = is_guessed and not light.exists
    with open_store(root, quiet, medium=medium) as store:
        found = store.recovery.log_end, len(store.queues())
    if is_plain:
        _put_back(light, plain, medium)
    return found


def _put_back(light: JsonFile, plain: JsonFile, medium: Medium) -> None:
    """Remove the offsets file of light queues again: without a configuration it must not appear in a plain store."""
    content = light.load()
    if content is None:
        return
    table = parse_offsets(content, light.path)
    plain.load()  # its content becomes the .bak
    members = {**content, "offsetTable": cast(JsonObject, table)}
    plain.save({name: value for name, value in members.items() if name != LIGHT_TABLE})
    medium.remove(light.path)
    medium.remove(light.backup)


def lower_delay_offsets(root: Path, config: StoreConfig | None, medium: Medium) -> None:
    """Lower every delay level that is ahead of its queue: messages put there later would be skipped."""
    files = look_at(root, config, medium)
    file = JsonFile(root / names.CONFIG / "delayOffset.json", medium)
    content = file.load()
    table = None if content is None else content.get("offsetTable")
    if content is None or not isinstance(table, dict):
        return
    for level, offset in table.items():
        queue = files.queues.get((SCHEDULE_TOPIC, int(level) - 1)) if str(level).isdecimal() else None
        end = 0 if queue is None else queue_end(files, queue)
        if isinstance(offset, int) and offset > end:
            table[level] = end
    file.save(content)
