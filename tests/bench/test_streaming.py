"""The benchmark of streams: a writer in a process of its own, and the figures of the stream that follows it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.store.outside import dispatching

from flintlog import StoreConfig
from flintlog.bench import streaming
from flintlog.errors import JobFailed


def test_delays_of_a_dispatcher_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dispatch(_spark: object, store: Path, *, config: StoreConfig, stop: threading.Event, interval_s: float) -> None:
        with dispatching(store, config) as failures:
            stop.wait()
        assert not failures

    monkeypatch.setattr(streaming, "dispatch", dispatch)
    spark: Any = None
    stream = streaming._Stream(tmp_path / "store", streaming._EXTERNAL, rate=10_000, seconds=0.2)
    found = stream.run("dispatch", streaming._dispatch_of(spark))
    assert found.message_count == 2000
    assert 0 <= found.delay_ms <= found.delay_p99_ms
    assert found.behind_s >= 0


def test_messages_that_never_arrive_end_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "PATIENCE_S", 0.2)
    monkeypatch.setattr(streaming, "dispatch", lambda *_, stop, **__: stop.wait())
    spark: Any = None
    stream = streaming._Stream(tmp_path / "store", streaming._EXTERNAL, rate=10_000, seconds=0.1)
    with pytest.raises(JobFailed, match="0 of 200 messages arrived"):
        stream.run("dispatch", streaming._dispatch_of(spark))
