"""The second half of a rebuild: queues whose entries depend on all entries before, each built by one task.

    with an extension, or with batches       the place of a unit or a batch follows from all before it
    offsets that do not follow each other    a gap is filled, and a record that is not believed gets no entry

Such a queue is built by the store's own classes from its entries, in the log's order. A task works in a directory of
its own and renames its result at the end, so concurrent attempts do no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from flintlog.derive.entries import Place
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.errors import DiskFull
from flintlog.format.names import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from flintlog.format.queue_entry import QueueKey
from flintlog.kernel import Row
from flintlog.pipeline.building.rebuild_scan import DENSE, IS_INTACT, IS_OWN, BuildPlan, Spilled
from flintlog.pipeline.building.staging import give_name
from flintlog.pipeline.spark.tasks import attempt_name
from flintlog.store.dispatch.gap_filling import AHEAD_BYTES, GapFiller
from flintlog.store.log.damage import Damage, DamageMap
from flintlog.store.queues.consume_queue import ConsumeQueue
from flintlog.store.queues.deleted_queues import DeletedQueue
from flintlog.store.queues.logical_queue import QueueType
from flintlog.store.queues.queue_files import QueueFiles
from flintlog.store.queues.queue_table import QueueTable

QUEUE_FOLDERS: Final = (CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE, CONSUME_QUEUE)
"""The extension first: a queue that exists always has its extension."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The facts about a log that decide where an entry goes after damage."""

    file_bytes: int
    damage: tuple[tuple[int, int], ...] = ()
    """The places [start, stop) whose records are lost, in order."""


@dataclass(frozen=True, slots=True)
class QueueTask:
    """Build one queue from its spilled entries: (split, place in its spill), in order."""

    plan: BuildPlan
    key: QueueKey
    pieces: tuple[tuple[int, Spilled], ...]
    root: str
    """The store, whose extension files hold the bitmaps to keep."""

    log: LogFacts
    notes: tuple[DeletedQueue, ...] = ()
    """The offsets that this queue is known to have given."""


class BuiltQueue(NamedTuple):
    """A queue that was built: how many messages have an entry, how many do not, and the gaps to note."""

    key: QueueKey
    entry_count: int
    refused_count: int
    noted_gaps: tuple[DeletedQueue, ...]


def build_queue(task: QueueTask) -> BuiltQueue:
    """The task."""
    plan, (topic, queue_id) = task.plan, task.key
    medium = LocalMedium()
    working = Path(plan.spill) / attempt_name()
    bitmaps = load_bitmaps(plan, Path(task.root), task.key, medium)
    pieces = [spilled(plan, split, place, medium) for split, place in task.pieces]
    built = fill_queue(plan, task.key, pieces, working, bitmaps, task.log, task.notes, medium)
    for folder in QUEUE_FOLDERS:
        made = working / folder / topic / str(queue_id)
        if medium.exists(made):
            staged = Path(plan.staged)
            give_name(medium, made, staged / folder / topic / str(queue_id), staged)
    medium.remove_tree(working)
    return built


def spilled(plan: BuildPlan, split: int, place: Spilled, medium: Medium) -> memoryview:
    return medium.open(plan.dense_path(split)).buffer[place.first * DENSE.size : place.stop * DENSE.size]


def fill_queue(
    plan: BuildPlan,
    key: QueueKey,
    pieces: Sequence[memoryview],
    working: Path,
    bitmaps: Mapping[int, bytes],
    log: LogFacts,
    notes: Iterable[DeletedQueue],
    medium: Medium,
) -> BuiltQueue:
    """Build a queue's files below a directory from its packed entries, durably."""
    table = make_table(plan, working, medium)
    table.deleted.add(notes)
    filling = _Filling(table, key, pieces, bitmaps, log)
    entry_count, refused_count = filling.run()
    table.sync.flush_all()
    table.shut_down()
    gaps = [note for note in table.deleted.all() if note not in notes]
    return BuiltQueue(key, entry_count, refused_count, tuple(gaps))


class _Filling:
    """One queue while its entries are put: as the store's dispatcher does (`store/dispatch/entry_writer.py`)."""

    def __init__(
        self,
        table: QueueTable,
        key: QueueKey,
        pieces: Sequence[memoryview],
        bitmaps: Mapping[int, bytes],
        log: LogFacts,
    ) -> None:
        self._table = table
        self._key = key
        self._pieces = pieces
        self._bitmaps = bitmaps
        self._at = (0, 0)
        damage = DamageMap()
        for start, stop in log.damage:
            damage.add(Damage(start, stop, "damaged"))
        self._gaps = GapFiller(damage, table, self, log.file_bytes)

    def run(self) -> tuple[int, int]:
        """Put all entries; returns how many were put, and how many were refused."""
        put = refused = 0
        for number, piece in enumerate(self._pieces):
            for index, entry in enumerate(DENSE.iter_unpack(piece)):
                self._at = number, index
                if self._put(*entry):
                    put += 1
                else:
                    refused += 1
        return put, refused

    def _put(
        self, at: int, size: int, tags_code: int, queue_offset: int, stored_at: int, batch_count: int, marks: int
    ) -> bool:
        row = Row(at, queue_offset, tags_code, stored_at, size, 0, 0, 0, 0, 0)
        place = Place(*self._key, queue_offset, batch_count)
        found = self._table.get(*self._key)
        is_simple = self._table.type_of(place.topic) is QueueType.SIMPLE
        if is_simple and not self._gaps.make_way(found if isinstance(found, ConsumeQueue) else None, row, place):
            return False
        queue = self._table.get_or_create(*self._key)
        bitmap = self._bitmaps.get(at) if marks & IS_OWN else None
        entry = (at, size, tags_code, queue_offset, stored_at, bitmap, batch_count)
        if not queue.put(*entry, is_extended=bool(marks & IS_OWN)):
            raise DiskFull(f"no room for a file of queue {self._key[0]}/{self._key[1]}", path=self._table.root)
        return True

    def offsets(self, key: QueueKey, physical_offset: int) -> Iterator[int]:
        """See `Ahead`: the dispatcher searches about as far, in chunks of the log."""
        number, index = self._at
        for piece in self._pieces[number:]:
            for place in range(index * DENSE.size, len(piece), DENSE.size):
                at, _, _, queue_offset, _, _, marks = DENSE.unpack_from(piece, place)
                if at >= physical_offset + AHEAD_BYTES:
                    return
                if at > physical_offset and marks & IS_INTACT:
                    yield queue_offset
            index = 0


def make_table(plan: BuildPlan, root: Path, medium: Medium) -> QueueTable:
    """The queues of a directory, with the sizes and kinds of this rebuild."""
    files = QueueFiles(plan.consume_queue_bytes, plan.batch_queue_bytes, plan.extension_bytes)
    return QueueTable(root, medium, files, topic_queue_types=plan.topic_queue_types, now_ms=lambda: 0)


def load_bitmaps(plan: BuildPlan, root: Path, key: QueueKey, medium: Medium) -> Mapping[int, bytes]:
    """The filter bitmaps that a queue's extension holds now, by physical offset: the log does not have them."""
    topic, queue_id = key
    if plan.extension_bytes is None or not medium.exists(root / CONSUME_QUEUE_EXT / topic / str(queue_id)):
        return {}
    table = make_table(plan, root, medium)
    queue = table.get_or_create(topic, queue_id)
    queue.load()
    queue.recover(was_clean=True)
    found: dict[int, bytes] = {}
    offset = queue.segments.min_offset // queue.entry_size
    while (entries := queue.entries_from(offset)) is not None:
        with entries:
            for unit in entries:
                offset = unit.queue_offset + 1
                if unit.extension is not None and unit.extension.bitmap:
                    found[unit.physical_offset] = unit.extension.bitmap
    return found
