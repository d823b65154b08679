from __future__ import annotations

import gc
import mmap
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from flintlog.errors import StoreClosed

Make = Callable[..., Any]


def test_a_tail_knows_where_it_ends(kernel: ModuleType) -> None:
    buffer = bytearray(100)
    tail = kernel.Tail(buffer, 4000, 20)
    assert (tail.buffer, tail.base, tail.position, tail.capacity, tail.end) == (buffer, 4000, 20, 100, 4020)
    tail.position = 100
    tail.base = 5000
    assert tail.end == 5100


@pytest.mark.parametrize("position", [-1, 101])
def test_a_position_outside_of_the_file_is_refused(kernel: ModuleType, position: int) -> None:
    tail = kernel.Tail(bytearray(100), 0, 20)
    with pytest.raises(ValueError, match="outside"):
        tail.position = position
    with pytest.raises(ValueError, match="outside"):
        kernel.Tail(bytearray(100), 0, position)
    assert tail.position == 20


def test_a_released_tail_lets_its_mapping_close(kernel: ModuleType) -> None:
    mapping = mmap.mmap(-1, 4096)
    tail = kernel.Tail(mapping, 0, 8)
    with pytest.raises(BufferError):
        mapping.close()
    tail.release()
    tail.release()
    mapping.close()
    assert (tail.buffer, tail.capacity, tail.position) == (None, 0, 8)


def test_fast_dispatch_releases_its_previous_index_file(kernel: ModuleType) -> None:
    mapping = mmap.mmap(-1, 4096)
    fast_dispatch = kernel.FastDispatch()
    fast_dispatch.set_index(mapping, 4, 8)
    with pytest.raises(BufferError):
        mapping.close()
    fast_dispatch.set_index(None, 0, 0)
    mapping.close()


def test_loops_hold_no_buffer_after_their_end(kernel: ModuleType, note: Make, write_log: Make) -> None:
    log = write_log([note(b"x", "t")])
    mapping = mmap.mmap(-1, 4096)
    mapping[: len(log)] = log
    found = kernel.scan(mapping, 0, 4096, 0)
    decoded = kernel.decode(mapping, 0, 4096, 0)
    kernel.FastDispatch().run(mapping, 0, 4096, 0)
    kernel.count_entries(mapping, 0, 4096)
    kernel.crc32(mapping)
    mapping.close()
    assert (found.count, decoded.count) == (1, 1)


@pytest.mark.parametrize("make", ["released", "read-only"])
def test_nothing_is_written_to_a_read_only_buffer(kernel: ModuleType, note: Make, make: str) -> None:
    tail = kernel.Tail(bytes(500) if make == "read-only" else bytearray(500), 0)
    if make == "released":
        tail.release()
    encoder = kernel.Encoder(note, store_host="127.0.0.1:1", max_message_size=100)
    with pytest.raises(StoreClosed, match=make):
        encoder.append(tail, note(b"x", "t"), 0, 0)
    with pytest.raises(StoreClosed, match=make):
        encoder.append_batch(tail, [note(b"x", "t")], 0, 0)


def test_a_tail_in_a_cycle_is_collected_with_its_buffer(kernel: ModuleType) -> None:
    class Ring:
        def __init__(self) -> None:
            self.mapping = mmap.mmap(-1, 4096)
            self.tail = kernel.Tail(self.mapping, 0)
            self.end = kernel.QueueEnd(self.tail)
            self.itself = self

    mapping = Ring().mapping
    gc.collect()
    mapping.close()
