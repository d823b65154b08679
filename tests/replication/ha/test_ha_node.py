"""Nodes: changing places, logs that part, settings that follow."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.replication.ha_pair import MASTER, files, fill, wait_until
from tests.store.small_store import SMALL

from flintlog import Message, PutStatus, StoreConfig, open_store
from flintlog.errors import DamagedStore, InvalidConfig, PeerFailed
from flintlog.remoting.client import RemotingClient
from flintlog.remoting.codes import ANNOUNCE_REPLICA, COMPARE_LOG, GET_BROKER_HA_STATUS
from flintlog.remoting.frame import Command
from flintlog.remoting.server import RemotingServer
from flintlog.replication.ha import compare as comparing
from flintlog.replication.ha.master import HaMaster
from flintlog.replication.ha.master_epoch import MasterEpochFile
from flintlog.replication.ha.metadata import PARTS, MetadataFollower
from flintlog.replication.ha.node import HaNode
from flintlog.replication.ha.wire import encode_report
from flintlog.replication.status import parse_status

ANY_MASTER = MASTER.with_changes(ha_listen_port=0, slave_timeout=1000)


@contextmanager
def master_at(path: Path, config: StoreConfig = ANY_MASTER) -> Iterator[HaNode]:
    node = HaNode(path, config, port=0)
    node.start()
    try:
        yield node
    finally:
        node.stop()


@contextmanager
def slave_at(
    path: Path,
    master: HaNode,
    config: StoreConfig = SMALL,
    *,
    remoting_port: int | None = None,
    cut_to_master: bool = False,
    compare_logs: bool = True,
) -> Iterator[HaNode]:
    config = config.with_changes(
        broker_role="SLAVE",
        ha_master_address=f"127.0.0.1:{master.ha_port}",
        ha_send_heartbeat_interval=200,
        ha_listen_port=0,
    )
    node = HaNode(
        path,
        config,
        port=0,
        master_remoting=f"127.0.0.1:{remoting_port or master.port}",
        cut_to_master=cut_to_master,
        compare_logs=compare_logs,
        reconnect_s=0.05,
        poll_s=0.1,
    )
    node.start()
    try:
        yield node
    finally:
        node.stop()


def content_of(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def kept_bytes(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((path / "flintlog" / "cut").iterdir()))


def test_the_old_master_comes_back_as_the_slave_of_the_new_one(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with master_at(old) as master, slave_at(new, master):
        fill(master.store, 30)
    with open_store(old, ANY_MASTER.with_changes(slave_timeout=50)) as alone:
        for number in range(400):
            assert not alone.put_async(Message("orders", b"never confirmed %d" % number * 20)).done()
        end = alone.replication.raw_log.end
    with master_at(new, ANY_MASTER.with_changes(broker_role="ASYNC_MASTER")) as promoted:
        common = promoted.store.replication.raw_log.end
        assert end > common
        fill(promoted.store, 10, 30)
        with slave_at(old, promoted) as slave:
            wait_until(lambda: slave.store.replication.raw_log.end == promoted.store.replication.raw_log.end)
            wait_until(lambda: slave.store.queues() == promoted.store.queues())
            fill(promoted.store, 10, 40)
            wait_until(lambda: slave.store.queues() == promoted.store.queues())
    assert files(old) == files(new)
    assert kept_bytes(old).count(b"never confirmed") == 400 * 20
    with open_store(old, SMALL) as store:
        assert store.recovery.findings == ()
        assert store.get("orders", 0, 0, 64).messages[-1].body == bytes(48)


def pair_of(tmp_path: Path, count: int) -> tuple[Path, Path]:
    """A master's directory and its slave's, with the same messages."""
    with master_at(tmp_path / "a") as master, slave_at(tmp_path / "b", master):
        fill(master.store, count)
    return tmp_path / "a", tmp_path / "b"


@pytest.mark.parametrize("lost_and_wrote", [0, 5], ids=["shorter", "with something else"])
def test_a_restarted_master_does_not_take_what_its_slave_acknowledged(tmp_path: Path, lost_and_wrote: int) -> None:
    a, b = pair_of(tmp_path, 10)
    with open_store(b, SMALL) as ahead:  # as if the master's machine had lost what was not synced
        fill(ahead, 5, 10)
    with open_store(a, SMALL) as back:
        fill(back, lost_and_wrote, 300)
    before = files(b)
    with master_at(a, ANY_MASTER) as master:
        with slave_at(b, master) as slave:
            wait_until(lambda: "promote this store" in str(slave.status().trouble))
        assert files(b) == before
        with slave_at(b, master, cut_to_master=True) as slave:
            wait_until(lambda: slave.store.replication.raw_log.end == master.store.replication.raw_log.end)
            fill(master.store, 5, 10)
    assert files(a) == files(b)
    assert kept_bytes(b)


def test_long_ranges_are_compared_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "MOST_BYTES", 1000)
    monkeypatch.setattr(comparing, "WINDOW_BYTES", 5000)
    test_the_old_master_comes_back_as_the_slave_of_the_new_one(tmp_path)


def test_a_restart_of_a_promoted_master_is_no_promotion_for_its_slave(tmp_path: Path) -> None:
    old, new = pair_of(tmp_path, 10)
    with master_at(new) as promoted, slave_at(old, promoted):
        fill(promoted.store, 5, 10)
    with open_store(old, SMALL) as ahead:
        fill(ahead, 5, 15)
    with master_at(new) as restarted, slave_at(old, restarted) as slave:
        wait_until(lambda: "promote this store" in str(slave.status().trouble))
    with master_at(old) as now_it_is_master, slave_at(new, now_it_is_master) as slave:
        wait_until(lambda: slave.store.replication.raw_log.end == now_it_is_master.store.replication.raw_log.end)
    assert files(old) == files(new)


def test_an_epoch_is_noted_in_the_known_format(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        epoch = MasterEpochFile(store).begin()
        assert MasterEpochFile(store).load() == epoch
    text = (tmp_path / "flintlog" / "reign.json").read_text()
    assert text.startswith(f'{{"isMaster":true,"isPromoted":false,"reign":"{epoch.name}"}} ')


@pytest.mark.parametrize("whose", ["a", "b"])
def test_without_a_note_of_its_epoch_no_master_is_believed(tmp_path: Path, whose: str) -> None:
    pair_of(tmp_path, 10)
    (tmp_path / whose / "flintlog" / "reign.json").unlink()
    with open_store(tmp_path / "b", SMALL) as ahead:
        fill(ahead, 5, 10)
    with master_at(tmp_path / "a") as master, slave_at(tmp_path / "b", master) as slave:
        wait_until(lambda: "promote this store" in str(slave.status().trouble))


def test_a_log_that_goes_on_alone_is_cut_for_a_master_that_was_promoted(tmp_path: Path) -> None:
    old, new = pair_of(tmp_path, 10)
    with open_store(old, SMALL) as alone:
        fill(alone, 5, 10)
    with master_at(new) as promoted, slave_at(old, promoted) as slave:
        wait_until(lambda: slave.store.replication.raw_log.end == promoted.store.replication.raw_log.end)
    assert files(old) == files(new)


def test_a_node_that_cannot_be_opened_after_its_cut_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise DamagedStore("no way back")

    old, new = pair_of(tmp_path, 10)
    with open_store(old, SMALL) as alone:
        fill(alone, 5, 10)
    with master_at(new) as promoted, slave_at(old, promoted) as slave:
        monkeypatch.setattr(slave, "start", refuse)
        wait_until(lambda: slave.failure is not None)
        assert "no way back" in str(slave.failure)


@pytest.mark.parametrize("compares", [True, False])
def test_a_slave_follows_a_master_without_a_comparison_only_if_configured(tmp_path: Path, compares: bool) -> None:
    a, b = pair_of(tmp_path, 10)
    with open_store(a, SMALL) as more:
        fill(more, 5, 10)
    before = files(b)
    with master_at(a, ANY_MASTER) as master:
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            unused = nobody.getsockname()[1]
        with slave_at(b, master, remoting_port=unused, compare_logs=compares) as slave:
            if not compares:
                wait_until(lambda: slave.store.replication.raw_log.end == master.store.replication.raw_log.end)
                return
            wait_until(lambda: "cannot be reached" in str(slave.status().trouble))
            assert master.status().replicas == ()
    assert files(b) == before


def test_a_slave_becomes_a_master_and_takes_puts(tmp_path: Path) -> None:
    with master_at(tmp_path / "a") as master, slave_at(tmp_path / "b", master) as slave:
        fill(master.store, 6)
        assert slave.store.put(Message("orders", b"no"), check=False).status is PutStatus.SERVICE_NOT_AVAILABLE
        master.stop()
        slave.promote()
        assert slave.status().role == "ASYNC_MASTER"
        assert slave.store.put(Message("orders", b"yes")).check().queue_offset == 2


def test_a_slave_that_does_not_read_is_closed_and_does_not_keep_its_master_from_a_clean_stop(tmp_path: Path) -> None:
    config = ANY_MASTER.with_changes(
        broker_role="ASYNC_MASTER",
        ha_housekeeping_interval=1000,
        mapped_file_size_commit_log=16 << 20,
        max_message_size=1 << 16,
    )
    with open_store(tmp_path, config) as store:
        for _ in range(200):
            store.put(Message("orders", bytes(60_000))).check()
    with master_at(tmp_path, config) as master, socket.create_connection(("127.0.0.1", master.ha_port)) as stalled:
        stalled.sendall(encode_report(0))
        wait_until(lambda: len(master.status().replicas) == 1)
        wait_until(lambda: master.status().replicas == ())
    assert not (tmp_path / "abort").exists()


def test_a_part_that_cannot_be_stopped_does_not_keep_the_store_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_stop = HaMaster.stop

    async def fail(master: HaMaster) -> None:
        await really_stop(master)
        raise OSError("no such luck")

    monkeypatch.setattr(HaMaster, "stop", fail)
    with master_at(tmp_path) as master:
        master.stop()
        assert not (tmp_path / "abort").exists()


def connect_as(node: HaNode, store: str, log_end: int) -> socket.socket:
    """A slave that announces itself and reports."""

    async def announce(address: str) -> Command:
        client = RemotingClient(f"127.0.0.1:{node.port}")
        try:
            return await client.call(Command(ANNOUNCE_REPLICA, fields={"address": address, "store": store}))
        finally:
            await client.close()

    line = socket.create_connection(("127.0.0.1", node.ha_port), 5)
    assert asyncio.run(announce("{}:{}".format(*line.getsockname()))).code == 0
    line.sendall(encode_report(log_end))
    return line


def test_a_slave_that_is_connected_twice_counts_once(tmp_path: Path) -> None:
    config = ANY_MASTER.with_changes(in_sync_replicas=3, slave_timeout=20_000)
    with master_at(tmp_path, config) as master, connect_as(master, "b", 0) as half_open:
        put = master.store.put_async(Message("orders", b"three copies"))
        offset, size = struct.unpack(">qi", half_open.recv(12, socket.MSG_WAITALL))
        half_open.sendall(encode_report(offset + size))
        wait_until(lambda: [each.acknowledged for each in master.status().replicas] == [offset + size])
        with connect_as(master, "b", offset + size):
            assert len(half_open.recv(size, socket.MSG_WAITALL)) == size
            wait_until(lambda: [each.acknowledged for each in master.status().replicas] == [offset + size])
            assert not put.done()
            with connect_as(master, "c", offset + size):
                assert put.result(10).status is PutStatus.PUT_OK
                assert len(master.status().replicas) == 2


def test_logs_without_anything_in_common_are_left_alone(tmp_path: Path) -> None:
    with open_store(tmp_path / "b", SMALL) as other:
        for number in range(300):
            other.put(Message("other", bytes(number))).check()
    before = files(tmp_path / "b")
    config = ANY_MASTER.with_changes(max_checksum_range=1000)
    with master_at(tmp_path / "a", config.with_changes(broker_role="ASYNC_MASTER")) as master:
        fill(master.store, 500)
        with slave_at(tmp_path / "b", master, SMALL.with_changes(max_checksum_range=1000)) as slave:
            wait_until(lambda: slave.status().trouble is not None)
            assert "differs" in str(slave.status().trouble)
    assert files(tmp_path / "b") == before


def test_an_empty_master_does_not_empty_its_slave(tmp_path: Path) -> None:
    with open_store(tmp_path / "b", SMALL) as full:
        fill(full, 10)
    before = files(tmp_path / "b")
    with master_at(tmp_path / "a") as master, slave_at(tmp_path / "b", master) as slave:
        wait_until(lambda: slave.status().trouble is not None)
        assert "the master's 0 to 0" in str(slave.status().trouble)
    assert files(tmp_path / "b") == before


def test_settings_follow(tmp_path: Path) -> None:
    with master_at(tmp_path / "a") as master, slave_at(tmp_path / "b", master) as slave:
        fill(master.store, 6)
        master.store.topics.create("orders")
        master.store.groups.create("billing")
        master.store.consumer_offsets.commit("billing", "orders", 1, 2)
        config = tmp_path / "b" / "config"
        wait_until(lambda: b"orders@billing" in content_of(config / "consumerOffset.json"))
        wait_until(lambda: b"billing" in content_of(config / "subscriptionGroup.json"))
        wait_until(lambda: b"orders" in content_of(config / "topics.json"))
        wait_until(lambda: "orders" in slave.store.topics and "billing" in slave.store.groups)
        wait_until(lambda: slave.store.consumer_offsets.get("billing", "orders", 1) == 2)
        master.store.topics.delete("orders")
        wait_until(lambda: "orders" not in slave.store.topics)
        master.store.topics.create("orders")
        wait_until(lambda: "orders" in slave.store.topics)
        slave.promote()
        assert "orders" in slave.store.topics
        assert "billing" in slave.store.groups
        assert slave.store.consumer_offsets.get("billing", "orders", 1) == 2


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (21, b'{"dataVersion":{},"topicConfigTable":5}'),
        (21, b'{"topicConfigTable":{"orders":5}}'),
        (21, b'{"dataVersion":"x","topicConfigTable":{}}'),
        (43, b'{"offsetTable":{"orders@billing":{"0":"x"}}}'),
        (43, b'{"offsetTable":[]}'),
        (45, b'{"offsetTable":{"1":-1}}'),
        (201, b'{"subscriptionGroupTable":[1]}'),
        (402, b'{"messageRequestModeMap":7}'),
    ],
)
def test_settings_that_the_store_could_not_open_with_are_not_written(tmp_path: Path, code: int, body: bytes) -> None:
    async def answer(request: Command) -> Command:
        good = b'{"topicConfigTable":{"orders":{"topicName":"orders"}}}' if request.code == 21 else b"{}"
        return request.reply(0, body if request.code == code else good)

    async def follow() -> None:
        server = RemotingServer(dict.fromkeys(PARTS, answer))
        port = await server.start("127.0.0.1", 0)
        with open_store(tmp_path, SMALL.with_changes(broker_role="SLAVE")) as store:
            follower = MetadataFollower(store, RemotingClient(f"127.0.0.1:{port}"))
            with pytest.raises(PeerFailed, match=f"request {code}"):
                follower.write_all(await follower.ask_all())
            await follower.stop()
        await server.stop()

    asyncio.run(follow())
    assert not list((tmp_path / "config").glob("*.json"))
    with open_store(tmp_path, SMALL) as store:
        assert "orders" not in store.topics


def test_offsets_of_light_groups_follow(tmp_path: Path) -> None:
    light = {"enable_lmq": True, "enable_multi_dispatch": True}
    with master_at(tmp_path / "a", ANY_MASTER.with_changes(broker_role="ASYNC_MASTER", **light)) as master:
        master.store.put(Message("orders", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%dev"})).check()
        master.store.consumer_offsets.commit("%LMQ%dev", "%LMQ%dev", 0, 1)
        master.store.consumer_offsets.commit("billing", "orders", 0, 1)
        with slave_at(tmp_path / "b", master, SMALL.with_changes(**light)) as slave:
            wait_until(lambda: slave.store.consumer_offsets.get("%LMQ%dev", "%LMQ%dev", 0) == 1)
            wait_until(lambda: slave.store.consumer_offsets.get("billing", "orders", 0) == 1)
            assert not (tmp_path / "b" / "config" / "consumerOffset.json").exists()


def test_the_status_tells_of_both_sides(tmp_path: Path) -> None:
    async def ask(node: HaNode) -> bytes:
        client = RemotingClient(f"127.0.0.1:{node.port}")
        try:
            return (await client.call(Command(GET_BROKER_HA_STATUS))).body
        finally:
            await client.close()

    with master_at(tmp_path / "a") as master, slave_at(tmp_path / "b", master) as slave:
        fill(master.store, 6)
        reported = parse_status(asyncio.run(ask(master)))
        assert reported == master.status()
        assert reported.replicas[0].lag_bytes == 0
        assert parse_status(asyncio.run(ask(slave))) == slave.status()
        assert slave.status().is_connected


@pytest.mark.parametrize("fields", [{"start": "x"}, {"start": "0", "stop": str(1 << 30)}], ids=["words", "too much"])
def test_a_comparison_that_cannot_be_is_an_error_and_no_crash(tmp_path: Path, fields: dict[str, str]) -> None:
    async def ask(node: HaNode) -> Command:
        client = RemotingClient(f"127.0.0.1:{node.port}")
        try:
            return await client.call(Command(COMPARE_LOG, fields=fields))
        finally:
            await client.close()

    with master_at(tmp_path / "a") as master:
        assert asyncio.run(ask(master)).code == 1


def test_a_slave_without_a_master_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig):
        HaNode(tmp_path, SMALL.with_changes(broker_role="SLAVE")).start()


def test_a_wish_to_cut_that_does_not_parse_stops_the_opening(tmp_path: Path) -> None:
    with open_store(tmp_path / "a", SMALL) as store:
        fill(store, 3)
    (tmp_path / "a" / "flintlog" / "cut.json").write_text("{")
    with pytest.raises(DamagedStore):
        open_store(tmp_path / "a", SMALL)


def test_a_wish_to_cut_without_a_checksum_cuts_nothing(tmp_path: Path) -> None:
    """One wrong bit of it would take acknowledged messages away; a slave whose log differs asks again."""
    with open_store(tmp_path / "a", SMALL) as store:
        fill(store, 3)
    (tmp_path / "a" / "flintlog" / "cut.json").write_text('{"end":0}')
    for _ in range(2):
        with open_store(tmp_path / "a", SMALL) as store:
            assert [store.max_offset("orders", queue) for queue in range(3)] == [1, 1, 1]
            assert not (tmp_path / "a" / "flintlog" / "cut.json").exists()
