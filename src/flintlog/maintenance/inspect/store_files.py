"""The files of a store directory: found, sized and sorted, never changed.

Any program may have written the directory, and it may be in any state. Unlike an opening, a look needs no configuration
and refuses no file: what is wrong becomes a finding (`find_files.py`), and the rest can be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flintlog.checks.derived_files import DataFile, DeletedPart, DerivedFiles, LedgerView, QueueFilesView, file_at
from flintlog.checks.finding import Finding
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.lock import is_locked
from flintlog.disk.media.medium import Medium
from flintlog.disk.media.remote import RemoteMedium, source_of
from flintlog.disk.media.source import ByteSource
from flintlog.disk.places import local_path
from flintlog.errors import DamagedStore, InvalidConfig
from flintlog.format import names
from flintlog.format.config_json import BATCH_TYPE
from flintlog.format.index_file import IndexLayout
from flintlog.format.queue_entry import QueueKey
from flintlog.kernel import Crc
from flintlog.maintenance.inspect.delay_levels import format_levels, see_levels, with_seen
from flintlog.maintenance.inspect.find_files import SEALED, find_index, find_log, find_queues, find_segments
from flintlog.store.log.checkpoint import CheckpointFile
from flintlog.store.log.misnamed import Misnamed
from flintlog.store.log.record_crc import crc_to_check
from flintlog.store.options.values import DEFAULT_DELAY_LEVELS_MS, parse_delay_levels
from flintlog.store.paths import (
    LEDGER_PREFIX,
    StorePaths,
    guess_paths,
    is_member_directory,
    is_store,
    refuse_member_directory,
    with_found_ledger,
)
from flintlog.store.queues.deleted_queues import FOR_EVER, load_deleted
from flintlog.store.recovery.published_end import WrittenLog, published_end
from flintlog.store.recovery.stop_marker import StopMarker
from flintlog.store.settings.written_with import DELAY_LEVELS, Value, load_options

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig

_MOST_LOOKED_INTO = 100


@dataclass(slots=True)
class Inferred:
    """Options that were read from the files, and a sentence for each."""

    values: dict[str, int | bool | str | dict[str, str]] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def add(self, name: str, value: int | bool | str | dict[str, str], reason: str) -> None:
        self.values[name] = value
        self.reasons.append(f"{name} = {value}: {reason}")


@dataclass(slots=True)
class StoreFiles:
    """One look at a directory. `given` is the configuration that was named, `inferred` what follows from the files."""

    root: Path
    paths: StorePaths
    given: StoreConfig | None
    inferred: Inferred
    medium: Medium
    source: ByteSource
    log: tuple[DataFile, ...] = ()
    """In order. A file under a wrong name is in its right place, unless something prevents that (`misnamed`)."""
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
    """Options that the last writer noted; empty if a configuration was named."""
    doubtful_levels: frozenset[int] = frozenset()
    """Delay levels of unknown length: delivery times of their messages are neither judged nor changed."""
    _end: int | None = None

    @property
    def end(self) -> int | None:
        """Beside a writer, where the log ended when this was first asked; bytes after it are not shown or judged.

        None when no process writes: then the whole log is settled.
        """
        if self.is_running and self._end is None:
            self.fix_end()
        return self._end

    def fix_end(self, known: int = 0) -> int:
        """Take the log's end of this moment as `end`, whether a writer runs or not; `known` is an earlier end."""
        self._end = published_end(self.source, WrittenLog(self.log, self.paths.batches, self.paths.ledger), known)
        return self._end

    @property
    def config(self) -> StoreConfig:
        """The given configuration, completed by what was inferred."""
        from flintlog.store.options.store_config import StoreConfig  # late: most looks do without

        base = StoreConfig().with_changes(**self.noted) if self.given is None else self.given
        return base.with_changes(**self.inferred.values)

    def given_size(self, name: str) -> int | None:
        """A size that the configuration names; None where it leaves the default, and the files decide."""
        if self.given is None:
            return None
        size = int(getattr(self.given, name))
        return None if size == getattr(type(self.given)(), name) else size

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """By the configuration that was named or, without one, by queue entries, the last writer or the default."""
        if self.given is not None:
            return self.given.delay_levels_ms
        text = self.inferred.values.get(DELAY_LEVELS, self.noted.get(DELAY_LEVELS))
        return parse_delay_levels(DELAY_LEVELS, text) if isinstance(text, str) else DEFAULT_DELAY_LEVELS_MS

    @property
    def checked_crc(self) -> Crc:
        """Which CRCs the records have, by the configuration or, without one, by the records themselves."""
        if self.given is not None:
            return crc_to_check(self.given)
        return Crc.RECORD if self.inferred.values.get(SEALED) else Crc.BODY

    @property
    def batch_topics(self) -> frozenset[str]:
        """Topics with batch queues."""
        return frozenset(topic for topic, kind in self.topic_queue_types.items() if kind == BATCH_TYPE)

    @property
    def min_offset(self) -> int:
        """The physical offset at which the log begins."""
        return self.log[0].base if self.log else 0

    def log_file_of(self, physical_offset: int) -> DataFile | None:
        """The log file that holds an offset."""
        return file_at(self.log, physical_offset)

    def read(self, path: str, start: int, stop: int) -> memoryview:
        """Bytes of a file, mapped or fetched."""
        return self.source.view(Path(path), start, stop)

    def view(self, file: DataFile, start: int = 0, stop: int | None = None) -> memoryview:
        """A file as long as it is, with at least these bytes of it; it is mapped, or only they are fetched."""
        end = file.size if stop is None else min(stop, file.size)
        if start == 0 and end == file.size:
            return self.read(file.path, 0, file.size)
        return self.source.sparse(Path(file.path), start, end)

    def is_in_use(self) -> bool:
        """Whether a process of this machine holds the store now; no other is known of."""
        return not isinstance(self.medium, RemoteMedium) and is_locked(self.paths.lock)

    def derived(self) -> DerivedFiles:
        """The queues, in the form that the checks take."""
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

    Sizes that `config` does not name are read from the files, where that is safe. With `every_name` the name of each
    log file is compared with its first record.
    """
    files = _find_store(root, config, medium)
    find_log(files, every_name=every_name)
    find_queues(files)
    find_index(files)
    if config is None:
        _infer_levels(files)
    files.timer_log = find_segments(files, files.root / names.TIMER_LOG)
    return files


def look_at_queues(root: Path, config: StoreConfig | None = None, medium: Medium | None = None) -> StoreFiles:
    """The same with the queues alone: neither log nor index is read, which matters if they have to be fetched."""
    files = _find_store(root, config, medium)
    find_queues(files)
    return files


def _find_store(root: Path, config: StoreConfig | None, medium: Medium | None) -> StoreFiles:
    """Where the parts of a store are, and how it was stopped."""
    root, medium = local_path(root), LocalMedium() if medium is None else medium
    refuse_member_directory(root, medium)
    paths = guess_paths(root, medium) if config is None else with_found_ledger(StorePaths.of(root, config), medium)
    files = StoreFiles(root, paths, config, Inferred(), medium, source_of(medium, max_files=256))
    if paths.ledger is not None and (config is None or not config.enable_dledger_commit_log):
        files.inferred.add("enable_dledger_commit_log", True, "the data files of a ledger's member are here")
        files.inferred.add("dledger_self_id", paths.ledger.name.removeprefix(LEDGER_PREFIX), "by their directory")
    has_files = any(medium.exists(path) for path in (*paths.commit_logs, paths.consume_queue, paths.index))
    if not has_files and not is_store(paths, medium):
        raise DamagedStore("there is no store here", path=root, advice=_what_a_store_is(root, medium))
    _read_last_stop(files)
    files.noted = load_options(paths, medium) if config is None else {}
    return files


def _what_a_store_is(root: Path, medium: Medium) -> str:
    """What to name instead of a directory that holds no store."""
    places = [root / info.name for info in medium.listing(root) if info.is_directory][:_MOST_LOOKED_INTO]
    near = [place for place in (*places, *root.parents[:1]) if medium.exists(place / names.COMMIT_LOG)]
    if near:
        return f"there is one in {near[0]}"
    return "name the directory that holds commitlog/, and beside it consumequeue/, index/ and config/"


def fitting_config(root: Path, config: StoreConfig | None = None) -> StoreConfig:
    """The configuration that fits the files of a directory; where no store is yet, `config` or the default."""
    from flintlog.store.options.store_config import StoreConfig

    try:
        return look_at(root, config).config
    except DamagedStore:
        return StoreConfig() if config is None else config


def refuse_member(root: Path, medium: Medium, what: str) -> None:
    """Refuse the directory of a ledger's member itself, which is not a store."""
    if is_member_directory(root, medium):
        advice = "name the store above it"
        raise InvalidConfig(f"this is a ledger member's directory, and is not {what}", path=root, advice=advice)


def refuse_ledger(files: StoreFiles, what: str) -> None:
    """Refuse a log that belongs to a ledger's group: a member's log must not be changed or copied alone."""
    if files.paths.ledger is not None:
        raise InvalidConfig(
            f"the log of this store is a ledger, and is not {what}",
            path=files.root,
            advice="while the other members run, move the member's directory away: the group fills it again",
        )


def _read_last_stop(files: StoreFiles) -> None:
    files.is_clean = not files.medium.exists(files.paths.abort)
    files.is_running = files.is_in_use()
    if files.is_clean:
        checkpoint = CheckpointFile(files.paths.checkpoint, files.medium)
        checkpoint.load()
        marker = StopMarker(files.paths.stop_marker, files.medium)
        marker.load(checkpoint.values)
        files.known_end = marker.log_end


def _infer_levels(files: StoreFiles) -> None:
    seen = see_levels(files.queues.values(), files.read, files.log)
    files.doubtful_levels = seen.doubtful
    known = files.delay_levels_ms
    right = with_seen(known, seen)
    if right != known:
        files.inferred.add(DELAY_LEVELS, format_levels(right), "queue entries of delayed messages")
