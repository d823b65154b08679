"""The CRC over a whole record: what the body's CRC does not see is found by it, and reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.small_store import ASYNC, bodies

from flintlog import DamagedRecord, Message, StoreConfig, open_store
from flintlog.derive.log_files import LogFile
from flintlog.derive.splits import Split
from flintlog.kernel import Crc
from flintlog.maintenance.inspect.log_reader import LogReader
from flintlog.maintenance.inspect.store_files import look_at
from flintlog.maintenance.verify.verify import verify
from flintlog.pipeline.reading.partitions import LogSplit
from flintlog.pipeline.reading.reading import Reading
from flintlog.pipeline.reading.rows import RowShape
from flintlog.replication.ha import follower as slave
from flintlog.replication.ha.wire import Frame

SEALED = ASYNC.with_changes(enabled_append_prop_crc=True)
FORCED = ASYNC.with_changes(force_verify_prop_crc=True)


def _fill(root: Path, config: StoreConfig = SEALED) -> list[int]:
    with open_store(root, config) as store:
        put = [store.put(Message("orders", b"%d" % n, keys=["k"], properties={"amount": "100"})) for n in range(3)]
    return [receipt.check().physical_offset for receipt in put]


def _change(root: Path, offset: int) -> None:
    """100 becomes 900 in the properties of a record."""
    path = root / "commitlog" / "00000000000000000000"
    content = bytearray(path.read_bytes())
    content[content.index(b"amount\x01100", offset) + 7] = ord("9")
    path.write_bytes(content)


@pytest.mark.parametrize("config", [SEALED, SEALED.with_changes(force_verify_prop_crc=True)], ids=["on", "forced"])
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_changed_property_is_found(tmp_path: Path, config: StoreConfig, is_clean: bool, number: int) -> None:
    offsets = _fill(tmp_path)
    _change(tmp_path, offsets[number])
    if not is_clean:
        (tmp_path / "abort").write_text("1")
    with open_store(tmp_path, config) as store:
        (found,) = store.recovery
        assert (found.id, found.severity, found.physical_offset) == ("damaged-record", "error", offsets[number])
        assert "CRC over all of it" in found.evidence
        with pytest.raises(DamagedRecord, match="CRC over all of it"):
            store.get("orders", 0, number, 1)
        with pytest.raises(DamagedRecord, match="CRC over all of it"):
            store.message_at(offsets[number])
        assert len(store.query("orders", "k")) == 2
        for other in {0, 1, 2} - {number}:
            assert bodies(store.get("orders", 0, other, 1).messages) == [b"%d" % other]


@pytest.mark.parametrize("left", [0, 3, 12, 30])
def test_a_record_whose_end_was_never_written_is_damaged(tmp_path: Path, left: int) -> None:
    """Head and body are right, and where the CRC belongs there are zeros: as if it had never had one."""
    first, second, _ = _fill(tmp_path)
    path = tmp_path / "commitlog" / "00000000000000000000"
    content = bytearray(path.read_bytes())
    content[second - 20 - 12 + left : second] = bytes(32 - left)
    path.write_bytes(content)
    (tmp_path / "abort").write_text("1")
    with open_store(tmp_path, SEALED) as store:
        assert [(found.id, found.physical_offset) for found in store.recovery] == [("damaged-record", first)]
        with pytest.raises(DamagedRecord, match="CRC over all of it"):
            store.get("orders", 0, 0, 1)
        assert bodies(store.get("orders", 0, 1).messages) == [b"1", b"2"]


def test_whole_records_are_intact_however_they_came(tmp_path: Path) -> None:
    with open_store(tmp_path, SEALED.with_changes(force_verify_prop_crc=True)) as store:
        store.put(Message("orders", b"single")).check()
        store.put_batch([Message("orders", b"batch %d" % n, keys=[f"k{n}"]) for n in range(3)])
        store.put_closed([Message("orders", b"closed")], writer_id="w", batch_id=1)
        assert len(store.get("orders", 0, 0).messages) == 5
    (tmp_path / "abort").write_text("1")
    with open_store(tmp_path, SEALED.with_changes(force_verify_prop_crc=True)) as store:
        assert list(store.recovery) == []
        assert len(store.get("orders", 0, 0).messages) == 5


def test_a_record_without_one_is_damaged_only_where_it_is_demanded(tmp_path: Path) -> None:
    offsets = _fill(tmp_path, ASYNC)
    with open_store(tmp_path, SEALED) as store:
        assert list(store.recovery) == []
        assert len(store.get("orders", 0, 0).messages) == 3
    with open_store(tmp_path, FORCED) as store:
        assert [finding.physical_offset for finding in store.recovery] == offsets
        with pytest.raises(DamagedRecord, match="force_verify_prop_crc"):
            store.get("orders", 0, 0, 1)


def test_where_none_is_written_one_that_a_client_sent_along_is_not_looked_at(tmp_path: Path) -> None:
    with open_store(tmp_path, ASYNC) as store:
        store.put(Message("orders", b"x", properties={"__CRC32#": "0123456789"})).check()
        assert bodies(store.get("orders", 0, 0).messages) == [b"x"]


def test_a_store_that_writes_none_looks_at_none(tmp_path: Path) -> None:
    offsets = _fill(tmp_path)
    _change(tmp_path, offsets[0])
    with open_store(tmp_path, ASYNC) as store:
        assert list(store.recovery) == []
        assert store.message_at(offsets[0]) is not None


def test_verify_names_the_record_and_blames_neither_queue_nor_index(tmp_path: Path) -> None:
    offsets = _fill(tmp_path)
    _change(tmp_path, offsets[1])
    for config in (SEALED, None):
        (found,) = verify(tmp_path, config).findings
        assert (found.id, found.severity, found.physical_offset) == ("damaged-range", "error", offsets[1])
        assert "does not match the CRC over all of it" in found.evidence
    assert verify(tmp_path, ASYNC).findings == []


def test_verify_demands_one_where_the_configuration_does(tmp_path: Path) -> None:
    offsets = _fill(tmp_path, ASYNC)
    assert verify(tmp_path).findings == []
    found = verify(tmp_path, FORCED).findings
    assert [(each.id, each.physical_offset) for each in found] == [("damaged-record", offset) for offset in offsets]
    assert "must have one" in found[0].evidence


def test_a_scan_and_a_reader_of_the_directory_pass_it_over(tmp_path: Path) -> None:
    offsets = _fill(tmp_path)
    _change(tmp_path, offsets[1])
    with open_store(tmp_path, SEALED) as store:
        assert [body for batch in store.scan() for body in batch.column("body").to_pylist()] == [b"0", b"2"]
    passed: list[tuple[int, int, str]] = []
    reader = LogReader(look_at(tmp_path), lambda *place: passed.append(place))
    assert bodies(list(reader.messages())) == [b"0", b"2"]
    assert passed == [(offsets[1], offsets[2], "bad record crc")]
    damage = reader.damage_at(offsets[1])
    assert damage is not None and "does not match the CRC over all of it" in str(damage.error)


@pytest.mark.parametrize("fails", [True, False], ids=["failing", "reading on"])
def test_spark_passes_it_over_where_sums_are_asked_for(tmp_path: Path, fails: bool) -> None:
    offsets = _fill(tmp_path)
    _change(tmp_path, offsets[1])
    path = tmp_path / "commitlog" / "00000000000000000000"
    size = path.stat().st_size
    file = LogFile(path.name, 0, size)
    planned = LogSplit("b", str(path.parent), Split(file, 0, size))
    reading = Reading(RowShape(), verify_crc=True, fail_on_data_loss=fails)
    if fails:
        with pytest.raises(DamagedRecord, match="the CRC over all of it"):
            list(reading.read(planned))
    else:
        assert sum(batch.num_rows for batch in reading.read(planned)) == 2


def test_a_slave_refuses_it(tmp_path: Path) -> None:
    offsets = _fill(tmp_path)
    whole = (tmp_path / "commitlog" / "00000000000000000000").read_bytes().rstrip(b"\0")
    _change(tmp_path, offsets[1])
    rotten = (tmp_path / "commitlog" / "00000000000000000000").read_bytes()[: len(whole)]
    for data, appended in ((whole, whole), (rotten, None)):
        follower = slave.Follower(slave.FollowOptions(1 << 20, checked_crc=Crc.RECORD), now_ms=0)
        follower.step(slave.Connected(-1), 0)
        (action,) = follower.step(slave.Received((Frame(0, data),)), 0)
        assert isinstance(action, slave.Close) if appended is None else action == slave.Append(0, whole, ())
