"""The states of a store, and the flags that say what it may not do now.

States only move forward; the numbers are RocketMQ's. A flag is a problem: a store is writeable when none of
those that forbid writing is set, and every flag says why.
"""

from __future__ import annotations

import threading
from enum import IntEnum, IntFlag

from flintlog.errors import StoreClosed


class State(IntEnum):
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
    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    LOGICS_QUEUE_ERROR = 4
    INDEX_FILE_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    LOGIC_DISK_FULL = 64


_FORBID_WRITING = ~Flag.NOT_READABLE


class Lifecycle:
    """State and flags of one store; any thread may look."""

    def __init__(self) -> None:
        self.state = State.INIT
        self.flags = Flag(0)
        self._lock = threading.Lock()

    def move_to(self, state: State) -> None:
        with self._lock:
            if state <= self.state:
                raise StoreClosed(f"a store in state {self.state.name} cannot become {state.name}")
            self.state = state

    def set(self, flag: Flag) -> None:
        with self._lock:
            self.flags |= flag

    def clear(self, flag: Flag) -> None:
        with self._lock:
            self.flags &= ~flag

    @property
    def is_running(self) -> bool:
        return self.state is State.RUNNING

    @property
    def is_writeable(self) -> bool:
        return self.state is State.RUNNING and not self.flags & _FORBID_WRITING

    @property
    def is_readable(self) -> bool:
        return self.state is State.RUNNING and not self.flags & Flag.NOT_READABLE
