"""A store at a glance: what `info` and `ls` show, read from names, lengths, queue entries and config files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flintlog import kernel
from flintlog.checks.derived_files import QueueFilesView
from flintlog.derive.log_end import records_end
from flintlog.disk.media.medium import DiskUsage
from flintlog.errors import DamagedStore, FlintlogError
from flintlog.format.config_json import BATCH_TYPE, SIMPLE_TYPE, JsonValue
from flintlog.format.queue_entry import (
    ENTRY_SIZE,
    PREFILL_ENTRY,
    QUEUE_ENTRY,
    QueueKey,
)
from flintlog.maintenance.inspect.file_kinds import kind_of
from flintlog.maintenance.inspect.log_reader import LogReader
from flintlog.maintenance.inspect.queue_ends import batch_entries, queue_end
from flintlog.maintenance.inspect.store_files import StoreFiles
from flintlog.store.log.disk_use import existing
from flintlog.store.settings.json_file import read_config

NO_STOP = 1 << 63


@dataclass(frozen=True, slots=True)
class QueueOverview:
    """One queue: its offsets, and the bytes that its messages take in the log."""

    topic: str
    queue_id: int
    type: str
    min_offset: int
    max_offset: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """How far a group is in a queue."""

    group: str
    topic: str
    queue_id: int
    offset: int
    max_offset: int
    lag: int


def log_end(files: StoreFiles) -> tuple[int, int | None, int | None]:
    """Where the log ends, and the store times of its first and last record."""
    reader = LogReader(files)
    with_data = [file for file in files.log if reader.first_store_time(file) is not None]
    if not with_data:
        return files.min_offset, None, None
    last = with_data[-1]
    view = files.view(last)
    written = min(last.size, files.source.data_end(Path(last.path), 0))
    end = records_end(view, last.base, last.base, max(1, written))
    return end, reader.first_store_time(with_data[0]), last_store_time(view, last.base)


def last_store_time(view: memoryview, base: int) -> int | None:
    """The store time of the last record before the first damage; `view` begins at the physical offset `base`."""
    place, time = 0, None
    while True:
        seen = kernel.scan(view, place, len(view), base, max_count=65536)
        if not seen.count:
            return time
        time, place = seen.row(seen.count - 1).store_timestamp, seen.end


def queues(files: StoreFiles) -> Iterator[QueueOverview]:
    """Every queue, by topic and id. Entries that point after the log's end do not count: a crash may leave some."""
    log_stop = log_end(files)[0] if files.log else None
    for key in sorted(files.queues):
        yield queue_overview(files, files.queues[key], log_stop)


def queue_overview(files: StoreFiles, queue: QueueFilesView, log_stop: int | None = None) -> QueueOverview:
    """One queue, as far as its entries point below `log_stop`."""
    build = _batch_queue if queue.is_batch else _simple_queue
    return build(files, queue, NO_STOP if log_stop is None else log_stop)


def _simple_queue(files: StoreFiles, queue: QueueFilesView, log_stop: int) -> QueueOverview:
    """Counts the entries whose record the log still has."""
    begin = queue.files[0].base // ENTRY_SIZE if queue.files else 0
    end = queue_end(files, queue)
    while end > begin and _place_of(files, queue, end - 1) >= log_stop:
        end -= 1
    first, count, total = end, 0, 0
    offset = begin
    for _, _, view in queue.pieces(files.read, begin * ENTRY_SIZE, end * ENTRY_SIZE):
        for physical_offset, size, _ in QUEUE_ENTRY.iter_unpack(view):
            if physical_offset >= files.min_offset and size != PREFILL_ENTRY.size:
                first = min(first, offset)
                count += 1
                total += size
            offset += 1
    return QueueOverview(queue.topic, queue.queue_id, SIMPLE_TYPE, first, end, count, total)


def _place_of(files: StoreFiles, queue: QueueFilesView, offset: int) -> int:
    for _, _, view in queue.pieces(files.read, offset * ENTRY_SIZE, (offset + 1) * ENTRY_SIZE):
        return int(QUEUE_ENTRY.unpack(view)[0])
    return -1


def _batch_queue(files: StoreFiles, queue: QueueFilesView, log_stop: int) -> QueueOverview:
    first, count, total, end = -1, 0, 0, 0
    for _, _, entry in batch_entries(files, queue):
        if files.min_offset <= entry.physical_offset < log_stop:
            first = entry.base_offset if first < 0 else first
            count += entry.batch_size
            total += entry.size
            end = entry.end_offset
    return QueueOverview(queue.topic, queue.queue_id, BATCH_TYPE, max(0, first), end, count, total)


def groups(files: StoreFiles, ends: Mapping[QueueKey, int] | None = None) -> Iterator[GroupOffset]:
    """Every group's offset in every queue, from `consumerOffset.json` or, with light queues, from their own file.

    `ends` are the ends of the queues, if the caller knows them.
    """
    name = files.paths.consumer_offsets.name
    light = {key: {0: offset} for key, offset in config_table(files, name, "lmqOffsetTable").items()}
    table = {**config_table(files, name, "offsetTable"), **light}
    for key in sorted(table, key=str):
        topic, _, group = str(key).partition("@")
        offsets = table[key]
        for queue_id, offset in sorted(offsets.items(), key=str) if isinstance(offsets, dict) else ():
            if isinstance(offset, int) and str(queue_id).isdecimal():
                end = _end_of(files, (topic, int(queue_id)), ends)
                yield GroupOffset(group, topic, int(queue_id), offset, end, max(0, end - offset))


def offsets_damage(files: StoreFiles) -> str | None:
    """Why the file of the groups' offsets cannot be read; `groups` then yields nothing."""
    path = files.paths.consumer_offsets
    try:
        found = read_config(path, files.medium)
    except DamagedStore as error:
        return f"{path.name} cannot be read: {error.what}; `flintlog verify` says more"
    table = {} if found is None else found.value.get("offsetTable", {})
    if not isinstance(table, dict):
        return f"{path.name} has no table of offsets; `flintlog verify` says more"
    wrong = next((key for key, offsets in table.items() if not isinstance(offsets, dict)), None)
    return None if wrong is None else f"{path.name} has no offsets for {wrong!r}; `flintlog verify` says more"


def offsets_restored(files: StoreFiles) -> str | None:
    """A note that the groups' offsets come from the `.bak`; None if they do not. The offsets saved last are missing."""
    path = files.paths.consumer_offsets
    with suppress(DamagedStore):
        found = read_config(path, files.medium)
        if found is not None and found.is_backup:
            return f"{path.name} is missing, empty or does not parse: its .bak is shown, as an opening would use it"
    return None


def _end_of(files: StoreFiles, key: QueueKey, ends: Mapping[QueueKey, int] | None) -> int:
    if ends is not None:
        return ends.get(key, 0)
    queue = files.queues.get(key)
    return 0 if queue is None else queue_end(files, queue)


def config_table(files: StoreFiles, name: str, member: str) -> dict[str | int, JsonValue]:
    """One table of a config file, or of its backup as an opening would use it; empty when neither can be read."""
    try:
        content = read_config(files.paths.consumer_offsets.with_name(name), files.medium)
    except DamagedStore:
        return {}
    found = None if content is None else content.value.get(member)
    return found if isinstance(found, dict) else {}


def log_disk(files: StoreFiles) -> DiskUsage | None:
    """The disk that new log files are made on: of several paths the emptiest. None when its use is not known."""
    return emptiest_disk(files, files.paths.commit_logs)


def emptiest_disk(files: StoreFiles, paths: Iterable[Path]) -> DiskUsage | None:
    """The disk of these directories that is least full; None when the use of none is known."""
    found = []
    for path in paths:
        with suppress(FlintlogError):
            found.append(files.medium.usage(existing(path, files.root, files.medium)))
    return min((usage for usage in found if usage.used_ratio >= 0), key=lambda usage: usage.used_ratio, default=None)


def all_files(files: StoreFiles) -> Iterator[tuple[Path, str, int, int]]:
    """Every file of the directory: path in the store, kind, length, time of its last change in ms."""
    yield from _walk(files, files.root, Path())


def _walk(files: StoreFiles, directory: Path, below: Path) -> Iterator[tuple[Path, str, int, int]]:
    for info in files.medium.listing(directory):
        path = below / info.name
        if info.is_directory:
            yield from _walk(files, directory / info.name, path)
        else:
            yield path, kind_of(path), info.size, info.mtime_ms
