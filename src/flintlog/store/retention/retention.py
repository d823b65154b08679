"""Deletes expired files of the log, then the queue and index files that were derived from them.

    round     every `clean_resource_interval`, the first a minute after the opening
      disks     how full they are: set or clear the flags that refuse puts
      log       delete at most `delete_file_batch_max` files, the oldest first, with a pause after each
      held      retry a first file that a reader held; after a while delete it under the reader
      queues    if the log's beginning moved, delete queue files without records, with a pause after each queue
      index     delete index files without records

`retention_rules.py` has the rules. The log is deleted first. After a crash in between, queues and index point to
deleted records, which readers and the next opening skip. In the other order they would lack existing records.

A pause does not sleep: `run_due` returns when to continue the round. Rounds run in the store's background job, one at a
time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from flintlog.disk.segments.segment import Segment
from flintlog.errors import FlintlogError, InvalidConfig
from flintlog.store.components import Components
from flintlog.store.dispatch.dispatcher import Dispatcher
from flintlog.store.log.disk_use import existing, path_percent
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.retention.find_holds import HoldFinder
from flintlog.store.retention.retention_rules import RetentionRules, Space, is_delete_hour, judge_space
from flintlog.store.runtime.clock import Milliseconds
from flintlog.store.runtime.lifecycle import Flag, Lifecycle

log = logging.getLogger(__name__)

FIRST_ROUND_MS: Final = 60_000
MANUAL_ROUNDS: Final = 20
"""Rounds for which a deletion that a caller asked for lasts, as in RocketMQ."""


class Retention:
    """The retention of one store that is open for writing; see the module."""

    def __init__(
        self,
        config: StoreConfig,
        parts: Components,
        lifecycle: Lifecycle,
        dispatcher: Dispatcher,
        now_ms: Milliseconds,
    ) -> None:
        rules = RetentionRules.of(config)
        if rules is None:
            raise InvalidConfig(
                "this store keeps everything",
                advice="open it with retention='on', or name an age: file_reserved_time, in hours",
            )
        self.rules = rules
        self.save_offsets: Callable[[], object] = lambda: None
        """Called before the groups' offsets are read from the files; if it raises, nothing is deleted."""
        self.covers: Callable[[int], bool] = lambda end: True
        """Whether queues keep their next offsets without the file that ends there; False keeps the file."""
        self._hold_finder = HoldFinder(parts)
        self._logged: str | None = None
        self._config = config
        self._parts = parts
        self._lifecycle = lifecycle
        self._dispatcher = dispatcher
        self._now_ms = now_ms
        self._next_round_ms = now_ms() + FIRST_ROUND_MS
        self._round: Iterator[int] | None = None
        self._manual_rounds = 0
        self._is_asked = False
        self._retried_ms = now_ms()
        self._followed_to = 0

    def delete_expired_files(self) -> None:
        """Delete expired files in the next rounds, at any hour; the first round is due at once."""
        self._manual_rounds = MANUAL_ROUNDS
        self._is_asked = True

    def run_due(self) -> int:
        """Continue the round, or begin the next if it is due. Returns when to be called again."""
        now_ms = self._now_ms()
        if self._round is None:
            # It can only be later than that if the clock was turned back.
            longest_ms = max(FIRST_ROUND_MS, self._config.clean_resource_interval)
            self._next_round_ms = min(self._next_round_ms, now_ms + longest_ms)
            if now_ms < self._next_round_ms and not self._is_asked:
                return self._next_round_ms
            self._is_asked = False
            self._next_round_ms = now_ms + self._config.clean_resource_interval
            self._round = self._steps()
        try:
            for pause_ms in self._round:
                if pause_ms > 0:
                    return self._now_ms() + pause_ms
        except BaseException:
            self._round = None
            raise
        self._round = None
        return self._next_round_ms

    def _steps(self) -> Iterator[int]:
        """One round; yields the pauses."""
        space = self._look_at_disks()
        is_manual = self._manual_rounds > 0
        if is_manual:
            self._manual_rounds -= 1
        if space.deletes or is_manual or is_delete_hour(self._now_ms(), self.rules.hours):
            yield from self._delete_log_files(space)
        self._retry_held()
        yield from self._follow_log()

    # ------------------------------------------------------------------ disks

    def _look_at_disks(self) -> Space:
        paths = self._parts.paths
        percents = [path_percent(path, paths.root, self._parts.medium) for path in paths.commit_logs]
        queue_percent = path_percent(paths.consume_queue, paths.root, self._parts.medium)
        space = judge_space(self.rules, percents, queue_percent, self._own_share())
        self._set_flag(Flag.DISK_FULL, space.log_is_full, space.why)
        self._set_flag(Flag.LOGIC_DISK_FULL, space.queues_are_full, space.why)
        return space

    def _own_share(self) -> float | None:
        """The used share of the store's part of a disk that stores divide."""
        if self.rules.stores_a_disk <= 1:
            return None
        parts = self._parts
        try:
            total = parts.medium.usage(existing(parts.paths.commit_logs[0], parts.paths.root, parts.medium)).total
        except FlintlogError:
            return None
        return own_bytes(parts) * self.rules.stores_a_disk / total if total else None

    def _set_flag(self, flag: Flag, wanted: bool | None, why: str) -> None:
        is_set = bool(self._lifecycle.flags & flag)
        if wanted is None or wanted == is_set:
            return
        if wanted:
            log.error("puts are refused: %s", why)
            self._lifecycle.set(flag)
        else:
            log.info("there is space again: puts are taken")
            self._lifecycle.clear(flag)

    # ------------------------------------------------------------------ log

    def _delete_log_files(self, space: Space) -> Iterator[int]:
        config, segments = self._config, self._parts.segments
        at_once = space.at_once and self.rules.may_force
        below = _lower(self._parts.commit_log.needed_from(), None if at_once else self._protected_from())
        count = 0
        while count < config.delete_file_batch_max:
            first = segments.first
            if not self._may_delete(first, below, at_once=at_once):
                break
            deleted = segments.delete_expired(
                self.rules.reserved_ms,
                now_ms=self._now_ms(),
                batch_max=1,
                force_after_ms=config.destroy_mapped_file_interval_forcibly,
                at_once=at_once,
                below=below,
            )
            if not deleted or first is None:
                break
            log.info("%s was deleted: %s", first.path, space.why if at_once else "it has expired")
            count += 1
            yield config.delete_commit_log_files_interval
        if space.deletes and not count:
            log.warning("%s, and no file could be deleted", space.why)

    def _may_delete(self, first: Segment | None, below: int | None, *, at_once: bool) -> bool:
        """Whether the oldest file is due and nothing needs it."""
        if first is None or first is self._parts.segments.last or (below is not None and first.end > below):
            return False
        return (
            (at_once or self._is_first_expired())
            and self.covers(first.end)
            and self._parts.commit_log.let_go(first.end)
        )

    def _is_first_expired(self) -> bool:
        first = self._parts.segments.first
        return first is not None and first.modified_ms + self.rules.reserved_ms <= self._now_ms()

    def _protected_from(self) -> int | None:
        """The first offset that is still needed; None if there is none, or if such messages are not protected."""
        if not self.rules.protects_unconsumed:
            return None
        if not self._is_first_expired():
            return 0  # nothing has expired, so the holds need not be found
        self.save_offsets()
        self._hold_finder.load()
        holds = self._hold_finder.find()
        why = holds[0].why if holds else None
        if why != self._logged:
            self._logged = why
            log.info("expired files are kept: %s", why) if why else log.info("expired files are not needed any more")
        return holds[0].physical_offset if holds else None

    def _retry_held(self) -> None:
        now_ms, config = self._now_ms(), self._config
        if now_ms - self._retried_ms <= config.redelete_hung_file_interval:
            return
        self._retried_ms = now_ms
        force_after_ms = config.destroy_mapped_file_interval_forcibly
        if self._parts.segments.retry_delete_first(now_ms=now_ms, force_after_ms=force_after_ms):
            log.info("a file of the log that a reader held is deleted")

    # ------------------------------------------------------------------ queues and index

    def _follow_log(self) -> Iterator[int]:
        """Delete the queue and index files of deleted records."""
        parts = self._parts
        minimum = parts.segments.min_offset
        if minimum <= self._followed_to:
            return
        for queue in parts.queues.all():
            if self._dispatcher.alone(partial(parts.queues.delete_expired_of, queue, minimum)):
                yield self._config.delete_consume_queue_files_interval
        if parts.index is not None:
            self._dispatcher.alone(partial(parts.index.delete_expired, minimum))
        self._followed_to = minimum


def own_bytes(parts: Components) -> int:
    """The bytes of all files that grow with the messages."""
    queue_bytes = sum(part.total_size for queue in parts.queues.all() for part in queue.parts)
    return parts.segments.total_size + queue_bytes + (0 if parts.index is None else parts.index.total_size)


def _lower(one: int | None, other: int | None) -> int | None:
    return min((bound for bound in (one, other) if bound is not None), default=None)
