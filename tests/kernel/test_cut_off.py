"""A process that is killed while it writes a batch leaves whole records and at most a part of the next one.

A child is killed by the system at the byte of the test's choice: by writing to a page that its map's file does not have
any more, or through the file beyond the largest size that it may have.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flintlog.format.client_batch import ClientMessage, encode_client_batch
from flintlog.kernel import ScanStop, reference

Duck = Any  # of either kernel
Make = Callable[..., Any]
Append = Callable[[Duck, Duck], object]

PAGE = mmap.PAGESIZE
PAGES = 16
BODY = b"x" * 900
"""A record is then a little smaller than a quarter of a page: the fifth lies in two."""


def wait_for_death(child: Callable[[], object]) -> signal.Signals:
    """Run something in a child process; returns the signal that killed it."""
    pid = os.fork()
    if pid == 0:
        try:
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            child()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "it lived"
    return signal.Signals(os.WTERMSIG(status))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_bytes(bytes(PAGES * PAGE))
    return path


@pytest.fixture(params=["batch", "encoded", "encoded-plainly"])
def append(request: pytest.FixtureRequest, note: Make) -> Append:
    """Appends twenty messages with an encoder to a tail, in one of the ways that there are."""
    bodies = [BODY] * 20
    if request.param == "batch":
        return lambda encoder, tail: encoder.append_batch(tail, [note(body, "t") for body in bodies], 0, 1)
    encoded: Duck = encode_client_batch([ClientMessage(body) for body in bodies])
    if request.param == "encoded-plainly":
        encoded = bytearray(encoded)  # which the native kernel leaves to its twin
    return lambda encoder, tail: encoder.append_encoded(tail, note(encoded, "t"), 0, 1)


def make_encoder(kernel: ModuleType, note: Make) -> Duck:
    return kernel.Encoder(note, store_host="127.0.0.1:10911", max_message_size=1 << 20)


def assert_is_a_beginning(left: bytes) -> None:
    """Whole records, then at most one torn record, and none after it."""
    seen = reference.scan(left, 0, len(left), 0, check_crc=True)
    assert seen.count > 0 and seen.reason is not ScanStop.LIMIT
    assert reference.find_record(left, seen.end, len(left), 0) == -1
    assert not any(left[seen.end + seen.row(0).size :])


@pytest.mark.parametrize("pages", [1, 2, 4])
def test_into_the_map(kernel: ModuleType, note: Make, append: Append, file: Path, pages: int) -> None:
    with file.open("r+b") as opened:
        tail = kernel.Tail(mmap.mmap(opened.fileno(), PAGES * PAGE), 0)
    os.truncate(file, pages * PAGE)
    encoder = make_encoder(kernel, note)
    assert wait_for_death(lambda: append(encoder, tail)) is signal.SIGBUS
    left = file.read_bytes()
    assert_is_a_beginning(left)
    assert reference.scan(left, 0, len(left), 0).reason is ScanStop.NO_RECORD, "its size and magic come last"
    tail.release()


@pytest.mark.parametrize("cut_at", [PAGE, 2 * PAGE, 2 * PAGE + 100, 3 * PAGE + 1000])
def test_through_the_file(twin: ModuleType, note: Make, append: Append, file: Path, cut_at: int) -> None:
    if twin is reference:
        pytest.skip("the native kernel was not built")
    with file.open("r+b") as opened:
        tail = twin.Tail(mmap.mmap(opened.fileno(), PAGES * PAGE), 0)
    tail.take_file(os.open(file, os.O_RDWR))
    encoder = make_encoder(twin, note)

    def write() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (cut_at, cut_at))
        append(encoder, tail)

    assert wait_for_death(write) is signal.SIGXFSZ
    left = file.read_bytes()
    assert_is_a_beginning(left)
    assert len(left.rstrip(b"\0")) <= cut_at and any(left[cut_at - 100 : cut_at])
    tail.release()
