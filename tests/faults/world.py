"""A store on a disk that fails, and a memory of what it promised.

`World` runs operations on a store over `FaultyMedium` and keeps every message by its physical offset together with what
the store said about it. What it checks after each crash:

- every message acknowledged as synced is there, in the log, in its queue and under its keys;
- no queue has a gap, and each message lies where its record says;
- no offset of a queue is given twice, also not to a topic that was deleted and made anew;
- queues and index are what the log alone gives (`rebuilt`), as long as no topic was deleted.

A disk without room refuses puts by a status, and has room again before the store is stopped or dies.

A sync that failed ends what the store may promise: no put is acknowledged as synced any more, and what the log
holds is served, until the store is opened again. Then everything above holds as before.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flintlog import (
    DamagedRecord,
    DiskFull,
    FlintlogError,
    InvalidTopic,
    Message,
    PutStatus,
    Receipt,
    Store,
    StoreConfig,
    StoredMessage,
    SyncFailed,
    open_store,
)
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.format.index_file import parse_index_header
from flintlog.store.runtime.lifecycle import State

ROOT = Path("/store")
NEVER_MS = 3_600_000
TOPICS = ("orders", "events")
SEGMENT_BYTES = 16 * 1024
FAILING = ("/commitlog/", "/commitlog/", "/consumequeue/", "/index/", "/checkpoint", "/")


def small_config(flush: str = "sync", **changes: object) -> StoreConfig:
    """Files so small that a few messages roll all of them, and no thread that works on its own."""
    options: dict[str, object] = {
        "flush": flush,
        "mapped_file_size_commit_log": SEGMENT_BYTES,
        "mapped_file_size_consume_queue": 20 * 40,  # two sectors: a file can be torn
        "max_hash_slot_num": 40,
        "max_index_num": 60,
        "flush_interval_commit_log": NEVER_MS,
        "flush_interval_consume_queue": NEVER_MS,
        "sync_flush_timeout": 60_000,
        "warm_ahead_bytes": 0,
    }
    return StoreConfig(**{**options, **changes})  # type: ignore[arg-type]


class SlowClock:
    """Moves now and then, so that many messages carry the same time, as they do in a fast store."""

    def __init__(self) -> None:
        self._ticks = itertools.count(1_700_000_000_000 * 20)

    def __call__(self) -> int:
        return next(self._ticks) // 20


@dataclass(frozen=True)
class Sent:
    """One message, and where its receipt says that it is."""

    message: Message
    receipt: Receipt


class World:
    """One store directory through its crashes."""

    def __init__(self, config: StoreConfig | None = None, *, torn_creates: bool = False) -> None:
        self.config = small_config() if config is None else config
        self.clock = SlowClock()
        self.medium = FaultyMedium(torn_creates=torn_creates, clock_ms=self.clock)
        self.kept: dict[int, Sent] = {}  # must be there after anything
        self.loose: dict[int, Sent] = {}  # was appended, and may be lost with the power
        self.deleted: dict[int, Sent] = {}  # was of a topic that was deleted; it may come back, and keeps its offset
        self.has_deleted_damage = False  # a deleted topic had only entries of damaged records, which a rebuild shows
        self.has_lost_pages = False  # whether a sync was to fail, ever: any file may then lack what it had
        self.has_log_failed = False  # whether a sync of the log has failed since the store was opened
        self.serial = itertools.count()
        self.store = self.reopened()

    def open(self, medium: FaultyMedium) -> Store:
        return open_store(ROOT, self.config, medium=medium, clock=self.clock)

    def reopened(self) -> Store:
        """The store on its disk as it is; a sync that was set to fail may have to be met first."""
        self.forget_failures()
        try:
            return self.open(self.medium)
        except SyncFailed:
            assert self.has_failed
        self.forget_failures()
        return self.open(self.medium)

    def forget_failures(self) -> None:
        self.medium.failed_syncs.clear()
        self.has_log_failed = False

    @property
    def has_failed(self) -> bool:
        """Whether a sync has failed since the store was opened."""
        return bool(self.medium.failed_syncs)

    @contextlib.contextmanager
    def trouble(self) -> Iterator[None]:
        """Something that may fail on a disk which does."""
        try:
            yield
        except (SyncFailed, DiskFull):
            assert self.has_failed or self.medium.capacity is not None

    # What can be done

    def fail_sync(self, seed: int) -> None:
        """The next sync of some kind of file fails, and the pages that it was for are lost."""
        self.has_lost_pages = True
        kind = random.Random(seed).choice(FAILING)

        def is_hit(path: Path) -> bool:
            self.has_log_failed |= kind in str(path) and self.holds_records(path)
            return kind in str(path)

        self.medium.fail_next_syncs(1, is_hit)

    def holds_records(self, path: Path) -> bool:
        """Whether a failed sync of this file loses something; an empty one is just made again."""
        return "/commitlog/" in str(path) and any(self.medium.read(path))

    def squeeze(self, seed: int) -> None:
        """From now on there is room for a file or two, or for none, until the store stops or dies."""
        self.medium.capacity = self.medium._used() + random.Random(seed).choice((0, 300, 2000, SEGMENT_BYTES + 300))

    def relax(self) -> None:
        self.medium.capacity = None

    def delete_topic(self, seed: int) -> None:
        """Delete a topic, whether it has messages or not."""
        topic = random.Random(seed).choice(TOPICS)
        try:
            with self.trouble():
                self.store.topics.delete(topic)
        except InvalidTopic:
            return  # there is none
        count = len(self.deleted)
        for held in (self.kept, self.loose):
            gone = {offset: sent for offset, sent in held.items() if sent.message.topic == topic}
            self.deleted.update(gone)
            for offset in gone:
                del held[offset]
        self.has_deleted_damage |= len(self.deleted) == count

    def make(self, chance: random.Random, topic: str | None = None, queue_id: int | None = None) -> Message:
        number = next(self.serial)
        size = chance.choice((0, 10, 10, 100, 600, 3000))
        return Message(
            chance.choice(TOPICS) if topic is None else topic,
            b"%d:" % number + chance.randbytes(size),
            queue_id=chance.randrange(3) if queue_id is None else queue_id,
            tags=chance.choice((None, "a", "b")),
            keys=[f"k{number}", *(f"s{chance.randrange(4)}" for _ in range(chance.randrange(3)))],
        )

    def put(self, seed: int, count: int = 1) -> None:
        chance = random.Random(seed)
        for _ in range(count):
            message = self.make(chance)
            had_failed = self.has_log_failed
            self.note(message, self.store.put(message, check=False), had_failed)

    def put_batch(self, seed: int, count: int) -> None:
        chance = random.Random(seed)
        first = self.make(chance)
        messages = [first, *(self.make(chance, first.topic, first.queue_id) for _ in range(count - 1))]
        if sum(len(message.body) for message in messages) < SEGMENT_BYTES // 2:
            had_failed = self.has_log_failed
            for message, receipt in zip(messages, self.store.put_batch(messages, check=False), strict=True):
                self.note(message, receipt, had_failed)

    def note(self, message: Message, receipt: Receipt, had_failed: bool = False) -> None:
        if receipt.physical_offset < 0:
            assert receipt.status in (PutStatus.CREATE_MAPPED_FILE_FAILED, PutStatus.SERVICE_NOT_AVAILABLE)
            return
        # A record that a power loss took leaves its place to another.
        for held in (self.loose, self.deleted):
            for offset in [
                o for o, s in held.items() if o < receipt.end_offset and receipt.physical_offset < s.receipt.end_offset
            ]:
                del held[offset]
        place = (message.topic, message.queue_id, receipt.queue_offset)
        for sent in (*self.kept.values(), *self.loose.values(), *self.deleted.values()):
            assert place_of(sent) != place, f"given twice: {receipt} and {sent.receipt}"
        is_safe = receipt.status is PutStatus.PUT_OK and self.config.flush == "sync"
        assert not (is_safe and had_failed), f"acknowledged after a failed sync: {receipt}"
        (self.kept if is_safe else self.loose)[receipt.physical_offset] = Sent(message, receipt)

    def flush(self) -> None:
        """Everything so far is durable, or it is said that it is not."""
        had_failed = self.has_log_failed
        with contextlib.suppress(SyncFailed, DiskFull):  # of a queue or of the index: the log may do without
            self.store.wait_dispatched()
        try:
            self.store.flush()
        except SyncFailed:
            assert self.has_log_failed
            return
        assert not had_failed, "flushed after a failed sync"
        self.keep_all()

    def tide(self) -> None:
        """What the queue flush thread does once a minute."""
        assert self.store._engine.flushing.queue_flush is not None
        with self.trouble():
            self.store._engine.flushing.queue_flush.flush_all()
        self.kept.update({o: s for o, s in self.loose.items() if s.receipt.end_offset <= self.store.flushed_offset})

    def stop(self) -> None:
        """A clean stop and a new start; not so clean if a sync fails."""
        self.end()
        self.store = self.reopened()
        assert self.store.recovery.clean or self.has_failed or self.medium.exists(ROOT / "abort")
        found = [finding for finding in self.store.recovery if finding.id == "missing-queues"]
        assert not self.store.recovery.clean or self.has_lost_pages or not found, found

    def end(self) -> None:
        """Stop the store; if that says that it was a clean stop, everything is kept."""
        self.relax()
        try:
            self.store.shutdown()
        except SyncFailed:
            assert self.has_failed
        assert self.has_failed or not self.medium.exists(ROOT / "abort")
        if not self.medium.exists(ROOT / "abort"):
            self.keep_all()

    def keep_all(self) -> None:
        self.kept.update(self.loose)
        self.loose.clear()

    def kill(self) -> None:
        """The process dies, the system lives: nothing that was appended is lost."""
        self.relax()
        self.go_on_with(self.medium.kill())
        self.assert_no_doubts()
        for sent in self.loose.values():
            assert_there(self.store, sent)

    def crash(self, seed: int) -> None:
        """The power goes."""
        self.relax()
        self.go_on_with(self.medium.crash(seed))
        self.assert_no_doubts()
        self.forget_lost()

    def go_on_with(self, medium: FaultyMedium) -> None:
        self.abandon()
        self.medium = medium
        self.store = self.reopened()

    def assert_no_doubts(self) -> None:
        """Without damage queues are not taken for damaged, and all of the log is not read for nothing."""
        found = [finding for finding in self.store.recovery if finding.id == "damaged-queues"]
        assert self.has_lost_pages or not found, found

    def forget_lost(self) -> None:
        self.loose = {offset: sent for offset, sent in self.loose.items() if is_there(self.store, sent)}
        self.deleted = {offset: sent for offset, sent in self.deleted.items() if is_there(self.store, sent)}

    def abandon(self) -> None:
        """End the threads of a store whose disk is no longer ours."""
        try:
            self.store.shutdown()
        except FlintlogError:
            assert self.store._engine.lifecycle.state is State.SHUTDOWN_OK

    # What must hold

    def check(self) -> None:
        self.relax()
        with contextlib.suppress(SyncFailed):
            self.store.wait_dispatched()
        if self.has_failed:
            self.check_log_is_served()
        else:
            self.check_everything()

    def check_log_is_served(self) -> None:
        """After a failed sync dispatch may stand still; what was promised is there all the same."""
        for sent in self.kept.values():
            assert is_there(self.store, sent), f"lost: {sent.receipt}"

    def check_everything(self) -> None:
        for sent in self.kept.values():
            assert_there(self.store, sent)
        assert_no_gaps(self.store)
        self.assert_nothing_behind_the_end()
        if not self.deleted and not self.has_deleted_damage:
            assert derived(self.store, self.medium) == self.rebuilt()

    def assert_nothing_behind_the_end(self) -> None:
        """Old bytes could be taken for records when a later crash leaves the tail right before them."""
        end = self.store.max_physical_offset
        for name, content in files_below(self.medium, ROOT / "commitlog"):
            assert not any(content[max(0, end - int(str(name))) :]), f"{name} holds bytes behind {end}"

    def rebuilt(self) -> tuple[object, object]:
        """Queues and index as they follow from the log alone."""
        alone = FaultyMedium(clock_ms=self.clock)
        copy_tree(self.medium, alone, ROOT / "commitlog")
        # A hole that a power loss left was looked at as such: after a clean stop it would be read in another way.
        alone.write(ROOT / "abort", b"0")
        with open_store(ROOT, self.config, medium=alone, clock=self.clock) as store:
            assert store.max_physical_offset == self.store.max_physical_offset
            return derived(store, alone)


def place_of(sent: Sent) -> tuple[str, int, int]:
    return sent.message.topic, sent.message.queue_id, sent.receipt.queue_offset


def is_there(store: Store, sent: Sent) -> bool:
    try:
        found = store.message_at(sent.receipt.physical_offset)
    except FlintlogError:
        return False
    # The CRC covers the body alone: a record whose properties were torn is there, but is not what was sent.
    return found is not None and is_same(found, sent.message)


def is_same(found: StoredMessage, message: Message) -> bool:
    fields = (found.topic, found.queue_id, found.body, list(found.keys), found.tags)
    return fields == (message.topic, message.queue_id, message.body, list(message.keys), message.tags)


def assert_there(store: Store, sent: Sent) -> None:
    receipt, message = sent.receipt, sent.message
    assert_in_queue(store, sent)
    hits = store.query(message.topic, message.keys[0], max_count=64)
    assert receipt.physical_offset in [m.physical_offset for m in hits], f"not in the index: {receipt}"


def assert_in_queue(store: Store, sent: Sent) -> None:
    receipt, message = sent.receipt, sent.message
    found = store.message_at(receipt.physical_offset)
    assert found is not None and is_same(found, message), f"lost: {receipt}"
    page = store.get(message.topic, message.queue_id, receipt.queue_offset, 1)
    assert [m.physical_offset for m in page.messages] == [receipt.physical_offset], f"not in its queue: {receipt}"


def assert_no_gaps(store: Store) -> None:
    for info in store.queues():
        offset = info.min_offset
        while offset < info.max_offset:
            try:
                page = store.get(info.topic, info.queue_id, offset)
            except DamagedRecord:  # it keeps its place, so that all others keep theirs
                offset += 1
                continue
            assert [m.queue_offset for m in page.messages] == list(range(offset, page.next_offset)), (info, offset)
            assert page.next_offset > offset
            offset = page.next_offset


def derived(store: Store, medium: FaultyMedium) -> tuple[object, object]:
    """Every queue's entries and every index file's bytes, as they lie in the files.

    The entry of a message that is lost points at some damage before the next one: at which, depends on where recovery
    began to read.
    """
    queues = {}
    for info in store.queues():
        if info.max_offset:
            folder = ROOT / "consumequeue" / info.topic / str(info.queue_id)
            files = [(file.name, medium.read(folder / file.name)) for file in medium.listing(folder)]
            first = int(files[0][0])
            data = b"".join(content for _, content in files)
            entries = (data[at : at + 20] for at in range(0, info.max_offset * 20 - first, 20))
            queues[info] = (first, [entry if is_readable(store, entry) else b"lost" for entry in entries])
    index = [medium.read(ROOT / "index" / file.name) for file in medium.listing(ROOT / "index")]
    return queues, [content for content in index if parse_index_header(content).next_entry > 1]


def is_readable(store: Store, entry: bytes) -> bool:
    try:
        return store.message_at(int.from_bytes(entry[:8], "big")) is not None
    except DamagedRecord:
        return False


def copy_tree(source: FaultyMedium, target: FaultyMedium, path: Path) -> None:
    target.make_directories(path)
    for relative, content in files_below(source, path):
        target.make_directories((path / relative).parent)
        target.write(path / relative, content)


def files_below(medium: FaultyMedium, path: Path) -> Iterator[tuple[Path, bytes]]:
    for info in medium.listing(path):
        if info.is_directory:
            for relative, content in files_below(medium, path / info.name):
                yield Path(info.name) / relative, content
        else:
            yield Path(info.name), medium.read(path / info.name)
