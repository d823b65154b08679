"""`flintlog/options.json`: the options that a store's bytes depend on, as its last writer had them.

A directory is opened, inspected, repaired and restored without its configuration. File lengths show most sizes, but not
those of deleted files. The log does not have the length of a delay level: only the queue entry of a delayed message has
its delivery time. So an opening for writing notes these options in the directory, and `fit_options` takes them from
there or from the files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from flintlog.derive.index_plan import index_layout
from flintlog.derive.log_files import common_size, log_file_size
from flintlog.disk.media.medium import Medium
from flintlog.errors import DiskError, DiskFull, InvalidConfig, WrongFileSize
from flintlog.format import names
from flintlog.format.index_file import IndexLayout
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
_FOR_DISPATCH: Final = (
    "mapped_file_size_commit_log",
    *DERIVED_FILES,
    "message_delay_level",
    "message_index_enable",
    "index_file_write_enable",
    "enable_lmq",
    "enable_multi_dispatch",
    "topic_queue_types",
)
"""Options that decide what a dispatcher writes."""
_QUEUES: Final = {
    "mapped_file_size_consume_queue": names.CONSUME_QUEUE,
    "mapped_file_size_batch_consume_queue": names.BATCH_CONSUME_QUEUE,
    "mapped_file_size_consume_queue_ext": names.CONSUME_QUEUE_EXT,
}
_LOOKED_AT: Final = 5
"""So many queues are looked at for the size of their files: a broker may have 100,000."""
_EARLIER_NAMES: Final = {
    "mapper_file_size_batch_consume_queue": "mapped_file_size_batch_consume_queue",
    "enable_dleger_commit_log": "enable_dledger_commit_log",
    "dleger_self_id": "dledger_self_id",
}
"""Earlier versions noted options under these names in stores and backups."""
_GROUP: Final = "dledger_group"
OPTIONS: Final = (
    *(DELAY_LEVELS, "mapped_file_size_commit_log", *DERIVED_FILES, "topic_queue_types"),
    *(_GROUP, "dledger_peers"),  # no file of a ledger names them
)
_FITTED: Final = frozenset(OPTIONS) - {"enabled_append_prop_crc", "topic_queue_types"}
"""A writer may choose the CRC anew, and the topics' own file has their types."""


class _Options(msgspec.Struct):
    """The note's content."""

    options: dict[str, Value]


def note_options(paths: StorePaths, config: StoreConfig, medium: Medium) -> None:
    """Note the options of a store that was opened for writing, unless they are noted already."""
    options = _values(config, OPTIONS)
    if load_options(paths, medium) != options:
        try:
            _note(paths, medium).save(_Options(options))
        except (DiskError, DiskFull) as error:
            log.warning("the options of the store are not noted: %s", error)  # a running store does not need the note


def note_for_dispatch(paths: StorePaths, config: StoreConfig, medium: Medium) -> None:
    """Note the options that a dispatcher outside the store has to know. It does not run meanwhile."""
    NoteFile(paths.dispatch_options, medium, _Options).save(_Options(_values(config, _FOR_DISPATCH)))


def dispatch_config(config: StoreConfig, paths: StorePaths, medium: Medium) -> StoreConfig:
    """The configuration of a dispatcher: the options of the store that left it the files.

    An option that was given and differs is an error that names both.
    """
    found = NoteFile(paths.dispatch_options, medium, _Options).load().checked
    if found is None:  # an earlier version left the files
        return fit_options(config, paths, medium)
    options = {name: value for name, value in found.options.items() if name in _FOR_DISPATCH}
    for name, value in _contradicted(config, options):
        raise InvalidConfig(
            f"{name} is {getattr(config, name)}, and the store runs with {value}",
            path=paths.root,
            advice="leave the option out: the store has noted its own",
        )
    return config.with_changes(**options)


def _contradicted(config: StoreConfig, options: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    """The options of a store of which a configuration names others. One that it leaves at its default is not named."""
    default = type(config)()
    for name, value in options.items():
        if getattr(config, name) not in (value, getattr(default, name)):
            yield name, value


def _values(config: StoreConfig, options: Iterable[str]) -> dict[str, Value]:
    found: dict[str, Value] = {name: value for name in options if (value := getattr(config, name)) is not None}
    return found | {"topic_queue_types": dict(config.topic_queue_types)}


def load_options(paths: StorePaths, medium: Medium) -> dict[str, Value]:
    """The options that the last writer noted; empty without a note, or if it is not believed."""
    found = _note(paths, medium).load().checked
    options = {} if found is None else by_their_names(found.options)
    return {name: value for name, value in options.items() if name in OPTIONS}


def fit_options(config: StoreConfig, paths: StorePaths, medium: Medium) -> StoreConfig:
    """The configuration with the sizes, delay levels and group of the directory, where it leaves their defaults.

    A size that it names, and that the files contradict, is a `WrongFileSize`; nothing was written then.
    """
    noted = load_options(paths, medium)
    _refuse_other_group(config, paths, noted)
    found = _find_sizes(config, paths, medium, noted)
    for name, size in _contradicted(config, found):
        raise WrongFileSize(
            f"{name} is {getattr(config, name)}, and the files were written with {size}",
            path=paths.root,
            advice="leave the option out: it is read from the files",
        )
    default = type(config)()
    if "mapped_file_size_consume_queue_ext" in found:
        found["enable_consume_queue_ext"] = True
    changes = {
        name: value
        for name, value in {**noted, **found}.items()
        if name in _FITTED and value != getattr(config, name) == getattr(default, name)
    }
    return config.with_changes(**changes) if changes else config


def _refuse_other_group(config: StoreConfig, paths: StorePaths, noted: Mapping[str, Value]) -> None:
    """Another group would overwrite what this one has committed. Its peers may move, and are not compared."""
    for name, value in _contradicted(config, {_GROUP: noted[_GROUP]} if _GROUP in noted else {}):
        raise InvalidConfig(
            f"{name} is {getattr(config, name)}, and this is a member's store of the group {value}",
            path=paths.options,
            advice="leave the option out; if the group was renamed, remove this file",
        )


def _find_sizes(config: StoreConfig, paths: StorePaths, medium: Medium, noted: Mapping[str, Value]) -> dict[str, Value]:
    """The sizes that the files have, by option."""
    found: dict[str, Value] = {}
    folders = (*paths.commit_logs, *paths.read_only_commit_logs)
    lengths = [each for folder in folders for each in _lengths(folder, medium)]
    noted_size = noted.get("mapped_file_size_commit_log")
    is_noted = any(length == noted_size for _, length in lengths)
    size = noted_size if is_noted else log_file_size(sorted(lengths)) if lengths else None
    if size is not None:
        found["mapped_file_size_commit_log"] = size
    for name, folder in _QUEUES.items():
        queue_lengths = [length for _, length in islice(_queue_lengths(paths.root / folder, medium), _LOOKED_AT)]
        size = common_size(queue_lengths)
        if size is not None:
            found[name] = size
    layout = _find_layout(config, paths.index, medium, noted)
    if layout is not None:
        found |= {"max_hash_slot_num": layout.slot_count, "max_index_num": layout.index_count}
    return found


def _queue_lengths(folder: Path, medium: Medium) -> Iterator[tuple[int, int]]:
    """Offset and length of one file of each queue."""
    for topic in medium.listing(folder):
        for queue in medium.listing(folder / topic.name) if topic.is_directory else ():
            yield from _lengths(folder / topic.name / queue.name, medium)[:1] if queue.is_directory else ()


def _lengths(folder: Path, medium: Medium) -> list[tuple[int, int]]:
    """Offset and length of each file of a log or queue."""
    return [
        (int(info.name), info.size)
        for info in medium.listing(folder)
        if info.size and not info.is_directory and names.is_segment_name(info.name)
    ]


def _find_layout(config: StoreConfig, folder: Path, medium: Medium, noted: Mapping[str, Value]) -> IndexLayout | None:
    """The slots and entries of the last index file: as configured or noted, if its length is that, or by its content.

    The content of a file with few keys does not prove them.
    """
    files = [info for info in medium.listing(folder) if info.size and names.is_number(info.name)]
    slots, entries = noted.get("max_hash_slot_num"), noted.get("max_index_num")
    layouts = [IndexLayout(config.max_hash_slot_num, config.max_index_num)]
    if isinstance(slots, int) and isinstance(entries, int):
        layouts.append(IndexLayout(slots, entries))
    for layout in layouts:
        if files and layout.file_size == files[-1].size:
            return layout
    return index_layout(medium.open(folder / files[-1].name).buffer) if files else None


def by_their_names(options: Mapping[str, Value]) -> dict[str, Value]:
    """Options that were read from a disk, under the names that they have now."""
    return {_EARLIER_NAMES.get(name, name): value for name, value in options.items()}


def _note(paths: StorePaths, medium: Medium) -> NoteFile[_Options]:
    return NoteFile(paths.options, medium, _Options)
