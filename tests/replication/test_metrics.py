"""Metrics of nodes: role, positions and peers, over HTTP."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.replication.ha.test_ha_node import master_at, slave_at
from tests.replication.ha_pair import fill, wait_until

from flintlog.errors import InvalidConfig
from flintlog.replication.ha.node import HaNode
from flintlog.replication.prometheus import MetricsServer, Node, NodeCollector

LOOPBACK = "127.0.0.1"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[HaNode, HaNode]]:
    with master_at(tmp_path / "a") as master, slave_at(tmp_path / "b", master) as slave:
        yield master, slave


def samples(node: Node) -> dict[str, float]:
    """Metrics by name and labels; the port of a peer is anybody's."""
    registry = CollectorRegistry()
    registry.register(NodeCollector(node))
    lines = generate_latest(registry).decode().splitlines()
    reported = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {re.sub(r':\d+"', ':PORT"', name): float(value) for name, _, value in reported}


def test_a_master_tells_how_far_its_slave_is(pair: tuple[HaNode, HaNode]) -> None:
    master, _ = pair
    fill(master.store, 30)
    end = master.store.replication.raw_log.end
    wait_until(lambda: samples(master).get('flintlog_replica_peer_lag_bytes{peer="127.0.0.1:PORT"}') == 0)
    reported = samples(master)
    assert reported['flintlog_replica_role{role="SYNC_MASTER"}'] == 1
    assert reported['flintlog_replica_peer_acknowledged_offset{peer="127.0.0.1:PORT"}'] == end > 0
    assert reported['flintlog_replica_peer_in_sync{peer="127.0.0.1:PORT"}'] == 1
    assert reported["flintlog_replica_peers"] == reported["flintlog_replica_peers_in_sync"] == 1
    assert reported["flintlog_replica_log_end_offset"] == end
    assert reported["flintlog_storage_max_offset"] == end, "the store's own are there too"


def test_a_slave_without_its_master_is_not_connected(pair: tuple[HaNode, HaNode]) -> None:
    master, slave = pair
    wait_until(lambda: samples(slave).get("flintlog_replica_connected") == 1)
    master.stop()
    wait_until(lambda: samples(slave).get("flintlog_replica_connected") == 0)
    assert samples(slave)['flintlog_replica_role{role="SLAVE"}'] == 1


def test_a_node_that_does_not_run_has_no_metrics_and_breaks_nothing(pair: tuple[HaNode, HaNode]) -> None:
    master, _ = pair
    master.stop()
    assert samples(master) == {}


def test_metrics_over_http_and_a_port_that_is_taken(pair: tuple[HaNode, HaNode]) -> None:
    master, slave = pair
    server = MetricsServer(master, LOOPBACK, 0)
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{server.port}/metrics", timeout=10) as answer:
            assert b'flintlog_replica_role{role="SYNC_MASTER"} 1.0' in answer.read()
        with pytest.raises(InvalidConfig, match=f"cannot serve metrics on {LOOPBACK}:{server.port}"):
            MetricsServer(slave, LOOPBACK, server.port)
    finally:
        server.stop()
