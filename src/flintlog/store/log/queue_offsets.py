"""The next offset of every queue: this module decides which queue offset a message gets.

    by_queue   (topic, queue id) → next offset    every simple and batch queue
    light      name → next offset                 light queues (`%LMQ%…`, always queue 0): a record may be in several

Invariants. A put reads and advances both tables under the put lock. The kernel writes `by_queue` too, in one step with
the record: it was given the table once, so the tables are changed in place and never replaced. An offset that a queue
has given is not given again, also after the queue was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flintlog.format.queue_entry import QueueKey
from flintlog.format.topics import LMQ_PREFIX
from flintlog.kernel import Moves


class QueueOffsets:
    """The next offsets of one store's queues. Any thread may read them."""

    def __init__(self) -> None:
        self.by_queue: dict[QueueKey, int] = {}
        self._light: dict[str, int] = {}
        self._deleted_light: set[str] = set()
        self._given_by_forgotten = 0

    def next(self, topic: str, queue_id: int) -> int:
        """The queue offset of the next message that is put."""
        return self.by_queue.get((topic, queue_id), 0)

    def next_light(self, name: str) -> int:
        """The offset of the next message in a light queue."""
        return self._light.get(name, 0)

    def given(self, topic: str, queue_id: int) -> int:
        """How many offsets a queue has given, to messages of its own or as a light queue."""
        light = self._light.get(topic, 0) if queue_id == 0 else 0
        return max(self.next(topic, queue_id), light)

    # Putting

    def plan(self, queue: QueueKey, count: int = 1, light: Iterable[str] = ()) -> tuple[int, Moves]:
        """The offset of the next message, and the moves that its append makes.

        It takes `count` offsets of its queue, and one of each light queue.
        """
        offset = self.by_queue.get(queue, 0)
        new_light: dict[str, int] = {}
        for name in light:
            new_light[name] = new_light.get(name, self.next_light(name)) + 1
            self._deleted_light.discard(name)
        return offset, (self.by_queue, {queue: offset + count}, self._light, new_light)

    # Opening and deleting

    def take(self, ends: Mapping[QueueKey, int], deleted: Mapping[QueueKey, int]) -> None:
        """Begin again where the queues end. Deleted queues continue where they ended."""
        offsets = dict(ends)
        for key, offset in deleted.items():
            offsets[key] = max(offset, offsets.get(key, 0))
        light = {topic: offset for (topic, queue_id), offset in offsets.items() if _is_light(topic, queue_id)}
        _make_equal(self.by_queue, offsets)
        _make_equal(self._light, light)
        self._deleted_light = {name for name in light if (name, 0) not in ends}

    def set(self, topic: str, queue_id: int, offset: int) -> None:
        """Continue at an offset that the queue alone does not show."""
        self.by_queue[topic, queue_id] = offset
        if _is_light(topic, queue_id):
            self._light[topic] = offset

    def forget(self, topic: str, queue_id: int) -> None:
        """Begin a queue at 0 again."""
        self._given_by_forgotten += self.by_queue.pop((topic, queue_id), 0)
        if queue_id == 0:
            self._light.pop(topic, None)
            self._deleted_light.discard(topic)

    def delete_light(self, name: str) -> None:
        """Do not count a light queue until the next message is put into it. Its offsets continue then."""
        if name in self._light:
            self._deleted_light.add(name)

    # Counting

    @property
    def light_count(self) -> int:
        """How many light queues there are, or will be once all messages are dispatched."""
        return len(self._light) - len(self._deleted_light)

    def has_light(self, name: str) -> bool:
        """Whether a message was put into this light queue."""
        return name in self._light and name not in self._deleted_light

    def given_by_queue(self) -> dict[QueueKey, int]:
        """How many offsets each queue has given to messages of its own."""
        return self.by_queue.copy()

    @property
    def given_count(self) -> int:
        """How many offsets all queues together have given to messages of their own."""
        return sum(self.by_queue.values()) + self._given_by_forgotten


class OffsetsBefore:
    """What next offsets were before a batch moved them, so that they can be set back."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, object], tuple[dict[Any, int], int | None]] = {}

    def note(self, moves: Moves) -> None:
        """Keep the first value of each offset that these moves change."""
        tables: tuple[tuple[dict[Any, int], dict[Any, int]], ...] = moves[:2], moves[2:]
        for table, new in tables:
            for key in new:
                self._before.setdefault((id(table), key), (table, table.get(key)))

    def set_back(self) -> None:
        for (_, key), (table, offset) in self._before.items():
            if offset is None:
                table.pop(key, None)
            else:
                table[key] = offset


def apply_moves(moves: Moves) -> None:
    """Move offsets without the kernel, which does it with the append of a record."""
    by_queue, new, light, new_light = moves
    by_queue |= new
    light |= new_light


def _is_light(topic: str, queue_id: int) -> bool:
    return queue_id == 0 and topic.startswith(LMQ_PREFIX)


def _make_equal(table: dict[Any, int], wanted: Mapping[Any, int]) -> None:
    """Change a table in place; a thread that reads it meanwhile misses no key that stays."""
    table.update(wanted)
    for key in table.keys() - wanted.keys():
        del table[key]
