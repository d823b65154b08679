"""A crash between any two steps of a deletion: what is left opens well, and the deletion is finished later."""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path

import pytest

from flintlog import Message, Store, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.testing import FakeClock
from tests.faults.stopping import PowerLost, StoppingMedium
from tests.faults.world import ROOT, TOPICS, Sent, assert_no_gaps, assert_there, small_config

NOON_MS = int(datetime(2026, 3, 10, 12).timestamp() * 1000)
NIGHT_MS = int(datetime(2026, 3, 14, 4).timestamp() * 1000)
MAX_STEPS = 400
FILES = 5
OPTIONS: dict[str, object] = {
    "file_reserved_time": 72,
    "delete_commit_log_files_interval": 0,
    "delete_consume_queue_files_interval": 0,
    "mapped_file_size_consume_queue": 20 * 8,
    "max_index_num": 20,
}
SHAPES: dict[str, dict[str, object]] = {
    "one path": {},
    "two paths": {"store_path_commit_log": "/disk-a/log,/disk-b/log"},
    "batch queues": {"topic_queue_types": {"orders": "BatchCQ"}, "mapped_file_size_batch_consume_queue": 46 * 8},
    "extension": {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 400},
}


class Past:
    """A store with some files of the log, stopped cleanly or killed, and what was put into it."""

    def __init__(self, shape: str, flush: str) -> None:
        self.config = small_config(flush, **{**OPTIONS, **SHAPES[shape]})
        self.medium = FaultyMedium(clock_ms=lambda: NOON_MS)
        self.sent: list[Sent] = []
        with self.open(self.medium, FakeClock(NOON_MS)) as store:
            chance = random.Random(5)
            while len(store._engine.parts.segments.segments) < FILES:
                self.put(store, chance)
        self.end = store.max_physical_offset

    def open(self, medium: FaultyMedium, clock: FakeClock) -> Store:
        return open_store(ROOT, self.config, medium=medium, clock=clock)

    def put(self, store: Store, chance: random.Random) -> None:
        number = len(self.sent)
        message = Message(
            chance.choice(TOPICS), chance.randbytes(600), queue_id=chance.randrange(2), keys=[f"k{number}"]
        )
        self.sent.append(Sent(message, store.put(message).check()))

    def check(self, store: Store) -> int:
        """Whatever the log still has is whole and found; from which offset that is."""
        store.wait_dispatched()
        first = store.min_physical_offset
        assert store.max_physical_offset >= self.end
        assert first % self.config.mapped_file_size_commit_log == 0
        assert not store._engine.parts.segments.gaps()
        for sent in self.sent:
            if sent.receipt.physical_offset >= first:
                assert_there(store, sent)
            else:
                assert store.message_at(sent.receipt.physical_offset) is None
        assert_no_gaps(store)
        assert not list(store.recovery)
        return first


def abandon(store: Store, medium: StoppingMedium) -> None:
    medium.left = MAX_STEPS * 10
    store.shutdown()


def crash_in_the_night(past: Past, step: int, seed: int, ending: str) -> bool:
    """Delete until the power fails, open what is left; whether it failed."""
    dying = StoppingMedium.over(past.medium, MAX_STEPS * 10)
    clock = FakeClock(NOON_MS + 1)
    store = past.open(dying, clock)
    dying.left = step
    try:
        clock.set(NIGHT_MS)
    except PowerLost:
        has_failed = True
    else:
        has_failed = False
    left = dying.kill() if ending == "kill" else dying.crash(seed)
    abandon(store, dying)
    again = past.open(left, clock)
    past.check(again)
    clock.advance(60_000)
    assert past.check(again) == (FILES - 1) * past.config.mapped_file_size_commit_log
    count = len(past.sent)
    past.put(again, random.Random(seed))
    past.check(again)
    del past.sent[count:]
    again.shutdown()
    return has_failed


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("flush", "ending"), [("sync", "crash"), ("async", "kill")])
def test_crash_at_every_step_of_a_deletion(shape: str, flush: str, ending: str) -> None:
    past = Past(shape, flush)
    for step in range(MAX_STEPS):
        if not crash_in_the_night(past, step, seed=step, ending=ending):
            assert step > 2 * FILES
            return
    raise AssertionError("a deletion that does not end")


def test_the_log_goes_before_what_was_derived_from_it() -> None:
    past = Past("one path", "sync")
    removed: list[Path] = []

    class Watching(StoppingMedium):
        def remove(self, path: Path) -> None:
            removed.append(path)
            super().remove(path)

    clock = FakeClock(NOON_MS + 1)
    medium = Watching.over(past.medium, MAX_STEPS * 10)
    store = past.open(medium, clock)
    removed.clear()
    clock.set(NIGHT_MS)
    kinds = [path.relative_to(ROOT).parts[0] for path in removed]
    store.shutdown()
    assert kinds[: FILES - 1] == ["commitlog"] * (FILES - 1)
    assert kinds.index("index") > kinds.index("consumequeue")
