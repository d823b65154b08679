"""A slave's line at its master, with a socket and a log that do what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from flintlog.replication.ha import slave_connection as master_line
from flintlog.replication.ha.feed import FeedOptions
from flintlog.replication.ha.slave_connection import ConnectionOwner, SlaveConnection
from flintlog.replication.ha.wire import FrameReader, encode_report
from flintlog.store.read.raw_log import RawLog

SEGMENT = 4096


class ScriptedLog:
    """Zeros up to an end that may grow between two looks."""

    start = 0
    segment_size = SEGMENT

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)

    @property
    def end(self) -> int:
        return self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]

    def read(self, offset: int, size: int) -> bytes:
        return bytes(size)


class Socket(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = FrameReader()
        self.sent: list[tuple[int, int]] = []
        self.is_aborted = False
        self.unsent_bytes = 0

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += [(frame.offset, len(frame.data)) for frame in self.written.feed(bytes(data))]

    def get_extra_info(self, name: str, default: object = None) -> tuple[str, int]:
        return ("127.0.0.1", 1)

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


class Reported:
    """What the line tells its owner, and what had been sent by then."""

    def __init__(self, log: ScriptedLog, **limits: int) -> None:
        self.socket = Socket()
        self.acknowledged: list[tuple[int, int]] = []
        owner = ConnectionOwner(lambda _: None, self._acknowledged, lambda _, __: None)
        self.line = SlaveConnection(cast(RawLog, log), FeedOptions(transfer_bytes=100), owner, **limits)
        self.line.connection_made(self.socket)

    def _acknowledged(self) -> None:
        self.acknowledged.append((self.line.feed.acknowledged, sum(size for _, size in self.socket.sent)))

    def report(self, end: int) -> None:
        report = encode_report(end)
        self.line.get_buffer(-1)[: len(report)] = report
        self.line.buffer_updated(len(report))


def in_a_loop(work: Callable[[], None]) -> None:
    async def run() -> None:
        work()

    asyncio.run(run())


def test_a_record_that_comes_while_a_report_is_taken_is_sent_at_once() -> None:
    def work() -> None:
        log = ScriptedLog(50)
        reported = Reported(log)
        reported.report(0)
        assert reported.socket.sent == [(0, 50)]
        assert reported.line.is_in_flight
        # Its put saw a report on its way and did not ring.
        log.ends = [50, 80]
        reported.report(50)
        assert reported.socket.sent == [(0, 50), (50, 30)]

    in_a_loop(work)


def test_the_next_frames_are_sent_before_waiting_puts_are_woken() -> None:
    def work() -> None:
        log = ScriptedLog(50)
        reported = Reported(log)
        reported.report(0)
        log.ends = [250]
        reported.report(50)
        assert reported.socket.sent == [(0, 50), (50, 100), (150, 100)]
        assert reported.acknowledged == [(50, 250)]

    in_a_loop(work)


def test_a_full_socket_is_sent_nothing_and_still_heard() -> None:
    def work() -> None:
        log = ScriptedLog(50)
        reported = Reported(log)
        reported.report(0)
        reported.line.pause_writing()
        log.ends = [70]
        reported.report(50)
        assert reported.acknowledged == [(50, 50)]
        assert reported.socket.sent == [(0, 50)]
        reported.line.resume_writing()
        assert reported.socket.sent == [(0, 50), (50, 20)]

    in_a_loop(work)


def test_a_slave_that_reports_and_takes_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        now_ms = 0
        monkeypatch.setattr(master_line, "_now_ms", lambda: now_ms)
        reported = Reported(ScriptedLog(250))
        reported.report(0)
        reported.socket.unsent_bytes = 200
        reported.line.pause_writing()
        now_ms = 60_000
        reported.report(0)
        reported.socket.unsent_bytes = 150  # something has left, at last
        reported.line.look()
        now_ms = 120_000
        reported.report(0)
        reported.line.look()
        assert not reported.socket.is_aborted
        now_ms += 1
        reported.line.look()
        assert reported.socket.is_aborted

    in_a_loop(work)


def test_with_a_limited_rate_one_frame_is_sent_a_turn() -> None:
    async def run() -> None:
        reported = Reported(ScriptedLog(250), most_bytes_a_second=1000)
        reported.report(0)
        reported.line.look()
        assert reported.socket.sent == [(0, 100)]
        async with asyncio.timeout(10):
            while len(reported.socket.sent) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(run())


@pytest.mark.parametrize("report", [51, -1])
def test_a_report_that_cannot_be_true_ends_the_line(report: int) -> None:
    def work() -> None:
        reported = Reported(ScriptedLog(50))
        reported.report(0)
        reported.report(report)
        assert reported.socket.is_aborted
        reported.report(50)
        assert reported.acknowledged == []

    in_a_loop(work)
