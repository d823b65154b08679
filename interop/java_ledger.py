"""Real DLedger nodes, from the jars that RocketMQ 5.5.0 brings: as peers of ours, and to write files for us to read.

    addresses = ledger_addresses("n0", "n1", "n2")
    with JavaLedger("orders", addresses) as java:
        for node_id in addresses:
            java.start(node_id, f"some-directory/{node_id}")
        leader = java.wait_for_leader()
        java.append(leader, [b"first", b"second"])

All nodes of one JavaLedger live in one JVM; nodes that are to die alone need one JavaLedger each, with the same
addresses. A node's files are in `<directory>/dledger-<id>`. Leaving the block stops the nodes; leaving it by an
exception, or `kill()`, kills the process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from interop.java_process import SHORT_LIVED
from interop.java_side import JavaSide

POLL_INTERVAL_S = 0.02

# Small files, so that a test sees more than one of them.
SMALL_LEDGER = {"mappedFileSizeForEntryData": 64 * 1024, "mappedFileSizeForEntryIndex": 32 * 512}
# The loss of a leader is noticed after a second and a half instead of six.
QUICK_LEDGER = {**SMALL_LEDGER, "heartBeatTimeIntervalMs": 500}


class LedgerReceipt(msgspec.Struct, frozen=True):
    """DLedger's answer to an append; code 200 says that a majority has the entry."""

    code: int
    index: int
    pos: int
    term: int


class LedgerInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A node's role, and the ends of its ledger; -1 is an index or a term that is not there."""

    role: str
    term: int
    leader_id: str | None
    begin_index: int
    end_index: int
    end_term: int
    committed_index: int


class LedgerEntryView(msgspec.Struct, frozen=True):
    """One entry as Java reads it from its files."""

    magic: int
    size: int
    index: int
    term: int
    pos: int
    body: bytes


class LedgerFigures(msgspec.Struct, frozen=True):
    """How many entries were committed, and in which time."""

    count: int
    seconds: float


class _LedgerEntryPoint(Protocol):
    """The methods of JavaLedger.java; every file argument is a path to lines of JSON."""

    def start(self, settings: str) -> None: ...
    def stop(self, node_id: str) -> None: ...
    def info(self, node_id: str) -> str: ...
    def append(self, node_id: str, window: int, requests: str, receipts: str) -> int: ...
    def entries(self, node_id: str, first: int, last: int, file: str) -> int: ...
    def transfer(self, node_id: str, successor: str) -> int: ...
    def measure(self, node_id: str, task: str) -> str: ...


class JavaLedger(JavaSide[_LedgerEntryPoint]):
    """Some of a group's nodes, or all, in one JVM. `options` are properties of DLedgerConfig."""

    def __init__(
        self,
        group: str,
        addresses: Mapping[str, str],
        options: Mapping[str, object] | None = None,
        *,
        jvm_options: Sequence[str] = SHORT_LIVED,
    ) -> None:
        super().__init__("flintlog.JavaLedger", jvm_options)
        self.group = group
        self._peers = ";".join(f"{node_id}-{address}" for node_id, address in addresses.items())
        self._options = dict(options or {})
        self._nodes: set[str] = set()

    def start(
        self,
        node_id: str,
        directory: str | os.PathLike[str],
        options: Mapping[str, object] | None = None,
        *,
        addresses: Mapping[str, str] | None = None,
    ) -> None:
        """Start a node over its directory; `addresses` are those under which this node sees the group."""
        peers = ";".join(f"{each}-{address}" for each, address in addresses.items()) if addresses else self._peers
        settings = {
            **self._options,
            **(options or {}),
            "group": self.group,
            "selfId": node_id,
            "peers": peers,
            "storeBaseDir": str(directory),
        }
        self._java.start(msgspec.json.encode(settings).decode())
        self._nodes.add(node_id)

    def stop(self, node_id: str) -> None:
        """Stop a node cleanly: its files are flushed and its checkpoint is written."""
        self._nodes.discard(node_id)
        self._java.stop(node_id)

    def _shut_down(self) -> None:
        for node_id in sorted(self._nodes):
            self.stop(node_id)

    def info(self, node_id: str) -> LedgerInfo:
        """The node as it is now."""
        return msgspec.json.decode(self._java.info(node_id), type=LedgerInfo)

    def wait_for_leader(self, *, timeout_s: float = 30.0) -> str:
        """The id of the leader, as soon as every node of this process knows one and the same."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            known = {self.info(node_id).leader_id for node_id in self._nodes}
            leader = known.pop() if len(known) == 1 else None
            if leader is not None:
                return leader
            time.sleep(POLL_INTERVAL_S)
        raise AssertionError(f"no leader after {timeout_s} s: {[self.info(node_id) for node_id in self._nodes]}")

    def append(self, node_id: str, bodies: Iterable[bytes], *, window: int = 64) -> list[LedgerReceipt]:
        """Append entries through a node, `window` of them at a time; the answers in the same order."""
        asked = self._asked(msgspec.json.encode({"body": body}) for body in bodies)
        return self._answered(lambda file: self._java.append(node_id, window, asked, file), _parse_receipt)

    def entries(self, node_id: str, first: int | None = None, last: int | None = None) -> list[LedgerEntryView]:
        """Entries of a node's own files, committed or not: all, or from `first` to `last`."""
        info = self.info(node_id)
        begin = max(info.begin_index, 0) if first is None else first
        end = info.end_index if last is None else last
        return self._answered(lambda file: self._java.entries(node_id, begin, end, file), _parse_entry)

    def transfer(self, node_id: str, successor: str) -> int:
        """Ask the leader to hand over to `successor`; DLedger's code, 200 when it has."""
        return self._java.transfer(node_id, successor)

    def measure(self, node_id: str, *, producers: int, body_bytes: int, seconds: float) -> LedgerFigures:
        """Let producers append through the leader, each waiting for its own entry."""
        task = {"producers": producers, "bodyBytes": body_bytes, "seconds": seconds}
        answer = self._java.measure(node_id, msgspec.json.encode(task).decode())
        return msgspec.json.decode(answer, type=LedgerFigures)


def _parse_receipt(line: bytes) -> LedgerReceipt:
    return msgspec.json.decode(line, type=LedgerReceipt)


def _parse_entry(line: bytes) -> LedgerEntryView:
    return msgspec.json.decode(line, type=LedgerEntryView)
