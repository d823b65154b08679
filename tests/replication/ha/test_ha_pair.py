"""A master and a slave of ours, with real sockets and files."""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.replication.ha_pair import LOOPBACK, MASTER, SLAVE, files, fill, running_master, running_slave, wait_until
from tests.store.small_store import SMALL

from flintlog import Message, PutStatus, open_store
from flintlog.errors import DamagedRecord, DamagedStore, PutFailed
from flintlog.format.record import encode_blank
from flintlog.replication.ha import master as master_shell
from flintlog.replication.ha import slave_connection as master_line
from flintlog.replication.ha.wire import encode_frame, encode_report
from flintlog.store.model.message import Receipt
from flintlog.store.put.appender import Prepared


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_an_acknowledged_message_is_in_the_slaves_log(tmp_path: Path, flush: str) -> None:
    master_config, slave_config = MASTER.with_changes(flush=flush), SLAVE.with_changes(flush=flush)
    with (
        running_master(tmp_path / "master", master_config) as (master, shell, port),
        running_slave(tmp_path / "slave", port, slave_config) as (slave, _),
    ):
        for number in range(100):
            receipt = master.put(Message("orders", b"%d" % number)).check()
            assert slave.replication.raw_log.end >= receipt.end_offset
        (status,) = shell.status()
        assert status.is_in_sync
        assert status.acknowledged == master.replication.raw_log.end
        assert slave.queues() == master.queues()
    assert files(tmp_path / "master") == files(tmp_path / "slave")
    assert files(tmp_path / "master", "consumequeue") == files(tmp_path / "slave", "consumequeue")


def test_an_empty_slave_gets_the_log_from_its_beginning_over_many_files(tmp_path: Path) -> None:
    with open_store(tmp_path / "master", SMALL) as store:
        fill(store, 1500)
    with running_master(tmp_path / "master") as (master, _, port):
        with running_slave(tmp_path / "slave", port) as (slave, _):
            wait_until(lambda: slave.replication.raw_log.end == master.replication.raw_log.end)
        fill_in_background = threading.Thread(target=fill, args=(master, 20, 1500))
        fill_in_background.start()
        with running_slave(tmp_path / "slave", port) as (slave, _):
            fill_in_background.join()
            assert slave.replication.raw_log.end == master.replication.raw_log.end
    assert len(files(tmp_path / "slave")) > 2
    assert files(tmp_path / "master") == files(tmp_path / "slave")


def test_a_slave_finds_its_master_again(tmp_path: Path) -> None:
    with running_master(tmp_path / "master") as (master, _, port):
        with running_slave(tmp_path / "slave", port) as (slave, _):
            fill(master, 20)
        end = slave.replication.raw_log.end
    with running_slave(tmp_path / "slave", port) as (slave, shell):
        wait_until(lambda: shell.trouble is not None)
        assert slave.replication.raw_log.end == end
        with running_master(tmp_path / "master", port=port) as (master, _, _):
            fill(master, 20, 20)
            assert slave.replication.raw_log.end == master.replication.raw_log.end
    assert files(tmp_path / "master") == files(tmp_path / "slave")


def test_a_put_fails_when_the_slave_is_gone_and_is_confirmed_when_it_is_back(tmp_path: Path) -> None:
    with running_master(tmp_path / "master", MASTER.with_changes(slave_timeout=200)) as (master, shell, port):
        with running_slave(tmp_path / "slave", port):
            fill(master, 3)
        wait_until(lambda: shell.status() == [])
        assert master.put(Message("orders", b"alone"), check=False).status is PutStatus.FLUSH_SLAVE_TIMEOUT
        with running_slave(tmp_path / "slave", port) as (slave, _):
            wait_until(lambda: slave.replication.raw_log.end == master.replication.raw_log.end)
            fill(master, 3, 3)


def test_a_report_beyond_the_masters_end_confirms_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = MASTER.with_changes(slave_timeout=200)
    with running_master(tmp_path / "master", config) as (master, _, port), caplog.at_level(logging.WARNING):
        for number in range(3):
            with socket.create_connection((LOOPBACK, port), 5) as liar:
                liar.sendall(encode_report((1 << 40) + number))
                assert liar.recv(1) == b""
        assert master.put(Message("orders", b"alone"), check=False).status is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert len([record for record in caplog.records if "reports" in record.getMessage()]) == 1


@pytest.mark.parametrize(
    "garbage",
    [
        bytes(8) + (1 << 30).to_bytes(4, "big"),
        bytes(8) + b"\xff" * 4,
        encode_frame(0, b"no record at all" * 10),
        encode_frame(4096, encode_blank(100)),
    ],
    ids=["huge", "negative", "no record", "within a file"],
)
def test_garbled_frames_write_nothing_and_are_said_once(
    tmp_path: Path, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server((LOOPBACK, 0)) as server, caplog.at_level(logging.WARNING):
        port = server.getsockname()[1]
        server.settimeout(5)
        with running_slave(tmp_path / "slave", port) as (slave, shell):
            line, _ = server.accept()
            with line:
                assert line.recv(8) == bytes(8)
                line.sendall(garbage)
                wait_until(lambda: shell.trouble is not None)
            assert slave.replication.raw_log.is_empty
    assert len([record for record in caplog.records if "following" in record.getMessage()]) == 1


def test_damage_in_the_masters_own_log_does_not_stop_the_copying(tmp_path: Path) -> None:
    with open_store(tmp_path / "master", SMALL) as store:
        fill(store, 5)
        bad = store.put(Message("orders", b"this body rots", queue_id=0)).check()
        fill(store, 200, 5)
    log_file = tmp_path / "master" / "commitlog" / f"{0:020d}"
    data = bytearray(log_file.read_bytes())
    place = data.index(b"this body rots")
    data[place] ^= 1
    log_file.write_bytes(bytes(data))
    with (
        running_master(tmp_path / "master") as (master, _, port),
        running_slave(tmp_path / "slave", port) as (slave, _),
    ):
        wait_until(lambda: slave.queues() == master.queues())
        with pytest.raises((DamagedRecord, DamagedStore)):
            slave.message_at(bad.physical_offset)
    assert files(tmp_path / "master") == files(tmp_path / "slave")


def test_a_size_that_rotted_in_the_masters_log_does_not_stop_the_copying(tmp_path: Path) -> None:
    changes = {"mapped_file_size_commit_log": 64 << 20}
    with open_store(tmp_path / "master", SMALL.with_changes(**changes)) as store:
        fill(store, 5)
        bad = store.put(Message("orders", b"rots", queue_id=0)).check()
        fill(store, 20, 5)
    with (tmp_path / "master" / "commitlog" / f"{0:020d}").open("r+b") as log_file:
        log_file.seek(bad.physical_offset)
        log_file.write(b"\x02")  # 32 MiB more: less than the file has left, and more than will ever come
    with (
        running_master(tmp_path / "master", MASTER.with_changes(**changes)) as (master, _, port),
        running_slave(tmp_path / "slave", port, SLAVE.with_changes(**changes)) as (slave, _),
    ):
        wait_until(lambda: slave.replication.raw_log.end == master.replication.raw_log.end)
        fill(master, 3, 25)
        wait_until(lambda: slave.queues() == master.queues())


def test_three_copies_need_two_slaves(tmp_path: Path) -> None:
    config = MASTER.with_changes(in_sync_replicas=3, slave_timeout=300)
    with (
        running_master(tmp_path / "master", config) as (master, shell, port),
        running_slave(tmp_path / "one", port) as (one, _),
    ):
        wait_until(lambda: len(shell.status()) == 1)
        assert master.put(Message("orders", b"two copies"), check=False).status is PutStatus.FLUSH_SLAVE_TIMEOUT
        with running_slave(tmp_path / "two", port) as (two, _):
            wait_until(lambda: two.replication.raw_log.end == master.replication.raw_log.end)
            receipt = master.put(Message("orders", b"three copies")).check()
            assert min(one.replication.raw_log.end, two.replication.raw_log.end) >= receipt.end_offset


def test_with_automatic_lowering_a_master_without_slaves_goes_on(tmp_path: Path) -> None:
    config = MASTER.with_changes(enable_auto_in_sync_replicas=True, slave_timeout=5000)
    with running_master(tmp_path / "master", config) as (master, _, _):
        began = time.monotonic()
        assert master.put(Message("orders", b"alone")).status is PutStatus.PUT_OK
        assert time.monotonic() - began < 4


def test_a_silent_slave_is_left_and_a_living_one_gets_heartbeats(tmp_path: Path) -> None:
    config = MASTER.with_changes(ha_housekeeping_interval=500, ha_send_heartbeat_interval=50)
    with (
        running_master(tmp_path / "master", config) as (_, shell, port),
        socket.create_connection((LOOPBACK, port), 5) as line,
    ):
        line.sendall(encode_report(0))
        assert line.recv(12) == encode_frame(0)
        while line.recv(4096):
            pass
        wait_until(lambda: shell.status() == [])


def test_strangers_take_neither_the_files_nor_the_place_of_a_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(master_shell, "MOST_CONNECTIONS_OF_A_HOST", 4)
    with (
        ExitStack() as strangers,
        caplog.at_level(logging.WARNING),
        running_master(tmp_path / "master") as (master, shell, port),
        running_slave(tmp_path / "slave", port),
    ):
        fill(master, 1)
        silent = [strangers.enter_context(socket.create_connection((LOOPBACK, port), 5)) for _ in range(10)]
        assert [each.recv(1) for each in silent[:7]] == [b""] * 7
        fill(master, 3, 1)
        assert len(shell.status()) == 4
        for each in silent[7:]:
            each.sendall(encode_report(0))
        wait_until(lambda: all(status.sent for status in shell.status()))
        with socket.create_connection((LOOPBACK, port), 5) as late:
            assert late.recv(1) == b""
        fill(master, 3, 4)
    assert len([record for record in caplog.records if "too many" in record.getMessage()]) == 1


def test_flow_control_limits_the_rate(tmp_path: Path) -> None:
    with open_store(tmp_path / "master", SMALL) as store:
        fill(store, 300)
        size = store.replication.raw_log.end
    config = MASTER.with_changes(
        ha_flow_control_enable=True, max_ha_transfer_byte_in_second=2 * size, ha_transfer_batch_size=4096
    )
    with running_master(tmp_path / "master", config) as (master, _, port):
        began = time.monotonic()
        with running_slave(tmp_path / "slave", port) as (slave, _):
            wait_until(lambda: slave.replication.raw_log.end == master.replication.raw_log.end)
        assert time.monotonic() - began > 0.4


NEVER_S = 3600.0


@pytest.fixture
def only_bells(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that looks at its log only when somebody rings or reports: nothing makes up for a missed bell."""
    monkeypatch.setattr(master_shell, "POLL_S", NEVER_S)
    monkeypatch.setattr(master_line, "PATIENCE_S", NEVER_S)


@pytest.mark.usefixtures("only_bells")
def test_no_put_is_forgotten_however_puts_and_reports_meet(tmp_path: Path) -> None:
    config = MASTER.with_changes(slave_timeout=20_000, flush="async")
    with (
        running_master(tmp_path / "master", config) as (master, _, port),
        running_slave(tmp_path / "slave", port, SLAVE.with_changes(flush="async")) as (slave, _),
    ):
        threads = [threading.Thread(target=fill, args=(master, 150, 1000 * number)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(each.max_offset for each in slave.queues()) == 6 * 150
        assert slave.replication.raw_log.end == master.replication.raw_log.end


@pytest.mark.usefixtures("only_bells")
def test_a_slave_that_says_nothing_does_not_keep_the_log_from_the_others(tmp_path: Path) -> None:
    config = MASTER.with_changes(slave_timeout=20_000, in_sync_replicas=2)
    with (
        running_master(tmp_path / "master", config) as (master, shell, port),
        socket.create_connection((LOOPBACK, port), 5) as silent,
    ):
        silent.sendall(encode_report(0))
        wait_until(lambda: len(shell.status()) == 1)
        with running_slave(tmp_path / "slave", port):
            fill(master, 10)
            assert silent.recv(4096)  # it was sent something, and owes a report from then on
            fill(master, 10, 10)


def test_a_put_does_not_wait_for_the_report_of_an_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_shell, "POLL_S", NEVER_S)
    config = MASTER.with_changes(slave_timeout=20_000, flush="async")
    with (
        running_master(tmp_path / "master", config) as (master, _, port),
        socket.create_connection((LOOPBACK, port), 5) as slow,
    ):
        slow.sendall(encode_report(0))
        for _ in range(2):  # the second one comes although the first was not reported
            put = master.put_async(Message("orders", b"x"))
            offset, size = struct.unpack(">qi", slow.recv(12, socket.MSG_WAITALL))
            assert len(slow.recv(size, socket.MSG_WAITALL)) == size
        slow.sendall(encode_report(offset + size))
        assert put.result(10).status is PutStatus.PUT_OK


def test_a_slave_gets_nothing_of_a_batch_that_its_master_took_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be ahead of its master, which has cut that part off."""
    batch = [Message("orders", b"batch" + bytes(500)) for _ in range(300)]
    with running_master(tmp_path / "a") as (store, _, port), running_slave(tmp_path / "b", port) as (copy, _):
        fill(store, 5)
        append, left, end = store._appender.append_held, iter(range(200)), store.replication.raw_log.end
        seen: list[int] = []

        def fail_after(prepared: Prepared) -> Receipt:
            if next(left, None) is not None:
                return append(prepared)
            store.flush()
            time.sleep(0.5)  # whatever could be sent was sent
            seen.append(copy.replication.raw_log.end)
            return Receipt(PutStatus.CREATE_MAPPED_FILE_FAILED)

        with monkeypatch.context() as patched:
            patched.setattr(store._appender, "append_held", fail_after)
            with pytest.raises(PutFailed):
                store.put_closed(batch)
        assert seen == [end]
        assert store.put(Message("orders", b"goes on")).check().physical_offset == end
        closed = store.put_closed(batch)
        assert closed is not None
        wait_until(lambda: copy.replication.raw_log.end == closed.end)
        assert copy.replication.raw_log.digest(0, closed.end) == store.replication.raw_log.digest(0, closed.end)
        wait_until(lambda: copy.max_offset("orders", 0) == store.max_offset("orders", 0))
