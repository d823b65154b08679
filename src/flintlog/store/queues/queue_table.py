"""All queues of a store.

A queue is made when its first record is dispatched. Its files are mapped when they are read: opening a store of 10,000
queues maps none, and recovering it maps one after another.

Invariant: a topic has queues of one kind. Puts advance next offsets (`QueueOffsets`) before dispatch writes the
entries. Next offsets are taken from the queues only when the store is opened or cut, or when a ledger's member begins
to lead.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from flintlog.disk.media.medium import Medium
from flintlog.errors import DamagedStore, InvalidConfig
from flintlog.format.names import parse_queue_id
from flintlog.format.queue_entry import QueueKey
from flintlog.format.topics import LMQ_PREFIX, can_be_topic
from flintlog.store.log.damage import DamageMap
from flintlog.store.log.queue_offsets import QueueOffsets
from flintlog.store.queues.covered_queues import CoveredQueues, QueueClaim
from flintlog.store.queues.deleted_queues import FOR_EVER, DeletedQueue, DeletedQueues
from flintlog.store.queues.logical_queue import LogicalQueue, QueueType
from flintlog.store.queues.queue_files import DIRECTORIES, QueueFiles, QueueMaker
from flintlog.store.queues.queue_sync import QueueSync, do_each
from flintlog.store.queues.queue_tail import TailKeeper
from flintlog.store.runtime.turn import to_the_end

_RECOVERY_THREADS: Final = 8


class QueueTable:
    """The queues by topic and queue id. Any thread may read; the dispatching thread makes and writes them."""

    def __init__(
        self,
        root: Path,
        medium: Medium,
        files: QueueFiles | None = None,
        offsets: QueueOffsets | None = None,
        *,
        topic_queue_types: Mapping[str, str] | None = None,
        now_ms: Callable[[], int],
    ) -> None:
        self.root = root
        self.offsets = QueueOffsets() if offsets is None else offsets
        self.deleted = DeletedQueues(root / "flintlog" / "deleted.json", medium)
        self.covered = CoveredQueues(root, medium)
        self._medium = medium
        self._types = {} if topic_queue_types is None else topic_queue_types
        self._now_ms = now_ms
        self._tails = TailKeeper()
        self.sync = QueueSync(root, medium, self._tails)
        files = QueueFiles() if files is None else files
        self._maker = QueueMaker(root, medium, files, self._tails)
        self._queues: dict[QueueKey, LogicalQueue] = {}
        self._ids: dict[str, set[int]] = {}
        self._lock = threading.Lock()
        self._known_ends: dict[QueueKey, QueueClaim] = {}

    # Queues

    def type_of(self, topic: str) -> QueueType:
        """The kind of queue a topic has."""
        text = self._types.get(topic, QueueType.SIMPLE.value)
        try:
            return QueueType(text)
        except ValueError as error:
            raise InvalidConfig(f"{text!r} is no queue type (topic {topic!r})", advice="SimpleCQ or BatchCQ") from error

    @property
    def has_batch_topics(self) -> bool:
        return any(kind == QueueType.BATCH.value for kind in self._types.values())

    def check_type(self, topic: str, kind: str) -> None:
        """Raise when a topic has queues of another kind."""
        found = next((self.get(topic, queue_id) for queue_id in self.queue_ids(topic)), None)
        if found is not None and found.type.value != kind:
            raise InvalidConfig(
                f"topic {topic!r} has queues of type {found.type.value}, and is to have {kind}",
                advice="delete the topic first, or take another name",
            )

    def set_types(self, types: Mapping[str, str]) -> None:
        """Give the queues that topics will have their kinds; a topic that is not named has simple ones."""
        self._types = types

    def set_type(self, topic: str, kind: str) -> None:
        """Give the queues that a topic will have a kind."""
        self._types = {**self._types, topic: kind}

    def get(self, topic: str, queue_id: int) -> LogicalQueue | None:
        """The queue, if there is one."""
        return self._queues.get((topic, queue_id))

    def get_or_create(self, topic: str, queue_id: int) -> LogicalQueue:
        """The queue; a new one has no files before its first entry."""
        queue = self._queues.get((topic, queue_id))
        if queue is not None:
            return queue
        with self._lock:
            queue = self._queues.get((topic, queue_id))
            if queue is None:
                queue = self._queues[topic, queue_id] = self._maker.make(topic, queue_id, self.type_of(topic))
                self._ids.setdefault(topic, set()).add(queue_id)
            return queue

    def queue_ids(self, topic: str) -> list[int]:
        """The queues that a topic has, in order."""
        with self._lock:
            return sorted(self._ids.get(topic, ()))

    def all(self) -> list[LogicalQueue]:
        """Every queue there is now."""
        return list(self._queues.values())

    @property
    def file_count(self) -> int:
        """How many files all queues have, without those of extensions."""
        return sum(len(queue.segments.segments) for queue in self.all())

    @property
    def wrote_bytes(self) -> int:
        """The sum of the queues' ends: losing an entry at the end of any of them lowers it."""
        return sum(queue.end_byte for queue in self.all())

    def max_physical_offset(self) -> int:
        """How far into the log any queue was built; -1 when there are none."""
        return max((queue.max_physical_offset for queue in self.all()), default=-1)

    def claims(self) -> list[QueueClaim]:
        """Where each queue with an entry ends. Dispatch must stand still meanwhile.

        A folder whose name cannot be a topic's (not UTF-8, for example) has no record's queue, and is left out.
        """
        claims = (queue.claim() for queue in self.all())
        # `isascii` first: it is fast, and dispatch waits.
        return [each for each in claims if each is not None and (each.topic.isascii() or can_be_topic(each.topic))]

    # Opening

    def load(self) -> None:
        """Find the queues on disk. A topic of the wrong kind is an error, and nothing is changed."""
        self.covered.load()  # first: a running writer may delete queues meanwhile, and their notes are read after it
        self.deleted.load()
        for kind, name in DIRECTORIES.items():
            for topic in self._medium.listing(self.root / name):
                if topic.is_directory:
                    self._load_topic(topic.name, kind)

    def _load_topic(self, topic: str, kind: QueueType) -> None:
        folder = self._maker.topic_folder(topic, kind)
        found = (parse_queue_id(each.name) for each in self._medium.listing(folder) if each.is_directory)
        queue_ids = [queue_id for queue_id in found if queue_id is not None]
        if queue_ids:
            self._check_found_type(topic, kind, folder)
        for queue_id in queue_ids:
            queue = self._maker.make(topic, queue_id, kind, folder)
            queue.load()
            self._set_known_gaps(queue)
            self._queues[topic, queue_id] = queue
            self._ids.setdefault(topic, set()).add(queue_id)

    def _check_found_type(self, topic: str, kind: QueueType, folder: Path) -> None:
        wanted = self.type_of(topic)
        if wanted is not kind:
            raise DamagedStore(
                f"topic {topic!r} has queues of type {kind.value}, but is configured as {wanted.value}",
                path=folder,
                advice="configure the topic's queue type as it was written",
            )

    def recover(self, was_clean: bool = False, commit_log_min: int = 0) -> None:
        """Find the end of every queue, and cut what follows it."""
        self.find_ends(was_clean, commit_log_min)
        self.cut_ends(was_clean)

    def find_ends(self, was_clean: bool, commit_log_min: int) -> None:
        """Find the end of every queue, several at a time. Nothing is changed yet."""

        def find(queue: LogicalQueue) -> None:
            queue.find_end(was_clean, commit_log_min)

        queues = self.all()
        do_each(find, queues, min(_RECOVERY_THREADS, os.cpu_count() or 1))
        self.recall(
            QueueClaim(queue.topic, queue.queue_id, next_offset, 0, max(0, queue.found_log_end))
            for queue in queues
            if (next_offset := queue.found_offset)
        )

    def cut_ends(self, was_clean: bool, *, is_durable: bool = False) -> None:
        """Cut every queue at the end that was found. The next flush syncs them, unless they are durable."""
        for queue in self.all():
            queue.cut_end(was_clean, is_durable=is_durable)

    def truncate(self, physical_offset: int) -> None:
        """Drop the entries of records at or after this offset, in every queue."""
        for queue in self.all():
            queue.truncate(physical_offset)

    def sync_names(self) -> None:
        """Make the names of all files durable."""
        self.sync.sync_names(self.all())

    # Next offsets

    def recall(self, claims: Iterable[QueueClaim]) -> None:
        """Remember where queues ended by their files or by notes; the furthest end of each counts."""
        for claim in claims:
            key = claim.topic, claim.queue_id
            known = self._known_ends.get(key, claim)
            ends = max(known.next_offset, claim.next_offset), 0, max(known.log_end, claim.log_end)
            self._known_ends[key] = QueueClaim(*key, *ends)

    @property
    def recalled(self) -> list[QueueClaim]:
        """Where the queues ended by all that this opening found. Names that cannot be topics are left out."""
        return [claim for claim in self._known_ends.values() if can_be_topic(claim.topic)]

    def rebuild_offsets(self, commit_log_min: int) -> None:
        """Take every next offset from its queue, and correct the queues' min offsets."""
        ends: dict[QueueKey, int] = {}
        for queue in self.all():
            ends[queue.topic, queue.queue_id] = queue.max_offset
            queue.correct_min_offset(commit_log_min, self._now_ms())
        self.deleted.forget_before(commit_log_min)
        self.offsets.take(ends, self.deleted.next_offsets())

    def keep_given_offsets(self, damage: DamageMap, *, is_log_short: bool) -> None:
        """Reuse no offset for which the files or notes had an entry when the store was opened.

        A queue without a record in the log goes on where its files ended. So does one with records if the log lost
        durable ones, or if the record of its last entry is damaged. Otherwise a crash took records that were never
        durable, and their offsets are free.
        """
        known, self._known_ends = self._known_ends, {}
        lost = []
        for (topic, queue_id), claim in known.items():
            queue = self._queues.get((topic, queue_id))
            is_damaged = claim.log_end > 0 and damage.end_of(claim.log_end - 1) is not None
            is_lost = is_log_short or is_damaged or queue is None or not queue.end_byte
            if is_lost and self.offsets.next(topic, queue_id) < claim.next_offset:
                lost.append(DeletedQueue(topic, queue_id, claim.next_offset, FOR_EVER))
        self.deleted.add(lost)  # durable before the offsets are used
        for each in lost:
            self.offsets.set(each.topic, each.queue_id, each.next_offset)

    def note_gap(self, queue: LogicalQueue, stop: int) -> None:
        """Make it durable that a queue goes on at an offset far after its last entry: no single record proves that."""
        self.deleted.add([DeletedQueue(queue.topic, queue.queue_id, stop, FOR_EVER, queue.max_offset)])
        self._set_known_gaps(queue)

    def _set_known_gaps(self, queue: LogicalQueue) -> None:
        notes = self.deleted.of(queue.topic, queue.queue_id)
        gaps = ((note.skipped_from, note.next_offset) for note in notes)
        queue.known_gaps = tuple(
            (start * queue.entry_size, stop * queue.entry_size) for start, stop in gaps if start is not None
        )

    # Deleting

    def delete_expired(self, commit_log_min: int) -> int:
        """Delete queue files whose records the log no longer has; how many."""
        return sum(self.delete_expired_of(queue, commit_log_min) for queue in self.all())

    def delete_expired_of(self, queue: LogicalQueue, commit_log_min: int) -> int:
        """Delete the files of one queue whose records the log no longer has; how many."""
        return queue.delete_expired(commit_log_min, self._now_ms())

    def is_expired(self, topic: str, queue_id: int, commit_log_min: int) -> bool:
        """Whether the log has none of a queue's records, and all that were put are dispatched."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or not 0 <= queue.last_physical_offset < commit_log_min:
            return False
        return self.offsets.given(topic, queue_id) <= queue.max_offset

    def remove(self, topic: str, queue_id: int) -> None:
        """Delete one queue that the log has no record of any more.

        Its offsets go on: a group that has consumed it would otherwise take as many new messages for consumed. Those of
        light queues are forgotten, because there may be very many over time.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return
        if topic.startswith(LMQ_PREFIX):
            to_the_end(lambda: self._forget(queue))
        else:
            gone = DeletedQueue(topic, queue_id, queue.max_offset, FOR_EVER)
            to_the_end(lambda: self._remove([queue], [gone]))

    def remove_topic(self, topic: str, dispatched: int) -> None:
        """Delete all queues of a topic, and its directories. If it is made again, its offsets go on.

        Every record of the log below `dispatched` has its entry, and is durable: the note must not name an offset whose
        record a power cut may take, because the log would have a gap for good. Later records begin the new queue.
        """
        queues = [queue for queue in self.all() if queue.topic == topic]
        gone = [DeletedQueue(topic, queue.queue_id, queue.max_offset, dispatched) for queue in queues]

        def remove() -> None:
            self._remove(queues, gone)
            self.offsets.delete_light(topic)
            self._maker.remove_folders(topic)
            self.sync.note_emptied(self.root / name for name in DIRECTORIES.values())

        to_the_end(remove)

    def finish_deletions(self, commit_log_min: int) -> None:
        """Delete the files of deleted queues again that a power loss has brought back, whole or in part.

        A queue that was made again since has records from after the deletion, and is kept.
        """
        for gone in self.deleted.all():
            queue = self._queues.get((gone.topic, gone.queue_id))
            if queue is None or queue.max_offset > gone.next_offset:
                continue
            if queue.last_physical_offset < (commit_log_min if gone.log_end == FOR_EVER else gone.log_end):
                self.drop(queue)
                if not self.queue_ids(gone.topic):
                    self._maker.remove_folders(gone.topic)

    def drop(self, queue: LogicalQueue) -> None:
        """Delete the files of a queue; its entries are built again from the log, or were deleted before."""
        topic, queue_id = queue.topic, queue.queue_id
        with self._lock:
            self._queues.pop((topic, queue_id), None)
            self._ids.get(topic, set()).discard(queue_id)
        self._tails.written.discard(queue)
        queue.destroy()
        self.sync.note_emptied([self._maker.topic_folder(topic, queue.type)])

    def destroy(self) -> None:
        """Delete every queue, to build them again from the log. Next offsets then come from there."""
        queues = self.all()
        do_each(self._forget, queues, _RECOVERY_THREADS)  # each waits for the disk
        for topic in {queue.topic for queue in queues}:
            self._maker.remove_folders(topic)
        self.sync.forget_emptied()

    def _forget(self, queue: LogicalQueue) -> None:
        self.drop(queue)
        self.offsets.forget(queue.topic, queue.queue_id)

    def _remove(self, queues: list[LogicalQueue], gone: list[DeletedQueue]) -> None:
        """Note that queues are deleted, then delete them. With the note alone, the next opening would."""
        self.deleted.add(gone)
        for queue in queues:
            self.drop(queue)

    def shut_down(self) -> None:
        """Unmap every file; the caller has flushed them."""
        now_ms = self._now_ms()
        for queue in self.all():
            queue.shut_down(now_ms)
