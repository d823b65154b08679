"""`flintlog serve` and `flintlog replica status`: real processes on loopback."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.replication.ha_pair import files
from tests.store.small_store import SMALL, wait_until

from flintlog import InvalidConfig, Message, StoreConfig, open_store
from flintlog.cli.main import run
from flintlog.cli.run import serve
from flintlog.errors import DamagedStore
from flintlog.replication.ha.node import HaNode
from flintlog.replication.ledger.store_node import LedgerStoreNode
from flintlog.replication.status import NodeStatus, encode_status, parse_status
from flintlog.testing.free_ports import ledger_addresses

OPTIONS = {
    "mappedFileSizeCommitLog": SMALL.mapped_file_size_commit_log,
    "mappedFileSizeConsumeQueue": SMALL.mapped_file_size_consume_queue,
    "maxHashSlotNum": SMALL.max_hash_slot_num,
    "maxIndexNum": SMALL.max_index_num,
    "haSendHeartbeatInterval": 200,
}


def start(*arguments: str) -> tuple[subprocess.Popen[str], list[str]]:
    """A node, and the addresses that it says it listens on."""
    command = [sys.executable, "-m", "flintlog.cli.main", "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    with process.stdout as printed:
        return process, re.findall(r"on (?:http://)?([\d.]+:\d+)", printed.readline())


def test_two_nodes_run_until_a_signal_stops_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(OPTIONS))
    with open_store(tmp_path / "a", SMALL) as store:
        for number in range(50):
            store.put(Message("orders", b"%d" % number)).check()
        end = store.replication.raw_log.end
    printed: list[dict[str, object]] = []
    nodes = []
    try:
        master = ["--role", "master", "--ha-port", "0", "--metrics-port", "0", "--config", str(config)]
        node, (port, ha_port, metrics) = start(str(tmp_path / "a"), *master)
        nodes.append(node)
        slave = ["--role", "slave", "--ha-master", ha_port, "--master-remoting", port, "--config", str(config)]
        node, (slave_port, *_) = start(str(tmp_path / "b"), *slave)
        nodes.append(node)
        deadline, code = time.monotonic() + 20, 1
        while len(printed) != 2 or printed[1]["lag_bytes"] != 0 or code:
            assert time.monotonic() < deadline, printed
            time.sleep(0.1)
            code = run(["replica", "status", port, "-o", "jsonl"])
            printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as answer:
            assert b"flintlog_replica_peers 1.0" in answer.read()
        nodes[0].send_signal(signal.SIGTERM)
        assert nodes[0].wait(20) == 0
        deadline = time.monotonic() + 20
        while run(["replica", "status", slave_port]) != 1:  # a slave without its master
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        for node in nodes:
            node.send_signal(signal.SIGTERM)
        codes = [node.wait(20) for node in nodes]
    assert codes == [0, 0]
    assert printed[0]["role"] == "ASYNC_MASTER"
    assert printed[1]["log_end"] == end
    assert not (tmp_path / "b" / "abort").exists()
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_a_slave_needs_a_master_and_an_address_is_an_address(tmp_path: Path) -> None:
    assert run(["serve", str(tmp_path / "a"), "--role", "slave"]) == 2
    assert run(["serve", str(tmp_path / "a"), "--role", "master", "--ha-master", "x:1"]) == 2
    assert run(["replica", "status", "nowhere"]) == 2


LEDGER_OPTIONS = {name: value for name, value in OPTIONS.items() if not name.startswith("ha")}


def test_three_members_of_a_ledger_are_shown_with_their_leader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LEDGER_OPTIONS))
    peers = ";".join(f"{member}-{address}" for member, address in ledger_addresses("n0", "n1", "n2").items())
    nodes, ports, metrics = [], [], []
    try:
        for member in ("n0", "n1", "n2"):
            group = ["--ledger-group", "orders", "--ledger-peers", peers, "--ledger-id", member, "--ledger-fast"]
            more = ["--metrics-port", "0", "--config", str(config)]
            node, (port, _, figures) = start(str(tmp_path / member), *group, *more)
            nodes.append(node)
            ports.append(port)
            metrics.append(figures)
        printed: list[dict[str, object]] = []
        deadline = time.monotonic() + 60
        while not _is_settled(printed):
            assert time.monotonic() < deadline, printed
            time.sleep(0.1)
            assert run(["replica", "status", *ports, "-o", "jsonl"]) in (0, 1)
            printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert sorted(str(row["role"]) for row in printed) == ["FOLLOWER", "FOLLOWER", "LEADER", "PEER", "PEER"]
        assert len({row["term"] for row in printed if row["role"] != "PEER"}) == 1
        with urllib.request.urlopen(f"http://{metrics[0]}/metrics", timeout=10) as answer:
            shown = answer.read().decode()
        assert "flintlog_replica_term " in shown
        assert "flintlog_replica_committed_offset " in shown
    finally:
        for node in nodes:
            node.send_signal(signal.SIGTERM)
        codes = [node.wait(60) for node in nodes]
    assert codes == [0, 0, 0]
    logs = [(tmp_path / member / f"dledger-{member}/data" / ("0" * 20)).read_bytes() for member in ("n0", "n1", "n2")]
    assert logs[0] == logs[1] == logs[2]
    assert any(logs[0])


def _is_settled(printed: list[dict[str, object]]) -> bool:
    """One leader, whose record everybody has and knows to be committed."""
    members = [row for row in printed if row["role"] != "PEER"]
    peers = [row for row in printed if row["role"] == "PEER"]
    is_same = len({(row["log_end"], row["committed"]) for row in members}) == 1
    return bool(
        len(peers) == 2 and is_same and members[0]["log_end"] == members[0]["committed"] and members[0]["log_end"]
    ) and all(row["lag_bytes"] == 0 for row in peers)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--ledger-group", "g"],
        ["--ledger-group", "g", "--ledger-id", "n0"],
        ["--role", "master", "--ledger-group", "g"],
        ["--ledger-group", "g", "--ledger-id", "n9", "--ledger-peers", "n0-127.0.0.1:1"],
        ["--ledger-group", "g", "--ledger-id", "n0", "--ledger-peers", "n0:127.0.0.1"],
    ],
)
def test_a_member_that_cannot_be_is_said_so(tmp_path: Path, arguments: list[str]) -> None:
    assert run(["serve", str(tmp_path / "store"), *arguments]) != 0
    assert not (tmp_path / "store").exists()


@pytest.fixture
def own_signals() -> Iterator[None]:
    """`serve` takes the signals of the process that it runs in."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_signals")
def test_a_member_that_halts_ends_the_process_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    really_start = LedgerStoreNode.start

    def start_and_halt(node: LedgerStoreNode) -> None:
        really_start(node)
        node._on_port_failed(DamagedStore("the log came apart"))

    monkeypatch.setattr(LedgerStoreNode, "start", start_and_halt)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LEDGER_OPTIONS))
    peers = f"n0-{ledger_addresses('n0')['n0']}"
    group = ["--ledger-group", "g", "--ledger-id", "n0", "--ledger-peers", peers, "--port", "0"]
    assert run(["serve", str(tmp_path / "store"), *group, "--config", str(config)]) == 3
    assert "the log came apart" in capsys.readouterr().err
    assert not (tmp_path / "store" / "abort").exists()


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize("which", ["--port", "--ha-port", "--ledger-peers"])
def test_a_port_that_is_taken_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], which: str) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LEDGER_OPTIONS))
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = "{}:{}".format(*other.getsockname())
        port = address.partition(":")[2]
        arguments = {
            "--port": ["--role", "master", "--ha-port", "0", "--port", port],
            "--ha-port": ["--role", "master", "--port", "0", "--ha-port", port],
            "--ledger-peers": ["--ledger-group", "g", "--ledger-id", "n0", "--ledger-peers", f"n0-{address}"],
        }
        assert run(["serve", str(tmp_path / "store"), *arguments[which], "--config", str(config)]) == 2
    assert f"cannot listen on {address}" in capsys.readouterr().err
    assert not (tmp_path / "store" / "abort").exists()


def test_a_node_that_is_down_is_a_row_and_the_others_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        down = "{}:{}".format(*nobody.getsockname())
    node = HaNode(tmp_path, SMALL.with_changes(ha_listen_port=0), port=0)
    node.start()
    try:
        assert run(["replica", "status", down, f"127.0.0.1:{node.port}", "-o", "jsonl"]) == 3
    finally:
        node.stop()
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["node"], first["role"]) == (down, None)
    assert "cannot be reached" in first["trouble"]
    assert second["role"] == "ASYNC_MASTER"


@pytest.mark.parametrize("role", ["LEADER", "FOLLOWER", "CANDIDATE"])
def test_only_the_leader_of_a_group_calls_itself_its_master(role: str) -> None:
    status = NodeStatus(role, 0, 4096, term=3, committed=4000)
    assert json.loads(encode_status(status))["master"] is (role == "LEADER")
    assert parse_status(encode_status(status)) == status


def test_a_member_that_ran_once_is_served_by_its_path(tmp_path: Path) -> None:
    peers = f"n3-{ledger_addresses('n3')['n3']}"
    given = StoreConfig(
        dledger_group="orders", dledger_peers=peers, dledger_self_id="n3", mapped_file_size_commit_log=1 << 20
    )
    node = LedgerStoreNode(tmp_path, given, new_group=True, fast=True)
    node.start()
    try:
        wait_until(lambda: node.store.put(Message("orders", b"one"), check=False))
    finally:
        node.stop()
    found = serve._member_config(tmp_path, StoreConfig(), None, None, None)
    assert (found.dledger_group, found.dledger_peers, found.dledger_self_id) == ("orders", peers, "n3")
    assert found.mapped_file_size_commit_log == 1 << 20
    moved = serve._member_config(tmp_path, StoreConfig(), None, "n3-127.0.0.1:1", None)
    assert moved.dledger_peers == "n3-127.0.0.1:1"
    with pytest.raises(InvalidConfig, match="dledger_group is other, and this is a member's store of the group orders"):
        serve._member_config(tmp_path, StoreConfig(), "other", None, None)


def test_options_that_no_file_of_a_ledger_has_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dledger-n0/data").mkdir(parents=True)
    (tmp_path / "dledger-n0/data" / ("0" * 20)).write_bytes(bytes(1 << 16))
    assert run(["serve", str(tmp_path)]) == 2
    assert "no file of the store says --ledger-group and --ledger-peers" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["dledger-n0"]
