"""Both kernels see the same, byte for byte, in good logs, in damaged ones and in noise."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flintlog.errors import InvalidMessage
from flintlog.format.client_batch import ClientMessage, encode_client_batch
from flintlog.format.index_file import INDEX_ENTRY
from flintlog.format.queue_entry import QUEUE_ENTRY
from flintlog.kernel import reference
from flintlog.kernel.types import DispatchStop

Duck = Any  # of either kernel, or wrong on purpose

SEEDS = range(60)
LEVELS_MS = (1000, 5000, 10000)
BASE = 1 << 33

Make = Callable[..., Any]

quiet = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])


def seen_by_scan(kernel: ModuleType, data: bytes, **options: Duck) -> tuple[Any, ...]:
    found = kernel.scan(data, 0, len(data), BASE, delay_levels_ms=LEVELS_MS, **options)
    rows = [found.row(index) for index in range(found.count)]
    return found.count, found.queues, found.rows.tobytes(), found.hashes.tobytes(), found.end, found.reason, rows


def seen_by_decode(kernel: ModuleType, data: bytes, **options: Duck) -> tuple[Any, ...]:
    return as_values(kernel.decode(data, 0, len(data), BASE, delay_levels_ms=LEVELS_MS, **options))


def as_values(found: Duck) -> tuple[Any, ...]:
    columns = {}
    for name, column in found.columns.items():
        parts = (None if part is None else bytes(part) for part in column[3:])
        columns[name] = (*column[:3], *parts)
    return found.count, found.end, found.reason, dict(sorted(columns.items()))


class Dispatcher:
    """Answers a fast dispatch's stops the way a store would, and keeps what was written."""

    def __init__(self, kernel: ModuleType, seed: int) -> None:
        self.kernel = kernel
        self.rng = random.Random(seed)
        self.fast_dispatch = kernel.FastDispatch(delay_levels_ms=LEVELS_MS, lmq=self.rng.random() < 0.5)
        self.fast_dispatch.index_enabled = self.rng.random() < 0.9
        self.files: list[bytearray] = []
        self.trace: list[tuple[Any, ...]] = []

    def note(self, stop: DispatchStop) -> None:
        fast_dispatch = self.fast_dispatch
        done = (fast_dispatch.last_physical_offset, fast_dispatch.last_store_timestamp, fast_dispatch.done_count)
        self.trace.append((stop, fast_dispatch.position, fast_dispatch.row_index, fast_dispatch.hash_index, *done))

    def file(self, size: int) -> bytearray:
        self.files.append(bytearray(size))
        return self.files[-1]

    def answer(self, stop: DispatchStop, queue: tuple[str, int], queue_offset: int) -> bool:
        """Do what fast dispatch asks for; whether the queue step of the record is done by it."""
        if stop is DispatchStop.INDEX:
            self.fast_dispatch.set_index(self.file(40 + 4 * 3 + 20 * 4), 3, 4)
            return True
        if self.rng.random() < 0.3:
            return True
        tail = self.kernel.Tail(self.file(20 * self.rng.randrange(1, 4)), 20 * queue_offset)
        end = self.kernel.QueueEnd(tail, self.rng.choice((-1, -1, BASE + 500)))
        self.fast_dispatch.set_queue(*queue, end)
        return self.rng.random() < 0.2

    def run(self, data: bytes) -> None:
        position, at_index = 0, False
        for _ in range(200):
            stop = self.fast_dispatch.run(data, position, len(data), BASE, at_index)
            self.note(stop)
            if stop not in (DispatchStop.QUEUE, DispatchStop.INDEX):
                return
            position = self.fast_dispatch.position
            record = reference.scan(data, position, len(data), BASE)
            at_index = self.answer(stop, record.queues[0], record.row(0).queue_offset)

    def apply(self, data: bytes) -> None:
        found = self.kernel.scan(data, 0, len(data), BASE, delay_levels_ms=LEVELS_MS)
        row, at_index = 0, False
        for _ in range(200):
            stop = self.fast_dispatch.apply(found, row, at_index)
            self.note(stop)
            if stop is DispatchStop.DONE:
                return
            row = self.fast_dispatch.row_index
            record = found.row(row)
            at_index = self.answer(stop, found.queues[record.queue], record.queue_offset)


def check_places(kernel: ModuleType, data: bytes, rng: random.Random) -> None:
    """Records by their places, some of which are wrong; claims of these records, of others and of nonsense."""
    found = reference.scan(data, 0, len(data), BASE)
    places = array("q", (found.row(index).physical_offset - BASE for index in range(found.count)))
    entries = b"".join(
        QUEUE_ENTRY.pack(*found.row(index)[:1], found.row(index).size, 0) for index in range(found.count)
    )
    if rng.random() < 0.5:
        places.insert(rng.randrange(len(places) + 1), rng.choice((-1, 7, len(data), len(data) + 1, 1 << 62)))
    options: dict[str, Any] = {"max_rows": rng.choice((2, 100)), "columns": rng.choice((None, {"topic", "size"}))}
    one, other = (as_values(each.decode_at(data, places, BASE, **options)) for each in (kernel, reference))
    assert one == other
    check_claims(kernel, bytes(entries) + rng.randbytes(40), BASE + rng.randrange(200), BASE + len(data))


def check_claims(kernel: ModuleType, entries: bytes, start: int, stop: int) -> None:
    stop = max(start, stop)
    keys = b"".join(
        INDEX_ENTRY.pack(7, *QUEUE_ENTRY.unpack_from(entries, place)[:1], 0, 0)
        for place in range(0, len(entries) - 40, 60)
    )
    seen = []
    for each in (kernel, reference):
        marks, indexed = bytearray((stop - start + 7) // 8), bytearray((stop - start + 7) // 8)
        total = each.claim(marks, start, stop, entries[20:], 20)
        hits = each.find_keys(keys, start, stop, {7}, indexed)
        choices: list[dict[str, Any]] = [{}, {"without": indexed}, {"beside": marks}]
        named = [each.named_records(entries, 20, start, stop, **choice) for choice in choices]
        seen.append((total, marks, indexed, hits, named, each.unclaimed(marks, start, stop)))
    assert seen[0] == seen[1]


def check_all(kernel: ModuleType, data: bytes, seed: int) -> None:
    scans: list[dict[str, Any]] = [{}, {"check_crc": True}, {"max_count": 2}]
    for options in scans:
        assert seen_by_scan(kernel, data, **options) == seen_by_scan(reference, data, **options)
    topics = frozenset({b"TopicA", "日志-主题".encode()})
    decodings: list[dict[str, Any]] = [
        {},
        {"include_body": False, "max_rows": 3},
        {"topics": topics, "max_bytes": 900},
        {"columns": {"topic", "store_timestamp"}},
        {"columns": {"keys", "uniq_key", "tags_code", "body"}, "max_bytes": 900},
        {"columns": {"properties"}},
        {"columns": {"body"}, "include_body": False},
    ]
    for options in decodings:
        assert seen_by_decode(kernel, data, **options) == seen_by_decode(reference, data, **options)
    check_places(kernel, data, random.Random(seed))
    for way in ("run", "apply"):
        one, other = Dispatcher(kernel, seed), Dispatcher(reference, seed)
        getattr(one, way)(data)
        getattr(other, way)(data)
        assert one.trace == other.trace
        assert one.files == other.files


@pytest.mark.parametrize("seed", SEEDS)
def test_good_logs(twin: ModuleType, seed: int, random_log: Make) -> None:
    data = random_log(random.Random(seed), BASE)
    assert reference.scan(data, 0, len(data), BASE, check_crc=True).end == len(data)
    check_all(twin, data, seed)


@pytest.mark.parametrize("seed", range(250))
def test_damaged_logs(twin: ModuleType, seed: int, random_log: Make, damaged: Make) -> None:
    rng = random.Random(seed)
    check_all(twin, damaged(rng, random_log(rng, BASE)), seed)


@quiet
@given(data=st.binary(max_size=300))
def test_noise(twin: ModuleType, data: bytes) -> None:
    magic = bytes.fromhex("daa320a7")
    check_all(twin, data, 0)
    check_all(twin, data[:4] + magic + data[8:], 0)
    check_all(twin, len(data).to_bytes(4, "big") + magic + data[8:28] + BASE.to_bytes(8, "big") + data[36:], 0)


@quiet
@given(
    properties=st.lists(
        st.sampled_from(
            [b"\x01", b"\x02", b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b" ", b"a", b"\x80", b"\xc3", b"\xed", b"\xbf"]
        )
    ).map(b"".join)
    | st.binary(max_size=40)
)
def test_any_properties(twin: ModuleType, properties: bytes, note: Make, write_log: Make) -> None:
    data = write_log([note(b"x", "SCHEDULE_TOPIC_XXXX")] * 2, base=BASE, raw={0: properties, 1: properties[::-1]})
    check_all(twin, data, 1)


def test_many_properties_with_repeated_names(twin: ModuleType, note: Make, write_log: Make) -> None:
    rng = random.Random(1)
    pairs = b"".join(b"%d\x01%d\x02" % (rng.randrange(300), index) for index in range(2000))
    most = b"".join(b"%c%c\x01v" % (65 + index % 50, 65 + index // 50) + b"\x02" for index in range(2500))
    bad = b"".join(bytes([128 + index]) + b"\x01v\x02" for index in range(60))
    data = write_log([note(b"x", "many")] * 3, base=BASE, raw={0: pairs, 1: most, 2: bad})
    check_all(twin, data, 1)


def encoded(kernel: ModuleType, note: Make, one: Duck, room: int = 5000, **options: Duck) -> Duck:
    encoder = kernel.Encoder(note, store_host="192.168.0.9:10911", max_message_size=4000, **options)
    results = []
    for _ in range(2):  # the second time from the caches
        tail = kernel.Tail(bytearray(b"\xaa" * room), BASE, 7)
        try:
            result = encoder.append(tail, one, 5, 1_700_000_000_000)
        except InvalidMessage as error:
            result = (type(error), error.status, str(error))
        results.append((result, tail.position, bytes(tail.buffer)))
    return results


@pytest.mark.parametrize("seed", SEEDS)
def test_encoding_of_random_messages(twin: ModuleType, seed: int, note: Make, random_note: Make) -> None:
    rng = random.Random(seed)
    for _ in range(5):
        one = random_note(rng)
        for options in ({}, {"append_crc": True}, {"auto_version": False}, {"room": rng.randrange(7, 600)}):
            assert encoded(twin, note, one, **options) == encoded(reference, note, one, **options)


text = st.text(max_size=20) | st.sampled_from(["TAGS", "KEYS", "__CRC32#", "", "\x01", "x\x02", "\ud800", "."])
odd = st.none() | st.integers() | text | st.binary(max_size=3) | st.just([1]) | st.just(("a",)) | st.just({"a": 1})


@quiet
@given(
    values=st.dictionaries(
        st.sampled_from(["topic", "body", "tags", "keys", "queue_id", "properties", "sys_flag", "born_host", "flag"]),
        odd | st.dictionaries(text, text, max_size=14) | st.lists(text, max_size=3),
    ),
    with_crc=st.booleans(),
)
def test_encoding_of_anything(twin: ModuleType, values: dict[str, Any], with_crc: bool, note: Make) -> None:
    one = note(**({"topic": "t", "body": b"x"} | values))
    assert encoded(twin, note, one, append_crc=with_crc) == encoded(reference, note, one, append_crc=with_crc)


def batched(kernel: ModuleType, note: Make, notes: list[Any], room: int, **options: Duck) -> Duck:
    encoder = kernel.Encoder(note, store_host="192.168.0.9:10911", max_message_size=4000, **options)
    tail = kernel.Tail(bytearray(b"\xaa" * room), BASE, 7)
    try:
        result = encoder.append_batch(tail, notes, 5, 1_700_000_000_000)
    except InvalidMessage as error:
        result = (type(error), error.status, str(error))
    return result, tail.position, bytes(tail.buffer)


@pytest.mark.parametrize("seed", SEEDS)
def test_batches(twin: ModuleType, seed: int, note: Make, random_note: Make) -> None:
    rng = random.Random(seed)
    notes = [random_note(rng) for _ in range(rng.randrange(6))]
    for one in notes:
        one.topic, one.queue_id, one.sys_flag, one.prepared_transaction_offset = "TopicA", 1, 0x1, 0
        if rng.random() < 0.2:
            one.body = bytearray(one.body)
    if rng.random() < 0.3 and notes:
        name, value = rng.choice((("topic", "other"), ("queue_id", 2), ("sys_flag", 4), ("tags", "\x01"), ("body", 1)))
        setattr(rng.choice(notes), name, value)
    for options in ({"room": 5000}, {"room": 5000, "append_crc": True}, {"room": rng.randrange(100, 1500)}):
        assert batched(twin, note, notes, **options) == batched(reference, note, notes, **options)


def client_encoded(kernel: ModuleType, note: Make, batch: Duck, room: int, **options: Duck) -> Duck:
    encoder = kernel.Encoder(note, store_host="192.168.0.9:10911", max_message_size=4000, **options)
    tail = kernel.Tail(bytearray(b"\xaa" * room), BASE, 7)
    try:
        result = encoder.append_encoded(tail, batch, 5, 1_700_000_000_000)
    except InvalidMessage as error:
        result = (type(error), error.status, str(error))
    return result, tail.position, bytes(tail.buffer)


client_messages = st.lists(
    st.builds(ClientMessage, st.binary(max_size=60), st.binary(max_size=40), st.integers(-(1 << 31), (1 << 31) - 1)),
    max_size=5,
)
outsides = st.sampled_from(["topic", "queue_id", "sys_flag", "tags", "keys", "properties", "body", "born_host"])


@quiet
@given(
    inner=client_messages,
    damage=st.none() | st.tuples(st.integers(0, 400), st.integers(0, 255)) | st.integers(0, 400),
    outside=st.dictionaries(outsides, odd, max_size=2),
    room=st.integers(100, 2000),
    with_crc=st.booleans(),
)
def test_encoded_batches(
    twin: ModuleType, inner: Duck, damage: Duck, outside: Duck, room: int, with_crc: bool, note: Make
) -> None:
    body = bytearray(encode_client_batch(inner))
    if isinstance(damage, int):
        del body[damage:]
    elif damage is not None and body:
        body[damage[0] % len(body)] = damage[1]
    batch = note(**({"topic": "t", "body": bytes(body), "queue_id": 3} | outside))
    for size in (4000, room):
        encoded = client_encoded(twin, note, batch, size, append_crc=with_crc)
        assert encoded == client_encoded(reference, note, batch, size, append_crc=with_crc)


@quiet
@given(
    header=st.tuples(*[st.integers(-2, 1 << 41)] * 4, *[st.integers(-3, 9)] * 2),
    slots=st.lists(st.integers(-3, 12), min_size=4, max_size=4),
    keys=st.lists(
        st.tuples(st.integers(0, (1 << 31) - 1), st.integers(-1, 1 << 50), st.integers(-1, 1 << 50)), max_size=9
    ),
)
def test_index_files(
    twin: ModuleType, header: tuple[int, ...], slots: list[int], keys: list[tuple[int, int, int]]
) -> None:
    start = b"".join(value.to_bytes(8 if index < 4 else 4, "big", signed=True) for index, value in enumerate(header))
    start += b"".join(slot.to_bytes(4, "big", signed=True) for slot in slots)
    one, other = bytearray(start.ljust(40 + 4 * 4 + 20 * 7, b"\0")), bytearray(start.ljust(40 + 4 * 4 + 20 * 7, b"\0"))
    for key in keys:
        assert twin.index_insert(one, 4, 7, *key) == reference.index_insert(other, 4, 7, *key)
        assert one == other
