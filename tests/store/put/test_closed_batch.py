"""Batches that are stored whole or not at all: repeated, interrupted at every step, cut."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.store.small_store import wait_until

from flintlog import Message, PutStatus, Store, StoreConfig, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.errors import DamagedStore, DiskFull, FlintlogError, InvalidConfig, InvalidMessage, PutFailed, StoreClosed
from flintlog.maintenance.verify.verify import verify
from flintlog.store.log.batch_markers import MARKER_TOPIC
from flintlog.store.model.message import Receipt
from flintlog.store.put.appender import Prepared
from flintlog.store.recovery.batch_notes import BatchNotes, BatchTable, parse_closed, parse_opened_start
from flintlog.testing import FakeClock

ROOT = Path("/store")
CONFIG = StoreConfig(
    flush="async",
    mapped_file_size_commit_log=16 * 1024,
    mapped_file_size_consume_queue=20 * 40,
    max_hash_slot_num=20,
    max_index_num=60,
)
BEFORE = 30
COUNT = 60
"""Messages of the batch: over two files of the log, several of its queues, and more than an index file."""


def batch(count: int = COUNT, name: str = "b") -> list[Message]:
    return [
        Message("orders" if n % 3 else "payments", f"{name}{n}".encode() * 40, queue_id=n % 2, keys=[f"{name}{n}"])
        for n in range(count)
    ]


def bodies(store: Store) -> list[bytes]:
    found: list[bytes] = []
    for info in store.queues():
        offset = info.min_offset
        while messages := store.get(info.topic, info.queue_id, offset).messages:
            found += [message.body for message in messages]
            offset = messages[-1].queue_offset + 1
    return sorted(found)


def filled(medium: FaultyMedium) -> list[bytes]:
    with open_store(ROOT, CONFIG, medium=medium, clock=FakeClock()) as store:
        for message in batch(BEFORE, "before"):
            store.put(message).check()
        store.wait_dispatched()
        return bodies(store)


def expected(*parts: list[bytes]) -> list[bytes]:
    return sorted(body for part in parts for body in part)


BATCH = [bytes(message.body) for message in batch()]


def test_a_batch_is_in_the_log_once_however_often_it_is_written(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        written = store.put_closed(batch(), writer_id="query", batch_id=7)
        assert written is not None
        assert written.message_count == COUNT
        assert written.end == store.max_physical_offset
        assert store.put_closed(batch(), writer_id="query", batch_id=7) is None
        assert store.put_closed(batch(), writer_id="query", batch_id=3) is None
    with open_store(tmp_path, CONFIG) as store:
        assert store.put_closed(batch(), writer_id="query", batch_id=7) is None
        assert store.put_closed(batch(1, "next"), writer_id="query", batch_id=8) is not None
        assert store.put_closed(batch(1, "other"), writer_id="another", batch_id=7) is not None
        store.wait_dispatched()
        assert bodies(store) == expected(BATCH, [b"next0" * 40], [b"other0" * 40])


def test_batches_without_a_writer_are_all_written(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        assert store.put_closed(batch(2)) is not None
        assert store.put_closed(batch(2)) is not None
        store.wait_dispatched()
        assert len(bodies(store)) == 4
    assert b'closed":{}' in (tmp_path / "flintlog" / "batches.json").read_bytes()


def test_the_markers_are_in_no_queue_and_no_index(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        store.put_closed(batch(3), writer_id="query")
        store.wait_dispatched()
        assert store._host.queue_ids(MARKER_TOPIC) == []
        assert sum(found.num_rows for found in store.scan(topics=[MARKER_TOPIC])) == 2


class Interrupted(Exception):
    pass


def interrupt_at(medium: FaultyMedium, step: int, crash: Callable[[FaultyMedium], FaultyMedium]) -> FaultyMedium | None:
    """Write the batch, and take the disk away at one of its steps; None when the batch has fewer."""
    with open_store(ROOT, CONFIG, medium=medium, clock=FakeClock()) as store:
        engine = store._engine
        left = [step]
        crashed: list[FaultyMedium] = []

        def reach() -> None:
            left[0] -= 1
            if left[0] < 0 and not crashed:
                crashed.append(crash(medium))
                raise Interrupted

        def counted(messages: list[Message]) -> Iterator[Message]:
            for message in messages:
                reach()
                yield message

        def watched(call: Callable[..., object]) -> Callable[..., object]:
            def run(*arguments: object) -> object:
                reach()
                result = call(*arguments)
                reach()
                return result

            return run

        engine.flush = watched(engine.flush)  # type: ignore[method-assign, assignment]
        engine.batch_notes.open = watched(engine.batch_notes.open)  # type: ignore[method-assign, assignment]
        engine.batch_notes.close = watched(engine.batch_notes.close)  # type: ignore[method-assign, assignment]
        appender = store._appender
        appender.append_held = watched(appender.append_held)  # type: ignore[method-assign, assignment]
        try:
            store.put_closed(counted(batch()), writer_id="query", batch_id=1)
        except Interrupted:
            return crashed[0]
    return None


@pytest.mark.parametrize("kind", ["kill", "crash"])
def test_interrupted_at_any_step_the_batch_is_there_or_it_is_not(kind: str) -> None:
    step, outcomes = 0, []
    while True:
        medium = FaultyMedium()
        before = filled(medium)
        left = interrupt_at(
            medium, step, FaultyMedium.kill if kind == "kill" else partial(FaultyMedium.crash, seed=step)
        )
        if left is None:
            break
        with open_store(ROOT, CONFIG, medium=left, clock=FakeClock()) as store:
            store.wait_dispatched()
            found = bodies(store)
            assert found in (before, expected(before, BATCH)), step
            outcomes.append(found != before)
            was_skipped = store.put_closed(batch(), writer_id="query", batch_id=1) is None
            assert was_skipped == outcomes[-1], step
            store.wait_dispatched()
            assert bodies(store) == expected(before, BATCH), step
            assert len(store.query("orders", "b1")) == 1
        with open_store(ROOT, CONFIG, medium=left, clock=FakeClock()) as store:
            assert store.recovery.clean
            assert not list(store.recovery)
            assert bodies(store) == expected(before, BATCH), step
        step += 1
    assert step > COUNT
    assert not outcomes[COUNT]
    assert outcomes[-1]


def test_a_refused_message_takes_its_batch_with_it_and_nothing_else(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        store.put(Message("orders", b"kept")).check()
        with pytest.raises(InvalidMessage):
            store.put_closed(iter([*batch(5), Message("no/topic", b"x")]), writer_id="query")
        store.put(Message("orders", b"goes on")).check()
        assert store.put_closed(batch(5), writer_id="query") is not None
        store.wait_dispatched()
        assert len(bodies(store)) == 7
    with open_store(tmp_path, CONFIG) as store:
        assert not list(store.recovery)


def fail_after(store: Store, count: int) -> Callable[[Prepared], Receipt]:
    """An `append_held` that finds no room after so many messages."""
    append, left = store._appender.append_held, iter(range(count))

    def run(prepared: Prepared) -> Receipt:
        return append(prepared) if next(left, None) is not None else Receipt(PutStatus.CREATE_MAPPED_FILE_FAILED)

    return run


def leave_half(root: Path) -> None:
    """A store whose log ends in a part of a batch, because the disk failed, and failed again when that was cut off."""

    def failing(offset: int, **options: object) -> None:
        raise DiskFull("no space left")

    with open_store(root, CONFIG) as store:
        store.put(Message("orders", b"kept")).check()
        store._appender.append_held = fail_after(store, 3)  # type: ignore[method-assign, assignment]
        store._engine.parts.segments.truncate = failing  # type: ignore[method-assign]
        with pytest.raises(DiskFull):
            store.put_closed(batch(5), writer_id="query")
        assert not store.put(Message("orders", b"after a half batch"), check=False)
        with pytest.raises(StoreClosed):
            store.put_closed(batch(1))


@pytest.mark.parametrize("count", [0, 1, 20, COUNT])
@pytest.mark.parametrize("more", [{}, {"transient_store_pool_enable": True, "transient_store_pool_size": 3}])
def test_after_a_failure_inside_a_batch_it_is_cut_off_and_the_store_goes_on(
    tmp_path: Path, count: int, more: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CONFIG.with_changes(**more)
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
    config = config.with_changes(enable_lmq=True, enable_multi_dispatch=True)
    with open_store(tmp_path, config) as store:
        for message in batch(BEFORE, "before"):
            store.put(message).check()
        store.wait_dispatched()
        end, appended = store.max_physical_offset, store._engine.log.appended_bytes
        given = {info: store.max_offset(info.topic, info.queue_id) for info in store.queues()}
        with monkeypatch.context() as patched:
            patched.setattr(store._appender, "append_held", fail_after(store, count))
            with pytest.raises(PutFailed):
                store.put_closed([Message("light", b"x", properties=light), *batch()], writer_id="query")
        assert (store.max_physical_offset, store._engine.log.appended_bytes) == (end, appended)
        receipt = store.put(Message("orders", b"goes on")).check()
        assert receipt.physical_offset == end
        assert receipt.queue_offset == next(
            at for info, at in given.items() if (info.topic, info.queue_id) == ("orders", 0)
        )
        assert store.put(Message("light", b"x", properties=light)).check().queue_offset == 0
        assert store.put_closed(batch(), writer_id="query") is not None
        store.wait_dispatched()
        found = bodies(store)
        assert [store.max_offset("%LMQ%a", 0), len(found)] == [1, BEFORE + 1 + 2 + COUNT]
    with open_store(tmp_path, config) as store:
        assert not list(store.recovery)
        assert bodies(store) == found
    assert not verify(tmp_path, config).findings


@pytest.mark.parametrize("count", [1, COUNT])
@pytest.mark.parametrize("more", [{}, {"transient_store_pool_enable": True, "transient_store_pool_size": 3}])
def test_the_checkpoint_forgets_the_time_of_a_batch_that_was_cut_off(
    tmp_path: Path, count: int, more: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, clock = CONFIG.with_changes(**more), FakeClock()
    with open_store(tmp_path, config, clock=clock) as store:
        store.put(Message("orders", b"kept"))
        store.flush()
        clock.advance(1000)
        monkeypatch.setattr(store._appender, "append_held", fail_after(store, count))
        with pytest.raises(PutFailed):
            store.put_closed(batch())
    assert not verify(tmp_path, config).findings


@pytest.mark.parametrize("kind", ["kill", "crash"])
@pytest.mark.parametrize("step", range(4))
def test_a_batch_that_is_being_cut_off_when_the_power_goes_is_not_there(kind: str, step: int) -> None:
    medium = FaultyMedium()
    before = filled(medium)
    crash = FaultyMedium.kill if kind == "kill" else partial(FaultyMedium.crash, seed=step)
    left: list[FaultyMedium] = []

    def watched(call: Callable[..., object], first: int) -> Callable[..., object]:
        def run(*arguments: object, **named: object) -> object:
            left.extend([crash(medium)] if step == first else [])
            result = call(*arguments, **named)
            left.extend([crash(medium)] if step == first + 1 else [])
            return result

        return run

    with open_store(ROOT, CONFIG, medium=medium, clock=FakeClock()) as store:
        store._appender.append_held = fail_after(store, 40)  # type: ignore[method-assign, assignment]
        segments, notes = store._engine.parts.segments, store._engine.batch_notes
        segments.truncate = watched(segments.truncate, 0)  # type: ignore[method-assign, assignment]
        notes.forget = watched(notes.forget, 2)  # type: ignore[method-assign, assignment]
        with pytest.raises(PutFailed):
            store.put_closed(batch(), writer_id="query")
    with open_store(ROOT, CONFIG, medium=left[0], clock=FakeClock()) as store:
        assert bodies(store) == before
        assert store.put_closed(batch(), writer_id="query") is not None
        store.wait_dispatched()
        assert bodies(store) == expected(before, BATCH)


def test_a_failure_while_a_batch_is_cut_off_takes_nothing_more_and_the_next_opening_cuts_it(tmp_path: Path) -> None:
    leave_half(tmp_path)
    with open_store(tmp_path, CONFIG, read_only=True) as store:
        assert bodies(store) == [b"kept"]
    with open_store(tmp_path, CONFIG) as store:
        assert [found.id for found in store.recovery] == ["unclosed-batch"]
        assert bodies(store) == [b"kept"]
        assert store.put_closed(batch(5), writer_id="query") is not None
    with open_store(tmp_path, CONFIG) as store:
        assert not list(store.recovery)


def test_after_a_failure_before_the_first_message_the_store_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path, CONFIG) as store:
        with monkeypatch.context() as patched:
            refusal = Receipt(PutStatus.CREATE_MAPPED_FILE_FAILED)
            patched.setattr(store._appender, "append_held", lambda prepared: refusal)
            with pytest.raises(PutFailed):
                store.put_closed(batch(5), writer_id="query")
        store.put(Message("orders", b"goes on")).check()
        assert store.put_closed(batch(5), writer_id="query") is not None
        store.wait_dispatched()
        assert len(bodies(store)) == 6


@pytest.mark.parametrize("left", [b"4711", b"%d" % os.getpid(), None], ids=["crashed", "as process 1", "stopped"])
def test_records_of_another_program_after_half_a_batch_are_not_cut(tmp_path: Path, left: bytes | None) -> None:
    leave_half(tmp_path)
    note = tmp_path / "flintlog" / "batches.json"
    opened = note.read_bytes()
    note.unlink()  # RocketMQ does not look at it
    with open_store(tmp_path, CONFIG) as store:
        store.put(Message("orders", b"acknowledged")).check()
    note.write_bytes(opened)
    if left is not None:
        (tmp_path / "abort").write_bytes(left)
    for expected_findings in (["unclosed-batch"], []):
        with open_store(tmp_path, CONFIG) as store:
            assert [found.id for found in store.recovery] == expected_findings
            assert b"acknowledged" in bodies(store)
            assert len(bodies(store)) == 4


def test_a_batch_that_is_being_written_is_invisible_to_readers(tmp_path: Path) -> None:
    seen: list[list[bytes]] = []

    def while_they_come() -> Iterator[Message]:
        for number, message in enumerate(batch()):
            if number == COUNT // 2:
                with open_store(tmp_path, CONFIG, read_only=True) as reader:
                    seen.append(bodies(reader))
            yield message

    with open_store(tmp_path, CONFIG) as store:
        store.put(Message("orders", b"kept")).check()
        store.put_closed(while_they_come())
        with open_store(tmp_path, CONFIG, read_only=True) as reader:
            seen.append(bodies(reader))
    assert seen == [[b"kept"], expected([b"kept"], BATCH)]


def test_notes_that_cannot_be_read_are_not_guessed(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        store.put_closed(batch(1), writer_id="query")
    (tmp_path / "flintlog" / "batches.json").write_bytes(b"{")
    with pytest.raises(DamagedStore, match="batches"):
        open_store(tmp_path, CONFIG)
    with open_store(tmp_path, CONFIG, read_only=True) as store:
        assert [found.id for found in store.recovery] == ["damaged-note"]
        assert len(bodies(store)) == 1


def test_a_log_whose_files_with_the_batch_are_gone_is_not_cut(tmp_path: Path) -> None:
    leave_half(tmp_path)
    log = tmp_path / "commitlog"
    first = (log / f"{0:020d}").read_bytes()
    (log / f"{0:020d}").unlink()
    with open_store(tmp_path / "other", CONFIG) as store:
        for message in batch(100):
            store.put(message).check()
    for path in sorted((tmp_path / "other" / "commitlog").iterdir())[1:]:
        shutil.copy(path, log)
    assert first
    with open_store(tmp_path, CONFIG) as store:
        assert "unclosed-batch" in [found.id for found in store.recovery]
        assert store.max_physical_offset > len(first)


@pytest.mark.parametrize(("writer", "number"), [("", 0), ("\ud800", 0), ("q" * 2000, 0), ("q", -1), ("q", 1 << 63)])
def test_ids_that_cannot_be_are_refused_before_anything_is_written(tmp_path: Path, writer: str, number: int) -> None:
    with open_store(tmp_path, CONFIG) as store:
        with pytest.raises(InvalidConfig):
            store.put_closed(batch(1), writer_id=writer, batch_id=number)
        assert store.put(Message("orders", b"still fine"))


@pytest.mark.parametrize("messages", [None, "text", [Message("orders", b""), Message("a/b", b"")], [5]])
def test_a_batch_that_cannot_be_one_leaves_the_store_as_it_was(tmp_path: Path, messages: object) -> None:
    with open_store(tmp_path / "store", CONFIG) as store:
        end = store.max_physical_offset
        with pytest.raises(FlintlogError):
            store.put_closed(messages)  # type: ignore[arg-type]
        assert store.max_physical_offset == end
        assert store.put(Message("orders", b"x")).status is PutStatus.PUT_OK


def test_an_iterator_whose_first_message_is_refused_leaves_the_store_writeable(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", CONFIG) as store:
        with pytest.raises(FlintlogError):
            store.put_closed(iter([Message("a/b", b"")]))
        assert store.put(Message("orders", b"x")).status is PutStatus.PUT_OK
    with open_store(tmp_path / "store", CONFIG) as store:
        assert store.get("orders", 0, 0).messages[0].body == b"x"


@pytest.mark.parametrize(
    "wrong",
    [
        Message("orders", b"x" * (CONFIG.max_message_size + 1)),
        Message("orders", b"x" * CONFIG.mapped_file_size_commit_log),
        Message("or/ders", b"x"),
        Message("orders", b"x", properties={"a": "\x01"}),
    ],
)
def test_a_batch_with_a_message_that_cannot_be_stored_changes_nothing(wrong: Message) -> None:
    medium = FaultyMedium()
    before = filled(medium)
    with open_store(ROOT, CONFIG, medium=medium, clock=FakeClock()) as store:
        end = store._engine.log.max_offset
        with pytest.raises(FlintlogError):
            store.put_closed([*batch(2), wrong])
        assert store._engine.log.max_offset == end
        assert store.put_closed(batch(2)) is not None
        store.wait_dispatched()
        assert bodies(store) == expected(before, [bytes(message.body) for message in batch(2)])


def copied(root: Path, target: Path) -> Path:
    """What a kill would leave now, with the times of the files."""
    shutil.copytree(root, target)
    return target


def fail_once(notes: BatchNotes, monkeypatch: pytest.MonkeyPatch, *, is_saved: bool) -> None:
    """Let the next save of the note raise, after or before it has replaced the file."""
    save = notes._file.save

    def failing(content: BatchTable) -> None:
        monkeypatch.setattr(notes._file, "save", save)
        if is_saved:
            save(content)
        raise DiskFull("no space left")

    monkeypatch.setattr(notes._file, "save", failing)


def test_puts_after_a_note_that_failed_when_it_was_written_are_kept_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "store", CONFIG) as store:
        fail_once(store._engine.batch_notes, monkeypatch, is_saved=True)
        with pytest.raises(DiskFull):
            store.put_closed(batch(), writer_id="w", batch_id=1)
        assert all(store.put(message) for message in batch(5, "after"))
        store.flush()
        left = copied(tmp_path / "store", tmp_path / "left")
    with open_store(left, CONFIG) as store:
        assert bodies(store) == sorted(bytes(message.body) for message in batch(5, "after"))


def test_a_batch_whose_note_was_never_written_is_not_taken_for_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path, CONFIG) as store:
        fail_once(store._engine.batch_notes, monkeypatch, is_saved=False)
        with pytest.raises(DiskFull):
            store.put_closed(batch(), writer_id="w", batch_id=1)
        assert store.put_closed(batch(3, "other"), writer_id="v", batch_id=1) is not None
        assert store.put_closed(batch(), writer_id="w", batch_id=1) is not None


def test_when_the_note_cannot_be_taken_back_no_put_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: BatchTable) -> None:
        raise DiskFull("no space left")

    store = open_store(tmp_path, CONFIG)
    monkeypatch.setattr(store._engine.batch_notes._file, "save", failing)
    with pytest.raises(DiskFull):
        store.put_closed(batch(), writer_id="w", batch_id=1)
    assert store.put(Message("orders", b"late"), check=False).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.close()


def interrupt_closing(store: Store, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Put a batch, interrupted so many times after its marker."""
    close, left = store._engine.batch_notes.close, iter(range(times))

    def interrupted() -> None:
        if next(left, None) is not None:
            raise KeyboardInterrupt
        close()

    monkeypatch.setattr(store._engine, "on_tick", lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(store._engine.batch_notes, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.put_closed(batch(), writer_id="w", batch_id=1)


def notes_of(root: Path) -> tuple[int | None, dict[str, int]]:
    notes = (root / "flintlog" / "batches.json").read_bytes()
    return parse_opened_start(notes), parse_closed(notes)


def test_a_batch_that_was_interrupted_after_its_marker_is_closed_when_the_call_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path, CONFIG) as store:
        interrupt_closing(store, monkeypatch, 1)
        assert notes_of(tmp_path) == (None, {"w": 1})
        assert store.put_closed(batch(), writer_id="w", batch_id=1) is None


def test_a_batch_that_was_interrupted_twice_after_its_marker_is_closed_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path, CONFIG) as store:
        settle = store._engine.on_tick
        interrupt_closing(store, monkeypatch, 2)
        assert notes_of(tmp_path)[0] is not None
        monkeypatch.setattr(store._engine, "on_tick", settle)
        wait_until(lambda: notes_of(tmp_path) == (None, {"w": 1}))


def test_a_batch_that_was_interrupted_twice_after_its_marker_is_skipped_when_it_is_put_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path, CONFIG) as store:
        interrupt_closing(store, monkeypatch, 2)
        assert store.producer("w").next_sequence == 2
        assert store.put_closed(batch(), writer_id="w", batch_id=1) is None
        assert notes_of(tmp_path) == (None, {"w": 1})
        store.wait_dispatched()
        assert bodies(store) == expected(BATCH)


def test_a_batch_that_was_interrupted_twice_after_its_marker_is_closed_by_a_clean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path, CONFIG)
    interrupt_closing(store, monkeypatch, 2)
    store.close()
    assert notes_of(tmp_path) == (None, {"w": 1})
