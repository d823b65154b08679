"""`Message`, which a producer puts, and `Receipt`, which it gets back. Readers get a `StoredMessage`.

Both are small structs, because every put makes one of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, overload

import msgspec

from flintlog.errors import PutFailed
from flintlog.format.message_id import encode_message_id, parse_host


class PutStatus(IntEnum):
    """RocketMQ's PutMessageStatus, with its ordinals."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3
    SERVICE_NOT_AVAILABLE = 4
    CREATE_MAPPED_FILE_FAILED = 5
    MESSAGE_ILLEGAL = 6
    PROPERTIES_SIZE_EXCEEDED = 7
    OS_PAGE_CACHE_BUSY = 8
    UNKNOWN_ERROR = 9
    IN_SYNC_REPLICAS_NOT_ENOUGH = 10
    PUT_TO_REMOTE_BROKER_FAIL = 11
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = 12
    WHEEL_TIMER_FLOW_CONTROL = 13
    WHEEL_TIMER_MSG_ILLEGAL = 14
    WHEEL_TIMER_NOT_ENABLE = 15

    def __str__(self) -> str:
        return self.name


class _Addressed(msgspec.Struct, gc=False):
    """The two positional arguments of a message."""

    topic: str
    body: bytes | bytearray | memoryview


class Message(_Addressed, kw_only=True, gc=False):
    """One message to be stored. With `queue_id=None` the store chooses the queue when it is put, each in turn.

    >>> Message("orders", b"42 pieces", tags="paid", keys=["o-17"], queue_id=3).topic
    'orders'
    """

    tags: str | None = None
    keys: Sequence[str] = ()
    queue_id: int = 0
    properties: Mapping[str, str] | None = None
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: str | None = None
    store_host: str | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    delay_level: int = 0
    deliver_at_ms: int | None = None
    compress: str | None = None

    if TYPE_CHECKING:  # `queue_id` takes None too, and is a number in every message that is being stored

        def __init__(
            self,
            topic: str,
            body: bytes | bytearray | memoryview,
            *,
            tags: str | None = None,
            keys: Sequence[str] = (),
            queue_id: int | None = 0,
            properties: Mapping[str, str] | None = None,
            flag: int = 0,
            sys_flag: int = 0,
            born_timestamp: int | None = None,
            born_host: str | None = None,
            store_host: str | None = None,
            reconsume_times: int = 0,
            prepared_transaction_offset: int = 0,
            delay_level: int = 0,
            deliver_at_ms: int | None = None,
            compress: str | None = None,
        ) -> None: ...


_MAYBE = "it may be stored nevertheless; put again, it may be stored twice"
_ADVICE = {
    PutStatus.SERVICE_NOT_AVAILABLE: "a slave takes no puts; a ledger's member does while it leads its group, "
    "which it joins as a node with dledger_group and dledger_peers",
    PutStatus.FLUSH_DISK_TIMEOUT: _MAYBE,
    PutStatus.FLUSH_SLAVE_TIMEOUT: _MAYBE,
    PutStatus.SLAVE_NOT_AVAILABLE: _MAYBE,
    PutStatus.UNKNOWN_ERROR: _MAYBE,
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: "a ledger's group may store it nevertheless; a master has not stored it",
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: "its time does not parse, is over, or is beyond timer_max_delay_sec",
    PutStatus.WHEEL_TIMER_NOT_ENABLE: "timer_wheel_enable is off",
    PutStatus.WHEEL_TIMER_FLOW_CONTROL: "too many messages wait for that moment: try a neighbouring one",
}


class Receipt(msgspec.Struct, gc=False, frozen=True):
    """The result of one put. True only for PUT_OK."""

    status: PutStatus
    physical_offset: int = -1
    queue_offset: int = -1
    size: int = 0
    store_timestamp: int = 0
    store_host: str = ""

    @property
    def message_id(self) -> str:
        """RocketMQ's offset message id: store host and physical offset in upper-case hex."""
        if self.physical_offset < 0:
            return ""
        return encode_message_id(parse_host(self.store_host), self.physical_offset)

    @property
    def end_offset(self) -> int:
        """The physical offset just after the record, which a flush must reach."""
        return self.physical_offset + self.size

    def with_status(self, status: PutStatus) -> Receipt:
        return msgspec.structs.replace(self, status=status)

    def check(self) -> Receipt:
        """Return the receipt itself, or raise PutFailed when the put was not acknowledged."""
        if self.status is not PutStatus.PUT_OK:
            raise self.failure()
        return self

    def failure(self) -> PutFailed:
        """The error of a put that was not acknowledged."""
        what = f"the put was not acknowledged: {self.status.name}"
        return PutFailed(what, advice=_ADVICE.get(self.status), receipt=self)

    def __bool__(self) -> bool:
        return self.status is PutStatus.PUT_OK


class Receipts(Sequence[Receipt]):
    """The receipts of one batch, which is one write. Each is made when it is accessed."""

    __slots__ = ("_first_queue_offset", "_offsets", "_status", "_store_host", "_store_timestamp")

    def __init__(
        self,
        status: PutStatus,
        offsets: Sequence[int],
        first_queue_offset: int,
        store_timestamp: int,
        store_host: str,
    ) -> None:
        self._status = status
        self._offsets = offsets
        self._first_queue_offset = first_queue_offset
        self._store_timestamp = store_timestamp
        self._store_host = store_host

    @property
    def status(self) -> PutStatus:
        """The status that all receipts of the batch share."""
        return self._status

    @property
    def first_offset(self) -> int:
        """The physical offset of the first record."""
        return self._offsets[0]

    @property
    def end_offset(self) -> int:
        return self._offsets[-1]

    def with_status(self, status: PutStatus) -> Receipts:
        return Receipts(status, self._offsets, self._first_queue_offset, self._store_timestamp, self._store_host)

    def check(self) -> Receipts:
        """Return the receipts themselves, or raise PutFailed when the batch was not acknowledged."""
        if self._status is not PutStatus.PUT_OK:
            raise self.failure()
        return self

    def failure(self) -> PutFailed:
        """The error of a batch that was not acknowledged."""
        what = f"the batch was not acknowledged: {self._status.name}"
        return PutFailed(what, advice=_ADVICE.get(self._status), receipt=self[0], receipts=self)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...
    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(index)
        start = self._offsets[place]
        if start < 0:
            return Receipt(self._status)
        return Receipt(
            self._status,
            start,
            self._first_queue_offset + place,
            self._size_of(place),
            self._store_timestamp,
            self._store_host,
        )

    def _size_of(self, place: int) -> int:
        return self._offsets[place + 1] - self._offsets[place]

    def __repr__(self) -> str:
        return f"Receipts({self._status.name}, {len(self)} messages)"


def refused(status: PutStatus, count: int) -> Receipts:
    """The receipts of a batch of which nothing was stored."""
    return Receipts(status, [-1] * (count + 1), -1, 0, "")
