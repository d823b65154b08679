"""The real RocketMQ broker over a store directory: it delivers delayed and timed messages and decides transactions.

    with JavaBroker("some-directory", {"messageDelayLevel": "1s 2s"}) as broker:
        broker.put([Message("orders", b"...", delay_level=2)])
        broker.wait_for("orders", 0, 1)

Broker and store run in a JVM of their own, on free ports, without a name server or a client: messages go in and come
out through the broker's own services. Leaving the block shuts the broker down; leaving it by an exception, or
`kill()`, kills the process, which leaves what a crash leaves. Time is the machine's: a delay takes as long as it says.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

import msgspec

from flintlog.errors import DamagedStore
from flintlog.format.config_json import parse_config_object
from flintlog.format.sys_flag import TransactionType
from flintlog.store.model.message import Message
from interop.java_process import SHORT_LIVED
from interop.java_side import JavaSide
from interop.java_store import JavaReceipt, put_request

POLL_INTERVAL_S = 0.02


class BrokerMessage(msgspec.Struct, frozen=True, rename="camel"):
    """A message as the broker would hand it to a consumer."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    properties: dict[str, str]
    flag: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    reconsume_times: int
    prepared_transaction_offset: int


class TransactionCheck(msgspec.Struct, frozen=True, rename="camel"):
    """The broker's question about an open transaction, and the half message that it asks about."""

    queue_offset: int
    physical_offset: int
    transaction_id: str | None
    message: BrokerMessage


class HalfMessage(msgspec.Struct, frozen=True):
    """A half message that was put: what a producer must say again to decide it."""

    topic: str
    producer_group: str
    transaction_id: str
    receipt: JavaReceipt


class EndAnswer(msgspec.Struct, frozen=True):
    """The broker's answer to a commit or rollback; code 0 is success."""

    code: int
    remark: str | None


class _BrokerEntryPoint(Protocol):
    """The methods of JavaBroker.java; every file argument is a path to lines of JSON."""

    def load(self, directory: str, options: str) -> bool: ...
    def start(self) -> None: ...
    def shutdown(self) -> None: ...
    def port(self) -> int: ...
    def syncFrom(self, master_address: str) -> None: ...  # noqa: N802 (Java's name)
    def createTopic(self, topic: str, queues: int) -> None: ...  # noqa: N802 (Java's name)
    def put(self, requests: str, receipts: str) -> int: ...
    def putHalf(self, requests: str, receipts: str) -> int: ...  # noqa: N802
    def endTransaction(self, request: str) -> str: ...  # noqa: N802
    def registerProducer(self, group: str) -> None: ...  # noqa: N802
    def checks(self, group: str, file: str) -> int: ...
    def messages(self, topic: str, queue_id: int, offset: int, file: str) -> int: ...
    def minOffset(self, topic: str, queue_id: int) -> int: ...  # noqa: N802
    def maxOffset(self, topic: str, queue_id: int) -> int: ...  # noqa: N802
    def consumerOffset(self, group: str, topic: str, queue_id: int) -> int: ...  # noqa: N802
    def commitConsumerOffset(self, group: str, topic: str, queue_id: int, offset: int) -> None: ...  # noqa: N802
    def delayOffsets(self) -> str: ...  # noqa: N802
    def persist(self) -> None: ...


class JavaBroker(JavaSide[_BrokerEntryPoint]):
    """One broker in a JVM of its own. `options` are names of MessageStoreConfig and BrokerConfig alike."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: Mapping[str, str] | None = None,
        *,
        jvm_options: Sequence[str] = SHORT_LIVED,
        main_class: str = "flintlog.JavaBroker",
    ) -> None:
        super().__init__(main_class, jvm_options)
        self.path = Path(path)
        try:
            if not self._java.load(str(self.path), msgspec.json.encode(dict(options or {})).decode()):
                raise DamagedStore("the Java broker refuses to load this directory", path=self.path)
            self._before_start()
            self._java.start()
        except BaseException:
            self.kill()
            raise

    def _before_start(self) -> None:
        """Change settings once the directory is loaded."""

    def _shut_down(self) -> None:
        self._java.shutdown()

    @property
    def address(self) -> str:
        """Host and port of the broker's requests."""
        return f"127.0.0.1:{self._java.port()}"

    def sync_from(self, master_address: str) -> None:
        """Take topics, groups and offsets from a master, as a slave does every ten seconds."""
        self._java.syncFrom(master_address)

    # ------------------------------------------------------------------ putting

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Make a topic known. Delivery of delayed and committed messages works without it."""
        self._java.createTopic(topic, queues)

    def put(self, messages: Iterable[Message]) -> list[JavaReceipt]:
        """Put messages one after the other; `delay_level` and `deliver_at_ms` become the properties that ask for it."""
        return self._put(self._java.put, [broker_request(message) for message in messages])

    def put_half(self, message: Message, producer_group: str, transaction_id: str) -> HalfMessage:
        """Begin a transaction: the message is stored as a half message, which is not visible."""
        asked = {"TRAN_MSG": "true", "PGROUP": producer_group, "UNIQ_KEY": transaction_id}
        (receipt,) = self._put(self._java.putHalf, [broker_request(message, asked)])
        return HalfMessage(message.topic, producer_group, transaction_id, receipt)

    def commit(self, half: HalfMessage, *, from_check: bool = False) -> EndAnswer:
        """Decide a transaction: its message becomes visible."""
        return self._end(half, TransactionType.COMMIT, from_check)

    def rollback(self, half: HalfMessage, *, from_check: bool = False) -> EndAnswer:
        """Decide a transaction: its message never becomes visible."""
        return self._end(half, TransactionType.ROLLBACK, from_check)

    def register_producer(self, group: str) -> None:
        """Let the broker ask this group about its open transactions; `checks` returns its questions."""
        self._java.registerProducer(group)

    def checks(self, group: str) -> list[TransactionCheck]:
        """The broker's questions to the group's producer since the last call."""
        return self._answered(
            lambda file: self._java.checks(group, file), lambda line: msgspec.json.decode(line, type=TransactionCheck)
        )

    # ------------------------------------------------------------------ reading

    def messages(self, topic: str, queue_id: int = 0, offset: int = 0) -> list[BrokerMessage]:
        """Everything that can be pulled from a queue, from an offset on."""
        return self._answered(
            lambda file: self._java.messages(topic, queue_id, offset, file),
            lambda line: msgspec.json.decode(line, type=BrokerMessage),
        )

    def wait_for(self, topic: str, queue_id: int, count: int, *, timeout_s: float = 20.0) -> list[BrokerMessage]:
        """The queue's messages as soon as it has `count` of them; an AssertionError when that takes too long."""
        self.wait_until(lambda: self.max_offset(topic, queue_id) >= count, f"{count} in {topic}", timeout_s=timeout_s)
        return self.messages(topic, queue_id)

    def wait_until(self, happened: Callable[[], bool], what: str, *, timeout_s: float = 20.0) -> None:
        """Wait until a condition holds; an AssertionError when that takes too long."""
        deadline = time.monotonic() + timeout_s
        while not happened():
            if time.monotonic() > deadline:
                raise AssertionError(f"the Java broker did not get there in {timeout_s} s: {what}")
            time.sleep(POLL_INTERVAL_S)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue."""
        return self._java.minOffset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset after a queue's last message."""
        return self._java.maxOffset(topic, queue_id)

    def consumer_offset(self, group: str, topic: str, queue_id: int) -> int:
        """The offset at which a group continues; -1 when it has none."""
        return self._java.consumerOffset(group, topic, queue_id)

    def commit_consumer_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the offset at which a group continues."""
        self._java.commitConsumerOffset(group, topic, queue_id, offset)

    def delay_offsets(self) -> dict[int, int]:
        """How far each delay level was delivered."""
        answer = parse_config_object(self._java.delayOffsets().encode())
        return msgspec.convert(answer, type=dict[int, int], strict=False)

    def persist(self) -> None:
        """Save consumer and delay offsets now, as the broker does every few seconds."""
        self._java.persist()

    # ------------------------------------------------------------------ the line to Java

    def _end(self, half: HalfMessage, sys_flag: int, from_check: bool) -> EndAnswer:
        request = {
            "topic": half.topic,
            "producerGroup": half.producer_group,
            "queueOffset": half.receipt.queue_offset,
            "physicalOffset": half.receipt.physical_offset,
            "transactionId": half.transaction_id,
            "sysFlag": sys_flag,
            "fromCheck": from_check,
        }
        answer = self._java.endTransaction(msgspec.json.encode(request).decode())
        return msgspec.json.decode(answer, type=EndAnswer)

    def _put(self, call: Callable[[str, str], int], requests: Iterable[dict[str, object]]) -> list[JavaReceipt]:
        asked = self._asked(map(msgspec.json.encode, requests))
        return self._answered(
            lambda answers: call(asked, answers), lambda line: msgspec.json.decode(line, type=JavaReceipt)
        )


def broker_request(message: Message, properties: Mapping[str, str] | None = None) -> dict[str, object]:
    """A message of ours as a line for the broker, with the properties that ask for a delay."""
    asked = dict(properties or {})
    if message.delay_level:
        asked["DELAY"] = str(message.delay_level)
    if message.deliver_at_ms is not None:
        asked["TIMER_DELIVER_MS"] = str(message.deliver_at_ms)
    request = put_request(message)
    request["properties"] = {**cast(dict[str, str], request["properties"]), **asked}
    return request
