"""The logs that a path names: one store, or many by a glob.

    /data/store                    a store: its log is in commitlog/
    /data/store/commitlog          a log alone
    /data/store                    a member of a ledger: its log is in dledger-<id>/data/, and before that in commitlog/
    /data/*/store                  a store of each broker; the part that the star matched is the broker's name
    s3://bucket/backup/*           any file system that pyarrow knows

Only names and sizes are read here. Nothing is opened for writing, and no lock is taken: the store may be running.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath, PurePosixPath
from typing import Final

from flintlog.checks.derived_files import DataFile
from flintlog.derive.log_files import LogFile, check_files, log_files
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.disk.media.remote import RemoteMedium
from flintlog.disk.media.source import ByteSource, MappedSource
from flintlog.disk.places import absolute, is_uri
from flintlog.errors import DamagedStore
from flintlog.format.names import ABORT, COMMIT_LOG, LOCK
from flintlog.maintenance.inspect.delay_levels import DelayLevels, load_levels
from flintlog.store.ledger import committed_end as committed
from flintlog.store.paths import LEDGER_PREFIX, StorePaths
from flintlog.store.recovery import published_end as published
from flintlog.store.recovery.published_end import WrittenLog

LEVEL_SAMPLES: Final = 32
"""How many messages of each delay level are read; a stream does so in each of its batches."""

FETCHED_LEVEL_SAMPLES: Final = 2
"""The same where each is a request."""

REBUILD_ROOM: Final = "flintlog/rebuild"
BEGUN: Final = "begun"
"""A file in that folder: while it is there, a rebuild into this place is not finished (`shuffling/published.py`)."""

_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Log:
    """One log: its broker, where its files are (a path or a URI), and the files that were found."""

    broker: str
    uri: str
    files: tuple[LogFile, ...]
    ledger: str | None = None
    """The folder of the ledger's member below `uri`, whose committed end is the log's."""

    @property
    def first(self) -> int:
        """The first physical offset that was not deleted."""
        return self.files[0].base if self.files else 0


def open_source(uri: str) -> tuple[ByteSource, PurePath]:
    """The byte source for a path or URI, and the path in it."""
    place = absolute(uri)
    if not is_uri(place):
        return MappedSource(LocalMedium()), Path(place)
    from flintlog.disk.media.arrow_source import ArrowSource

    return ArrowSource.from_uri(place)


def medium_of(uri: str) -> tuple[Medium, Path]:
    """The medium for a path or URI, read-only for a URI, and the path in it."""
    source, path = open_source(uri)
    return (LocalMedium() if isinstance(source, MappedSource) else RemoteMedium(source)), Path(path)


def check_finished(uri: str) -> None:
    """Raise if a rebuild into this place was killed, or still runs: some of its files may be missing."""
    source, path = open_source(uri)
    room, _ = REBUILD_ROOM.split("/")
    # The place itself first: if it cannot be listed, the error names it and not a folder of ours.
    has_room = any(info.name == room for info in source.listing(path))
    if has_room and any(info.name == BEGUN for info in source.listing(path / REBUILD_ROOM)):
        raise DamagedStore("a rebuild into this place has not finished", path=uri, advice="run that rebuild again")


def as_paths(store: str | Path | Sequence[str]) -> tuple[str, ...]:
    """The paths of a job's argument: one path or glob, or several."""
    return (str(store),) if isinstance(store, (str, Path)) else tuple(store)


def is_glob(paths: tuple[str, ...]) -> bool:
    """Whether these paths may name several stores."""
    return len(paths) > 1 or any(_WILD & set(path) for path in paths)


def find_logs(paths: tuple[str, ...], *, strict: bool = True) -> list[Log]:
    """The logs that the paths name, by broker; at least one."""
    found: dict[str, tuple[str, ...]] = {}
    for path in paths:
        found.update(_expand(absolute(path)))
    names = _broker_names(found)
    logs = [_find_log(uri, names[uri], strict) for uri in sorted(found)]
    present = [log for log in logs if log is not None]
    if not present:
        where = paths[0] if len(paths) == 1 else ", ".join(paths)
        raise DamagedStore(
            "there is no store here", path=where, advice="a directory with a commitlog, or a glob of them"
        )
    missing = [uri for uri, log in zip(sorted(found), logs, strict=True) if log is None]
    if missing and not is_glob(paths):
        raise DamagedStore("there is no store here", path=missing[0])
    return present


def find_damage(logs: Iterable[Log]) -> DamagedStore | None:
    """The first damage that `strict` would have refused in logs that were found without it."""
    for log in logs:
        try:
            check_files(log.files, f"{log.uri.rstrip('/')}/")
        except DamagedStore as damage:
            return damage
    return None


def _find_log(uri: str, broker: str, strict: bool) -> Log | None:
    check_finished(uri)
    source, path = open_source(uri)
    ledger = _find_ledger(uri, source, path, broker, strict)
    if ledger is not None:
        return ledger
    for folder, where in ((path / COMMIT_LOG, f"{uri.rstrip('/')}/{COMMIT_LOG}"), (path, uri)):
        listing = [(info.name, info.size) for info in source.listing(folder) if not info.is_directory]
        files = log_files(listing, f"{where}/", strict=strict)
        if files or (folder != path and _is_store(source, path)):
            return Log(broker, where, tuple(files))
    return None


def _is_store(source: ByteSource, path: PurePath) -> bool:
    """Whether a directory is a store without messages: a store that was just opened has no log yet, but its lock."""
    names = {info.name for info in source.listing(path)}
    return COMMIT_LOG in names or names >= {ABORT, LOCK}


def _find_ledger(uri: str, source: ByteSource, path: PurePath, broker: str, strict: bool) -> Log | None:
    """The log of a ledger's member: its data files, and those of a plain log before them, by folder and name."""
    members = [info.name for info in source.listing(path) if info.is_directory and info.name.startswith(LEDGER_PREFIX)]
    members = [member for member in members if source.listing(path / member / "data")]
    folders = [f"{member}/data" for member in members]
    if len(folders) > 1:
        raise DamagedStore(f"the data of several members of a group is here: {', '.join(folders)}", path=uri)
    if not folders:
        return None
    files = [
        LogFile(f"{folder}/{file.name}", file.base, file.size)
        for folder in (COMMIT_LOG, *folders)
        for file in log_files(
            [(info.name, info.size) for info in source.listing(path / folder) if not info.is_directory],
            f"{uri.rstrip('/')}/{folder}/",
            strict=strict,
        )
    ]
    if strict:
        check_files(files, f"{uri.rstrip('/')}/")
    return Log(broker, uri, tuple(files), members[0])


def _expand(path: str) -> dict[str, tuple[str, ...]]:
    """The paths that a glob matches, each with the parts that its wildcards matched."""
    if not _WILD & set(path):
        return {path: ()}
    scheme = path[: path.index("://") + 3] if "://" in path else ""
    rest = path[len(scheme) :]
    pattern = PurePosixPath(rest).parts
    fixed = next(place for place, part in enumerate(pattern) if _WILD & set(part))
    start = scheme + str(PurePosixPath(*pattern[:fixed]))
    found: dict[str, tuple[str, ...]] = {start: ()}
    for part in pattern[fixed:]:
        found = {
            f"{where.rstrip('/')}/{name}": (*matched, name) if _WILD & set(part) else matched
            for where, matched in found.items()
            for name in _matching(where, part)
        }
    return found


def _matching(where: str, part: str) -> list[str]:
    if not _WILD & set(part):
        return [part]
    source, path = open_source(where)
    return [info.name for info in source.listing(path) if info.is_directory and fnmatchcase(info.name, part)]


def _broker_names(found: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """The parts that the wildcards matched, or the directory's name; whole paths if these are not unique."""
    names = {uri: "/".join(matched) or PurePosixPath(uri).name for uri, matched in found.items()}
    return names if len(set(names.values())) == len(names) else {uri: uri for uri in names}


def find_end(log: Log, known: int = 0, *, search: bool = True) -> int:
    """The physical offset after the last record that counts; `known` is a record's place that was the end before."""
    if not log.files:
        return 0
    source, path = open_source(log.uri)
    return published.published_end(source, written_log(log, path), known, search=search)


def committed_end(log: Log) -> int | None:
    """The end of the last entry that a ledger's member knew to be committed; None if the log is no ledger."""
    if log.ledger is None:
        return None
    source, path = open_source(log.uri)
    written = written_log(log, path)
    return committed.committed_end(source, written.ledger, written.files)


def store_of(log: Log) -> tuple[StorePaths, Medium]:
    """The store that a log belongs to: its paths, and the medium that they are on."""
    medium, path = medium_of(log.uri)
    return StorePaths.of(path.parent if path.name == COMMIT_LOG else path, None), medium


def levels_of(log: Log) -> DelayLevels:
    """How long the delay levels of a log's store are, as far as its directory says so."""
    source, path = open_source(log.uri)
    paths, medium = store_of(log)
    files = [DataFile(str(path / file.name), file.base, file.size) for file in log.files]
    is_here = isinstance(source, MappedSource)
    return load_levels(paths, files, medium, LEVEL_SAMPLES if is_here else FETCHED_LEVEL_SAMPLES)


def written_log(log: Log, path: PurePath) -> WrittenLog:
    """A log as those see it who look for its end; `path` is that of its URI."""
    files = [DataFile(str(path / file.name), file.base, file.size) for file in log.files]
    ledger = None if log.ledger is None else path / log.ledger
    return WrittenLog(files, PurePath(StorePaths.of(Path(path.parent), None).batches), ledger)
