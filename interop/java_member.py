"""A real RocketMQ broker as a member of a DLedger group, its peers Java's or ours.

    addresses = ledger_addresses("n0", "n1", "n2")
    with JavaMember("some-directory", "orders", "n0", addresses) as member:
        member.wait_until(lambda: member.is_master, "it leads")
        member.put_many([Message("orders", b"...")])

The whole broker, because only the broker makes a store fit to lead: when its member is elected it waits until the log
is committed and dispatched, takes the queue offsets from the queues, and only then takes puts. A store alone goes on
counting from what it knew when it was opened; its messages are acknowledged and stand in no queue.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, cast

import msgspec

from flintlog.store.model.message import Message
from interop.java_broker import JavaBroker, broker_request
from interop.java_ledger import LedgerInfo
from interop.java_process import SHORT_LIVED
from interop.java_store import JavaReceipt

HEARTBEAT_MS = 500
"""The loss of a leader is noticed after a second and a half instead of six."""


class _MemberEntryPoint(Protocol):
    """The methods that JavaMember.java has beside JavaBroker.java's."""

    def setHeartbeatMs(self, interval: int) -> None: ...  # noqa: N802 (Java's name)
    def ledger(self) -> str: ...
    def isMaster(self) -> bool: ...  # noqa: N802
    def transfer(self, successor: str) -> int: ...
    def behind(self) -> int: ...
    def putMany(self, window: int, requests: str, receipts: str) -> int: ...  # noqa: N802


class JavaMember(JavaBroker):
    """One member in a JVM of its own. `options` are names of MessageStoreConfig and BrokerConfig alike."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        group: str,
        member_id: str,
        addresses: Mapping[str, str],
        options: Mapping[str, str] | None = None,
        *,
        heartbeat_ms: int = HEARTBEAT_MS,
        jvm_options: Sequence[str] = SHORT_LIVED,
    ) -> None:
        self.member_id = member_id
        self._heartbeat_ms = heartbeat_ms
        settings = {**(options or {}), **member_options(group, member_id, addresses)}
        super().__init__(path, settings, jvm_options=jvm_options, main_class="flintlog.JavaMember")

    def _before_start(self) -> None:
        self._member.setHeartbeatMs(self._heartbeat_ms)

    @property
    def _member(self) -> _MemberEntryPoint:
        return cast(_MemberEntryPoint, self._java)

    def ledger(self) -> LedgerInfo:
        """The member's role, and the ends of its ledger."""
        return msgspec.json.decode(self._member.ledger(), type=LedgerInfo)

    @property
    def is_master(self) -> bool:
        """Whether it leads, and its broker takes puts."""
        return self._member.isMaster()

    @property
    def backlog_bytes(self) -> int:
        """Committed bytes that are in no queue yet."""
        return self._member.behind()

    def transfer(self, successor: str) -> int:
        """Ask it, the leader, to hand over to `successor`; DLedger's code, 200 when it has."""
        return self._member.transfer(successor)

    def put_many(self, messages: Iterable[Message], *, window: int = 64) -> list[JavaReceipt]:
        """Put messages, `window` of them at a time; the answers in the same order."""
        asked = self._asked(msgspec.json.encode(broker_request(message)) for message in messages)
        return self._answered(
            lambda file: self._member.putMany(window, asked, file),
            lambda line: msgspec.json.decode(line, type=JavaReceipt),
        )


def member_options(group: str, member_id: str, addresses: Mapping[str, str]) -> dict[str, str]:
    """RocketMQ's options that make a store a member of a group."""
    return {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": group,
        "dLegerPeers": ";".join(f"{each}-{address}" for each, address in addresses.items()),
        "dLegerSelfId": member_id,
    }
