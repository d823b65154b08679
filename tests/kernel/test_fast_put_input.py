"""A message with missing or wrong fields never passes the fast path: it is refused, or left to the long way."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import ModuleType

import pytest

from flintlog.errors import InvalidMessage
from flintlog.store.model.message import Message, PutStatus, Receipt, Receipts

FIELDS = ("topic", "body", "queue_id", "sys_flag", "delay_level", "deliver_at_ms", "compress", "keys")


class Desk:
    def __init__(self, kernel: ModuleType) -> None:
        encoder = kernel.Encoder(Message, store_host="127.0.0.1:10911", max_message_size=1000)
        self.fast_dispatch = kernel.FastPut(
            encoder,
            kernel.FastDispatch(),
            lock=threading.Lock(),
            receipt_type=Receipt,
            batch_type=Receipts,
            ok=PutStatus.PUT_OK,
            now_ms=lambda: 1,
        )
        self.fast_dispatch.tail = self.tail = kernel.Tail(bytearray(4096), 0)
        self.fast_dispatch.ready_until = 4096

    def put(self, message: Message) -> Receipt | None:
        try:
            receipt: Receipt | None = self.fast_dispatch.put(message)
        except (InvalidMessage, AttributeError, TypeError):
            return None
        return receipt


@pytest.mark.parametrize("name", FIELDS)
def test_a_message_without_a_field(kernel: ModuleType, name: str) -> None:
    desk, message = Desk(kernel), Message("t", b"x")
    delattr(message, name)
    assert desk.put(message) is None
    assert bytes(desk.tail.buffer) == bytes(4096)
    assert desk.put(Message("t", b"x"))


@pytest.mark.parametrize(("name", "value"), [("topic", ["t"]), ("queue_id", [0]), ("topic", None), ("queue_id", 0.0)])
def test_a_queue_that_cannot_be_named(kernel: ModuleType, name: str, value: object) -> None:
    desk, message = Desk(kernel), Message("t", b"x")
    setattr(message, name, value)
    assert desk.put(message) is None
    assert bytes(desk.tail.buffer) == bytes(4096)
    assert desk.put(Message("t", b"x"))


class Unequal(str):
    """A name that has another's hash and refuses to be compared."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash("INNER_NUM")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")


def test_a_property_name_that_cannot_be_compared_is_left_to_the_long_way(kernel: ModuleType) -> None:
    desk, message = Desk(kernel), Message("t", b"x", properties={Unequal("name"): "v"})
    assert desk.fast_dispatch.put(message) is None
    assert desk.fast_dispatch.put_batch([Message("t", b"x"), message]) is None
    assert bytes(desk.tail.buffer) == bytes(4096)
    assert desk.put(Message("t", b"x"))


def test_a_table_of_offsets_whose_name_cannot_be_compared(kernel: ModuleType) -> None:
    desk = Desk(kernel)

    class Topic(Unequal):
        __slots__ = ()

        def __hash__(self) -> int:
            return hash("t")

        __eq__ = Unequal.__eq__

    desk.fast_dispatch.next_offsets[Topic("t"), 0] = 1
    with suppress(RuntimeError):
        assert desk.fast_dispatch.put(Message("t", b"x")) is None
    assert bytes(desk.tail.buffer) == bytes(4096)
    assert desk.put(Message("u", b"x"))
