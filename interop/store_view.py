"""The visible contents of a store as plain values, to compare ours with the real Java store.

A `StoreView` holds every record of the log and every entry of every queue. `view_of` makes one of a store of ours
through its public methods; `JavaStore.view` makes one of RocketMQ's. `differences` says in words where two views
differ. The field names in JSON are RocketMQ's, so the lines of a golden manifest decode into the same values.

A queue that is still empty is left out: whether it is there depends on who asked for it before.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from flintlog.store.model.stored_message import StoredMessage
    from flintlog.store.store import Store

PAGE_COUNT = 32
INNER_BATCH_FLAG = 0x80


class MessageView(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One record, every field of it."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    msg_id: str
    tags: str | None
    tags_code: int
    keys: str | None
    uniq_key: str | None
    sys_flag: int
    flag: int
    born_timestamp: int
    store_timestamp: int
    born_host: str
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    properties: dict[str, str]
    body_sha256: str
    magic_code: int
    record_sha256: str
    body_crc: int = msgspec.field(name="bodyCRC32")
    dispatch_ok: bool = True


class QueueView(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One queue: its type, and the offsets it serves."""

    topic: str
    queue_id: int
    min: int
    max: int
    cq_type: str


class EntryView(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One entry of a queue; a batch entry stands for `batch_num` messages."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    batch_num: int


class StoreView(msgspec.Struct, frozen=True):
    """Everything: the records by physical offset, the queues and their entries by topic and queue id."""

    messages: Mapping[int, MessageView]
    queues: Mapping[tuple[str, int], QueueView]
    entries: Mapping[tuple[str, int], list[EntryView]]


def make_view(messages: Iterable[MessageView], queues: Iterable[QueueView], entries: Iterable[EntryView]) -> StoreView:
    """Put the parts together; empty queues are left out."""
    by_queue: dict[tuple[str, int], list[EntryView]] = {}
    for entry in entries:
        by_queue.setdefault((entry.topic, entry.queue_id), []).append(entry)
    known = {(queue.topic, queue.queue_id): queue for queue in queues if queue.max > queue.min}
    return StoreView({message.physical_offset: message for message in messages}, known, by_queue)


def parse_message_view(line: bytes | str) -> MessageView:
    """A line of JSON as Java writes it; hosts take the form that `StoredMessage` has."""
    view = msgspec.json.decode(line, type=MessageView)
    hosts = {"born_host": _host(view.born_host), "store_host": _host(view.store_host)}
    return msgspec.structs.replace(view, **hosts)


def _host(java_text: str) -> str:
    address, _, port = java_text.rpartition(":")
    ip = ipaddress.ip_address(address.strip("[]"))
    return f"{ip}:{port}" if ip.version == 4 else f"[{ip}]:{port}"


def view_of(store: Store) -> StoreView:
    """Everything that a store of ours shows through its public methods."""
    queues = [
        QueueView(queue.topic, queue.queue_id, queue.min_offset, queue.max_offset, str(queue.type))
        for queue in store.queues()
    ]
    entries = [entry for queue in queues for entry in _entries_of(store, queue)]
    return make_view(messages_of(store), queues, entries)


def messages_of(store: Store) -> Iterator[MessageView]:
    """Every record of the log in log order, also those that are in no queue."""
    for batch in store.scan(include_body=False):
        for physical_offset in batch.column("physical_offset").to_pylist():
            message = store.message_at(physical_offset)
            if message is None:
                raise AssertionError(f"scan shows a record at {physical_offset}, message_at does not")
            yield message_view(message)


def message_view(message: StoredMessage) -> MessageView:
    """One message of ours in the common form."""
    return MessageView(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        size=message.size,
        msg_id=message.message_id,
        tags=message.tags,
        tags_code=message.tags_code,
        keys=message.properties.get("KEYS"),
        uniq_key=message.uniq_key,
        sys_flag=message.sys_flag,
        flag=message.flag,
        born_timestamp=message.born_timestamp,
        store_timestamp=message.store_timestamp,
        born_host=message.born_host,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        properties=dict(message.properties),
        body_sha256=hashlib.sha256(message.body).hexdigest(),
        magic_code=message.magic,
        body_crc=message.body_crc,
        record_sha256=hashlib.sha256(message.record).hexdigest(),
    )


def _entries_of(store: Store, queue: QueueView) -> Iterator[EntryView]:
    offset = queue.min
    while offset < queue.max:
        page = store.get(queue.topic, queue_id=queue.queue_id, offset=offset, max_count=PAGE_COUNT)
        for message in page.messages:
            batch_num = int(message.properties["INNER_NUM"]) if message.sys_flag & INNER_BATCH_FLAG else 1
            place = (queue.topic, queue.queue_id, offset, message.physical_offset, message.size)
            yield EntryView(*place, message.tags_code, batch_num)
            offset += batch_num
        if page.next_offset != offset or not page.messages:
            raise AssertionError(
                f"{queue}: a page ends at {page.next_offset}, its messages at {offset} ({page.status})"
            )


def differences(left: StoreView, right: StoreView, *, limit: int = 20) -> list[str]:
    """Where two views differ, at most `limit` sentences."""
    found: list[str] = []
    for sentence in _all_differences(left, right):
        found.append(sentence)
        if len(found) == limit:
            break
    return found


def _all_differences(left: StoreView, right: StoreView) -> Iterator[str]:
    yield from _keys_apart("message at", left.messages.keys(), right.messages.keys())
    for place, message in left.messages.items():
        if place in right.messages:
            yield from fields_apart(f"message at {place}", message, right.messages[place])
    yield from _keys_apart("queue", left.queues.keys(), right.queues.keys())
    for name, queue in left.queues.items():
        if name in right.queues:
            yield from fields_apart(f"queue {name}", queue, right.queues[name])
    yield from _keys_apart("entries of queue", left.entries.keys(), right.entries.keys())
    for name, entries in left.entries.items():
        others = right.entries.get(name, [])
        if len(entries) != len(others):
            yield f"queue {name}: {len(entries)} entries, {len(others)} on the right"
        for entry, other in zip(entries, others, strict=False):
            yield from fields_apart(f"queue {name} entry {entry.queue_offset}", entry, other)


def _keys_apart(what: str, left: Set[object], right: Set[object]) -> Iterator[str]:
    for key in left - right:
        yield f"{what} {key}: only on the left"
    for key in right - left:
        yield f"{what} {key}: only on the right"


def fields_apart(what: str, left: msgspec.Struct, right: msgspec.Struct) -> Iterator[str]:
    """One sentence for each field in which two values of one type differ."""
    if left == right:
        return
    for field in left.__struct_fields__:
        mine, other = getattr(left, field), getattr(right, field)
        if mine != other:
            yield f"{what}: {field} is {mine!r}, on the right {other!r}"
