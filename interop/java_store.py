"""The real RocketMQ store, opened from Python: it writes directories for us to read, and checks those we wrote.

    with JavaStore("some-directory", {"mappedFileSizeCommitLog": "1048576"}) as java:
        java.put([Message("orders", b"...", keys=["o-17"])])
        java.verify_against(view_of(store))

Leaving the block shuts the store down as a broker would; leaving it by an exception, or `halt()`, kills the process,
which leaves what a crash leaves. A directory is recovered in place when it is opened: give it a copy of anything
that must stay as it is.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from flintlog.errors import DamagedStore, FlintlogError
from flintlog.store.model.message import Message
from interop.java_process import SHORT_LIVED, EntryPoint
from interop.java_side import JavaSide
from interop.questions import (
    Answer,
    GetAnswer,
    GetQuestion,
    KeyAnswer,
    KeyQuestion,
    Question,
    TimeAnswer,
    TimeQuestion,
    parse_answer,
)
from interop.store_view import (
    EntryView,
    MessageView,
    QueueView,
    StoreView,
    differences,
    make_view,
    parse_message_view,
)

DEFAULT_HOST = "127.0.0.1:10911"
MACHINE_CLOCK_MS = -1


class JavaReceipt(msgspec.Struct, frozen=True, rename="camel"):
    """Java's answer to one put; for a batch `msg_id` holds all ids, separated by commas."""

    status: str
    physical_offset: int
    queue_offset: int
    size: int
    msg_id: str | None


class JavaInfo(msgspec.Struct, frozen=True, rename="camel"):
    """The store as a whole: the log's ends, and the checkpoint's times."""

    loaded: bool
    min_phy_offset: int
    max_phy_offset: int
    flushed_where: int
    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int


class JavaFigures(msgspec.Struct, frozen=True, rename="camel"):
    """The store's counts: its map for admin tools, puts by topic, gets, and the lag of readers."""

    runtime_info: dict[str, str]
    topic_times: dict[str, int]
    topic_sizes: dict[str, int]
    get_found: int
    get_miss: int
    transferred: int
    fall_size: dict[str, int]


class JavaPuts(msgspec.Struct, frozen=True):
    """How many puts were acknowledged, and in which time."""

    count: int
    seconds: float


class JavaStore(JavaSide[EntryPoint]):
    """One store directory in a JVM of its own."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: Mapping[str, str] | None = None,
        *,
        topic_queue_types: Mapping[str, str] | None = None,
        clock_ms: int = MACHINE_CLOCK_MS,
        jvm_options: Sequence[str] = SHORT_LIVED,
    ) -> None:
        super().__init__("flintlog.JavaStore", jvm_options)
        self.path = Path(path)
        settings = {
            "options": dict(options or {}),
            "topicQueueTypes": dict(topic_queue_types or {}),
            "clockMs": clock_ms,
        }
        try:
            answer = self._java.load(str(self.path), msgspec.json.encode(settings).decode())
            self.opened = msgspec.json.decode(answer, type=JavaInfo)
            if not self.opened.loaded:
                raise DamagedStore("the Java store refuses to load this directory", path=self.path)
            self._java.start()
        except BaseException:
            self.kill()
            raise

    halt = JavaSide.kill

    def _shut_down(self) -> None:
        self._java.shutdown()

    def put(self, messages: Iterable[Message | Sequence[Message]], *, clock_ms: int | None = None) -> list[JavaReceipt]:
        """Put messages one after the other; a sequence goes in as one client batch.

        `clock_ms` sets the store's clock for the first; it moves on by one with each put.
        """
        return self._answered(
            lambda answers: self._java.put(self._asked(_put_lines(messages, clock_ms)), answers),
            lambda line: msgspec.json.decode(line, type=JavaReceipt),
        )

    def follow(self, address: str) -> None:
        """Let a slave (`brokerRole` SLAVE) copy the log of the master whose HA service listens at `address`."""
        self._java.follow(address)

    def figures(self) -> JavaFigures:
        """The store's counts since it was opened."""
        return msgspec.json.decode(self._java.figures(), type=JavaFigures)

    def measure_puts(self, *, producers: int, body_bytes: int, seconds: float) -> JavaPuts:
        """Let threads put into the open store, each waiting for its own message; counts acknowledged puts."""
        task = {"threads": producers, "bodyBytes": body_bytes, "seconds": seconds}
        return msgspec.json.decode(self._java.measurePuts(msgspec.json.encode(task).decode()), type=JavaPuts)

    def info(self) -> JavaInfo:
        """The store as it is now."""
        return msgspec.json.decode(self._java.info(), type=JavaInfo)

    def wait_dispatched(self) -> None:
        """Return when everything put so far can be read through its queue."""
        if not self._java.waitDispatched():
            raise FlintlogError("the Java store does not finish dispatching", path=self.path)

    def messages(self) -> list[MessageView]:
        """Every record of the log, in log order."""
        return self._answered(self._java.messages, parse_message_view)

    def queues(self) -> list[QueueView]:
        """Every queue, by topic and queue id."""
        self.wait_dispatched()
        return self._answered(self._java.queues, lambda line: msgspec.json.decode(line, type=QueueView))

    def entries(self) -> list[EntryView]:
        """Every entry of every queue, queue by queue."""
        self.wait_dispatched()
        return self._answered(self._java.entries, lambda line: msgspec.json.decode(line, type=EntryView))

    def view(self) -> StoreView:
        """Everything that the Java store holds."""
        return make_view(self.messages(), self.queues(), self.entries())

    def answers(self, questions: Sequence[Question]) -> list[Answer]:
        """Java's answers to many questions at once."""
        self.wait_dispatched()
        asked = self._asked(msgspec.json.encode(question) for question in questions)
        lines = self._answered(lambda answers: self._java.answer(asked, answers), bytes)
        return [parse_answer(question, line) for question, line in zip(questions, lines, strict=True)]

    def query(
        self,
        topic: str,
        key: str,
        begin: int = 0,
        end: int = 2**63 - 1,
        max_count: int = 32,
        index_type: str | None = None,
    ) -> list[int]:
        """Physical offsets of the messages with a key, in the order that queryMessage gives them."""
        (answer,) = self.answers([KeyQuestion(topic, key, begin, end, max_count, index_type)])
        return answer.physical_offsets if isinstance(answer, KeyAnswer) else []

    def get(self, topic: str, queue_id: int, offset: int, max_count: int = 32, filter: str | None = None) -> GetAnswer:
        """One page of a queue."""
        (answer,) = self.answers([GetQuestion(topic, queue_id, offset, max_count, filter)])
        if not isinstance(answer, GetAnswer):
            raise TypeError(answer)
        return answer

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int, boundary: str = "lower") -> int:
        """The queue offset at a time."""
        (answer,) = self.answers([TimeQuestion(topic, queue_id, timestamp_ms, boundary.upper())])
        if not isinstance(answer, TimeAnswer):
            raise TypeError(answer)
        return answer.queue_offset

    def verify_against(self, expected: StoreView) -> None:
        """Raise an AssertionError that says where Java sees something else than expected."""
        found = differences(expected, self.view())
        if found:
            raise AssertionError("the Java store sees something else:\n" + "\n".join(found))


def _put_lines(messages: Iterable[Message | Sequence[Message]], clock_ms: int | None) -> Iterable[bytes]:
    for number, message in enumerate(messages):
        line: dict[str, object] = (
            put_request(message) if isinstance(message, Message) else {"batch": [put_request(part) for part in message]}
        )
        if clock_ms is not None:
            line["clockMs"] = clock_ms + number
        yield msgspec.json.encode(line)


def put_request(message: Message) -> dict[str, object]:
    """A message of ours as a line for Java; properties in the order in which the store inserts them."""
    properties: dict[str, str] = {}
    if message.tags is not None:
        properties["TAGS"] = message.tags
    if message.keys:
        properties["KEYS"] = " ".join(message.keys)
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "body": base64.b64encode(message.body).decode(),
        "properties": {**properties, **(message.properties or {})},
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": message.born_host or DEFAULT_HOST,
        "storeHost": message.store_host or DEFAULT_HOST,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }
