"""How far groups are: never backwards, saved in time, in the file that RocketMQ writes."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Golden
from tests.store.small_store import SMALL, bytes_of

from flintlog import DamagedStore, InvalidConfig, InvalidOffset, InvalidTopic, Message, StoreClosed, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import DiskFull
from flintlog.format.config_json import encode_config_json, parse_config_object
from flintlog.store.runtime.jobs import NEVER
from flintlog.store.settings.consumer_offsets import ConsumerOffsets
from flintlog.store.settings.json_file import JsonFile
from flintlog.testing import FakeClock, temporary_store

INTERVAL_MS = 5000
_VERSION = re.compile(rb'"dataVersion":\{[^}]*\}')


def make(path: Path, clock: FakeClock | None = None) -> ConsumerOffsets:
    clock = FakeClock() if clock is None else clock
    return ConsumerOffsets(JsonFile(path, LocalMedium()), clock.now_ms, INTERVAL_MS, flush=lambda: None)


def test_a_file_of_javas_is_written_back_as_it_was(golden: Golden, tmp_path: Path) -> None:
    theirs = (golden("delay") / "store/config/consumerOffset.json").read_bytes()
    path = tmp_path / "consumerOffset.json"
    path.write_bytes(theirs)
    offsets = make(path)
    offsets.load()
    assert encode_config_json(offsets._encode()) == theirs
    assert offsets.offsets("CG_timer", "TimerTopic") == {0: 10, 1: 10, 2: 10, 3: 10}
    assert offsets.topics_of("CG_delay") == ["%RETRY%CG_delay", "DelayTopic"]
    assert offsets.groups_of("DelayTopic") == ["CG_delay"]


def test_a_new_file_is_the_one_that_java_writes(golden: Golden, tmp_path: Path) -> None:
    theirs = parse_config_object((golden("delay") / "store/config/consumerOffset.json").read_bytes())
    path = tmp_path / "consumerOffset.json"
    offsets = make(path)
    for queue_id in (3, 0, 2, 1):
        offsets.commit("CG_delay", "DelayTopic", queue_id, 15)
        offsets.commit("CG_timer", "TimerTopic", queue_id, 10)
    offsets.commit("CG_delay", "%RETRY%CG_delay", 0, 3)
    assert offsets.save() and not offsets.save()
    theirs["pullOffsetTable"] = {}
    assert _VERSION.sub(b"", path.read_bytes()) == _VERSION.sub(b"", encode_config_json(theirs))


def test_a_commit_never_goes_back_and_a_reset_may(tmp_path: Path) -> None:
    offsets = make(tmp_path / "consumerOffset.json")
    assert offsets.commit("g", "orders", 0, 5)
    assert not offsets.commit("g", "orders", 0, 5) and not offsets.commit("g", "orders", 0, 3)
    assert offsets.get("g", "orders", 0) == 5
    offsets.reset("g", "orders", 0, 3)
    assert offsets.get("g", "orders", 0) == 3
    assert offsets.get("g", "orders", 1) is None and offsets.get("h", "orders", 0) is None
    assert offsets.commit("g", "orders", 1, 0) and offsets.get("g", "orders", 1) == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50)), max_size=40))
def test_whatever_is_committed_the_highest_stays(commits: list[tuple[int, int]]) -> None:
    offsets = make(Path("nowhere"))
    for queue_id, offset in commits:
        before = offsets.get("g", "t", queue_id)
        offsets.commit("g", "t", queue_id, offset)
        after = offsets.get("g", "t", queue_id)
        assert after is not None and after >= (before or 0)
    for queue_id in {queue_id for queue_id, _ in commits}:
        assert offsets.get("g", "t", queue_id) == max(offset for queue, offset in commits if queue == queue_id)


def test_the_first_change_is_saved_an_interval_later_and_nothing_more(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "config/consumerOffset.json"
    with open_store(tmp_path, SMALL.with_changes(flush_consumer_offset_interval=INTERVAL_MS), clock=clock) as store:
        clock.advance(60_000)
        store.put(Message("orders", b"")).check()
        store.consumer_offsets.commit("g", "orders", 0, 1)
        clock.advance(INTERVAL_MS - 1)
        assert not path.exists()
        clock.advance(1)
        assert parse_config_object(path.read_bytes())["offsetTable"] == {"orders@g": {0: 1}}
        saved = path.stat().st_mtime_ns
        clock.advance(10 * INTERVAL_MS)
        assert path.stat().st_mtime_ns == saved, "nothing changed, and it was written again"
        store.consumer_offsets.reset("g", "orders", 0, 0)
        clock.advance(INTERVAL_MS)
        assert parse_config_object(path.read_bytes())["offsetTable"] == {"orders@g": {0: 0}}


def test_what_was_not_saved_in_time_is_saved_at_the_stop(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put(Message("orders", b"")).check()
        store.consumer_offsets.commit("g", "orders", 0, 1)
    with open_store(tmp_path, SMALL) as store:
        assert store.consumer_offsets.get("g", "orders", 0) == 1


def test_a_store_that_is_closed_takes_no_commit(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        for _ in range(3):
            store.put(Message("orders", b"")).check()
        offsets = store.consumer_offsets
        consumer = store.consumer("g", "orders")
        message = consumer.poll()
        assert message is not None
    for change in (
        lambda: offsets.commit("g", "orders", 0, 2),
        lambda: offsets.reset("g", "orders", 0, 2),
        lambda: offsets.remove_group("g"),
        lambda: consumer.acknowledge(message),
    ):
        with pytest.raises(StoreClosed):
            change()
    assert not offsets.save()
    with open_store(tmp_path, SMALL) as store:
        assert store.consumer_offsets.get("g", "orders", 0) == 0


def test_a_commit_is_refused_or_in_the_last_save(tmp_path: Path) -> None:
    def commit(offsets: ConsumerOffsets, taken: list[int]) -> None:
        with suppress(StoreClosed):
            for offset in range(1, 10_000_000):
                offsets.commit("g", "orders", 0, offset)
                taken[0] = offset

    for number in range(20):
        path, taken = tmp_path / str(number), [0]
        with open_store(path, SMALL) as store:
            thread = threading.Thread(target=commit, args=(store.consumer_offsets, taken))
            thread.start()
            while not taken[0]:
                pass
        thread.join()
        content = parse_config_object((path / "config" / "consumerOffset.json").read_bytes())
        assert content["offsetTable"] == {"orders@g": {0: taken[0]}}


def test_a_thread_saves_by_the_systems_clock_and_there_is_none_before_a_commit(tmp_path: Path) -> None:
    path = tmp_path / "config/consumerOffset.json"
    with open_store(tmp_path, SMALL.with_changes(flush_consumer_offset_interval=20)) as store:
        assert not _job_threads()
        store.consumer_offsets.commit("g", "orders", 0, 0)
        (thread,) = _job_threads()
        deadline = threading.Event()
        for _ in range(500):
            if path.exists():
                break
            deadline.wait(0.01)
        assert path.exists() and thread.is_alive()
    assert not _job_threads()


def _job_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "flintlog-consumer-offsets"]


def test_a_save_that_failed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    offsets = make(tmp_path / "consumerOffset.json", clock)

    def full(*_: object) -> None:
        raise DiskFull("no space")

    assert offsets.run_due() == NEVER
    offsets.commit("g", "orders", 0, 1)
    assert offsets.run_due() == clock.now_ms() + INTERVAL_MS
    clock.advance(INTERVAL_MS)
    with monkeypatch.context() as patch:
        patch.setattr(JsonFile, "save", full)
        with pytest.raises(DiskFull):
            offsets.run_due()
    assert offsets.run_due() == NEVER
    assert (tmp_path / "consumerOffset.json").exists()


def test_a_later_save_is_not_overwritten_by_an_earlier_one(tmp_path: Path) -> None:
    """As when the flush of a save calls a listener that commits and saves."""
    inner: list[bool] = []

    def flush() -> None:
        if not inner:
            inner.append(True)
            offsets.commit("g", "orders", 0, 2)
            assert offsets.save()

    file = JsonFile(tmp_path / "consumerOffset.json", LocalMedium())
    offsets = ConsumerOffsets(file, FakeClock().now_ms, INTERVAL_MS, flush=flush)
    offsets.commit("g", "orders", 0, 1)
    offsets.save()
    again = make(tmp_path / "consumerOffset.json")
    again.load()
    assert again.get("g", "orders", 0) == 2


def test_the_version_counts_every_five_hundredth_commit(tmp_path: Path) -> None:
    offsets = make(tmp_path / "consumerOffset.json")
    for offset in range(1, 1500):
        offsets.commit("g", "orders", 0, offset)
    offsets.save()
    version = parse_config_object((tmp_path / "consumerOffset.json").read_bytes())["dataVersion"]
    assert isinstance(version, dict) and version["counter"] == 2


def test_offsets_beyond_what_the_log_kept_are_brought_back(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        for _ in range(3):
            store.put(Message("orders", b"")).check()
        store.consumer_offsets.commit("g", "orders", 0, 7)
        store.consumer_offsets.commit("g", "events", 2, 4)
        store.consumer_offsets.commit("h", "orders", 0, 3)
    with open_store(tmp_path, SMALL, read_only=True) as store:
        assert store.consumer_offsets.get("g", "orders", 0) == 7 and len(store.recovery) == 0
    with open_store(tmp_path, SMALL) as store:
        assert store.consumer_offsets.offsets("g", "orders") == {0: 3}
        assert store.consumer_offsets.offsets("g", "events") == {2: 0}
        assert store.consumer_offsets.offsets("h", "orders") == {0: 3}
        assert [finding.id for finding in store.recovery] == ["offset-beyond-queue"] * 2
    with open_store(tmp_path, SMALL.with_changes(broker_role="SLAVE")) as store:
        store.consumer_offsets.reset("g", "orders", 0, 9)
    with open_store(tmp_path, SMALL.with_changes(broker_role="SLAVE")) as store:
        assert store.consumer_offsets.get("g", "orders", 0) == 9, "a slave's offsets are its master's"


BROKEN = [
    "{ torn",
    '{"offsetTable":[]}',
    '{"offsetTable":{"t@g":{"x":1}}}',
    '{"offsetTable":{"t@g":{0:"x"}}}',
    '{"offsetTable":{"orders@g":{0:-1}}}',
    '{"offsetTable":{"orders@g":{0:1,1:9223372036854775808}}}',
    '{"lmqOffsetTable":{"orders@g":-1}}',
]


@pytest.mark.parametrize("broken", ["", *BROKEN])
def test_a_broken_file_is_replaced_by_its_backup_and_that_is_a_finding(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "config/consumerOffset.json"
    for end in (1, 2):
        with open_store(tmp_path, SMALL) as store:
            store.put(Message("orders", b"")).check()
            store.consumer_offsets.commit("g", "orders", 0, end)
    path.write_text(broken)
    with open_store(tmp_path, SMALL) as store:
        assert store.consumer_offsets.get("g", "orders", 0) == 1
        assert [finding.id for finding in store.recovery] == ["config-restored"]


@pytest.mark.parametrize("broken", BROKEN)
def test_when_nothing_can_be_made_of_the_file_nothing_is_overwritten(tmp_path: Path, broken: str) -> None:
    (tmp_path / "config").mkdir()
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (tmp_path / "config" / name).write_text(broken)
    before = bytes_of(tmp_path / "config")
    with pytest.raises(DamagedStore):
        open_store(tmp_path, SMALL)
    assert bytes_of(tmp_path / "config") == before


def test_the_greatest_offset_of_javas_is_an_offset(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text('{"offsetTable":{"t@g":{0:9223372036854775807,1:0}}}')
    offsets = make(path)
    offsets.load()
    assert offsets.offsets("g", "t") == {0: (1 << 63) - 1, 1: 0}


def test_keys_of_another_form_are_kept_and_are_nobodys(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text('{"offsetTable":{"a@b@c":{"0":5},"alone":{1:2},"t@g":{0:1}},"later":{"x":1}}')
    offsets = make(path)
    offsets.load()
    assert offsets.groups_of("t") == ["g"] and offsets.groups_of("a") == [] and offsets.topics_of("c") == []
    offsets.commit("g", "t", 0, 9)
    offsets.remove_topic("alone")
    offsets.save()
    found = parse_config_object(path.read_bytes())
    assert found["later"] == {"x": 1} and found["groupTopicMap"] == {"g": ["t"]}
    assert found["offsetTable"] == {"a@b@c": {0: 5}, "alone": {1: 2}, "t@g": {0: 9}}


def test_bad_input_is_named() -> None:
    with temporary_store(SMALL) as store:
        offsets = store.consumer_offsets
        for change in (offsets.commit, offsets.reset):
            with pytest.raises(InvalidConfig):
                change("a@b", "orders", 0, 1)
            with pytest.raises(InvalidConfig):
                change("", "orders", 0, 1)
            with pytest.raises(InvalidTopic):
                change("g", "or@ders", 0, 1)
            with pytest.raises(InvalidOffset):
                change("g", "orders", -1, 1)
            with pytest.raises(InvalidOffset):
                change("g", "orders", 0, -1)
        assert offsets.topics_of("g") == []


def test_threads_commit_and_save_beside_each_other(tmp_path: Path) -> None:
    offsets = make(tmp_path / "consumerOffset.json")

    def work(queue_id: int) -> None:
        for offset in range(1, 300):
            offsets.commit("g", "orders", queue_id, offset)
            if offset % 50 == 0:
                offsets.save()

    threads = [threading.Thread(target=work, args=(queue_id,)) for queue_id in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    offsets.save()
    again = make(tmp_path / "consumerOffset.json")
    again.load()
    assert again.offsets("g", "orders") == dict.fromkeys(range(4), 299)
