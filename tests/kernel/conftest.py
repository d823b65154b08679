"""Fixtures of the kernel's tests: each test runs over the plain kernel, and over the native one if it was built."""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import msgspec
import pytest

from flintlog.kernel import reference

Duck = Any  # of either kernel, or wrong on purpose

KERNELS: list[ModuleType] = [reference]
if find_spec("flintlog.kernel.native") is not None:
    from flintlog.kernel import native

    KERNELS.append(native)

STORE_HOST = "192.168.0.9:10911"
LEVELS_MS = (1000, 5000, 10000)


class Note(msgspec.Struct):
    """A message with the fields that an encoder reads, in another order than the store's own."""

    body: Any
    topic: Duck
    prepared_transaction_offset: Any = 0
    tags: Any = None
    keys: Any = ()
    properties: Any = None
    queue_id: Any = 0
    flag: Any = 0
    sys_flag: Any = 0
    born_timestamp: Any = None
    born_host: Any = None
    store_host: Any = None
    reconsume_times: Any = 0


Write = Callable[..., bytes]


@pytest.fixture(params=KERNELS, ids=lambda module: module.name)
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


@pytest.fixture
def twin() -> ModuleType:
    """The native kernel if it was built, to be compared with the plain one."""
    return KERNELS[-1]


@pytest.fixture
def note() -> type[Note]:
    return Note


@pytest.fixture
def write_log() -> Write:
    """`write_log([note, …], base=0)`: the bytes of a log that holds these messages, by the plain kernel."""

    def write(notes: list[Note], *, base: int = 0, raw: dict[int, bytes] | None = None, **options: Duck) -> bytes:
        encoder = reference.Encoder(Note, store_host=STORE_HOST, max_message_size=1 << 22, **options)
        tail = reference.Tail(bytearray(1 << 20), base)
        offsets: dict[tuple[str, int], int] = {}
        for index, one in enumerate(notes):
            queue_offset = offsets.get((one.topic, one.queue_id), 0)
            if one.sys_flag & 0xC in (0, 8):
                offsets[one.topic, one.queue_id] = queue_offset + 1
            properties = None if raw is None else raw.get(index)
            assert encoder.append(tail, one, queue_offset, 1_700_000_000_000 + 700 * index, properties)
        assert isinstance(tail.buffer, bytearray)
        return bytes(tail.buffer[: tail.position])

    return write


TOPICS = ("TopicA", "b", "SCHEDULE_TOPIC_XXXX", "日志-主题", "t" * 127, "t" * 128, "é" * 120, "%RETRY%group")
TEXTS = ("", "a", "TagA", "k1 k2", " x  y ", "ключ", "😀 smile", "polygenelubricants", "0A01020300002A9F" * 2, "v" * 70)
KEYS = tuple(text for text in TEXTS if " " not in text)
NAMES = ("UNIQ_KEY", "WAIT", "DELAY", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "region", "имя", "😀", "x")
HOSTS = (None, "10.1.2.3:4321", "[::1]:1", "[2001:db8::5]:65535", "[fe80::1:0:0:1]:0", "255.255.255.255:65535")
LEVELS = ("1", "3", "99", "-1", "+2", "0", "x", "٣", "2147483648", "0" * 70)


@pytest.fixture
def random_note() -> Callable[[random.Random], Note]:
    def make(rng: random.Random) -> Note:
        properties = {name: rng.choice(TEXTS) for name in rng.sample(NAMES, rng.randrange(len(NAMES)))}
        if "DELAY" in properties:
            properties["DELAY"] = rng.choice(LEVELS)
        return Note(
            rng.randbytes(rng.choice((0, 1, 15, 16, 17, 63, 64, 100, 300))),
            rng.choice(TOPICS),
            tags=rng.choice((None, *TEXTS)),
            keys=[rng.choice(KEYS) for _ in range(rng.randrange(4))],
            properties=rng.choice((None, properties)),
            queue_id=rng.randrange(3),
            flag=rng.randrange(-(1 << 31), 1 << 31),
            sys_flag=rng.choice((0, 0, 0, 0x4, 0x8, 0xC, 0x80, 0x1)),
            born_timestamp=rng.choice((None, 1_700_000_000_123)),
            born_host=rng.choice(HOSTS),
            store_host=rng.choice(HOSTS),
            reconsume_times=rng.randrange(20),
            prepared_transaction_offset=rng.choice((0, 1 << 40)),
        )

    return make


@pytest.fixture
def random_log(random_note: Callable[[random.Random], Note], write_log: Write) -> Callable[[random.Random], bytes]:
    """Good records, some with properties that are no good text."""

    def make(rng: random.Random, base: int = 0) -> bytes:
        notes = [random_note(rng) for _ in range(rng.randrange(1, 25))]
        pieces = (
            b"TAGS\x01a",
            b"\x02",
            b"\x01",
            b"KEYS\x01",
            b" k",
            b"\xff",
            b"\xed\xa0\x80",
            b"\xe6\x97",
            b"n\x01v\x02",
            b"\xf4\x8f",
        )
        raw = {
            index: b"".join(rng.choice(pieces) for _ in range(rng.randrange(12)))
            for index in range(len(notes))
            if rng.random() < 0.3
        }
        return write_log(notes, base=base, raw=raw)

    return make


HOSTILE = (-1, 0, 1, 7, 90, 91, 127, 128, 255, 0x7FFF, 0x8000, 0x7FFFFFFF, -0x80000000, 0x80, 0xFF)


@pytest.fixture
def damaged() -> Callable[[random.Random, bytes], bytes]:
    """The log with a few bytes changed: bits, lengths, its end, or a part of itself in the wrong place."""

    def damage(rng: random.Random, log: bytes) -> bytes:
        data = bytearray(log)
        starts, position = [], 0
        while position < len(log):
            starts.append(position)
            position += int.from_bytes(log[position : position + 4], "big")
        for _ in range(rng.randrange(1, 4)):
            start = rng.choice(starts)
            kind = rng.randrange(6)
            if kind == 0:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            elif kind == 1:
                at = start + rng.choice((0, 4, 8, 28, 36, 84, 96, 108))
                data[at : at + 4] = (rng.choice(HOSTILE) & 0xFFFFFFFF).to_bytes(4, "big")
            elif kind == 2:
                at = rng.randrange(len(data))
                data[at : at + 2] = (rng.choice(HOSTILE) & 0xFFFF).to_bytes(2, "big")
            elif kind == 3:
                at = rng.randrange(len(data))
                data[at : at + 40] = bytes(40)
            elif kind == 4:
                at = rng.choice(starts)
                data[at : at + 100] = data[start : start + 100]
            else:
                data[start : start + 8] = bytes.fromhex("00000100cbd43194")
        del data[len(log) :]
        return bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data)

    return damage
