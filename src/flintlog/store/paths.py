"""Where files are in a store's directory, and how to recognize one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flintlog.disk.media.medium import Medium
from flintlog.disk.places import local_path
from flintlog.errors import DamagedStore, InvalidConfig
from flintlog.format.names import is_number, is_segment_name

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig

PATH_SEPARATOR = ","
ROCKSDB_MARK = "CURRENT"
LEDGER_PREFIX = "dledger-"
MEMBER_TERM = "currterm"
FIRST_MEMBER = "n0"
"""The id of a member that has no other."""
PLAIN_OFFSETS = "consumerOffset.json"
LIGHT_OFFSETS = "lmqConsumerOffset.json"
CONFIG_FILES = (
    "consumerFilter.json",
    PLAIN_OFFSETS,
    "delayOffset.json",
    LIGHT_OFFSETS,
    "subscriptionGroup.json",
    "timercheck",
    "timermetrics",
    "topics.json",
    "transactionMetrics",
)
"""What a store and its services keep in the folder `config`, each with a `.bak` beside it."""


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The files and directories of one store."""

    root: Path
    commit_logs: tuple[Path, ...]
    read_only_commit_logs: tuple[Path, ...]
    is_light: bool = False
    """Whether light queues are served: then a broker keeps all offsets in another file."""
    ledger: Path | None = None
    """The directory of the group's member whose log this is; `commit_logs` then are its data files."""

    @classmethod
    def of(cls, root: Path, config: StoreConfig | None) -> StorePaths:
        if config is None:
            return cls(root, (root / "commitlog",), ())
        given = _split(config.store_path_commit_log) or (root / "commitlog",)
        read_only = _split(config.read_only_commit_log_store_paths)
        plain = cls(root, given, read_only, config.enable_lmq)
        if not config.enable_dledger_commit_log:
            return plain
        return plain.with_ledger(config.dledger_self_id or FIRST_MEMBER, _split(config.store_path_dledger_commit_log))

    def with_ledger(self, member: str, data: tuple[Path, ...] = ()) -> StorePaths:
        """The same store with its log in a member's data files. A plain log may precede them, and grows no more."""
        ledger = self.root / f"{LEDGER_PREFIX}{member}"
        before = (*self.commit_logs, *self.read_only_commit_logs)
        return replace(self, commit_logs=data or (ledger / "data",), read_only_commit_logs=before, ledger=ledger)

    @property
    def consume_queue(self) -> Path:
        return self.root / "consumequeue"

    @property
    def index(self) -> Path:
        return self.root / "index"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def abort(self) -> Path:
        return self.root / "abort"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def topics(self) -> Path:
        return self.root / "config" / "topics.json"

    @property
    def groups(self) -> Path:
        return self.root / "config" / "subscriptionGroup.json"

    @property
    def consumer_offsets(self) -> Path:
        """Where a broker with the same `enableLmq` keeps the offsets of all groups."""
        return self.root / "config" / (LIGHT_OFFSETS if self.is_light else PLAIN_OFFSETS)

    @property
    def other_consumer_offsets(self) -> Path:
        """Where a broker with another `enableLmq` would keep them."""
        return self.root / "config" / (PLAIN_OFFSETS if self.is_light else LIGHT_OFFSETS)

    @property
    def delay_offsets(self) -> Path:
        return self.root / "config" / "delayOffset.json"

    @property
    def consumer_filter(self) -> Path:
        return self.root / "config" / "consumerFilter.json"

    @property
    def own(self) -> Path:
        """Files that RocketMQ does not know: cut bytes, the stop marker."""
        return self.root / "flintlog"

    @property
    def cut(self) -> Path:
        return self.own / "cut"

    @property
    def deleted(self) -> Path:
        """Where the queues of deleted topics ended."""
        return self.own / "deleted.json"

    @property
    def stop_marker(self) -> Path:
        return self.own / "stop.json"

    @property
    def writer(self) -> Path:
        """A copy of our `abort`: if `abort` differs from it, another program has run the store since."""
        return self.own / "writer"

    @property
    def options(self) -> Path:
        """The options that the files depend on, as the last writer had them."""
        return self.own / "options.json"

    @property
    def batches(self) -> Path:
        """The note about batches that are stored whole or not at all."""
        return self.own / "batches.json"

    @property
    def staged(self) -> Path:
        """Where tasks stage the messages of a batch."""
        return self.own / "staged"

    @property
    def dispatch(self) -> Path:
        """The files that a store and a dispatcher outside it exchange."""
        return self.root / "dispatch"

    @property
    def dispatch_options(self) -> Path:
        """The options that the dispatcher has to share with the store."""
        return self.dispatch / "options.json"

    @property
    def cut_request(self) -> Path:
        """The request to end the log at an earlier place, for the next opening."""
        return self.own / "cut.json"

    @property
    def swap(self) -> Path:
        """The journal of derived files that are being replaced by rebuilt ones."""
        return self.own / "swap.json"

    @property
    def derived(self) -> tuple[Path, ...]:
        """Directories that can be built again from the log."""
        return (*self.numbered, self.own, self.dispatch)

    @property
    def numbered(self) -> tuple[Path, ...]:
        """Directories, or trees, whose files have numbers for names."""
        names = ("consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "timerlog")
        return tuple(self.root / name for name in names)

    @property
    def own_directories(self) -> tuple[Path, ...]:
        """Directories that hold only files of this store."""
        return (self.own, self.dispatch) if self.ledger is None else (self.own, self.dispatch, self.ledger)


def _split(text: str | None) -> tuple[Path, ...]:
    return tuple(local_path(part.strip()) for part in (text or "").split(PATH_SEPARATOR) if part.strip())


def guess_paths(root: Path, medium: Medium) -> StorePaths:
    """The paths of a store without a given configuration: offsets are in the file that was written last."""
    paths = with_found_ledger(StorePaths.of(root, None), medium)
    plain, light = medium.stat(paths.consumer_offsets), medium.stat(paths.other_consumer_offsets)
    is_light = light is not None and (plain is None or light.mtime_ms > plain.mtime_ms)
    return replace(paths, is_light=is_light)


def with_found_ledger(paths: StorePaths, medium: Medium) -> StorePaths:
    """The paths, with those of a ledger that was found in the directory."""
    member = find_member(paths.root, medium) if paths.ledger is None else None
    return paths if member is None else paths.with_ledger(member)


def with_found_member(root: Path, config: StoreConfig, medium: Medium) -> StoreConfig:
    """The configuration, as one of a ledger's member if the directory holds one.

    A writer that took it for a plain store, or for another member's, would begin another log.
    """
    named = config.dledger_self_id
    if named is not None and _has_data(root / f"{LEDGER_PREFIX}{named}", medium):
        member: str | None = named
    else:
        member = find_member(root, medium)
    if member is None:
        return config
    if named not in (None, member):
        raise InvalidConfig(
            f"dledger_self_id is {named}, and the files are those of {member}",
            path=root,
            advice="leave the option out: it is read from the directory",
        )
    return config.with_changes(enable_dledger_commit_log=True, dledger_self_id=member)


def _has_data(ledger: Path, medium: Medium) -> bool:
    return bool(medium.listing(ledger / "data"))


def find_member(root: Path, medium: Medium) -> str | None:
    """The id of the group's member whose data files are in a store's directory; None for a store without a ledger."""
    found = [
        info.name.removeprefix(LEDGER_PREFIX)
        for info in medium.listing(root)
        if info.is_directory and info.name.startswith(LEDGER_PREFIX) and _has_data(root / info.name, medium)
    ]
    if len(found) > 1:
        raise DamagedStore(
            f"the data of several members of a group is here: {', '.join(found)}",
            path=root,
            advice="name the one whose store this is, as dLegerSelfId",
        )
    return found[0] if found else None


def is_member_directory(root: Path, medium: Medium) -> bool:
    """Whether a directory is a group member's own, inside a store's directory."""
    if medium.exists(root / "commitlog") or not medium.exists(root / "data"):
        return False
    return root.absolute().name.startswith(LEDGER_PREFIX) or medium.exists(root / MEMBER_TERM)


def refuse_member_directory(root: Path, medium: Medium) -> None:
    """Raise for the directory of a ledger's member: a store made in it would replace the member's index."""
    if is_member_directory(root, medium):
        raise DamagedStore("this is a ledger member's directory", path=root, advice="name the store above it")


def find_rocksdb(paths: StorePaths, medium: Medium) -> Path | None:
    """The directory in which RocksDB keeps the queues of a store; None when they are files."""
    places = (paths.consume_queue, paths.root / "consumequeue_rocksdb")
    return next((place for place in places if medium.exists(place / ROCKSDB_MARK)), None)


def refuse_rocksdb(paths: StorePaths, medium: Medium) -> None:
    """Raise if the queues of a store are in RocksDB: its messages are in the log, but no queue can be served."""
    place = find_rocksdb(paths, medium)
    if place is not None:
        raise DamagedStore(
            "the queues of this store are in RocksDB",
            path=place,
            advice="move this directory away; the queues are then built from the log",
        )


def refuse_files_for_folders(paths: StorePaths, medium: Medium) -> None:
    """Raise if there is a file where a store has a folder."""
    for folder in (*paths.commit_logs, paths.topics.parent, paths.own, *paths.numbered):
        held = medium.stat(folder)
        if held is not None and not held.is_directory:
            raise DamagedStore("this is a file, and a store has a directory in its place", path=folder)


def is_store(paths: StorePaths, medium: Medium) -> bool:
    """Whether a directory is a store: it has a log and a lock or checkpoint, or, without messages, files of ours."""
    if medium.exists(paths.stop_marker) or (medium.exists(paths.abort) and medium.exists(paths.lock)):
        return True
    has_log = any(medium.exists(path) for path in (*paths.commit_logs, *paths.read_only_commit_logs))
    return has_log and (medium.exists(paths.checkpoint) or medium.exists(paths.lock) or medium.exists(paths.abort))


def remove_store(paths: StorePaths, medium: Medium) -> None:
    """Remove a store's files. The directory may hold other files: only those with a store's names are removed."""
    ledger = () if paths.ledger is None else paths.read_only_commit_logs
    for directory in (*paths.commit_logs, *ledger):
        _remove_numbered(directory, medium, is_segment_name)
    for directory in paths.numbered:
        _remove_numbered(directory, medium)
    for directory in paths.own_directories:
        medium.remove_tree(directory)
    config = paths.topics.parent
    for name in CONFIG_FILES:
        medium.remove(config / name)
        medium.remove(config / f"{name}.bak")
    if not medium.listing(config):
        medium.remove_tree(config)
    for name in ("checkpoint", "abort", "abort.bak", "lock", "timerwheel"):
        medium.remove(paths.root / name)


def _remove_numbered(directory: Path, medium: Medium, is_own: Callable[[str], bool] = is_number) -> None:
    """Remove the files below that have such names, and directories that are then empty."""
    for info in medium.listing(directory):
        if info.is_directory:
            _remove_numbered(directory / info.name, medium, is_own)
        elif is_own(info.name):
            medium.remove(directory / info.name)
    if not medium.listing(directory):
        medium.remove_tree(directory)
