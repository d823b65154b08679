"""The native kernel writes large batches through their file: the same bytes as the twin has in its map."""

from __future__ import annotations

import mmap
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.kernel.fast_puts import make_fast_put

from flintlog.kernel import reference
from flintlog.store.model.message import Message

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
def native(twin: ModuleType) -> ModuleType:
    if twin is reference:
        pytest.skip("the native kernel was not built")
    return twin


@pytest.fixture
def file(tmp_path: Path) -> LogFile:
    return LogFile(tmp_path / "log")


@pytest.fixture
def small_files() -> Iterator[Callable[[int], None]]:
    """Makes the system refuse to write after an offset of any file."""
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
def test_the_bytes_are_those_of_the_plain_kernels_map(
    native: ModuleType, note: Make, file: LogFile, body_bytes: int, through: bool
) -> None:
    tail, beside = native.Tail(file.map, 7 << 20, 100), reference.Tail(bytearray(FILE_BYTES), 7 << 20, 100)
    tail.take_file(file.descriptor())
    for number in range(3):
        found, expected = (
            encoder(kernel, note).append_batch(each, batch(note, body_bytes), number * 4, 12345)
            for kernel, each in ((native, tail), (reference, beside))
        )
        assert list(found) == list(expected)
        assert (tail.is_through_file, beside.is_through_file) == (through, False)
    assert (tail.position, tail.store_timestamp) == (beside.position, 12345)
    assert file.map[:] == bytes(beside.buffer or b"") == file.path.read_bytes()
    tail.release()


def test_one_message_goes_into_the_map(native: ModuleType, note: Make, file: LogFile) -> None:
    tail = native.Tail(file.map, 0)
    tail.take_file(file.descriptor())
    encoder(native, note).append_batch(tail, batch(note, 5 * KIB), 0, 1)
    assert tail.is_through_file
    encoder(native, note).append(tail, note(b"x" * 20 * KIB, "t"), 4, 1)
    assert not tail.is_through_file
    encoder(native, note).append_batch(tail, batch(note, 5 * KIB), 5, 1)
    tail.position -= 1  # another writer moved the end
    assert not tail.is_through_file
    tail.release()


def test_a_batch_goes_into_the_map_when_the_file_refuses_it(
    native: ModuleType, note: Make, file: LogFile, small_files: Callable[[int], None]
) -> None:
    refusing, short = native.Tail(file.map, 0), native.Tail(file.map, 0, 64 * KIB)
    refusing.take_file(file.descriptor(os.O_RDONLY))
    short.take_file(file.descriptor())
    small_files(70 * KIB)
    for tail in (refusing, short):
        start = tail.position
        expected = native.Tail(bytearray(FILE_BYTES), 0, start)
        for each in (tail, expected):
            encoder(native, note).append_batch(each, batch(note, 5 * KIB), 0, 1)
        assert file.map[start : tail.position] == bytes(expected.buffer[start : tail.position])
        assert not tail.is_through_file
        tail.release()


def test_a_batch_is_written_from_its_beginning(native: ModuleType, note: Make, file: LogFile) -> None:
    """Linux appends whatever is written through such a descriptor, wherever it belongs: so the order can be seen."""
    tail = native.Tail(bytearray(FILE_BYTES), 0, 100)
    tail.take_file(file.descriptor(os.O_RDWR | os.O_APPEND))
    encoder(native, note).append_batch(tail, batch(note, 5 * KIB), 0, 1)
    in_order = native.Tail(bytearray(FILE_BYTES), 0, 100)
    encoder(native, note).append_batch(in_order, batch(note, 5 * KIB), 0, 1)
    assert file.path.read_bytes()[FILE_BYTES:] == bytes(in_order.buffer[100 : in_order.position])
    tail.release()


@pytest.mark.parametrize(
    ("size", "through"),
    [(16 * KIB - 1, False), (16 * KIB, True), (256 * KIB, True), (256 * KIB + 1, False)],
)
def test_where_large_begins_and_ends(native: ModuleType, note: Make, file: LogFile, size: int, through: bool) -> None:
    empty = native.Tail(bytearray(FILE_BYTES), 0)
    encoder(native, note).append_batch(empty, [note(b"", "t")], 0, 1)
    tail = native.Tail(file.map, 0)
    tail.take_file(file.descriptor())
    encoder(native, note).append_batch(tail, [note(b"x" * (size - empty.position), "t")], 0, 1)
    assert (tail.position, tail.is_through_file) == (size, through)
    tail.release()


@pytest.mark.parametrize(("size", "through"), [(4 * KIB - 1, False), (4 * KIB, True), (256 * KIB + 1, False)])
def test_where_pages_are_dear_large_begins_earlier(
    native: ModuleType, note: Make, file: LogFile, size: int, through: bool
) -> None:
    empty = native.Tail(bytearray(FILE_BYTES), 0)
    encoder(native, note).append_batch(empty, [note(b"", "t")], 0, 1)
    tail = native.Tail(file.map, 0)
    tail.take_file(file.descriptor())
    tail.prefer_file()
    encoder(native, note).append_batch(tail, [note(b"x" * (size - empty.position), "t")], 0, 1)
    assert (tail.position, tail.is_through_file) == (size, through)
    tail.release()


def test_the_descriptor_is_the_tails_own(native: ModuleType, file: LogFile) -> None:
    tail, other = native.Tail(file.map, 0), native.Tail(file.map, 0)
    released, left, collected = (file.descriptor() for _ in range(3))
    assert tail.take_file(left)
    tail.leave_file()
    tail.leave_file()
    assert not is_open(left) and not tail.has_file
    assert tail.take_file(released) and not tail.take_file(collected)
    tail.release()
    assert not is_open(released) and not tail.take_file(collected)
    assert other.take_file(collected) and other.has_file and is_open(collected)
    del other
    assert not is_open(collected)


def test_the_plain_kernel_leaves_a_descriptor_to_its_owner(note: Make, file: LogFile) -> None:
    tail, descriptor = reference.Tail(file.map, 0), file.descriptor()
    assert not tail.take_file(descriptor) and not tail.has_file
    encoder(reference, note).append_batch(tail, batch(note, 5 * KIB), 0, 1)
    assert not tail.is_through_file
    tail.leave_file()
    tail.release()
    os.close(descriptor)


def fast_put(kernel: ModuleType, tail: Duck) -> tuple[Duck, Duck]:
    """A fast put with one queue."""
    fast_dispatch = kernel.FastDispatch()
    fast_dispatch.index_enabled = False
    queue = kernel.QueueEnd(kernel.Tail(bytearray(20 * 100), 0))
    fast_dispatch.set_queue("t", 0, queue)
    puts = make_fast_put(kernel, fast_dispatch, tail, max_message_size=1 << 20)
    puts.ready_until = 1  # only the first batch finds its pages ready
    return puts, queue


MESSAGES = [Message("t", bytes([number]) * 5 * KIB, tags=f"tag{number}") for number in range(4)]


def test_a_put_dispatches_what_it_wrote_through_the_file(native: ModuleType, file: LogFile) -> None:
    """It also needs no prepared pages."""
    through, into_map = native.Tail(file.map, 0), native.Tail(bytearray(FILE_BYTES), 0)
    through.take_file(file.descriptor())
    entries = []
    for tail in (through, into_map):
        puts, queue = fast_put(native, tail)
        assert puts.put_batch(list(MESSAGES)) is not None
        assert (puts.put_batch(list(MESSAGES)) is not None) is (tail is through)
        assert not puts.is_behind
        assert queue.tail.position == 20 * (8 if tail is through else 4)
        entries.append(bytes(queue.tail.buffer[: 20 * 4]))
        tail.release()
    assert entries[0] == entries[1]


def test_it_dispatches_from_where_the_batch_was_put_together(native: ModuleType, file: LogFile) -> None:
    """Not from the map, whose pages may not be in memory: here the map is of another file and stays zero."""
    tail = native.Tail(bytearray(FILE_BYTES), 0)
    tail.take_file(file.descriptor())
    puts, queue = fast_put(native, tail)
    assert puts.put_batch(list(MESSAGES)) is not None
    assert queue.tail.position == 20 * 4 and not any(tail.buffer)
    tail.release()
