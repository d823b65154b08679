"""`flintlog/options.json`: the options that a store's bytes depend on, as its last writer had them.

Commands inspect, repair and restore a directory without its configuration. File lengths show most sizes, but not those
of deleted files. The log does not have the length of a delay level: only the queue entry of a delayed message has its
delivery time. So an opening for writing notes these options in the directory.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from flintlog.disk.media.medium import Medium
from flintlog.errors import DiskError, DiskFull
from flintlog.store.paths import StorePaths
from flintlog.store.runtime.note_file import NoteFile

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig

log = logging.getLogger(__name__)

Value = int | bool | str | dict[str, str]

DELAY_LEVELS: Final = "message_delay_level"
DERIVED_FILES: Final = (
    "mapped_file_size_consume_queue",
    "mapped_file_size_batch_consume_queue",
    "mapped_file_size_consume_queue_ext",
    "enable_consume_queue_ext",
    "max_hash_slot_num",
    "max_index_num",
    "enabled_append_prop_crc",
)
"""Options that the files of queues and index, and the records' CRC, depend on."""
_EARLIER_NAMES: Final = {
    "mapper_file_size_batch_consume_queue": "mapped_file_size_batch_consume_queue",
    "enable_dleger_commit_log": "enable_dledger_commit_log",
    "dleger_self_id": "dledger_self_id",
}
"""Earlier versions noted options under these names in stores and backups."""
OPTIONS: Final = (DELAY_LEVELS, "mapped_file_size_commit_log", *DERIVED_FILES, "topic_queue_types")


class _Options(msgspec.Struct):
    """The note's content."""

    options: dict[str, Value]


def note_options(paths: StorePaths, config: StoreConfig, medium: Medium) -> None:
    """Note the options of a store that was opened for writing, unless they are noted already."""
    options: dict[str, Value] = {name: getattr(config, name) for name in OPTIONS}
    options["topic_queue_types"] = dict(config.topic_queue_types)
    if load_options(paths, medium) != options:
        try:
            _note(paths, medium).save(_Options(options))
        except (DiskError, DiskFull) as error:
            log.warning("the options of the store are not noted: %s", error)  # a running store does not need the note


def load_options(paths: StorePaths, medium: Medium) -> dict[str, Value]:
    """The options that the last writer noted; empty without a note, or if it is not believed."""
    found = _note(paths, medium).load().checked
    options = {} if found is None else by_their_names(found.options)
    return {name: value for name, value in options.items() if name in OPTIONS}


def by_their_names(options: Mapping[str, Value]) -> dict[str, Value]:
    """Options that were read from a disk, under the names that they have now."""
    return {_EARLIER_NAMES.get(name, name): value for name, value in options.items()}


def _note(paths: StorePaths, medium: Medium) -> NoteFile[_Options]:
    return NoteFile(paths.options, medium, _Options)
