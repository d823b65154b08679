"""Opening a store once and stopping it again, so that everything that follows from its log is there and agrees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from flintlog.disk.media.medium import Medium
from flintlog.format.config_json import JsonObject
from flintlog.store.paths import StorePaths
from flintlog.store.settings.consumer_offsets import LIGHT_TABLE, parse_offsets
from flintlog.store.settings.json_file import JsonFile

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig


def settle(root: Path, config: StoreConfig, medium: Medium, *, is_guessed: bool) -> tuple[int, int]:
    """Recover, build, stop cleanly; where the log ends, and how many queues there are. Nothing is put or deleted.

    `is_guessed`: no configuration was named. Then messages for light queues get theirs: a store that has none is not
    changed by it, and one that had them would otherwise lose them. How far groups have consumed stays in the file that
    it was in.
    """
    from flintlog.store.store import open_store

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
    """Nobody said that this is a store with light queues, so the file of one must not come into being."""
    content = light.load()
    if content is None:
        return
    table = parse_offsets(content, light.path)
    plain.load()  # its content becomes the .bak
    members = {**content, "offsetTable": cast(JsonObject, table)}
    plain.save({name: value for name, value in members.items() if name != LIGHT_TABLE})
    medium.remove(light.path)
    medium.remove(light.backup)
