"""The golden store `halves` of a real broker: the same transactions make the same records, and they continue."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
from tests.conftest import Golden
from tests.services.transaction_replay import GROUP, UNDECIDED, log_of, message_of, replay
from tests.services.transaction_store import DISCARD, HALF, OP, opened, read
from tests.store.golden_cases import config_of

from flintlog import StoreConfig, StoredMessage
from flintlog.services.transaction.transaction_records import read_op
from flintlog.services.transaction.transaction_service import Decision, UndecidedTransaction
from flintlog.testing import FakeClock


@pytest.fixture
def config(golden: Golden) -> StoreConfig:
    return config_of(golden("halves"), services=frozenset({"transaction"}))


def files(folder: Path) -> dict[str, bytes]:
    """Every file with content; a writer creates the log's next file in advance."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if any(data)}


def left_undecided(log: list[StoredMessage]) -> set[str | None]:
    """The transactions of which the log holds no end of any kind."""
    noted = {offset for stored in log if stored.topic == OP for offset in read_op(stored)}
    ended = {stored.uniq_key for stored in log if stored.topic not in (HALF, OP)}
    ended |= {stored.uniq_key for stored in log if stored.topic == HALF and stored.queue_offset in noted}
    return {stored.uniq_key for stored in log if stored.topic == HALF} - ended


def test_every_record_is_made_again_byte_for_byte(golden: Golden, config: StoreConfig, tmp_path: Path) -> None:
    theirs = golden("halves") / "store"
    replay(theirs, tmp_path / "ours", config)
    for name in ("commitlog", "consumequeue"):
        assert files(tmp_path / "ours" / name) == files(theirs / name), name


def test_begin_commit_and_rollback_put_the_brokers_records(golden: Golden, config: StoreConfig, tmp_path: Path) -> None:
    """Through the service itself: first the beginnings, then one of each decision."""
    log = log_of(golden("halves") / "store", config)
    halves = list(itertools.takewhile(lambda stored: "TRANSACTION_CHECK_TIMES" not in stored.properties, log))
    places = {half.physical_offset: half for half in halves}
    theirs = next(
        stored for stored in log if places.get(stored.prepared_transaction_offset, halves[0]) is not halves[0]
    )
    assert len(halves) == 5
    clock = FakeClock(halves[0].store_timestamp)
    with opened(tmp_path, clock, config) as (store, service):
        for half in halves:
            message = message_of(int(half.properties["i"]))
            message.born_timestamp = half.born_timestamp
            message.properties = {**(message.properties or {}), "UNIQ_KEY": str(half.uniq_key)}
            clock.set(half.store_timestamp)
            receipt = service.begin(message, GROUP).receipt
            found = store.message_at(receipt.physical_offset)
            assert found is not None and found.record == half.record
        committed = store.message_at(service.commit(str(theirs.uniq_key)).check().physical_offset)
        assert committed is not None
        for field in (
            "topic",
            "queue_id",
            "body",
            "properties",
            "flag",
            "sys_flag",
            "prepared_transaction_offset",
            "born_host",
        ):
            assert getattr(committed, field) == getattr(theirs, field), field
        noted = store.message_at(service.rollback("T3").check().physical_offset)
        assert noted is not None
        assert (noted.topic, noted.body, noted.properties) == (OP, b"3,", {"WAIT": "true", "TAGS": "d"})


def test_we_go_on_where_the_broker_stopped(golden: Golden, config: StoreConfig, tmp_path: Path) -> None:
    shutil.copytree(golden("halves") / "store", tmp_path / "store")
    log = log_of(tmp_path / "store", config)
    waiting = left_undecided(log)
    assert {f"T{number}" for number in UNDECIDED} < waiting
    clock = FakeClock(log[-1].store_timestamp)
    asked: list[str] = []

    def owner(transaction: UndecidedTransaction) -> Decision:
        asked.append(transaction.id)
        return Decision.COMMIT if transaction.id == "T105" else Decision.UNKNOWN

    with opened(tmp_path / "store", clock, config) as (store, service):
        given_up = {message.uniq_key for message in read(store, DISCARD)}
        assert {each.id for each in service.undecided()} == waiting
        service.rollback("T100", GROUP).check()
        service.on_check(owner)
        for _ in range(8):
            clock.advance(1000)
        assert {"T101", "T105"} <= set(asked) <= waiting - {"T100"} and asked.count("T105") == 1
        assert [message.uniq_key for message in read(store, "paid-0", 1)].count("T105") == 1
        assert {message.uniq_key for message in read(store, DISCARD)} == given_up | waiting - {"T100", "T105"}
        assert service.undecided() == []
