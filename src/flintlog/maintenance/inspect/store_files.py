"""The files of a store directory, whoever wrote it and in whatever state it is: found, sized and sorted, never changed.

Unlike an opening this needs no right sizes and refuses nothing: what does not belong, is empty or has a wrong length
becomes a finding, and the rest is there to be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flintlog import kernel
from flintlog.checks.derived_files import DataFile, DeletedPart, DerivedFiles, LedgerView, QueueFilesView
from flintlog.checks.finding import ERROR, WARNING, Finding
from flintlog.derive.log_files import common_size
from flintlog.derive.sealing import is_sealed
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.lock import is_locked
from flintlog.disk.media.medium import Medium
from flintlog.disk.media.source import MappedSource
from flintlog.errors import DamagedStore, DiskError, FlintlogError, FormatError, InvalidConfig
from flintlog.format import names
from flintlog.format.batch_queue_entry import ENTRY_SIZE as BATCH_ENTRY_SIZE
from flintlog.format.config_json import BATCH_TYPE, named_queue_types
from flintlog.format.index_file import IndexLayout
from flintlog.format.ledger_entry import INDEX_RECORD_SIZE
from flintlog.format.names import is_number, parse_queue_id, parse_segment_name
from flintlog.format.queue_entry import ENTRY_SIZE, QueueKey
from flintlog.kernel import Crc
from flintlog.maintenance.inspect.delay_levels import format_levels, see_levels, with_seen
from flintlog.maintenance.inspect.gone_files import find_gone
from flintlog.maintenance.inspect.inference import Inferred, index_layout, log_file_size
from flintlog.store.log.checkpoint import CheckpointFile
from flintlog.store.log.record_crc import crc_to_check
from flintlog.store.options.values import DEFAULT_DELAY_LEVELS_MS, parse_delay_levels
from flintlog.store.paths import (
    LEDGER_PREFIX,
    StorePaths,
    find_rocksdb,
    guess_paths,
    is_member_directory,
    is_store,
    with_found_ledger,
)
from flintlog.store.queues.deleted_queues import FOR_EVER, load_deleted
from flintlog.store.recovery.misnamed import Misnamed, find_misnamed, list_log
from flintlog.store.recovery.published_end import WrittenLog, published_end
from flintlog.store.recovery.stop_marker import StopMarker
from flintlog.store.settings.json_file import read_config
from flintlog.store.settings.written_with import DELAY_LEVELS, Value, load_options

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig

_MEMBER = "this is a ledger member's directory"
_ABOVE = "name the store above it"
_SEALED = "enabled_append_prop_crc"
_HEAD_BYTES = 64 * 1024
_SIZES = ("mapped_file_size_commit_log", "max_hash_slot_num", "max_index_num")


@dataclass(slots=True)
class StoreFiles:
    """One look at a directory. `given` is the configuration that was named, `inferred` what the files told."""

    root: Path
    paths: StorePaths
    given: StoreConfig | None
    inferred: Inferred
    medium: Medium
    source: MappedSource
    log: tuple[DataFile, ...] = ()
    """In order. A file under a wrong name is where it belongs, unless something is against it."""
    misnamed: tuple[Misnamed, ...] = ()
    queues: dict[QueueKey, QueueFilesView] = field(default_factory=dict)
    index: tuple[str, ...] = ()
    layout: IndexLayout = field(default_factory=IndexLayout)
    timer_log: tuple[DataFile, ...] = ()
    ledger: LedgerView | None = None
    findings: list[Finding] = field(default_factory=list)
    is_clean: bool = True
    is_running: bool = False
    known_end: int | None = None
    known_topics: frozenset[str] | None = None
    topic_queue_types: dict[str, str] = field(default_factory=dict)
    noted: dict[str, Value] = field(default_factory=dict)
    """Options that the last writer left, where no configuration was named."""
    doubtful_levels: frozenset[int] = frozenset()
    """Delay levels whose length is not known: delivery times of their messages are neither judged nor changed."""
    _end: int | None = None

    @property
    def end(self) -> int | None:
        """Where the log ended at the first question, if a writer runs; nobody shows or judges what lies after it.

        None when nobody writes: then all bytes of the log are what they will be.
        """
        if self.is_running and self._end is None:
            self.fix_end()
        return self._end

    def fix_end(self, known: int = 0) -> int:
        """Let the log end where it ends now, whether a writer runs or may begin to; `known` is an earlier end."""
        self._end = published_end(self.source, WrittenLog(self.log, self.paths.batches, self.paths.ledger), known)
        return self._end

    @property
    def config(self) -> StoreConfig:
        """What was given, completed by what was inferred."""
        from flintlog.store.options.store_config import StoreConfig  # late: most looks do without

        base = StoreConfig().with_changes(**self.noted) if self.given is None else self.given
        return base.with_changes(**self.inferred.values)

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """By the configuration that was named or, without one, by queue entries, the last writer or the default."""
        if self.given is not None:
            return self.given.delay_levels_ms
        text = self.inferred.values.get(DELAY_LEVELS, self.noted.get(DELAY_LEVELS))
        return parse_delay_levels(DELAY_LEVELS, text) if isinstance(text, str) else DEFAULT_DELAY_LEVELS_MS

    @property
    def checked_crc(self) -> Crc:
        """Which sums its records have: what the configuration says or, without one, the records themselves."""
        if self.given is not None:
            return crc_to_check(self.given)
        return Crc.RECORD if self.inferred.values.get(_SEALED) else Crc.BODY

    @property
    def batch_topics(self) -> frozenset[str]:
        """Topics with batch queues."""
        return frozenset(topic for topic, kind in self.topic_queue_types.items() if kind == BATCH_TYPE)

    def read(self, path: str, start: int, stop: int) -> memoryview:
        """Bytes of a file, mapped."""
        return self.source.view(Path(path), start, stop)

    def derived(self) -> DerivedFiles:
        """The queues, as the checks take them."""
        return DerivedFiles(
            self.read,
            self.queues,
            self.batch_topics,
            ledger=self.ledger,
            deleted=find_deleted(self.paths, self.medium),
            doubtful_levels=self.doubtful_levels,
        )

    def small(self, path: Path) -> bytes | None:
        """The bytes of a small file; None when there is none."""
        return self.medium.read(path) if self.medium.stat(path) is not None else None


def find_deleted(paths: StorePaths, medium: Medium) -> dict[QueueKey, DeletedPart]:
    """The queues of deleted topics whose records the log still has."""
    return {
        (gone.topic, gone.queue_id): DeletedPart(gone.next_offset, gone.log_end)
        for gone in load_deleted(paths.deleted, medium).all()
        if gone.log_end < FOR_EVER
    }


def look_at(
    root: Path, config: StoreConfig | None = None, medium: Medium | None = None, *, every_name: bool = False
) -> StoreFiles:
    """The files of the store in a directory; `DamagedStore` when it holds none.

    Sizes that `config` does not name are read from the files, where that is safe. With `every_name` each log file is
    looked at, whether its name is the right one.
    """
    medium = LocalMedium() if medium is None else medium
    if is_member_directory(root, medium):
        raise DamagedStore(_MEMBER, path=root, advice=_ABOVE)
    paths = _paths_of(root, config, medium)
    files = StoreFiles(root, paths, config, Inferred(), medium, MappedSource(medium, max_files=256))
    if paths.ledger is not None and (config is None or not config.enable_dledger_commit_log):
        files.inferred.add("enable_dledger_commit_log", True, "the data files of a ledger's member are here")
        files.inferred.add("dledger_self_id", paths.ledger.name.removeprefix(LEDGER_PREFIX), "by their directory")
    has_files = any(medium.exists(path) for path in (*paths.commit_logs, paths.consume_queue, paths.index))
    if not has_files and not is_store(paths, medium):
        raise DamagedStore("there is no store here", path=root, advice="name the directory that holds commitlog")
    files.is_clean = not medium.exists(paths.abort)
    files.is_running = is_locked(paths.lock)
    marker = StopMarker(paths.stop_marker, medium)
    if files.is_clean:
        checkpoint = CheckpointFile(paths.checkpoint, medium)
        checkpoint.load()
        marker.load(checkpoint.values)
        files.known_end = marker.log_end
    files.noted = load_options(paths, medium) if config is None else {}
    given = frozenset() if config is None else _named_sizes(config)
    _find_log(files, is_given="mapped_file_size_commit_log" in given, every_name=every_name)
    _find_queues(files)
    _judge_rocksdb(files)
    _find_index(files, is_given=not given.isdisjoint({"max_hash_slot_num", "max_index_num"}))
    if config is None:
        _infer_levels(files)
    timer = root / names.TIMER_LOG
    files.timer_log = tuple(sorted(_segments(files, timer), key=lambda file: file.base))
    return files


def refuse_member(root: Path, medium: Medium, what: str) -> None:
    """The same for the directory of a group's member itself, which is not even a store."""
    if is_member_directory(root, medium):
        raise InvalidConfig(f"{_MEMBER}, and is not {what}", path=root, advice=_ABOVE)


def refuse_ledger(files: StoreFiles, what: str) -> None:
    """What changes or copies a log by itself cannot do so with one that belongs to a group."""
    if files.paths.ledger is not None:
        raise InvalidConfig(
            f"the log of this store is a ledger, and is not {what}",
            path=files.root,
            advice="while the other members run, move the member's directory away: the group fills it again",
        )


def _paths_of(root: Path, config: StoreConfig | None, medium: Medium) -> StorePaths:
    return guess_paths(root, medium) if config is None else with_found_ledger(StorePaths.of(root, config), medium)


def _named_sizes(config: StoreConfig) -> frozenset[str]:
    """Sizes that the configuration sets; what it leaves at the default is read from the files."""
    defaults = type(config)()
    return frozenset(name for name in _SIZES if getattr(config, name) != getattr(defaults, name))


# ---------------------------------------------------------------------- the log


def _find_log(files: StoreFiles, *, is_given: bool, every_name: bool) -> None:
    directories = (*files.paths.commit_logs, *files.paths.read_only_commit_logs)
    size = files.given.mapped_file_size_commit_log if is_given and files.given is not None else None
    named = list_log(directories, files.medium)
    with suppress(DiskError):  # expired meanwhile, or not to be read: who reads it says so
        files.misnamed = tuple(find_misnamed(named, size, files.medium, every=every_name))
    files.findings += [misnamed.finding() for misnamed in files.misnamed]
    wrong = {misnamed.path for misnamed in files.misnamed}
    found = [DataFile(str(each.path), each.base, each.size) for each in files.misnamed if each.obstacle is None]
    for path, length, base in ((each.path, each.size, each.base) for each in named if each.path not in wrong):
        if base is None:
            _note_foreign(files, path)
        else:
            found.append(DataFile(str(path), base, length))
    found.sort(key=lambda file: file.base)
    whole = [file for file in found if file.size]
    if size is None:
        size = _infer_log_size(files, whole)
    if size is not None:
        whole = [file for file in whole if not _is_nobodys(files, file, size)]
        found = [file for file in found if not file.size or file in whole]
    _judge_sizes(files, found, size, is_log=True)
    files.findings += find_gone(directories, found, size or 0)
    files.log = tuple(whole)
    if files.given is None and any(_has_sealed_record(files, file) for file in {*files.log[:1], *files.log[-2:]}):
        files.inferred.add(_SEALED, True, "a record ends in the CRC over all of it")
    if files.paths.ledger is not None:
        _find_ledger(files, files.paths.ledger)


def _infer_log_size(files: StoreFiles, whole: Sequence[DataFile]) -> int | None:
    """By the last writer's word, or by the files that hold anything: one without a record may have any name."""
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


def _is_nobodys(files: StoreFiles, file: DataFile, size: int) -> bool:
    """Tell a file without a record whose name can be none of the log's."""
    view = files.read(file.path, 0, file.size)
    if not file.base % size or kernel.find_record(view, 0, file.size, file.base) >= 0:
        return False
    _note_foreign(files, Path(file.path))
    return True


def _find_ledger(files: StoreFiles, directory: Path) -> None:
    """The ledger's own files: those of the log that hold its entries, and its index."""
    places = {str(place) for place in files.paths.commit_logs}
    data = tuple(file for file in files.log if str(Path(file.path).parent) in places)
    found = sorted(_segments(files, directory / names.INDEX), key=lambda file: file.base)
    # Records are read whole, and a name in the middle of one is no name of an index file.
    whole = (DataFile(file.path, file.base, file.size - file.size % INDEX_RECORD_SIZE) for file in found)
    files.ledger = LedgerView(data, tuple(file for file in whole if file.size and not file.base % INDEX_RECORD_SIZE))


def _has_sealed_record(files: StoreFiles, file: DataFile) -> bool:
    """Whether the first records of a log file say that the store writes a CRC over all of each."""
    with suppress(DiskError):
        head = files.medium.head(Path(file.path), min(file.size, _HEAD_BYTES))
        return is_sealed(memoryview(head), 0, file.base)
    return False


def _judge_sizes(files: StoreFiles, row: Sequence[DataFile], size: int | None, *, is_log: bool) -> None:
    """Judge the lengths of files that follow each other; a running writer may be making the last one."""
    for file in row[:-1] if files.is_running else row:
        if file.size == 0:
            _note_empty(files, file, is_inside_log=is_log and file is not row[-1])
        else:
            _judge_size(files, file, size, is_log=is_log)


def _note_empty(files: StoreFiles, file: DataFile, *, is_inside_log: bool) -> None:
    """An opening removes an empty file, unless its messages are missing between those of others."""
    evidence, severity = "the file is empty: a crash came while it was made", WARNING
    remedy = "open the store, which removes it, or repair it, which moves it away"
    if is_inside_log:
        evidence, severity = "the file is empty, and others follow it: its messages are lost", ERROR
        remedy = "restore it from a replica or a backup; repair moves it away, and the store does not open before"
    files.findings.append(Finding("empty-file", severity, evidence, remedy, file.path))


def _judge_size(files: StoreFiles, file: DataFile, size: int | None, *, is_log: bool) -> None:
    if size is not None and file.size != size:
        evidence = f"the file has {file.size} bytes, its neighbours {size}"
        severity = ERROR if is_log else WARNING
        remedy = "repair brings it to its length; what was in the missing part is lost" if is_log else "build it again"
        files.findings.append(Finding("wrong-file-size", severity, evidence, remedy, file.path, file.size))


def _segments(files: StoreFiles, directory: Path) -> Iterable[DataFile]:
    for info in files.medium.listing(directory):
        if info.is_directory:
            continue
        try:
            yield DataFile(str(directory / info.name), parse_segment_name(info.name), info.size)
        except FormatError:
            _note_foreign(files, directory / info.name)


def _note_foreign(files: StoreFiles, path: Path) -> None:
    if path.parent != files.root:  # a log that lies in the root itself has the store's other files beside it
        evidence = "no file of a store is called that"
        files.findings.append(Finding("foreign-file", WARNING, evidence, "move it away", str(path)))


# ---------------------------------------------------------------------- queues


def _find_queues(files: StoreFiles) -> None:
    simple = _queue_files(files, names.CONSUME_QUEUE)
    batch = _queue_files(files, names.BATCH_CONSUME_QUEUE)
    extensions = _queue_files(files, names.CONSUME_QUEUE_EXT)
    _infer_sizes(files, simple, batch, extensions)
    for key, found in simple.items():
        extension = extensions.get(key, ())
        files.queues[key] = QueueFilesView(*key, found, False, extension)
    for key, found in batch.items():
        files.queues[key] = QueueFilesView(*key, found, True)
    told = {} if files.given is None else dict(files.given.topic_queue_types)
    # As an opening takes them: the configuration goes before topics.json. Queues that are there go before both.
    files.topic_queue_types = {**_read_topics(files), **told, **{topic: BATCH_TYPE for topic, _ in batch}}
    if files.topic_queue_types != told:
        reason = "directories of batch queues, or topics.json"
        files.inferred.add("topic_queue_types", files.topic_queue_types, reason)


def _queue_files(files: StoreFiles, folder: str) -> dict[QueueKey, tuple[DataFile, ...]]:
    found: dict[QueueKey, tuple[DataFile, ...]] = {}
    root = files.root / folder
    for topic in files.medium.listing(root):
        for queue in files.medium.listing(root / topic.name) if topic.is_directory else ():
            queue_id = parse_queue_id(queue.name) if queue.is_directory else None
            if queue_id is not None:
                segments = sorted(_segments(files, root / topic.name / queue.name), key=lambda file: file.base)
                found[topic.name, queue_id] = tuple(segments)
    return found


def _infer_sizes(
    files: StoreFiles,
    simple: dict[QueueKey, tuple[DataFile, ...]],
    batch: dict[QueueKey, tuple[DataFile, ...]],
    extensions: dict[QueueKey, tuple[DataFile, ...]],
) -> None:
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
            # Entries are read whole; a name in the middle of one is no name of a queue file.
            whole = (DataFile(file.path, file.base, file.size - file.size % unit) for file in queue)
            found[key] = tuple(file for file in whole if file.size and file.base % unit == 0)
    if any(extensions.values()):
        files.inferred.add("enable_consume_queue_ext", True, "there are extension files")


def _read_topics(files: StoreFiles) -> dict[str, str]:
    """The topics that `topics.json` gives batch queues."""
    try:
        content = read_config(files.paths.topics, files.medium)
    except FlintlogError:
        content = None  # reported as a damaged config
    if content is None:
        return {}
    table = content.value.get("topicConfigTable")
    topics = table if isinstance(table, dict) else {}
    files.known_topics = frozenset(map(str, topics))
    return {topic: kind for topic, kind in named_queue_types(content.value).items() if kind == BATCH_TYPE}


def _infer_levels(files: StoreFiles) -> None:
    seen = see_levels(files.queues.values(), files.read, files.log)
    files.doubtful_levels = seen.doubtful
    known = files.delay_levels_ms
    right = with_seen(known, seen)
    if right != known:
        files.inferred.add(DELAY_LEVELS, format_levels(right), "queue entries of delayed messages")


def _judge_rocksdb(files: StoreFiles) -> None:
    place = find_rocksdb(files.paths, files.medium)
    if place is not None:
        evidence = "the queues are kept in RocksDB, which is not read: queues and topics are shown without them"
        remedy = "stop the broker and move this directory away; the queues are then built from the log"
        files.findings.append(Finding("queues-in-rocksdb", ERROR, evidence, remedy, str(place)))


# ---------------------------------------------------------------------- index


def _find_index(files: StoreFiles, *, is_given: bool) -> None:
    directory = files.root / names.INDEX
    found = [info for info in files.medium.listing(directory) if not info.is_directory and is_number(info.name)]
    whole = [info for info in found if info.size]
    if files.given is not None:
        files.layout = IndexLayout(files.given.max_hash_slot_num, files.given.max_index_num)
    if not is_given and whole:
        _infer_layout(files, [str(directory / info.name) for info in whole], common_size(i.size for i in whole))
    row = [DataFile(str(directory / info.name), 0, info.size) for info in found]
    _judge_sizes(files, row, files.layout.file_size, is_log=False)
    files.index = tuple(file.path for file in row if file.size == files.layout.file_size)


def _infer_layout(files: StoreFiles, paths: list[str], size: int | None) -> None:
    for path in paths:
        length = files.source.size(Path(path))
        layout = index_layout(files.read(path, 0, length)) if length == size else None
        if layout is not None:
            files.layout = layout
            reason = f"the length of {len(paths)} index files and the entries in one of them"
            files.inferred.add("max_hash_slot_num", layout.slot_count, reason)
            files.inferred.add("max_index_num", layout.index_count, reason)
            return
