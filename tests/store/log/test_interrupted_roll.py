"""A put that is interrupted after it closed one file of the log, and before it has the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintlog import Message, StoreConfig, open_store
from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue


class Interruption(BaseException):
    """A signal handler raised it."""


def test_puts_go_on_after_the_write_buffer_of_the_closed_file_was_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = StoreConfig(
        flush="async",
        mapped_file_size_commit_log=65536,
        transient_store_pool_enable=True,
        transient_store_pool_size=3,
    )
    with open_store(tmp_path, config) as store:
        bodies = [bytes([number]) * 9000 for number in range(7)]
        for body in bodies:
            store.put(Message("orders", body))

        def interrupted(_: SegmentQueue, start_offset: int = 0) -> Segment | None:
            raise Interruption

        with monkeypatch.context() as patch:
            patch.setattr(SegmentQueue, "last_or_new", interrupted)
            with pytest.raises(Interruption):
                store.put(Message("orders", bytes(9000)))
        store.flush()
        closed = store._engine.log.segments.first
        assert closed is not None and closed._write_buffer is None
        for number in range(2):
            bodies.append(bytes([100 + number]))
            store.put(Message("orders", bodies[-1]))
        store.flush()
        store.wait_dispatched()
        assert [message.body for message in store.get("orders", 0, 0).messages] == bodies
