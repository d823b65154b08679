"""`flintlog serve` and `flintlog replica status`: real processes on loopback."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from tests.replication.ha_pair import files
from tests.store.small_store import SMALL

from flintlog import Message, open_store
from flintlog.cli.main import run
from flintlog.testing.java_ledger import ledger_addresses

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
    with process.stdout as told:
        return process, re.findall(r"on (?:http://)?([\d.]+:\d+)", told.readline())


def test_two_nodes_until_they_are_told_to_stop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(OPTIONS))
    with open_store(tmp_path / "a", SMALL) as store:
        for number in range(50):
            store.put(Message("orders", b"%d" % number)).check()
        end = store.raw_log.end
    told: list[dict[str, object]] = []
    nodes = []
    try:
        master = ["--role", "master", "--ha-port", "0", "--metrics-port", "0", "--config", str(config)]
        node, (port, ha_port, metrics) = start(str(tmp_path / "a"), *master)
        nodes.append(node)
        slave = ["--role", "slave", "--ha-master", ha_port, "--master-remoting", port, "--config", str(config)]
        nodes.append(start(str(tmp_path / "b"), *slave)[0])
        deadline = time.monotonic() + 20
        while len(told) != 2 or told[1]["lag_bytes"] != 0:
            assert time.monotonic() < deadline, told
            time.sleep(0.1)
            assert run(["replica", "status", port, "-o", "jsonl"]) == 0
            told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as answer:
            assert b"flintlog_replica_peers 1.0" in answer.read()
    finally:
        for node in nodes:
            node.send_signal(signal.SIGTERM)
        codes = [node.wait(20) for node in nodes]
    assert codes == [0, 0]
    assert told[0]["role"] == "ASYNC_MASTER"
    assert told[1]["log_end"] == end
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
        told: list[dict[str, object]] = []
        deadline = time.monotonic() + 60
        while not _is_settled(told):
            assert time.monotonic() < deadline, told
            time.sleep(0.1)
            assert run(["replica", "status", *ports, "-o", "jsonl"]) == 0
            told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert sorted(str(row["role"]) for row in told) == ["FOLLOWER", "FOLLOWER", "LEADER", "PEER", "PEER"]
        assert len({row["term"] for row in told if row["role"] != "PEER"}) == 1
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


def _is_settled(told: list[dict[str, object]]) -> bool:
    """One leader, whose record everybody has and knows to be committed."""
    members = [row for row in told if row["role"] != "PEER"]
    peers = [row for row in told if row["role"] == "PEER"]
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
