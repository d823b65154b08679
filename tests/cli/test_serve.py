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
