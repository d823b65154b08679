"""Finds the files of log, queues and index for `look_at`, and judges their names and lengths.

No file is refused. One that does not belong here, is empty or has a wrong length becomes a finding; the others can be
read. Sizes that the configuration does not name are read from the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flintlog import kernel
from flintlog.checks.derived_files import DataFile, LedgerView, QueueFilesView
from flintlog.checks.finding import ERROR, WARNING, Finding
from flintlog.derive.index_plan import index_layout
from flintlog.derive.log_files import common_size, log_file_size
from flintlog.derive.sealing import is_sealed
from flintlog.disk.media.local import odd_names
from flintlog.disk.media.remote import RemoteMedium
from flintlog.errors import DiskError, FlintlogError, FormatError
from flintlog.format import names
from flintlog.format.config_json import BATCH_TYPE, named_queue_types
from flintlog.format.index_file import IndexLayout
from flintlog.format.ledger import INDEX_RECORD_SIZE
from flintlog.format.names import is_number, parse_queue_id, parse_segment_name
from flintlog.format.queue_entry import BATCH_ENTRY_SIZE, ENTRY_SIZE, QueueKey
from flintlog.store.log.misnamed import find_misnamed, list_log
from flintlog.store.paths import find_rocksdb
from flintlog.store.settings.json_file import read_config

if TYPE_CHECKING:
    from flintlog.maintenance.inspect.store_files import StoreFiles

SEALED = "enabled_append_prop_crc"
"""The option with which every record ends in a CRC over all of it."""
_HEAD_BYTES = 64 * 1024
_NOT_MOUNTED = "is a disk not mounted? restore the file from a replica or a backup"

_FoundQueues = dict[QueueKey, tuple[DataFile, ...]]


# ---------------------------------------------------------------------- the log


def find_log(files: StoreFiles, *, every_name: bool) -> None:
    """The files of the log. With `every_name` the first record of each one is compared with its name."""
    directories = (*files.paths.commit_logs, *files.paths.read_only_commit_logs)
    size = files.given_size("mapped_file_size_commit_log")
    named = list_log(directories, files.medium)
    with suppress(DiskError):  # deleted since, or unreadable: reading it reports that
        files.misnamed = tuple(find_misnamed(named, size, files.medium, every=every_name))
    files.findings += [misnamed.finding() for misnamed in files.misnamed]
    wrong = {misnamed.path for misnamed in files.misnamed}
    found = [DataFile(str(each.path), each.base, each.size) for each in files.misnamed if each.obstacle is None]
    for each in named:
        if each.path in wrong:
            continue
        if each.base is None:
            _note_foreign(files, each.path)
        else:
            found.append(DataFile(str(each.path), each.base, each.size))
    found.sort(key=lambda file: file.base)
    whole = [file for file in found if file.size]
    if size is None:
        size = _infer_log_size(files, whole)
    if size is not None:
        whole = [file for file in whole if not _is_foreign(files, file, size)]
        found = [file for file in found if not file.size or file in whole]
    _judge_sizes(files, found, size, is_log=True)
    is_here = not isinstance(files.medium, RemoteMedium)  # an object store has neither links nor empty directories
    files.findings += _find_missing(directories if is_here else (), found, size or 0)
    files.log = tuple(whole)
    if files.given is None and any(_has_sealed_record(files, file) for file in {*files.log[:1], *files.log[-2:]}):
        files.inferred.add(SEALED, True, "a record ends in the CRC over all of it")
    if files.paths.ledger is not None:
        _find_ledger(files, files.paths.ledger)


def _infer_log_size(files: StoreFiles, whole: Sequence[DataFile]) -> int | None:
    """By the last writer's note, or by the files with records: a file without any may have a wrong name."""
    noted = files.noted.get("mapped_file_size_commit_log")
    if isinstance(noted, int) and any(file.size == noted for file in whole):
        size, reason = noted, "as the last writer noted, and by the length of a file"
    else:
        written = [file for file in whole if any(files.read(file.path, 0, min(8, file.size)))]
        found = log_file_size([(file.base, file.size) for file in written or whole])
        if found is None:
            return None
        size, reason = found, f"{len(whole)} log files, by their names and lengths"
    files.inferred.add("mapped_file_size_commit_log", size, reason)
    return size


def _is_foreign(files: StoreFiles, file: DataFile, size: int) -> bool:
    """Report a file without a record whose name is no multiple of the file size."""
    if not file.base % size or kernel.find_record(files.view(file), 0, file.size, file.base) >= 0:
        return False
    _note_foreign(files, Path(file.path))
    return True


def _find_missing(directories: Iterable[Path], found: Sequence[DataFile], size: int) -> Iterator[Finding]:
    """Log files in whose place something else is: a directory, a dangling link, or an empty file.

    A crash leaves an empty file only at the end of a log.
    """
    last = max((file.base for file in found if file.size), default=-1)
    for file in found:
        if not file.size and file.base < last:
            yield _missing(file.base, file.path, "the file is empty, and others follow it", size)
    for directory in dict.fromkeys(directories):
        for name, what in odd_names(directory).items():
            with suppress(FormatError):
                base = parse_segment_name(name)
                yield _missing(base, str(directory / name), f"{what} is in the place of this file", size)


def _missing(base: int, path: str, evidence: str, size: int) -> Finding:
    return Finding("missing-log-file", ERROR, evidence, _NOT_MOUNTED, path, None, base, size)


def _find_ledger(files: StoreFiles, directory: Path) -> None:
    """The ledger's data files, which are part of the log, and its index files."""
    places = {str(place) for place in files.paths.commit_logs}
    data = tuple(file for file in files.log if str(Path(file.path).parent) in places)
    files.ledger = LedgerView(data, _whole_units(find_segments(files, directory / names.INDEX), INDEX_RECORD_SIZE))


def _has_sealed_record(files: StoreFiles, file: DataFile) -> bool:
    """Whether the first records of a log file end in a CRC over all of each."""
    with suppress(DiskError):
        head = files.medium.head(Path(file.path), min(file.size, _HEAD_BYTES))
        return is_sealed(memoryview(head), 0, file.base)
    return False


# ---------------------------------------------------------------------- names and lengths


def find_segments(files: StoreFiles, directory: Path) -> tuple[DataFile, ...]:
    """The files of a directory that are named by their first offset, in order; others are reported."""
    found = []
    for info in files.medium.listing(directory):
        if info.is_directory:
            continue
        try:
            found.append(DataFile(str(directory / info.name), parse_segment_name(info.name), info.size))
        except FormatError:
            _note_foreign(files, directory / info.name)
    return tuple(sorted(found, key=lambda file: file.base))


def _whole_units(found: Iterable[DataFile], unit: int) -> tuple[DataFile, ...]:
    """Files cut to whole units; without those whose name lies inside a unit."""
    whole = (DataFile(file.path, file.base, file.size - file.size % unit) for file in found)
    return tuple(file for file in whole if file.size and file.base % unit == 0)


def _judge_sizes(files: StoreFiles, row: Sequence[DataFile], size: int | None, *, is_log: bool) -> None:
    """Judge the lengths of files that follow each other; a running writer may be making the last one."""
    for file in row[:-1] if files.is_running else row:
        if file.size == 0:
            _note_empty(files, file, is_inside_log=is_log and file is not row[-1])
        elif size is not None and file.size != size:
            evidence = f"the file has {file.size} bytes, its neighbours {size}"
            mended = "repair brings it to its length; what was in the missing part is lost"
            severity, remedy = (ERROR, mended) if is_log else (WARNING, "build it again")
            files.findings.append(Finding("wrong-file-size", severity, evidence, remedy, file.path, file.size))


def _note_empty(files: StoreFiles, file: DataFile, *, is_inside_log: bool) -> None:
    """An opening removes an empty file, unless its messages are missing between those of others."""
    evidence, severity = "the file is empty: a crash came while it was made", WARNING
    remedy = "open the store, which removes it, or repair it, which moves it away"
    if is_inside_log:
        evidence, severity = "the file is empty, and others follow it: its messages are lost", ERROR
        remedy = "restore it from a replica or a backup; repair moves it away, and the store does not open before"
    files.findings.append(Finding("empty-file", severity, evidence, remedy, file.path))


def _note_foreign(files: StoreFiles, path: Path) -> None:
    if path.parent != files.root:  # a log that lies in the root itself has the store's other files beside it
        evidence = "no file of a store is called that"
        files.findings.append(Finding("foreign-file", WARNING, evidence, "move it away", str(path)))


# ---------------------------------------------------------------------- queues


def find_queues(files: StoreFiles) -> None:
    """The files of all queues, the types of topics, and a finding if the queues are kept in RocksDB."""
    simple = _queue_files(files, names.CONSUME_QUEUE)
    batch = _queue_files(files, names.BATCH_CONSUME_QUEUE)
    extensions = _queue_files(files, names.CONSUME_QUEUE_EXT)
    _infer_queue_sizes(files, simple, batch, extensions)
    for key, found in simple.items():
        files.queues[key] = QueueFilesView(*key, found, False, extensions.get(key, ()))
    for key, found in batch.items():
        files.queues[key] = QueueFilesView(*key, found, True)
    configured = {} if files.given is None else dict(files.given.topic_queue_types)
    # As an opening does, the configuration overrides topics.json. Existing queues override both.
    files.topic_queue_types = {**_read_topics(files), **configured, **{topic: BATCH_TYPE for topic, _ in batch}}
    if files.topic_queue_types != configured:
        reason = "directories of batch queues, or topics.json"
        files.inferred.add("topic_queue_types", files.topic_queue_types, reason)
    _judge_rocksdb(files)


def _queue_files(files: StoreFiles, folder: str) -> _FoundQueues:
    found: _FoundQueues = {}
    root = files.root / folder
    for topic in files.medium.listing(root):
        for queue in files.medium.listing(root / topic.name) if topic.is_directory else ():
            queue_id = parse_queue_id(queue.name) if queue.is_directory else None
            if queue_id is not None:
                found[topic.name, queue_id] = find_segments(files, root / topic.name / queue.name)
    return found


def _infer_queue_sizes(files: StoreFiles, simple: _FoundQueues, batch: _FoundQueues, extensions: _FoundQueues) -> None:
    kinds = (
        ("mapped_file_size_consume_queue", simple, ENTRY_SIZE),
        ("mapped_file_size_batch_consume_queue", batch, BATCH_ENTRY_SIZE),
        ("mapped_file_size_consume_queue_ext", extensions, 1),
    )
    for name, found, unit in kinds:
        sizes = [file.size for queue in found.values() for file in queue]
        size = common_size(sizes, unit=unit)
        if size is None:
            continue
        files.inferred.add(name, size, f"{len(sizes)} files of that kind, by their length")
        for key, queue in found.items():
            _judge_sizes(files, queue, size, is_log=False)
            found[key] = _whole_units(queue, unit)
    if any(extensions.values()):
        files.inferred.add("enable_consume_queue_ext", True, "there are extension files")


def _read_topics(files: StoreFiles) -> dict[str, str]:
    """The topics that have batch queues by `topics.json`."""
    try:
        content = read_config(files.paths.topics, files.medium)
    except FlintlogError:
        content = None  # reported as a damaged config
    if content is None:
        return {}
    table = content.value.get("topicConfigTable")
    files.known_topics = frozenset(map(str, table if isinstance(table, dict) else {}))
    return {topic: kind for topic, kind in named_queue_types(content.value).items() if kind == BATCH_TYPE}


def _judge_rocksdb(files: StoreFiles) -> None:
    place = find_rocksdb(files.paths, files.medium)
    if place is not None:
        evidence = "the queues are kept in RocksDB, which is not read: queues and topics are shown without them"
        remedy = "stop the broker and move this directory away; the queues are then built from the log"
        files.findings.append(Finding("queues-in-rocksdb", ERROR, evidence, remedy, str(place)))


# ---------------------------------------------------------------------- index


def find_index(files: StoreFiles) -> None:
    """The index files, and how many slots and entries each has."""
    directory = files.root / names.INDEX
    found = [info for info in files.medium.listing(directory) if not info.is_directory and is_number(info.name)]
    row = [DataFile(str(directory / info.name), 0, info.size) for info in found]
    if files.given is not None:
        files.layout = IndexLayout(files.given.max_hash_slot_num, files.given.max_index_num)
    if files.given_size("max_hash_slot_num") is None and files.given_size("max_index_num") is None:
        _infer_layout(files, [file for file in row if file.size])
    _judge_sizes(files, row, files.layout.file_size, is_log=False)
    files.index = tuple(file.path for file in row if file.size == files.layout.file_size)


def _infer_layout(files: StoreFiles, written: Sequence[DataFile]) -> None:
    """By the last writer's note, or by the files' entries, among which a running writer may be changing some."""
    size = common_size(file.size for file in written)
    noted = _noted_layout(files)
    if noted is not None and noted.file_size == size:
        _take_layout(files, noted, "as the last writer noted, and by the length of the index files")
        return
    for file in written:
        layout = index_layout(files.read(file.path, 0, file.size)) if file.size == size else None
        if layout is not None:
            reason = f"the length of {len(written)} index files and the entries in one of them"
            _take_layout(files, layout, reason)
            return


def _noted_layout(files: StoreFiles) -> IndexLayout | None:
    slots, entries = files.noted.get("max_hash_slot_num"), files.noted.get("max_index_num")
    return IndexLayout(slots, entries) if isinstance(slots, int) and isinstance(entries, int) else None


def _take_layout(files: StoreFiles, layout: IndexLayout, reason: str) -> None:
    files.layout = layout
    files.inferred.add("max_hash_slot_num", layout.slot_count, reason)
    files.inferred.add("max_index_num", layout.index_count, reason)
