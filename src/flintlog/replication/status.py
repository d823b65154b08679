"""The status of a node: request 907, in the JSON of RocketMQ's `haStatus` with a few more members.

{"master":true, "masterCommitLogMaxOffset":4096, "inSyncSlaveNums":1,
 "haConnectionInfo":[{"addr":"10.0.0.8:40122", "slaveAckOffset":4096, "transferFromWhere":4096, "diff":0,
                      "inSync":true, "transferredByteInSecond":0}],
 "haClientRuntimeInfo":{"masterAddr":"", "maxOffset":0, "activated":false},
 "brokerRole":"SYNC_MASTER", "logStart":0, "trouble":"", "term":null, "committed":null}
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from flintlog.errors import FormatError, PeerFailed
from flintlog.store.runtime.note_file import decode_json


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One connected slave, as its master sees it, or a member, as its leader does. `address` is then its id."""

    address: str
    acknowledged: int
    sent: int
    lag_bytes: int
    is_in_sync: bool


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The present state of a node: a master with its replicas, a slave with its master, or a ledger's member."""

    role: str
    log_start: int
    log_end: int
    replicas: tuple[ReplicaStatus, ...] = ()
    master_address: str | None = None
    is_connected: bool = False
    """Whether a slave is in contact with its master, or a member with its leader."""
    trouble: str | None = None
    term: int | None = None
    """Only for a ledger's member, like the fields after it."""
    committed: int | None = None
    """The end of the log that the group has committed."""
    refused_entries: int | None = None
    """Entries that arrived damaged; not sent in a reply."""


_MEMBER_ROLES = ("LEADER", "FOLLOWER", "CANDIDATE")
"""The roles of ledger members; the leader is reported as the master."""


class _Connection(msgspec.Struct, rename="camel"):
    addr: str
    slave_ack_offset: int = 0
    transfer_from_where: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0


class _Client(msgspec.Struct, rename="camel"):
    master_addr: str | None = ""
    max_offset: int = 0
    activated: bool = False


class _Info(msgspec.Struct, rename="camel"):
    master: bool
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[_Connection] = []
    ha_client_runtime_info: _Client = msgspec.field(default_factory=_Client)
    broker_role: str = ""
    log_start: int = 0
    trouble: str = ""
    term: int | None = None
    committed: int | None = None


def encode_status(status: NodeStatus) -> bytes:
    """The reply's body."""
    is_master = status.role == "LEADER" if status.role in _MEMBER_ROLES else status.master_address is None
    info = _Info(
        is_master,
        status.log_end if is_master else 0,
        sum(each.is_in_sync for each in status.replicas),
        [
            _Connection(each.address, each.acknowledged, each.sent, each.lag_bytes, each.is_in_sync)
            for each in status.replicas
        ],
        _Client(status.master_address or "", 0 if is_master else status.log_end, status.is_connected),
        status.role,
        status.log_start,
        status.trouble or "",
        status.term,
        status.committed,
    )
    return msgspec.json.encode(info)


def parse_status(body: bytes) -> NodeStatus:
    """Parse the status of a flintlog node or a RocketMQ broker."""
    try:
        info = decode_json(body, _Info)
    except FormatError as error:
        raise PeerFailed(f"the status cannot be read: {error.what}") from None
    client = info.ha_client_runtime_info
    replicas = [
        ReplicaStatus(each.addr, each.slave_ack_offset, each.transfer_from_where, each.diff, each.in_sync)
        for each in info.ha_connection_info
    ]
    return NodeStatus(
        info.broker_role or ("MASTER" if info.master else "SLAVE"),
        info.log_start,
        info.master_commit_log_max_offset if info.master else client.max_offset,
        tuple(replicas),
        None if info.master or info.broker_role in _MEMBER_ROLES else client.master_addr or "",
        client.activated,
        info.trouble or None,
        info.term,
        info.committed,
    )
