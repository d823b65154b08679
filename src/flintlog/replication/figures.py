"""What is measured of a node, whichever way it is replicated: role, positions, and how far behind every peer is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from flintlog.store.store import Store


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """One peer, as this node knows it. Positions are physical offsets of the log."""

    peer: str
    acknowledged: int
    lag_bytes: int
    is_in_sync: bool


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """A node now."""

    role: str
    log_start: int
    log_end: int
    is_connected: bool = True
    """Whether a follower hears its leader, or a slave its master."""
    peers: tuple[PeerFigures, ...] = ()
    more: Mapping[str, float] = field(default_factory=dict)
    """What only one way of replication has: `term`, `committed_offset`."""


class Node(Protocol):
    """A running node."""

    @property
    def store(self) -> Store:
        """Its store, as it is open now."""

    def figures(self) -> NodeFigures:
        """Role, positions and peers."""
