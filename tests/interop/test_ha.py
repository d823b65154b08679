"""Our slave behind a Java master, and a Java slave behind ours: the same files, through restarts of either."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tests.replication.ha_pair import files, running_master, running_slave, wait_until

from flintlog.store.model.message import Message
from flintlog.store.open_store import open_store
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.store import Store
from flintlog.testing.free_ports import free_ports
from interop.java_store import JavaStore
from interop.store_view import view_of
from interop.workload import OPTIONS, QUEUE_TYPES, Put, workload

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java"), pytest.mark.timeout(300)]

HA = {**OPTIONS, "mappedFileSizeCommitLog": str(256 * 1024), "haSendHeartbeatInterval": "200"}
SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "totalReplicas": "2", "slaveTimeout": "10000"}
ROLES = pytest.mark.parametrize("role", [SYNC, {"brokerRole": "ASYNC_MASTER"}], ids=["sync", "async"])
COUNT = 1000


def _ours(**changes: str) -> StoreConfig:
    return StoreConfig.from_rocketmq({**HA, **changes}).with_changes(topic_queue_types=QUEUE_TYPES)


def _java(path: Path, changes: dict[str, str]) -> JavaStore:
    return JavaStore(path, {**HA, **changes}, topic_queue_types=QUEUE_TYPES)


def _put(store: Store, puts: Iterable[Put]) -> None:
    for put in puts:
        receipts = [store.put(put)] if isinstance(put, Message) else store.put_batch(list(put))
        assert all(receipts), receipts


def _wait(end: Callable[[], int], wanted: int) -> None:
    wait_until(lambda: end() == wanted, 60.0)


def _log(path: Path) -> dict[str, bytes]:
    """The log's files, without one that was made ahead."""
    return {name: content for name, content in files(path).items() if content.strip(b"\0")}


def _same_messages(one: Path, other: Path) -> None:
    assert _log(one) == _log(other)
    assert files(one, "consumequeue") == files(other, "consumequeue")
    assert files(one, "batchconsumequeue") == files(other, "batchconsumequeue")


@ROLES
def test_our_slave_behind_a_java_master(tmp_path: Path, role: dict[str, str]) -> None:
    theirs, ours, port = tmp_path / "java", tmp_path / "ours", free_ports(1)[0]
    puts = list(workload(COUNT, seed=5))
    options = {**role, "haListenPort": str(port)}
    slave_config = _ours(brokerRole="SLAVE")
    with _java(theirs, options) as java, running_slave(ours, port, slave_config) as (slave, _):
        assert {each.status for each in java.put(puts[:200])} == {"PUT_OK"}
        _wait(lambda: slave.replication.raw_log.end, java.info().max_phy_offset)
    with _java(theirs, options) as java:
        with running_slave(ours, port, slave_config) as (slave, _):
            assert {each.status for each in java.put(puts[200:400])} == {"PUT_OK"}
            _wait(lambda: slave.replication.raw_log.end, java.info().max_phy_offset)
        with running_slave(ours, port, slave_config) as (slave, _):
            assert {each.status for each in java.put(puts[400:])} == {"PUT_OK"}
            java.wait_dispatched()
            _wait(lambda: slave.replication.raw_log.end, java.info().max_phy_offset)
            slave.wait_dispatched()
            java.verify_against(view_of(slave))
    assert len(_log(ours)) > 1
    _same_messages(theirs, ours)


@ROLES
def test_a_java_slave_behind_our_master(tmp_path: Path, role: dict[str, str]) -> None:
    theirs, ours = tmp_path / "java", tmp_path / "ours"
    puts = list(workload(COUNT, seed=6))
    config = _ours(**role)
    with open_store(ours, _ours()) as store:  # more than one file: ours serves an empty slave from the beginning
        _put(store, puts[:400])
        end = store.replication.raw_log.end
    with running_master(ours, config) as (master, _, port):
        with _java(theirs, {"brokerRole": "SLAVE"}) as java:
            java.follow(f"127.0.0.1:{port}")
            _wait(lambda: java.info().max_phy_offset, end)
            _put(master, puts[400:500])
            _wait(lambda: java.info().max_phy_offset, master.replication.raw_log.end)
        with _java(theirs, {"brokerRole": "SLAVE"}) as java:
            java.follow(f"127.0.0.1:{port}")
            _put(master, puts[500:600])
            _wait(lambda: java.info().max_phy_offset, master.replication.raw_log.end)
    with running_master(ours, config) as (master, _, port), _java(theirs, {"brokerRole": "SLAVE"}) as java:
        java.follow(f"127.0.0.1:{port}")
        _put(master, puts[600:])
        _wait(lambda: java.info().max_phy_offset, master.replication.raw_log.end)
        java.verify_against(view_of(master))
    _same_messages(ours, theirs)


def test_our_empty_slave_begins_with_a_java_masters_last_file(tmp_path: Path) -> None:
    theirs, ours, port = tmp_path / "java", tmp_path / "ours", free_ports(1)[0]
    with _java(theirs, {"brokerRole": "ASYNC_MASTER", "haListenPort": str(port)}) as java:
        java.put(workload(1200, seed=7))
        with running_slave(ours, port, _ours(brokerRole="SLAVE")) as (slave, _):
            _wait(lambda: slave.replication.raw_log.end, java.info().max_phy_offset)
            assert slave.replication.raw_log.start > 0
            time.sleep(0.5)
            assert {each.status for each in java.put([Message("orders", b"one more")])} == {"PUT_OK"}
            _wait(lambda: slave.replication.raw_log.end, java.info().max_phy_offset)
    name, content = _log(ours).popitem()
    assert _log(theirs)[name] == content
    with open_store(ours, _ours()) as store:
        assert store.recovery.findings == ()
