"""A store as a member of its group: what it shares with the others, and what it does while it leads.

    following   topics, groups, offsets and delay levels are what the group has committed; changing them is refused
    leading     they are changed here, each change is brought to the group, and services run

A new leader begins with what its predecessors shared, and services look into the log for what was done since.
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
    """`Leader` of one store; `take_shared` belongs to the port's thread, the rest to that which leads."""

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
        self._is_behind = False
        self._has_told_all = False
        self._adopting = threading.Lock()

    @property
    def is_promoted(self) -> bool:
        """Whether offsets and settings are this member's to change."""
        return self._is_promoted

    def load(self) -> None:
        """Begin as a follower, with what the group has committed as far as this member knows."""
        self._folder.follow()
        self._polled.load()
        if self.state_log.load(self._folder.local_state) and not self._polled.counts(self.state_log.next_offset):
            self._folder.adopt(Change(self.state_log.state, is_whole=True))

    def take_shared(self) -> None:
        """Take what the group has committed; a leader has it already."""
        with self._adopting:
            self._adopt_new()

    def _adopt_new(self) -> None:
        self._is_behind |= self._polled.counts(self.state_log.next_offset)
        changes = self.state_log.advance()
        if self._is_promoted or self._polled.counts(self.state_log.next_offset):
            return
        if self._is_behind:
            changes = [Change(self.state_log.state, is_whole=True)]
        self._is_behind = bool(changes)  # until all of them are in the files
        for change in changes:
            self._folder.adopt(change)
        self._is_behind = False

    def take_polled(self, write: Callable[[], object]) -> None:
        """A Java broker leads: `write` puts what it said into the files."""
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
        if not self._has_told_all:
            self._share_what_is_only_here()
            self._has_told_all = True
        self._services.start()

    def _promote(self) -> None:
        with self._adopting:
            self._adopt_new()
            self.state_log.lead()
            self._folder.lead(self.state_log.share)
            self._is_promoted = True

    def _share_what_is_only_here(self) -> None:
        """The group's log may be younger than this store, or its last leader was a Java broker that was asked.

        What the log does not name, or not as it was told since, is taken from here.
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
            log.info("the last offsets were not brought to the group: %s", failure)

    def demote(self) -> None:
        self._consumers.close()
        with self._adopting:
            self._folder.follow()
            self._is_promoted = self._has_told_all = False
            self.state_log.advance()
            self._folder.adopt(Change(self.state_log.state, is_whole=True))

    def needed_from(self) -> int:
        """From where on the log must stay: the last whole state, and what is not committed.

        A leader writes the whole state again when it is all that keeps the oldest file.
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
        """Bring parts of the shared state to the group."""
        if not self._is_promoted:
            raise NotLeading("this member does not lead its group", path=self._store.path)
        self.state_log.share(parts)

    def shared(self, name: str) -> Part | None:
        """What the group has committed of a part."""
        return self.state_log.part(name)
