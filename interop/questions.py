"""Questions to a store and their answers, as lines of JSON that both ours and the Java store understand.

    key    which messages have this key (index), oldest first
    time   which queue offset was stored at this time
    get    one page of a queue

A line of a golden `queries.jsonl` holds a question and Java's answer to it; `parse_question` and `parse_answer` each
take their half.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from interop.store_view import StoreView

if TYPE_CHECKING:
    from flintlog.store.store import Store

FOREVER_MS = 2**63 - 1


class KeyQuestion(msgspec.Struct, frozen=True, rename="camel", tag_field="kind", tag="key"):
    """Which messages have this key?"""

    topic: str
    key: str
    begin: int = 0
    end: int = FOREVER_MS
    max_num: int = 32
    index_type: str | None = None


class TimeQuestion(msgspec.Struct, frozen=True, rename="camel", tag_field="kind", tag="time"):
    """Which queue offset was stored at this time?"""

    topic: str
    queue_id: int
    timestamp: int
    boundary: str = "LOWER"


class GetQuestion(msgspec.Struct, frozen=True, rename="camel", tag_field="kind", tag="get"):
    """What is in this queue from here on?"""

    topic: str
    queue_id: int
    offset: int
    max_num: int = 32
    filter: str | None = None


class KeyAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The messages' physical offsets."""

    physical_offsets: list[int]


class TimeAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The queue offset."""

    queue_offset: int


class GetAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """One page: its status by RocketMQ's name, the next offset, and the messages' physical offsets."""

    status: str
    next_begin_offset: int
    min_offset: int
    max_offset: int
    physical_offsets: list[int]


Question = KeyQuestion | TimeQuestion | GetQuestion
Answer = KeyAnswer | TimeAnswer | GetAnswer

_ANSWER_TYPES: dict[type[Question], type[Answer]] = {
    KeyQuestion: KeyAnswer,
    TimeQuestion: TimeAnswer,
    GetQuestion: GetAnswer,
}


def parse_question(line: bytes | str) -> Question:
    """The asking half of a line."""
    question: Question = msgspec.json.decode(line, type=Question)
    return question


def parse_answer(question: Question, line: bytes | str) -> Answer:
    """The answering half of a line."""
    return msgspec.json.decode(line, type=_ANSWER_TYPES[type(question)])


def ask(store: Store, question: Question) -> Answer:
    """The answer of a store of ours."""
    match question:
        case KeyQuestion(topic, key, begin, end, max_num, index_type):
            found = store.query(topic, key, begin=begin, end=end, max_count=max_num, index_type=index_type, exact=False)
            return KeyAnswer([message.physical_offset for message in found])
        case TimeQuestion(topic, queue_id, timestamp, boundary):
            return TimeAnswer(store.offset_at(topic, queue_id, timestamp, boundary=boundary.lower()))
        case GetQuestion(topic, queue_id, offset, max_num, tags):
            page = store.get(topic, queue_id=queue_id, offset=offset, max_count=max_num, filter=tags, exact=False)
            offsets = [message.physical_offset for message in page.messages]
            return GetAnswer(page.status.name, page.next_offset, page.min_offset, page.max_offset, offsets)


def answers_apart(questions: Iterable[Question], left: Iterable[Answer], right: Iterable[Answer]) -> list[str]:
    """A sentence for each question that was answered differently."""
    triples = zip(questions, left, right, strict=True)
    return [f"{question}: {mine}, on the right {other}" for question, mine, other in triples if mine != other]


def questions_about(view: StoreView, *, seed: int, key_count: int = 200) -> list[Question]:
    """Questions that reach into every queue of a store, and to some of its keys and tags."""
    chance = random.Random(seed)
    return [*_key_questions(view, chance, key_count), *_queue_questions(view, chance)]


def _key_questions(view: StoreView, chance: random.Random, count: int) -> Iterator[Question]:
    keyed = sorted({(m.topic, key) for m in view.messages.values() for key in (m.keys or "").split(" ") if key})
    tagged = sorted({(m.topic, m.tags) for m in view.messages.values() if m.tags})
    times = sorted(m.store_timestamp for m in view.messages.values()) or [0]
    for topic, key in chance.sample(keyed, min(count, len(keyed))):
        yield KeyQuestion(topic, key, max_num=64)
        yield KeyQuestion(topic, key, max_num=2)
        begin, end = sorted((chance.choice(times), chance.choice(times)))
        yield KeyQuestion(topic, key, begin, end)
        yield KeyQuestion(topic, "no-such-" + key)
    for topic, tag in chance.sample(tagged, min(count, len(tagged))):
        yield KeyQuestion(topic, tag, index_type="T")


def _queue_questions(view: StoreView, chance: random.Random) -> Iterator[Question]:
    times = sorted(m.store_timestamp for m in view.messages.values()) or [0]
    for (topic, queue_id), queue in sorted(view.queues.items()):
        middle = (queue.min + queue.max) // 2
        for offset in (-1, queue.min, middle, queue.max - 1, queue.max, queue.max + 7):
            yield GetQuestion(topic, queue_id, offset)
            yield GetQuestion(topic, queue_id, offset, max_num=chance.randrange(1, 100))
        for tags in ("*", "TagA", "TagA || TagB", "NoSuchTag"):
            yield GetQuestion(topic, queue_id, middle, filter=tags)
        for boundary in ("LOWER", "UPPER"):
            for time in (0, times[0] - 1, times[0], chance.choice(times), chance.choice(times) + 1, times[-1] + 1):
                yield TimeQuestion(topic, queue_id, time, boundary)
