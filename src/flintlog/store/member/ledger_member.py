"""A store as a member of its group: the state that it shares with the others, and its work while it leads.

    following   topics, groups, offsets and delay levels are those that the group has committed; changes are refused
    leading     they are changed here, each change is shared with the group, and services run

A new leader starts from the state that its predecessors shared. Its services search the log for what was done since.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import FlintlogError, NotLeading
from flintlog.store.consume.consumer_registry import Consumers
from flintlog.store.member.polled_mark import PolledMark
from flintlog.store.member.state_log import PIECE_BYTES, StateLog
from flintlog.store.model.message import Message, Receipt
from flintlog.store.put.service_host import ServiceHost
from flintlog.store.put.service_runs import ServiceRuns
from flintlog.store.settings.config_folder import ConfigFolder
from flintlog.store.settings.shared_state import Change, Part, State

log = logging.getLogger(__name__)

_PIECES_A_FILE = 4


class LedgerMember:
    """The `Leader` of one store. The port's thread calls `take_shared`, the thread of `Leadership` the rest."""

    def __init__(
        self,
        host: ServiceHost,
        segments: SegmentQueue,
        folder: ConfigFolder,
        consumers: Consumers,
        services: ServiceRuns,
        put: Callable[[Message], Receipt],
    ) -> None:
        store = host.store
        file_bytes = store.config.mapped_file_size_commit_log
        self._store = store
        self._segments = segments
        self._folder = folder
        self._consumers = consumers
        self._services = services
        self.state_log = StateLog(host, put, piece_bytes=max(1, min(PIECE_BYTES, file_bytes // _PIECES_A_FILE)))
        self._polled = PolledMark(store.path, host.medium)
        self._is_promoted = False
        self._is_stale = False
        self._has_shared_all = False
        self._adopting = threading.Lock()

    @property
    def is_promoted(self) -> bool:
        """Whether this member may change offsets and settings."""
        return self._is_promoted

    def load(self) -> None:
        """Start as a follower, with the committed state that this member knows."""
        self._folder.follow()
        self._polled.load()
        if self.state_log.load(self._folder.local_state) and not self._polled.counts(self.state_log.next_offset):
            self._folder.adopt(Change(self.state_log.state, is_whole=True))

    def take_shared(self) -> None:
        """Adopt what the group has committed; a leader has it already."""
        with self._adopting:
            self._adopt_new()

    def _adopt_new(self) -> None:
        self._is_stale |= self._polled.counts(self.state_log.next_offset)
        changes = self.state_log.advance()
        if self._is_promoted or self._polled.counts(self.state_log.next_offset):
            return
        if self._is_stale:
            changes = [Change(self.state_log.state, is_whole=True)]
        self._is_stale = bool(changes)  # until all of them are in the files
        for change in changes:
            self._folder.adopt(change)
        self._is_stale = False

    def take_polled(self, write: Callable[[], object]) -> None:
        """For a group that a Java broker leads: `write` puts the broker's answers into the files."""
        with self._adopting:
            if self._is_promoted:
                raise NotLeading("this member leads its group now", path=self._store.path)
            self._store.consumer_offsets.save()
            if write():
                self._folder.load()
            self._polled.save(self.state_log.next_offset)

    # ------------------------------------------------------------------ leading

    def start(self) -> None:
        if not self._is_promoted:
            self._promote()
        if not self._has_shared_all:
            self._share_what_is_only_here()
            self._has_shared_all = True
        self._services.start()

    def _promote(self) -> None:
        with self._adopting:
            self._adopt_new()
            self.state_log.lead()
            self._folder.lead(self.state_log.share)
            self._is_promoted = True

    def _share_what_is_only_here(self) -> None:
        """Share the parts of this member's own state that are missing in the log, or newer than there.

        They are missing when the group's log is younger than this store, and newer after a Java broker led and was
        asked for its state.
        """
        was_polled = self._polled.counts(self.state_log.next_offset)
        missing: State = {
            name: part
            for name, part in self._folder.local_state().items()
            if was_polled or self.state_log.part(name) is None
        }
        if missing:
            self.state_log.share(missing)

    def stop(self) -> None:
        try:
            self._services.stop()
        finally:
            self._save_offsets()

    def _save_offsets(self) -> None:
        try:
            self._store.consumer_offsets.save()
        except FlintlogError as failure:
            log.info("the last offsets were not shared with the group: %s", failure)

    def demote(self) -> None:
        self._consumers.close()
        with self._adopting:
            self._folder.follow()
            self._is_promoted = self._has_shared_all = False
            self.state_log.advance()
            self._folder.adopt(Change(self.state_log.state, is_whole=True))

    def needed_from(self) -> int:
        """The offset from which on the log must be kept: that of the last whole state, or of the committed end.

        A leader writes the whole state again when only that keeps the oldest file.
        """
        segments = self._segments
        whole_at, oldest = self.state_log.whole_at, segments.first
        if self._is_promoted and oldest is not segments.last and oldest is not None and 0 <= whole_at < oldest.end:
            self.state_log.renew()
            self.take_shared()
            whole_at = self.state_log.whole_at
        return segments.max_offset if whole_at < 0 else min(whole_at, segments.max_offset)

    # ------------------------------------------------------------------ for services

    def share(self, parts: State) -> None:
        """Share parts of the state; returns once the group has committed them."""
        if not self._is_promoted:
            raise NotLeading("this member does not lead its group", path=self._store.path)
        self.state_log.share(parts)

    def shared(self, name: str) -> Part | None:
        """A part of the state, as the group has committed it."""
        return self.state_log.part(name)
