"""A node's figures as Prometheus metrics, with those of its store. Needs the extra `flintlog[metrics]`.

flintlog_replica_role{role="SYNC_MASTER"}           1
flintlog_replica_connected                          1 while a slave or follower is in contact with its master or leader
flintlog_replica_log_start_offset, ..._end_offset   the range of this node's log
flintlog_replica_refused_entries                    entries that arrived damaged at a ledger member and were refused
flintlog_replica_peers, ..._peers_in_sync           the number of peers
flintlog_replica_peer_acknowledged_offset{peer}     the log end that a peer has reported
flintlog_replica_peer_lag_bytes{peer}               the bytes of our log that it lacks
flintlog_replica_peer_in_sync{peer}                 whether it counts as in sync
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from flintlog.errors import FlintlogError, InvalidConfig, MissingExtra
from flintlog.replication.status import NodeStatus, ReplicaStatus
from flintlog.store.stats.prometheus import StoreCollector
from flintlog.store.store import Store

if TYPE_CHECKING:
    from prometheus_client.metrics_core import GaugeMetricFamily, Metric

_PREFIX = "flintlog_replica"


class Node(Protocol):
    """A running node of either kind."""

    @property
    def store(self) -> Store:
        """Its open store; a node that reopens has a new one."""

    def status(self) -> NodeStatus:
        """Role, positions and peers."""


class NodeCollector:
    """Register it with a `CollectorRegistry`. While a node reopens its store it yields no figures."""

    def __init__(self, node: Node) -> None:
        try:
            from prometheus_client import metrics_core
        except ImportError:
            raise MissingExtra(
                "Prometheus metrics need the package prometheus-client", advice="pip install 'flintlog[metrics]'"
            ) from None
        self._node = node
        self._core = metrics_core

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering does not collect."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All metrics with their present values."""
        try:
            yield from self._of_node()
            yield from StoreCollector(self._node.store).collect()
        except FlintlogError:
            return

    def _of_node(self) -> Iterator[Metric]:
        status = self._node.status()
        is_connected = status.is_connected or (status.term is None and status.master_address is None)
        role = self._family("role", "The node's role.", ("role",))
        role.add_metric((status.role,), 1.0)
        yield role
        for name, about, value in (
            ("connected", "Whether it is in contact with its master or leader.", float(is_connected)),
            ("log_start_offset", "The start of its log.", status.log_start),
            ("log_end_offset", "The end of its log.", status.log_end),
            ("peers", "Known peers.", len(status.replicas)),
            ("peers_in_sync", "Peers in sync.", sum(peer.is_in_sync for peer in status.replicas)),
            ("term", "The node's term.", status.term),
            ("committed_offset", "The node's committed offset.", status.committed),
            ("refused_entries", "The node's refused entries.", status.refused_entries),
        ):
            if value is None:
                continue  # only a ledger's member has it
            metric = self._family(name, about, ())
            metric.add_metric((), value)
            yield metric
        yield from self._of_peers(status.replicas)

    def _of_peers(self, peers: Iterable[ReplicaStatus]) -> Iterator[Metric]:
        acknowledged = self._family("peer_acknowledged_offset", "The log end that a peer has reported.", ("peer",))
        lag = self._family("peer_lag_bytes", "The bytes of our log that a peer lacks.", ("peer",))
        in_sync = self._family("peer_in_sync", "Whether a peer is in sync.", ("peer",))
        for peer in peers:
            acknowledged.add_metric((peer.address,), peer.acknowledged)
            lag.add_metric((peer.address,), peer.lag_bytes)
            in_sync.add_metric((peer.address,), float(peer.is_in_sync))
        yield from (acknowledged, lag, in_sync)

    def _family(self, name: str, about: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
        return self._core.GaugeMetricFamily(f"{_PREFIX}_{name}", about, labels=labels)


class MetricsServer:
    """A node's metrics over HTTP, at `/metrics`. The library's own thread serves them."""

    def __init__(self, node: Node, host: str, port: int) -> None:
        collector = NodeCollector(node)
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry()
        registry.register(collector)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as failure:
            raise InvalidConfig(f"cannot serve metrics on {host}:{port}: {failure.strerror}") from None
        self.port: int = self._server.server_port

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
