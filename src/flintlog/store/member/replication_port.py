"""The store as the nodes that replicate it use it: its log as bytes, its settings, and the port of a ledger's node.

master    raw_log is read and sent; set_replicas says what enough slaves hold, so that waiting puts return
slave     raw_log is appended to; reload_settings reads what was copied from the master
ledger    `ledger` connects the group's node, and makes the store a member of that group
"""

from __future__ import annotations

from collections.abc import Callable

from flintlog.disk.media.medium import Medium
from flintlog.errors import InvalidConfig
from flintlog.store.engine import Engine
from flintlog.store.ledger.ledger_commit_log import LedgerCommitLog
from flintlog.store.member.ledger_member import LedgerMember
from flintlog.store.member.node_port import NodePort
from flintlog.store.put.appender import Appender
from flintlog.store.read.raw_log import RawLog
from flintlog.store.settings.config_folder import ConfigFolder


class ReplicationPort:
    """One open store, as its nodes see it. Any thread may call."""

    def __init__(
        self, engine: Engine, appender: Appender, folder: ConfigFolder, make_member: Callable[[], LedgerMember]
    ) -> None:
        self.medium: Medium = engine.medium
        self.now_ms = engine.now_ms
        self.raw_log = RawLog(engine)
        self._engine = engine
        self._appender = appender
        self._folder = folder
        self._make_member = make_member
        self._member: LedgerMember | None = None
        self._node_port: NodePort | None = None

    # ------------------------------------------------------------------ master and slave

    def set_replicas(self, *, confirmed_where: int, in_sync_count: int) -> None:
        """Note how far enough replicas have the log, and how many are in sync, this store counted."""
        if self._engine.flushing.replica_wait is not None:
            self._engine.flushing.replica_wait.confirm(confirmed_where)
        self._appender.set_in_sync_count(in_sync_count)

    def on_waiting_for_replicas(self, callback: Callable[[int], None] | None) -> None:
        """Call back with the log's end when puts begin to wait for replicas, in the thread that waits or synced."""
        if self._engine.flushing.replica_wait is not None:
            self._engine.flushing.replica_wait.on_waiting = callback

    def reload_settings(self) -> None:
        """Read topics, groups and offsets again: a slave's files were brought in line with its master's."""
        if not self._engine.is_replica:
            raise InvalidConfig("only a slave's settings come from elsewhere")
        self._folder.load()

    # ------------------------------------------------------------------ a ledger's group

    @property
    def ledger(self) -> NodePort:
        """The port of the group's node; `InvalidConfig` for a store whose log is no ledger."""
        if self._node_port is None:
            commit_log = self._engine.log
            if not isinstance(commit_log, LedgerCommitLog):
                raise InvalidConfig("the log of this store is no ledger", path=self._engine.path)
            self._member = self._make_member()
            self._member.load()
            self._node_port = NodePort(self._engine, commit_log, self._member)
        return self._node_port

    @property
    def is_following(self) -> bool:
        """Whether this store is a member of a group that another member leads, or none."""
        return self._member is not None and not self._member.is_promoted
