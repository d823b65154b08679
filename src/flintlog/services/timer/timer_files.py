"""The timer's files, at RocketMQ's paths, and the order in which they are made durable.

    commit log ─▶ timer log ─▶ timer wheel ─▶ checkpoint

Each file refers only to those before it, so after any crash its references are valid. Messages that are not in these
files yet are read again from the queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintlog.format.names import CONFIG, TIMER_CHECK, TIMER_LOG, TIMER_WHEEL
from flintlog.services.timer.timer_checkpoint import TimerCheckpointFile
from flintlog.services.timer.timer_log import TimerLog
from flintlog.services.timer.timer_wheel import TimerWheel
from flintlog.store.settings.shared_state import Part

if TYPE_CHECKING:
    from flintlog.store.put.service_host import ServiceHost


TIMER_PART: Final = "timer"
"""The checkpoint's name in the state that a ledger group shares. The wheel and the timer log are not shared."""


class TimerFiles:
    """Wheel, log and checkpoint of one store; `wheel` is set by `open_wheel` or `make_wheel`."""

    wheel: TimerWheel

    def __init__(self, host: ServiceHost, slots: int) -> None:
        store, medium = host.store, host.medium
        config = store.config
        self.precision_ms = config.timer_precision_ms
        self.log = TimerLog(store.path / TIMER_LOG, config.mapped_file_size_timer_log, medium)
        self.checkpoint = TimerCheckpointFile(store.path / CONFIG / TIMER_CHECK, medium)
        self._wheel_path = store.path / TIMER_WHEEL
        self._slots = slots
        self._host = host

    def open_wheel(self) -> TimerWheel | None:
        """Open the existing wheel; None when it is missing or has another size."""
        wheel = TimerWheel.open(self._wheel_path, self._slots, self.precision_ms, self._host.medium)
        if wheel is not None:
            self.wheel = wheel
        return wheel

    def make_wheel(self) -> None:
        """Replace the wheel with an empty one."""
        self.wheel = TimerWheel.make(self._wheel_path, self._slots, self.precision_ms, self._host.medium)

    def flush(self, read_ms: int, queue_offset: int) -> None:
        """Record durably that slots before `read_ms` are delivered and the queue is entered up to an offset."""
        store = self._host.store
        store.flush()
        self._host.share({TIMER_PART: _shared(read_ms, queue_offset, store.max_physical_offset)})
        self.log.flush()
        self.wheel.flush()
        self.checkpoint.write(
            read_ms=read_ms, log_flushed=self.log.end, queue_offset=queue_offset, now_ms=self._host.now_ms()
        )

    def close(self) -> None:
        self.checkpoint.close()
        self.wheel.close()
        self.log.shut_down()


def _shared(read_ms: int, queue_offset: int, log_end: int) -> Part:
    return {"readMs": read_ms, "queueOffset": queue_offset, "logEnd": log_end}
