"""Stores of many queues: their opening maps next to nothing, and idle they do nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from tests.store.small_store import wait_until

from flintlog import Message, open_store
from flintlog.bench.queues import CONFIG, QUEUES_A_TOPIC, QueueCost, make_many_queues, measure_queues, topic_name

MAX_MAPS = 600
"""Python and its libraries have some hundred maps of their own; a map for each queue would be thousands."""

MEASURE = """
import sys, msgspec
from pathlib import Path
from flintlog.bench.queues import make_many_queues, measure_queues
make_many_queues(Path(sys.argv[1]), int(sys.argv[2]))
sys.stdout.buffer.write(msgspec.json.encode(measure_queues(Path(sys.argv[1]), float(sys.argv[3]))))
"""


def measured(path: Path, topics: int, idle_seconds: float) -> QueueCost:
    """In a process of its own, so that no other maps and threads are counted."""
    arguments = [sys.executable, "-c", MEASURE, str(path), str(topics), str(idle_seconds)]
    done = subprocess.run(arguments, capture_output=True, check=True, env={"PYTHONPATH": ":".join(sys.path)})
    return msgspec.json.decode(done.stdout, type=QueueCost)


def test_thousands_of_queues_open_without_mapping_them(tmp_path: Path) -> None:
    cost = measured(tmp_path / "store", 30, 0.2)
    assert cost.queue_count == 3_000
    assert cost.map_count < MAX_MAPS
    assert cost.file_count < 50


def test_the_directly_written_files_are_a_store_like_others(tmp_path: Path) -> None:
    make_many_queues(tmp_path / "store", 2)
    with open_store(tmp_path / "store", CONFIG) as store:
        assert store.recovery.clean
        assert not list(store.recovery)
        assert store.get(topic_name(1), QUEUES_A_TOPIC - 1, 0).messages[0].body == b"one"
        assert store.put(Message(topic_name(1), b"two", queue_id=7)).check().queue_offset == 1
    assert measure_queues(tmp_path / "store", 0.0).queue_count == 2 * QUEUES_A_TOPIC


def test_an_idle_store_looks_at_no_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_many_queues(tmp_path / "store", 3)
    config = CONFIG.with_changes(flush_interval_consume_queue=10, flush_consume_queue_thorough_interval=20)
    with open_store(tmp_path / "store", config) as store:
        store.put(Message(topic_name(0), b"two")).check()
        tide = store._engine.flushing.queue_flush
        assert tide is not None
        wait_until(lambda: tide._thorough_at == tide._passed_at == store.max_physical_offset)
        asked: list[object] = []
        with monkeypatch.context() as patched:
            patched.setattr(
                "flintlog.store.queues.consume_queue.ConsumeQueue.flush", lambda *given: asked.append(given)
            )
            time.sleep(0.1)
        assert asked == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_hundred_thousand_queues_open_in_seconds_and_idle_at_no_cpu(tmp_path: Path) -> None:
    cost = measured(tmp_path / "store", 1_000, 10.0)
    assert cost.queue_count == 100_000
    assert cost.map_count < MAX_MAPS
    assert cost.file_count < 50
    assert cost.open_cpu_seconds < 30
    assert cost.idle_cpu_share < 0.05
    assert cost.put_seconds < 2
    assert cost.close_seconds < 30
