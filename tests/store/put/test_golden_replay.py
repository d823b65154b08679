"""Putting the messages of a golden store again, with its options and clock, gives its bytes."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.store.golden_cases import config_of, lines, message_of, records

from flintlog import Message, Store, open_store
from flintlog.format.record import Record, parse_record

CASES = ["plain", "batch", "transaction", "multi", "cqext"]
DERIVED = ["consumequeue", "consumequeue_ext", "batchconsumequeue"]


class ReplayClock:
    """Tells the store time that the next record had."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def groups(case: str, reported: list[Record]) -> Iterator[list[Record]]:
    """Single messages, and what the case put as client batches: runs of one queue with one store time."""
    if case != "batch":
        yield from ([record] for record in reported)
        return
    for _, run in itertools.groupby(reported, key=lambda r: (r.topic, r.queue_id, r.store_timestamp)):
        yield list(run)


def put_all(store: Store, clock: ReplayClock, case: str, reported: list[Record]) -> None:
    for group in groups(case, reported):
        clock.now = group[0].store_timestamp
        messages = [message_of(record) for record in group]
        if len(messages) > 1:
            store.put_batch(messages).check()
        else:
            store.put(without_assigned(messages[0])).check()


def without_assigned(message: Message) -> Message:
    """What the store itself writes into a message is not given to it."""
    assigned = ("INNER_BASE", "INNER_MULTI_QUEUE_OFFSET")
    message.properties = {name: text for name, text in (message.properties or {}).items() if name not in assigned}
    return message


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def java_bitmap(record: bytes) -> bytes | None:
    """The arbitrary bitmaps of `cqext`: Java's Random seeded with the physical offset, none where 3 divides it."""
    offset = parse_record(record).physical_offset
    if offset % 3 == 0:
        return None
    seed = (offset ^ 0x5DEECE66D) & ((1 << 48) - 1)
    data = b""
    for _ in range(2):
        seed = (seed * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        data += struct.pack("<i", (seed >> 16) - (1 << 32) * ((seed >> 47) & 1))
    return data


@pytest.mark.parametrize("case", CASES)
def test_the_same_messages_give_the_same_bytes(case: str, golden: Callable[[str], Path], tmp_path: Path) -> None:
    source = golden(case)
    reported = list(records(source / "store"))
    assert len(reported) == len(lines(source / "manifest.jsonl"))
    clock = ReplayClock()
    with open_store(tmp_path / "store", config_of(source), clock=clock) as store:
        if case == "cqext":
            store.set_bitmap_hook(java_bitmap)
        put_all(store, clock, case, reported)
    for name in ("commitlog", *DERIVED):
        assert files(tmp_path / "store" / name) == files(source / "store" / name), name
    ours, theirs = (sorted(files(root / "store" / "index").values()) for root in (tmp_path, source))
    assert ours == theirs


def test_a_replay_in_pieces_over_several_openings_gives_the_same_bytes(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    source = golden("plain")
    reported = list(records(source / "store"))
    clock = ReplayClock()
    chance = random.Random(7)
    while reported:
        piece, reported = reported[: (count := chance.randrange(1, 900))], reported[count:]
        with open_store(tmp_path / "store", config_of(source), clock=clock) as store:
            put_all(store, clock, "plain", piece)
    for name in ("commitlog", "consumequeue"):
        assert files(tmp_path / "store" / name) == files(source / "store" / name), name
    assert sorted(files(tmp_path / "store/index").values()) == sorted(files(source / "store/index").values())
