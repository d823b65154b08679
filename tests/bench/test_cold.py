"""Cold batches: one batch into one queue of a new store, in a process of its own."""

from __future__ import annotations

from pathlib import Path

from flintlog import open_store
from flintlog.bench.cold import measure, measure_in_own_process
from flintlog.bench.tasks import BATCH_COUNT, TASKS, TOPIC

COLD = next(task for task in TASKS if task.name == "cold batch 128 B")


def test_all_counted_messages_are_in_one_queue_and_no_others(tmp_path: Path) -> None:
    measured = measure(COLD, 0.05, tmp_path)
    with open_store(tmp_path, read_only=True) as store:
        assert [(queue.topic, queue.queue_id, queue.max_offset) for queue in store.queues()] == [
            (TOPIC, 0, measured.count)
        ]
        messages = store.get(TOPIC, queue_id=0, offset=0, max_count=BATCH_COUNT).messages
    assert {message.tags for message in messages} == {"TagA"}
    assert len({message.properties["UNIQ_KEY"] for message in messages}) == BATCH_COUNT
    assert {len(message.body) for message in messages} == {128}
    assert not any(message.keys for message in messages)


def test_it_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    measured = measure_in_own_process(COLD, 0.05, tmp_path)
    assert measured.count > 0
    assert 0.05 <= measured.seconds <= measured.visible_seconds
