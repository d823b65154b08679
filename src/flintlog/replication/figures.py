"""The figures of a node, for both kinds of replication: role, positions, and every peer's lag."""

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
    """The present figures of a node."""

    role: str
    log_start: int
    log_end: int
    is_connected: bool = True
    """Whether a follower is in contact with its leader, or a slave with its master."""
    peers: tuple[PeerFigures, ...] = ()
    more: Mapping[str, float] = field(default_factory=dict)
    """Figures of one kind of replication only: `term`, `committed_offset`, `refused_entries`."""


class Node(Protocol):
    """A running node."""

    @property
    def store(self) -> Store:
        """Its open store; a node that reopens has a new one."""

    def figures(self) -> NodeFigures:
        """Role, positions and peers."""
