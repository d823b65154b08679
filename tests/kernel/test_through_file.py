"""Large batches are written through their file: the same bytes, in the same order, and the map where that fails."""

from __future__ import annotations

import mmap
import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flintlog.errors import StoreClosed
from flintlog.kernel import reference
from flintlog.store.message import Message, PutStatus, Receipt, Receipts

Duck = Any  # of either kernel
Make = Callable[..., Any]

FILE_BYTES = 2 * 1024 * 1024
KIB = 1024


class LogFile:
    """A file of zeros, its map, and descriptors of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(FILE_BYTES))
        with path.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), FILE_BYTES)

    def descriptor(self, flags: int = os.O_RDWR) -> int:
        return os.open(self.path, flags)


@pytest.fixture
def file(tmp_path: Path) -> LogFile:
    return LogFile(tmp_path / "log")


@pytest.fixture
def small_files() -> Iterator[Callable[[int], None]]:
    """Makes the system refuse to write behind an offset of any file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def batch(note: Make, body_bytes: int, count: int = 4) -> list[Any]:
    return [note(bytes([number]) * body_bytes, "t", keys=(f"k{number}",)) for number in range(count)]


def encoder(kernel: ModuleType, note: Make) -> Duck:
    return kernel.Encoder(note, store_host="127.0.0.1:10911", max_message_size=1 << 20)


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("body_bytes", "through"), [(100, False), (5 * KIB, True), (60 * KIB, True), (70 * KIB, False)]
)
def test_the_bytes_are_those_of_a_map(
    kernel: ModuleType, note: Make, file: LogFile, body_bytes: int, through: bool
) -> None:
    tail, beside = kernel.Tail(file.map, 7 << 20, 100), kernel.Tail(bytearray(FILE_BYTES), 7 << 20, 100)
    tail.take_file(file.descriptor())
    for number in range(3):
        found, expected = (
            encoder(kernel, note).append_batch(each, batch(note, body_bytes), number * 4, 12345)
            for each in (tail, beside)
        )
        assert list(found) == list(expected)
        assert (tail.is_through_file, beside.is_through_file) == (through, False)
    assert (tail.position, tail.store_timestamp) == (beside.position, 12345)
    assert file.map[:] == bytes(beside.buffer) == file.path.read_bytes()
    tail.release()


def test_one_message_goes_into_the_map(kernel: ModuleType, note: Make, file: LogFile) -> None:
    tail = kernel.Tail(file.map, 0)
    tail.take_file(file.descriptor())
    encoder(kernel, note).append_batch(tail, batch(note, 5 * KIB), 0, 1)
    assert tail.is_through_file
    encoder(kernel, note).append(tail, note(b"x" * 20 * KIB, "t"), 4, 1)
    assert not tail.is_through_file
    encoder(kernel, note).append_batch(tail, batch(note, 5 * KIB), 5, 1)
    tail.position -= 1  # somebody wrote, or cut, by themselves
    assert not tail.is_through_file
    tail.release()


def test_what_the_file_does_not_take_the_map_does(
    kernel: ModuleType, note: Make, file: LogFile, small_files: Callable[[int], None]
) -> None:
    refusing, short = kernel.Tail(file.map, 0), kernel.Tail(file.map, 0, 64 * KIB)
    refusing.take_file(file.descriptor(os.O_RDONLY))
    short.take_file(file.descriptor())
    small_files(70 * KIB)
    for tail in (refusing, short):
        start = tail.position
        expected = kernel.Tail(bytearray(FILE_BYTES), 0, start)
        for each in (tail, expected):
            encoder(kernel, note).append_batch(each, batch(note, 5 * KIB), 0, 1)
        assert file.map[start : tail.position] == bytes(expected.buffer[start : tail.position])
        tail.release()


def test_a_batch_begins_to_be_there_when_all_of_it_is(
    note: Make, file: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[int, int]] = []
    write = os.pwrite

    def noted(descriptor: int, data: bytes, at: int) -> int:
        order.append((at, len(data)))
        return write(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", noted)
    tail = reference.Tail(file.map, 0, 100)
    tail.take_file(file.descriptor())
    encoder(reference, note).append_batch(tail, batch(note, 5 * KIB), 0, 1)
    assert order == [(108, tail.position - 108), (100, 8)]
    tail.release()


def test_the_descriptor_is_the_tails_own(kernel: ModuleType, file: LogFile) -> None:
    tail, other = kernel.Tail(file.map, 0), kernel.Tail(file.map, 0)
    released, left, collected = (file.descriptor() for _ in range(3))
    tail.take_file(left)
    tail.leave_file()
    tail.leave_file()
    assert not is_open(left) and not tail.has_file
    tail.take_file(released)
    with pytest.raises(StoreClosed):
        tail.take_file(collected)
    tail.release()
    assert not is_open(released)
    with pytest.raises(StoreClosed):
        tail.take_file(collected)
    other.take_file(collected)
    assert other.has_file and is_open(collected)
    del other
    assert not is_open(collected)


def test_a_put_dispatches_what_it_wrote_through_the_file(kernel: ModuleType, file: LogFile) -> None:
    """The lane reads the records where they were put together; they need not be in the map's pages."""
    offsets = {}
    for name, has_file in (("file", True), ("map", False)):
        lane = kernel.Lane()
        lane.index_enabled = False
        queue = kernel.QueueEnd(kernel.Tail(bytearray(20 * 100), 0))
        lane.set_queue("t", 0, queue)
        puts = kernel.PutLane(
            kernel.Encoder(Message, store_host="127.0.0.1:10911", max_message_size=1 << 20),
            lane,
            lock=threading.Lock(),
            receipt_type=Receipt,
            batch_type=Receipts,
            ok=PutStatus.PUT_OK,
            now_ms=lambda: 1,
        )
        puts.tail = kernel.Tail(file.map if has_file else bytearray(FILE_BYTES), 0)
        if has_file:
            puts.tail.take_file(file.descriptor())
        puts.ready_until = 1  # only the first batch finds its pages ready
        puts.is_open = puts.dispatches = True
        messages = [Message("t", bytes([number]) * 5 * KIB, tags=f"tag{number}") for number in range(4)]
        assert puts.put_batch(list(messages)) is not None
        second = puts.put_batch(list(messages))
        assert (second is not None) is has_file  # pages of the map have to be made ready first
        assert not puts.is_behind
        entries = bytes(queue.tail.buffer[: queue.tail.position])
        assert len(entries) == 20 * (8 if has_file else 4)
        offsets[name] = entries[:80]
        puts.tail.release()
    assert offsets["file"] == offsets["map"]
