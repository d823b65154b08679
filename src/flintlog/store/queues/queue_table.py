"""All queues of a store.

A queue is made when its first record is dispatched. Files are mapped when they are looked at: opening a
store of 10,000 queues maps none, recovering it one after another.

Invariant: a topic has queues of one kind. Puts advance next offsets (`QueueOffsets`) before dispatch writes the
entries. Next offsets are taken from the queues only when the store is opened or cut, or when a ledger's member begins
to lead.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from flintlog.disk.media.medium import Medium
from flintlog.errors import DamagedStore, InvalidConfig
from flintlog.format.names import parse_queue_id
from flintlog.format.queue_entry import QueueKey
from flintlog.format.topics import LMQ_PREFIX, can_be_topic
from flintlog.store.log.queue_offsets import QueueOffsets
from flintlog.store.queues.covered_queues import CoveredQueues, QueueClaim
from flintlog.store.queues.deleted_queues import FOR_EVER, DeletedQueue, DeletedQueues
from flintlog.store.queues.logical_queue import LogicalQueue, QueueType
from flintlog.store.queues.queue_files import DIRECTORIES, QueueFiles, QueueMaker
from flintlog.store.queues.queue_tail import TailKeeper
from flintlog.store.runtime.turn import to_the_end

_HANDED_OVER: Final = 64
"""Queues that are handed to a thread together: one alone takes less time than the handing over."""

_SYNCS_AT_ONCE: Final = 16
"""Syncs under way together, where there are many: the disk then answers several with one flush of its cache."""

Item = TypeVar("Item")


class QueueTable:
    """The queues by topic and queue id. Any thread may look; the dispatching thread makes and writes them."""

    def __init__(
        self,
        root: Path,
        medium: Medium,
        files: QueueFiles | None = None,
        offsets: QueueOffsets | None = None,
        *,
        topic_queue_types: Mapping[str, str] | None = None,
        now_ms: Callable[[], int],
        read_only: bool = False,
        recover_threads: int | None = None,
    ) -> None:
        """`topic_queue_types` is looked at whenever a queue is made, so it may grow."""
        self.root = root
        self.offsets = QueueOffsets() if offsets is None else offsets
        self._medium = medium
        self._types = {} if topic_queue_types is None else topic_queue_types
        self._now_ms = now_ms
        self._read_only = read_only
        self._recover_threads = min(8, os.cpu_count() or 1) if recover_threads is None else recover_threads
        self._tails = TailKeeper()
        files = QueueFiles() if files is None else files
        self._maker = QueueMaker(root, medium, files, self._tails, read_only=read_only)
        self._queues: dict[QueueKey, LogicalQueue] = {}
        self._ids: dict[str, set[int]] = {}
        self._lock = threading.Lock()
        self._deleted = DeletedQueues(root / "flintlog" / "deleted.json", medium, read_only=read_only)
        self.covered = CoveredQueues(root, medium)
        self._given: dict[QueueKey, QueueClaim] = {}  # where each queue ended, by files and notes that an opening found
        self._emptied: set[Path] = set()  # folders of which something was removed that may come back

    # Queues

    def type_of(self, topic: str) -> QueueType:
        """The kind of queue a topic has."""
        text = self._types.get(topic, QueueType.SIMPLE.value)
        try:
            return QueueType(text)
        except ValueError as error:
            raise InvalidConfig(f"{text!r} is no queue type (topic {topic!r})", advice="SimpleCQ or BatchCQ") from error

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

    def check_type(self, topic: str, kind: str) -> None:
        """Raise when a topic has queues of another kind."""
        found = next((self.get(topic, queue_id) for queue_id in self.queue_ids(topic)), None)
        if found is not None and found.type.value != kind:
            raise InvalidConfig(
                f"topic {topic!r} has queues of type {found.type.value}, and is to have {kind}",
                advice="delete the topic first, or take another name",
            )

    def set_type(self, topic: str, kind: str) -> None:
        """Say which kind of queue a topic has from now on."""
        self._types = {**self._types, topic: kind}

    def queue_ids(self, topic: str) -> list[int]:
        """The queues that a topic has, in order."""
        with self._lock:
            return sorted(self._ids.get(topic, ()))

    def all(self) -> list[LogicalQueue]:
        """Every queue there is now."""
        return list(self._queues.values())

    # Opening

    def load(self) -> None:
        """Find the queues on disk. A topic of the wrong kind is an error, and nothing is changed."""
        self.covered.load()  # first: beside a running writer, what is deleted later is in the notes that follow
        self._deleted.load()
        for kind, name in DIRECTORIES.items():
            for topic in self._medium.listing(self.root / name):
                if topic.is_directory:
                    self._load_topic(topic.name, kind)

    def _load_topic(self, topic: str, kind: QueueType) -> None:
        folder = self._maker.topic_folder(topic, kind)
        found = (parse_queue_id(each.name) for each in self._medium.listing(folder) if each.is_directory)
        queue_ids = [queue_id for queue_id in found if queue_id is not None]
        if queue_ids:
            self._check_type(topic, kind, folder)
        for queue_id in queue_ids:
            queue = self._maker.make(topic, queue_id, kind, folder)
            queue.load()
            self._show_gaps(queue)
            self._queues[topic, queue_id] = queue
            self._ids.setdefault(topic, set()).add(queue_id)

    def _check_type(self, topic: str, kind: QueueType, folder: Path) -> None:
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
        _do_each(find, queues, max(1, self._recover_threads))
        self.recall(
            QueueClaim(queue.topic, queue.queue_id, given, 0, max(0, queue.found_log_end))
            for queue in queues
            if (given := queue.found_offset)
        )

    def recall(self, claims: Iterable[QueueClaim]) -> None:
        """Take these ends of queues into account when next offsets are given; the furthest of each queue counts."""
        for claim in claims:
            key = claim.topic, claim.queue_id
            known = self._given.get(key, claim)
            ends = max(known.next_offset, claim.next_offset), 0, max(known.log_end, claim.log_end)
            self._given[key] = QueueClaim(*key, *ends)

    @property
    def recalled(self) -> list[QueueClaim]:
        """Where the queues ended by all that this opening found; those whose name is no topic's are left out."""
        return [claim for claim in self._given.values() if can_be_topic(claim.topic)]

    def cut_ends(self, was_clean: bool, *, is_durable: bool = False) -> None:
        """Cut every queue at the end that was found. Unless they are durable, the next flush makes them so."""
        for queue in self.all():
            queue.cut_end(was_clean, is_durable=is_durable)

    def is_deleted(self, topic: str, queue_id: int, physical_offset: int) -> bool:
        """Whether a record was deleted with its topic. It stays in the log, and gets no entry again."""
        return self._deleted.holds(topic, queue_id, physical_offset)

    def finish_deletions(self, commit_log_min: int) -> None:
        """Take away the files of deleted queues that a power loss has brought back, all of them or a part.

        A queue that was made again since has records from after the deletion, and is kept.
        """
        for gone in self._deleted.all():
            queue = self._queues.get((gone.topic, gone.queue_id))
            if queue is None or queue.max_offset > gone.next_offset:
                continue
            if queue.last_physical_offset < (commit_log_min if gone.log_end == FOR_EVER else gone.log_end):
                self._destroy_queue(gone.topic, gone.queue_id)
                if not self.queue_ids(gone.topic):
                    self._maker.remove_folders(gone.topic)

    def take_deletions(self, deleted: DeletedQueues) -> None:
        """These queues are built beside their store: which topics were deleted is known there."""
        self._deleted = deleted

    def reload_deleted(self) -> None:
        """Look again which topics were deleted."""
        self._deleted.load()

    def drop(self, queue: LogicalQueue) -> None:
        """Delete the files of a queue that is built again from the log."""
        self._destroy_queue(queue.topic, queue.queue_id)

    def end_deletions(self, log_end: int) -> None:
        """The log ends there: of what comes to lie behind it, nothing was deleted yet."""
        self._deleted.end_at(log_end)

    def sync_names(self) -> None:
        """Make the names of all files durable: a process that was killed may have left new ones that are not."""
        folders = {
            segment.path.parent for queue in self.all() for segments in queue.parts for segment in segments.segments
        }
        # From the top: a directory whose own name is lost takes everything in it along.
        above = {parent for folder in folders for parent in folder.parents if parent.is_relative_to(self.root)}
        _do_each(self._medium.sync_directory, sorted(folders | above), _SYNCS_AT_ONCE)

    @property
    def file_count(self) -> int:
        """How many files all queues have, without those of extensions."""
        return sum(len(queue.segments.segments) for queue in self.all())

    def claims(self) -> list[QueueClaim]:
        """Where each queue ends, those without an entry left out. Nobody writes them meanwhile.

        A folder whose name is no topic's, as one that is not UTF-8, holds a queue of no record, and is left out too.
        """
        claims = (queue.claim() for queue in self.all())
        # `isascii` first: this is asked for each queue, while dispatch stands still.
        return [each for each in claims if each is not None and (each.topic.isascii() or can_be_topic(each.topic))]

    @property
    def wrote_bytes(self) -> int:
        """Where the queues end, added up: an entry that is lost at the end of any of them makes it less."""
        return sum(queue.end_byte for queue in self.all())

    def find_lost_files(self, commit_log_min: int) -> str | None:
        """What says that a queue lost files which the log still has the records of; None when nothing does."""
        for queue in self.all():
            where = f"{queue.topic}/{queue.queue_id}"
            if any(not queue.is_known_gap(*gap) for gap in queue.segments.gaps()):
                return f"files of queue {where} are missing between others"
            if self.has_lost_first_files(queue, commit_log_min):
                return f"the first files of queue {where} are missing"
        return None

    def has_lost_first_files(self, queue: LogicalQueue, commit_log_min: int) -> bool:
        """Whether a queue begins further on than the log's records of it.

        That is known while the log has its first file: then nothing has expired. A queue that was deleted and made
        again begins further on by right. So does one whose first records the log has lost, and then begins at the
        noted offset or after it.
        """
        if commit_log_min or not queue.had_files_before:
            return False
        end = queue.segments.segments[0].end
        notes = self._deleted.of(queue.topic, queue.queue_id)
        return not any(note.is_deletion or end > note.next_offset * queue.entry_size for note in notes)

    def max_physical_offset(self) -> int:
        """How far into the log any queue was built; -1 when there are none."""
        return max((queue.max_physical_offset for queue in self.all()), default=-1)

    def deleted_end(self, log_end: int) -> int:
        """How far into a log that ends there the queues of deleted topics were built; -1 when there were none."""
        ends = (gone.log_end for gone in self._deleted.all() if gone.is_deletion and gone.log_end <= log_end)
        return max(ends, default=-1)

    @property
    def deletions_problem(self) -> str | None:
        """Why nobody knows which queues were deleted, and where they ended; None when that is known."""
        return self._deleted.problem

    def settle_deletions(self) -> None:
        """The queues were built from the log: from here on it is known again which were deleted since."""
        self._deleted.settle()

    def truncate(self, physical_offset: int) -> None:
        """Drop the entries of records at or behind this offset, in every queue."""
        for queue in self.all():
            queue.truncate(physical_offset)

    # Next offsets

    def rebuild_offsets(self, commit_log_min: int) -> None:
        """Take every next offset from its queue, and correct the queues' min offsets."""
        ends: dict[QueueKey, int] = {}
        for queue in self.all():
            ends[queue.topic, queue.queue_id] = queue.max_offset
            queue.correct_min_offset(commit_log_min, self._now_ms())
        self._deleted.forget_before(commit_log_min)
        self.offsets.take(ends, self._deleted.next_offsets())

    def keep_given_offsets(self, *, is_log_short: bool) -> None:
        """Give no offset again for which the files or notes had an entry when the store was opened.

        A queue of which the log has no record goes on where its files ended. One of which it has some does so if the
        log has lost what it had; else a crash took records that were never durable, and their offsets are free.
        """
        given, self._given = self._given, {}
        lost = []
        for (topic, queue_id), claim in given.items():
            queue = self._queues.get((topic, queue_id))
            is_lost = is_log_short or queue is None or not queue.end_byte
            if is_lost and self.offsets.next(topic, queue_id) < claim.next_offset:
                lost.append(DeletedQueue(topic, queue_id, claim.next_offset, FOR_EVER))
        self._deleted.add(lost)  # first: what follows is in memory alone
        for each in lost:
            self.offsets.set(each.topic, each.queue_id, each.next_offset)

    def given_offset(self, topic: str, queue_id: int) -> int:
        """The least next offset of a queue by what is noted of it; 0 where nothing is."""
        return max((note.next_offset for note in self._deleted.of(topic, queue_id)), default=0)

    def note_gap(self, queue: LogicalQueue, stop: int) -> None:
        """Make it durable that a queue goes on at an offset far after its last entry. No record tells that alone."""
        note = DeletedQueue(queue.topic, queue.queue_id, stop, FOR_EVER, queue.max_offset)
        self._deleted.add([note])
        self._show_gaps(queue)

    def _show_gaps(self, queue: LogicalQueue) -> None:
        notes = self._deleted.of(queue.topic, queue.queue_id)
        gaps = ((note.skipped_from, note.next_offset) for note in notes)
        queue.known_gaps = tuple(
            (start * queue.entry_size, stop * queue.entry_size) for start, stop in gaps if start is not None
        )

    @property
    def has_batch_topics(self) -> bool:
        return any(kind == QueueType.BATCH.value for kind in self._types.values())

    # Keeping and deleting

    def flush(self, least_pages: int) -> bool:
        """Make the queues durable that were written; True when nothing was left to do."""
        is_done = True
        for queue in list(self._tails.written):
            is_done = self._flush(queue, least_pages) and is_done
        return is_done

    def flush_all(self) -> None:
        """Make every queue durable to its end, and the removal of those that were deleted."""
        _do_each(self._flush_whole, list(self._tails.written), _SYNCS_AT_ONCE)
        self._sync_removals()

    def _flush_whole(self, queue: LogicalQueue) -> None:
        while not self._flush(queue, 0):
            pass

    def _sync_removals(self) -> None:
        """What was deleted does not come back: what is counted next is without it."""
        while self._emptied:
            folder = self._emptied.pop()  # before the sync: somebody may delete more meanwhile
            try:
                if self._medium.exists(folder):
                    self._medium.sync_directory(folder)
            except BaseException:
                self._emptied.add(folder)
                raise

    def _flush(self, queue: LogicalQueue, least_pages: int) -> bool:
        """Flush one queue and forget that it was written, unless the lane may go on writing it."""
        written = self._tails.written
        written.discard(queue)
        is_settled = False
        try:
            is_done = queue.flush(least_pages)
            is_settled = is_done and least_pages == 0 and not queue.is_in_lane
            return is_done
        finally:
            if not is_settled:
                written.add(queue)

    def delete_expired(self, commit_log_min: int, pause: Callable[[], None] | None = None) -> int:
        """Delete queue files whose records the log no longer has; how many. `pause` after each queue that lost some."""
        count = 0
        for queue in self.all():
            deleted = self.delete_expired_of(queue, commit_log_min)
            count += deleted
            if deleted and pause is not None:
                pause()
        return count

    def delete_expired_of(self, queue: LogicalQueue, commit_log_min: int) -> int:
        """Delete the files of one queue whose records the log no longer has; how many."""
        return queue.delete_expired(commit_log_min, self._now_ms())

    def is_expired(self, topic: str, queue_id: int, commit_log_min: int) -> bool:
        """Whether the log has none of a queue's records, and nothing is on its way into it."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or not 0 <= queue.last_physical_offset < commit_log_min:
            return False
        return self.offsets.given(topic, queue_id) <= queue.max_offset

    def remove(self, topic: str, queue_id: int) -> None:
        """Delete one queue, of which the log has no record any more.

        Its offsets go on, or a reader that stands at its end would take as many new messages for read. Those of light
        queues, of which there may be a great many in the course of time, are forgotten.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return
        if topic.startswith(LMQ_PREFIX):
            to_the_end(lambda: self._forget(queue))
        else:
            gone = DeletedQueue(topic, queue_id, self._next_of(queue), FOR_EVER)
            to_the_end(lambda: self._remove([queue], [gone]))

    def _forget(self, queue: LogicalQueue) -> None:
        self._destroy(queue)
        self.offsets.forget(queue.topic, queue.queue_id)

    def _remove(self, queues: list[LogicalQueue], gone: list[DeletedQueue]) -> None:
        """Write down that queues are deleted, and delete them: with the note alone, only the next opening would."""
        self._deleted.add(gone)
        for queue in queues:
            self._destroy(queue)

    def _destroy_queue(self, topic: str, queue_id: int) -> None:
        queue = self._queues.get((topic, queue_id))
        if queue is not None:
            self._destroy(queue)

    def _destroy(self, queue: LogicalQueue) -> None:
        topic, queue_id = queue.topic, queue.queue_id
        with self._lock:
            self._queues.pop((topic, queue_id), None)
            self._ids.get(topic, set()).discard(queue_id)
        self._tails.written.discard(queue)
        queue.destroy()
        self._emptied.add(self._maker.topic_folder(topic, queue.type))

    def remove_topic(self, topic: str, dispatched: int) -> None:
        """Delete all queues of a topic, and its directories. Should it be made anew, its offsets go on.

        Every record of the log below `dispatched` has its entry: also those of these queues.
        """
        queues = [queue for queue in self.all() if queue.topic == topic]
        gone = [DeletedQueue(topic, queue.queue_id, self._next_of(queue), dispatched) for queue in queues]

        def remove() -> None:
            self._remove(queues, gone)
            self.offsets.delete_light(topic)
            self._maker.remove_folders(topic)
            self._emptied.update(self.root / name for name in DIRECTORIES.values())

        to_the_end(remove)

    def _next_of(self, queue: LogicalQueue) -> int:
        """The next offset of a queue; one whose offsets were never asked for has handed out what it holds."""
        return max(self.offsets.given(queue.topic, queue.queue_id), queue.max_offset)

    def shut_down(self) -> None:
        """Unmap every file; flush before."""
        now_ms = self._now_ms()
        for queue in self.all():
            queue.shut_down(now_ms)

    def destroy(self) -> None:
        """Delete every queue; who builds them again from the log takes their offsets from there."""
        for topic, queue_id in list(self._queues):
            self.offsets.forget(topic, queue_id)
            self._destroy_queue(topic, queue_id)
            self._maker.remove_folders(topic)
        self._emptied.clear()  # what is built in their place is made durable with its names


def _do_each(work: Callable[[Item], object], items: list[Item], threads: int) -> None:
    """Do something with each item: in threads, where there are many."""

    def do_some(start: int) -> None:
        for item in items[start : start + _HANDED_OVER]:
            work(item)

    if len(items) <= _HANDED_OVER:
        do_some(0)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="flintlog-queues") as pool:
        for _ in pool.map(do_some, range(0, len(items), _HANDED_OVER)):
            pass
