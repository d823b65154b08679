"""Messages that are delivered at a chosen moment: RocketMQ's timer.

    put ─▶ rmq_sys_wheel_timer ─▶ enter: a unit in the timer log, chained in the slot of its time
                    ▲                                      │
                    └── rolled: due later than the window ─┤ deliver: a slot that is over
                                                           └─▶ its own topic

Each round enters all visible messages before it delivers any, and enters again after a roll. So a cancellation that was
acknowledged before its message was due is in the slot when that slot is delivered. Slots are delivered in the order of
their times, and messages of a slot in the order of their puts. The cost of a round depends on the messages that were
put and that are due, not on those that wait.

The files are saved at the end of each round that delivered something. After a crash, deliveries since the last save may
be repeated; saved ones are not.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from flintlog.errors import InvalidMessage
from flintlog.format.message_fields import merged_properties
from flintlog.format.properties import (
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
)
from flintlog.format.sys_flag import takes_queue_offset
from flintlog.format.timer import DEFAULT_SLOTS
from flintlog.services.timer.timer_delivery import TimerDelivery
from flintlog.services.timer.timer_entering import TimerEntering
from flintlog.services.timer.timer_files import TimerFiles
from flintlog.services.timer.timer_message import (
    cancel_key,
    cancellation,
    deliver_time,
    parse_timed,
    plain,
    slot_of,
    waiting,
)
from flintlog.services.timer.timer_metrics import TimerMetrics
from flintlog.services.timer.timer_queue import TimerQueue
from flintlog.services.timer.timer_recovery import TimerRecovery
from flintlog.store.model.arguments import INT64_MAX, INT64_MIN
from flintlog.store.model.message import Message, PutStatus, Receipt
from flintlog.store.runtime.jobs import NEVER
from flintlog.store.runtime.service import Rewritten

if TYPE_CHECKING:
    from flintlog.store.put.service_host import ServiceHost

log = logging.getLogger(__name__)

RETRY_MS: Final = 1000
CLEAN_INTERVAL_MS: Final = 30_000
BLANK_SLOTS: Final = 60
MAX_UNSAVED: Final = 4096
"""Save within a round after this many deliveries: at most this many are repeated after a crash."""

_TIMED = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)


class TimerService:
    """The timer of one store. `run_due` is called by one thread at a time; the other methods by any.

    >>> from flintlog.testing import FakeClock, temporary_store, SMALL_FILES
    >>> clock = FakeClock()
    >>> with temporary_store(SMALL_FILES.with_changes(services={"timer"}), clock=clock) as store:
    ...     receipt = store.put(Message("orders", b"tea", deliver_at_ms=clock.now_ms() + 60_000))
    ...     _ = clock.advance(59_000), store.get("orders", 0, 0).messages
    ...     _ = clock.advance(2_000), store.wait_dispatched()
    ...     [message.body for message in store.get("orders", 0, 0).messages]
    [b'tea']
    """

    wheel_slots: ClassVar[int] = DEFAULT_SLOTS

    def __init__(self, host: ServiceHost) -> None:
        store = host.store
        config = store.config
        self._host = host
        self._store = store
        self._config = config
        self._precision_ms = config.timer_precision_ms
        self._look_interval_ms = min(config.timer_precision_ms, config.timer_flush_interval_ms)
        self._files = TimerFiles(host, self.wheel_slots)
        self._queue = TimerQueue(store)
        self._metrics = TimerMetrics(host)
        self._chance = random.Random()
        self._read_ms = 0
        self._saved_offset = -1
        self._saved_at_ms = 0
        self._cleaned_at_ms = 0
        self._looked_at_ms = 0
        self._is_behind = True

    @property
    def window_ms(self) -> int:
        """How far ahead messages are entered; those due later are rolled."""
        most = self.wheel_slots // 2 - BLANK_SLOTS
        asked = self._config.timer_roll_window_slot
        return (asked if 2 <= asked <= most else max(2, most)) * self._precision_ms

    @property
    def waiting_counts(self) -> dict[str, int]:
        """How many messages wait, by topic; a cancellation counts against what it cancels."""
        return self._metrics.counts

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        files, queue = self._files, self._queue
        resumed = TimerRecovery(self._host, files, queue, self.window_ms).run()
        self._metrics.load(is_void=resumed.is_rebuilt)
        self._delivery = TimerDelivery(self._host, files, queue, self._metrics)
        self._entering = TimerEntering(files, queue, self._delivery, self._metrics, resumed, self.window_ms)
        self._read_ms = resumed.read_ms
        self._save()

    def stop(self) -> None:
        try:
            self._save()
            self._metrics.save()
        finally:
            self._files.close()

    def _save(self) -> None:
        """Record durably what was delivered and entered."""
        if not self._entering.is_caught_up:
            return  # after a rebuild the saved checkpoint is ahead until the queue has been entered again
        self._files.flush(self._read_ms, self._entering.next_offset)
        self._delivery.unsaved_count = 0
        self._saved_offset = self._entering.next_offset
        self._saved_at_ms = self._host.now_ms()

    # ------------------------------------------------------------------ putting

    def rewrite(self, message: Message) -> Rewritten | Receipt:
        """Return a timed message in the form in which it is stored: waiting, or plain when it is already due."""
        if not self._config.timer_wheel_enable:
            return Receipt(PutStatus.WHEEL_TIMER_NOT_ENABLE)
        moment = message.deliver_at_ms
        if moment is not None and not INT64_MIN <= moment <= INT64_MAX:
            raise InvalidMessage(f"deliver_at_ms cannot be {moment}")
        properties = merged_properties(message)
        if not any(name in properties for name in _TIMED):
            properties[TIMER_DELIVER_MS] = str(moment)
        if not takes_queue_offset(message.sys_flag):
            return plain(message, properties)
        now_ms = self._host.now_ms()
        deliver_ms = deliver_time(properties, now_ms)
        if deliver_ms is None or deliver_ms - now_ms > self._config.timer_max_delay_sec * 1000:
            return Receipt(PutStatus.WHEEL_TIMER_MSG_ILLEGAL)
        if deliver_ms <= now_ms:
            is_cancellation = TIMER_DEL_UNIQKEY in properties
            return Receipt(PutStatus.WHEEL_TIMER_MSG_ILLEGAL) if is_cancellation else plain(message, properties)
        slot_ms = slot_of(deliver_ms, self._precision_ms)
        if self._is_congested(slot_ms):
            return Receipt(PutStatus.WHEEL_TIMER_FLOW_CONTROL)
        return waiting(message, properties, slot_ms)

    def _is_congested(self, slot_ms: int) -> bool:
        """Above a slot's limit messages are refused at random; from twice the limit on all are refused.

        As in RocketMQ, most are refused just above the limit, and fewer as the slot nears twice the limit.
        """
        limit = self._config.timer_congest_num_each_slot
        number = self._files.wheel.slot_at(slot_ms).number
        if number <= limit:
            return False
        return number >= 2 * limit or self._chance.randrange(1000) > 1000 * (number - limit) / (limit + 0.1)

    def stored(self, receipt: Receipt) -> None:
        """Wake the job to enter a message. Only the first put after each round wakes it."""
        if not self._is_behind:
            self._is_behind = True
            self._host.nudge("timer")

    def put_after(
        self, message: Message, *, delay_ms: int | None = None, delay_sec: int | None = None, check: bool = True
    ) -> Receipt:
        """Put a message to be delivered after a delay, with the properties of RocketMQ's clients."""
        if (delay_ms is None) == (delay_sec is None):
            raise InvalidMessage("give the delay either in milliseconds or in seconds")
        name, delay = (TIMER_DELAY_MS, delay_ms) if delay_ms is not None else (TIMER_DELAY_SEC, delay_sec)
        if not isinstance(delay, int) or not INT64_MIN <= delay <= INT64_MAX:
            raise InvalidMessage(f"a delay is a 64-bit integer, not {delay!r}")
        properties = {**(message.properties or {}), name: str(delay)}
        return self._store.put(msgspec.structs.replace(message, properties=properties, deliver_at_ms=0), check=check)

    def cancel(self, receipt: Receipt, *, check: bool = True) -> Receipt:
        """Recall a waiting message by the receipt of its put. The message needs the property UNIQ_KEY.

        If this is acknowledged before the message is due, the message is not delivered.
        """
        if not isinstance(receipt, Receipt):
            raise InvalidMessage(f"a message is recalled by its receipt, not by {type(receipt).__name__}")
        message = None if receipt.physical_offset < 0 else self._store.message_at(receipt.physical_offset)
        timed = None if message is None else parse_timed(message)
        if timed is None:
            raise InvalidMessage("the receipt is not of a waiting timed message")
        if timed.key is None:
            raise InvalidMessage("a message without a unique key cannot be recalled", advice="put it with UNIQ_KEY")
        return self.cancel_by_key(timed.topic, timed.key, timed.slot_ms + self._precision_ms, check=check)

    def cancel_by_key(self, topic: str, unique_key: str, deliver_at_ms: int, *, check: bool = True) -> Receipt:
        """Recall the message with this UNIQ_KEY that was put for this moment."""
        if not isinstance(unique_key, str) or not unique_key:
            raise InvalidMessage("a unique key is a non-empty string")
        key = cancel_key(topic, unique_key, with_topic=self._config.append_topic_for_timer_delete_key)
        return self._store.put(cancellation(topic, unique_key, deliver_at_ms, key), check=check)

    # ------------------------------------------------------------------ running

    def run_due(self) -> int:
        """Enter new messages, deliver due ones, and return when to be called again."""
        now_ms = self._host.now_ms()
        due_ms = self._due_ms(now_ms)
        if now_ms < due_ms:
            return due_ms
        self._is_behind, self._looked_at_ms, is_done = False, now_ms, False
        try:
            is_done = self._round(now_ms)
        finally:
            self._is_behind |= not is_done  # the wheel does not know messages that were not entered
        if self._needs_saving(now_ms):
            self._save()
        if now_ms >= self._cleaned_at_ms + CLEAN_INTERVAL_MS:
            self._cleaned_at_ms = now_ms
            self._files.log.delete_before(self._store.min_physical_offset, now_ms)
            self._metrics.save()
        return max(now_ms + 1, self._due_ms(now_ms)) if is_done else now_ms + RETRY_MS

    def _round(self, now_ms: int) -> bool:
        """Deliver slot by slot until none is over; False when the store refused a message for now."""
        write_ms = self._floor(now_ms)
        self._store.wait_dispatched()
        while True:
            if not self._config.timer_stop_enqueue and not self._entering.enter(self._read_ms, write_ms):
                return False
            if self._config.timer_stop_dequeue:
                return True
            slot_ms = self._files.wheel.next_due(self._read_ms)
            if slot_ms is None or slot_ms >= write_ms:
                self._read_ms = max(self._read_ms, write_ms)
                return True
            if not self._delivery.deliver_slot(slot_ms, now_ms):
                return False
            self._read_ms = slot_ms + self._precision_ms
            if self._delivery.take_rolled():
                self._store.wait_dispatched()
            if self._delivery.unsaved_count >= MAX_UNSAVED:
                self._save()

    def _needs_saving(self, now_ms: int) -> bool:
        return bool(self._delivery.unsaved_count) or now_ms >= self._save_due_ms(now_ms)

    def _save_due_ms(self, now_ms: int) -> int:
        if self._saved_offset == self._entering.next_offset:
            return NEVER
        return _after(self._saved_at_ms, self._config.timer_flush_interval_ms, now_ms)

    def _due_ms(self, now_ms: int) -> int:
        """The next time to deliver a slot, enter new messages, or save."""
        due_ms = self._save_due_ms(now_ms)
        if self._is_behind:
            due_ms = min(due_ms, _after(self._looked_at_ms, self._look_interval_ms, now_ms))
        slot_ms = None if self._config.timer_stop_dequeue else self._files.wheel.next_due(self._read_ms)
        return due_ms if slot_ms is None else min(due_ms, slot_ms + self._precision_ms)

    def _floor(self, time_ms: int) -> int:
        return time_ms // self._precision_ms * self._precision_ms


def _after(last_ms: int, interval_ms: int, now_ms: int) -> int:
    """An interval after the last time; now, if the clock was turned back to before the last time."""
    return last_ms + interval_ms if last_ms <= now_ms else now_ms
