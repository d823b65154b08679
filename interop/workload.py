"""Messages of every kind that a store can hold, made from a seed: the same seed gives the same messages.

Among them are V1 and V2 records, IPv4 and IPv6 hosts, client batches, inner batches for a topic with a batch queue,
multi-dispatch to light queues (LMQ), compressed bodies, all transaction types, unicode in every text, and empty
bodies. A store that takes them needs `OPTIONS` (RocketMQ's names) and `QUEUE_TYPES`.

>>> first, second = (list(workload(50, seed=7)) for _ in range(2))
>>> first == second
True
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence

from flintlog.format.sys_flag import (
    COMPRESSED,
    COMPRESSION_SHIFT,
    INNER_BATCH,
    NEED_UNWRAP,
    CompressionType,
    TransactionType,
)
from flintlog.store.model.message import Message

BATCH_QUEUE_TOPIC = "inner-batches"
QUEUE_TYPES = {BATCH_QUEUE_TOPIC: "BatchCQ"}

# Small files, so that a few thousand messages reach over many of each kind.
OPTIONS = {
    "mappedFileSizeCommitLog": str(1024 * 1024),
    "mappedFileSizeConsumeQueue": str(500 * 20),
    "mapperFileSizeBatchConsumeQueue": str(100 * 46),
    "maxHashSlotNum": "500",
    "maxIndexNum": "4000",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}

_TOPICS = ("orders", "TopicTest", "%RETRY%readers", "topic_Grün-消息", "T" * 127)
_LONG_TOPICS = ("U" * 128, "V" * 200, "W" * 255)
_TAGS = (None, "TagA", "TagB", "TagC", "тег", "polygenelubricants")
_WORDS = ("Grün", "消息", "queue", "offset", "🚀", "Ω", "log", "テスト")
_BORN_V6 = "[2001:db8:1:2:3:4:5:6]:60001"
_STORE_V6 = "[fe80::1234:5678:9abc:def0]:10911"
_BORN_MS = 1_699_999_999_000

Put = Message | Sequence[Message]


def workload(count: int, *, seed: int) -> Iterator[Put]:
    """Puts with `count` messages in all; a sequence is to be put as one batch."""
    chance = random.Random(seed)
    made = 0
    while made < count:
        (kind,) = chance.choices(_KINDS, _WEIGHTS)
        put = kind(chance, made)
        if not isinstance(put, Message):
            put = put[: count - made]
        made += 1 if isinstance(put, Message) else len(put)
        yield put


def _plain(chance: random.Random, number: int) -> Message:
    topic = chance.choice(_TOPICS)
    return Message(
        topic,
        _body(chance),
        tags=chance.choice(_TAGS),
        keys=[_key(chance) for _ in range(chance.randrange(4))],
        queue_id=chance.randrange(4),
        properties=_properties(chance, number),
        flag=chance.randrange(-(2**31), 2**31),
        born_timestamp=_BORN_MS + chance.randrange(100_000),
        born_host=f"192.168.{chance.randrange(256)}.{chance.randrange(256)}:{chance.randrange(1024, 65536)}",
        reconsume_times=chance.randrange(16) if chance.random() < 0.2 else 0,
    )


def _bare(chance: random.Random, number: int) -> Message:
    return Message("bare", b"" if number % 2 else _body(chance), born_timestamp=_BORN_MS, queue_id=number % 2)


def _version_2(chance: random.Random, number: int) -> Message:
    message = _plain(chance, number)
    message.topic = chance.choice(_LONG_TOPICS)
    message.queue_id %= 2
    return message


def _internet_6(chance: random.Random, number: int) -> Message:
    message = _plain(chance, number)
    born_v6, store_v6 = chance.choice(((True, True), (True, False), (False, True)))
    message.born_host = _BORN_V6 if born_v6 else message.born_host
    message.store_host = _STORE_V6 if store_v6 else None
    return message


def _compressed(chance: random.Random, number: int) -> Message:
    message = _plain(chance, number)
    message.body = zlib.compress(_text(chance, chance.randrange(50, 400)).encode())
    message.sys_flag = COMPRESSED | chance.choice((0, CompressionType.ZLIB << COMPRESSION_SHIFT))
    return message


def _transaction(chance: random.Random, number: int) -> Message:
    message = _plain(chance, number)
    message.topic = "transactions"
    message.sys_flag = int(chance.choice(tuple(TransactionType)))
    message.prepared_transaction_offset = chance.randrange(2**40)
    return message


def _light_queues(chance: random.Random, number: int) -> Message:
    message = _plain(chance, number)
    names = sorted({f"%LMQ%device-{chance.randrange(6)}" for _ in range(chance.randrange(1, 5))})
    message.topic = "light"
    message.properties = {**(message.properties or {}), "INNER_MULTI_DISPATCH": ",".join(names)}
    return message


def _inner_batch(chance: random.Random, number: int) -> Message:
    message = _plain(chance, number)
    message.topic, message.queue_id = BATCH_QUEUE_TOPIC, number % 2
    if chance.random() < 0.2:
        return message
    bodies = [chance.randbytes(chance.randrange(100)) for _ in range(chance.randrange(1, 9))]
    message.body = b"".join(_client_message(body) for body in bodies)
    message.sys_flag = NEED_UNWRAP | INNER_BATCH
    message.properties = {**(message.properties or {}), "INNER_NUM": str(len(bodies))}
    return message


def _client_message(body: bytes) -> bytes:
    """One message of a client batch: size, magic, CRC, flag, body, properties; the client leaves magic and CRC 0."""
    properties = b"TAGS\x01TagB\x02"
    head = struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, 0, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def _batch(chance: random.Random, number: int) -> list[Message]:
    first = chance.choice((_plain, _plain, _version_2, _internet_6))(chance, number)
    first.reconsume_times = 0
    parts = [_plain(chance, number + place) for place in range(1, chance.randrange(1, 12))]
    for part in parts:
        part.topic, part.queue_id, part.reconsume_times = first.topic, first.queue_id, 0
        part.born_timestamp, part.born_host, part.store_host = first.born_timestamp, first.born_host, first.store_host
    return [first, *parts]


def _body(chance: random.Random) -> bytes:
    draw = chance.random()
    if draw < 0.05:
        return b""
    if draw < 0.5:
        return _text(chance, chance.randrange(1, 60)).encode()
    return chance.randbytes(chance.randrange(1, 8000 if draw > 0.98 else 400))


def _text(chance: random.Random, word_count: int) -> str:
    return " ".join(chance.choices(_WORDS, k=word_count))


def _key(chance: random.Random) -> str:
    return f"ключ{chance.randrange(50)}" if chance.random() < 0.3 else f"key-{chance.randrange(500)}"


def _properties(chance: random.Random, number: int) -> dict[str, str]:
    properties: dict[str, str] = {}
    if chance.random() < 0.75:
        properties["UNIQ_KEY"] = f"0A01020300002A9F{number:016X}"
    if chance.random() < 0.3:
        properties[f"property-{chance.randrange(40)}"] = f"value {chance.randrange(100)}"
    if chance.random() < 0.2:
        properties[f"юникод_{chance.randrange(3)}"] = _text(chance, 5)
    if chance.random() < 0.02:
        properties.update({f"many-{place}": "x" * place for place in range(20)})
    return properties


_KINDS: tuple[Callable[[random.Random, int], Put], ...] = (
    _plain,
    _bare,
    _version_2,
    _internet_6,
    _compressed,
    _transaction,
    _light_queues,
    _inner_batch,
    _batch,
)
_WEIGHTS = (30, 2, 5, 5, 5, 5, 8, 8, 5)
