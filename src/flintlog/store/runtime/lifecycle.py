"""The states of a store, and the flags that forbid reading or writing.

States only move forward; the numbers are RocketMQ's. Each flag is a problem. A store is writeable while no flag that
forbids writing is set.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import IntEnum, IntFlag

from flintlog.errors import StoreClosed


class State(IntEnum):
    """The states in order, with RocketMQ's numbers."""

    INIT = 0
    LOAD_BEGIN = 10
    LOAD_COMMITLOG_OK = 11
    LOAD_CONSUME_QUEUE_OK = 12
    LOAD_COMPACTION_OK = 13
    LOAD_INDEX_OK = 14
    RECOVER_BEGIN = 20
    RECOVER_CONSUME_QUEUE_OK = 21
    RECOVER_COMMITLOG_OK = 22
    RECOVER_TOPIC_QUEUE_TABLE_OK = 23
    RUNNING = 30
    SHUTDOWN_BEGIN = 40
    SHUTDOWN_OK = 41


class Flag(IntFlag):
    """Problems of a running store, with RocketMQ's bits."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    LOGICS_QUEUE_ERROR = 4
    INDEX_FILE_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    LOGIC_DISK_FULL = 64


_FORBID_WRITING = ~Flag.NOT_READABLE


class Lifecycle:
    """State and flags of one store; any thread may read them. `on_change`, if set, is called after each change."""

    def __init__(self, on_change: Callable[[], None] | None = None) -> None:
        self.state = State.INIT
        self.flags = Flag(0)
        self.is_writeable = False
        self.is_readable = False
        self.on_change = on_change
        self._lock = threading.Lock()

    def move_to(self, state: State) -> None:
        with self._lock:
            if state <= self.state:
                raise StoreClosed(f"a store in state {self.state.name} cannot become {state.name}")
            self.state = state
            self._update()

    def end(self) -> None:
        """Shut down from any state. The lock is replaced: after a fork, a thread of the parent may have held it."""
        self._lock = threading.Lock()
        self.state = State.SHUTDOWN_OK
        self._update()

    def set(self, flag: Flag) -> None:
        with self._lock:
            self.flags |= flag
            self._update()

    def clear(self, flag: Flag) -> None:
        with self._lock:
            self.flags &= ~flag
            self._update()

    def _update(self) -> None:
        is_running = self.state is State.RUNNING
        self.is_writeable = is_running and not self.flags & _FORBID_WRITING
        self.is_readable = is_running and not self.flags & Flag.NOT_READABLE
        if self.on_change is not None:
            self.on_change()
