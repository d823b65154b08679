from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.small_store import SMALL, unchanged

from flintlog import InvalidMessage, Message, PutStatus, Receipt, Store, StoreConfig, encoded_batch, open_store
from flintlog.format.client_batch import ClientMessage, encode_client_batch
from flintlog.testing import FakeClock

Put = Callable[[Store, list[Message]], object]

ONE = encode_client_batch([ClientMessage(b"x")])


def batch_of(number: int, count: int = 5) -> list[Message]:
    return [
        Message(
            "orders",
            b"m%d-%d" % (number, place) + bytes(2000),
            tags="t",
            keys=[f"k{number}-{place}"],
            queue_id=number % 3,
            flag=place,
            born_timestamp=7,
        )
        for place in range(count)
    ]


def written(directory: Path, config: StoreConfig, put: Put) -> dict[str, bytes]:
    """The files of a store that took twenty batches; its segments are small, so it rolls between some of them."""
    with open_store(directory, config, clock=FakeClock()) as store:
        for number in range(20):
            put(store, batch_of(number))
        store.wait_dispatched()
    files = [path for folder in ("commitlog", "consumequeue") for path in (directory / folder).rglob("*")]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files if path.is_file()}


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("append_crc", [False, True])
def test_an_encoded_batch_is_stored_as_its_messages_are(tmp_path: Path, flush: str, append_crc: bool) -> None:
    config = SMALL.with_changes(flush=flush, enabled_append_prop_crc=append_crc, max_message_size=16384)
    one_by_one = written(tmp_path / "a", config, lambda store, batch: store.put_batch(batch).check())
    encoded = written(tmp_path / "b", config, lambda store, batch: store.put_encoded(encoded_batch(batch)).check())
    assert sum("commitlog" in name for name in one_by_one) > 1
    assert encoded == one_by_one


def test_receipts_name_each_message(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        messages = [Message("orders", b"%d" % place) for place in range(5)]
        receipts = store.put_encoded(encoded_batch(messages)).check()
        assert [receipt.queue_offset for receipt in receipts] == [0, 1, 2, 3, 4]
        got = [store.message_at(receipt.physical_offset) for receipt in receipts]
        assert [message and message.body for message in got] == [b"0", b"1", b"2", b"3", b"4"]


def test_properties_are_taken_as_the_client_ordered_them(tmp_path: Path) -> None:
    text = b"z\x011\x02TAGS\x01paid\x02a\x012\x02"
    with open_store(tmp_path, SMALL) as store:
        receipt = store.put_encoded(Message("orders", encode_client_batch([ClientMessage(b"x", text)]))).check()[0]
        message = store.message_at(receipt.physical_offset)
        assert message is not None
        assert (message.tags, list(message.properties)) == ("paid", ["z", "TAGS", "a"])


@pytest.mark.parametrize(
    "bad",
    [
        Message("orders", b""),
        Message("orders", b"no batch at all, but some text"),
        Message("orders", ONE[:-1]),
        Message("orders", ONE, tags="outside"),
        Message("orders", ONE, keys=["outside"]),
        Message("orders", ONE, properties={"a": "b"}),
        Message("orders", ONE, delay_level=3),
        Message("orders", ONE, compress="zlib"),
        Message("orders", ONE, sys_flag=0x80),
        Message("orders", ONE, sys_flag=4),
        Message("orders", ONE, prepared_transaction_offset=1),
        Message("a/b", ONE),
        Message("orders", encode_client_batch([ClientMessage(b"x" * 100)] * 100)),
        "text",
        [Message("orders", b"x")],
    ],
    ids=lambda bad: repr(bad)[:60],
)
def test_what_is_no_encoded_batch_is_refused_and_leaves_nothing(tmp_path: Path, bad: Message) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put(Message("orders", b"before")).check()
        store.wait_dispatched()
        with unchanged(store), pytest.raises(InvalidMessage):
            store.put_encoded(bad)
        assert store.put(Message("orders", b"after")).check().queue_offset == 1


def test_a_hook_sees_the_batch_and_may_refuse_it(tmp_path: Path) -> None:
    seen: list[Message] = []

    def hook(message: Message) -> Receipt | None:
        seen.append(message)
        return Receipt(PutStatus.MESSAGE_ILLEGAL) if message.queue_id == 2 else None

    with open_store(tmp_path, SMALL.with_changes(max_message_size=16384)) as store:
        store.add_put_hook(hook)
        assert store.put_encoded(encoded_batch(batch_of(1))).status is PutStatus.PUT_OK
        refused = store.put_encoded(encoded_batch(batch_of(2)), check=False)
        assert (refused.status, len(refused)) == (PutStatus.MESSAGE_ILLEGAL, 5)
    assert [message.queue_id for message in seen] == [1, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "other"},
        {"queue_id": 7},
        {"delay_level": 1},
        {"delay_level": None},
        {"compress": "zlib"},
        *({"body": body} for body in (5, None, "text", 1.5, [1, 2], True)),
    ],
)
def test_messages_that_cannot_be_in_one_batch_are_not_encoded(change: dict[str, object]) -> None:
    fields: dict[str, object] = {"topic": "orders", "body": b"x"} | change
    with pytest.raises(InvalidMessage):
        encoded_batch([Message("orders", b"x"), Message(**fields)])  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage):
        encoded_batch([])


@pytest.mark.parametrize("append_crc", [False, True])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_properties_that_end_in_a_zero_are_refused(tmp_path: Path, place: int, append_crc: bool) -> None:
    """After a kill such a record looks like a torn one, and would be cut off the log."""
    inner = [ClientMessage(b"x", b"KEYS\x01k\x02")] * 3
    inner[place] = ClientMessage(b"x", b"KEYS\x01k\x02a\x01b\0")
    with open_store(tmp_path, SMALL.with_changes(enabled_append_prop_crc=append_crc)) as store:
        with pytest.raises(InvalidMessage, match="zero byte"):
            store.put_encoded(Message("orders", encode_client_batch(inner)))
        with pytest.raises(InvalidMessage, match="zero byte"):  # on the long way
            store.put_encoded(Message("orders", encode_client_batch(inner), properties={}))
        inner[place] = ClientMessage(b"x", b"KEYS\x01k\x02a\x01b\0\x02")
        assert store.put_encoded(Message("orders", encode_client_batch(inner))).check()[0].queue_offset == 0


@pytest.mark.parametrize("values", [{"a": "b\0"}, {"a": "\0"}], ids=["last", "only"])
def test_values_that_end_in_a_zero_survive_a_kill(tmp_path: Path, values: dict[str, str]) -> None:
    """A separator follows them in the record."""
    with open_store(tmp_path / "store", SMALL) as store:
        store.put(Message("orders", b"one", properties=values)).check()
        store.put_batch([Message("orders", b"two", properties=values)] * 2).check()
        store.put_encoded(encoded_batch([Message("orders", b"three", tags="t\0")])).check()
        killed = shutil.copytree(tmp_path / "store", tmp_path / "killed")
    with open_store(killed, SMALL) as store:
        assert store.max_offset("orders", 0) == 4
        assert not list(store.recovery)
