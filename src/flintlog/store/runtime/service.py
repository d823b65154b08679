"""The interface between a store and its services: delay levels, timer, transactions.

A service is found by its name in the configuration, as a medium is. The store only knows when to call it:

    open      recovery ─▶ Store ─▶ service made ─▶ start ─▶ puts are taken, run_due is called in its job
    put       a message with delay_level or deliver_at_ms ─▶ rewrite ─▶ appended ─▶ stored
    shutdown  run_due ends ─▶ stop ─▶ the engine stops

A service gets a `ServiceHost`: the store with its public methods, and what only services may do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol, runtime_checkable

import msgspec

from flintlog.format.properties import PARSED_MAP_CAPACITY
from flintlog.store.model.message import Message, Receipt

HOMES: Final = {
    "schedule": "flintlog.services.delay.schedule:ScheduleService",
    "timer": "flintlog.services.timer.timer_service:TimerService",
    "transaction": "flintlog.services.transaction.transaction_service:TransactionService",
}


class Rewritten(msgspec.Struct, frozen=True):
    """The message that is to be stored, with all its properties in `properties`: TAGS and KEYS too, as text.

    The order of the property text is that of a Java HashMap with this `capacity`.
    """

    message: Message
    capacity: int = PARSED_MAP_CAPACITY


class Service(Protocol):
    """A service. It owns its files; only `run_due` may put messages of its own."""

    def start(self) -> None:
        """Load the service's files. The store is open, and no caller can put yet."""

    def rewrite(self, message: Message) -> Rewritten | Receipt:
        """Rewrite a message that asks for this service. A receipt, or an error, refuses the put."""

    def stored(self, receipt: Receipt) -> None:
        """Called after a rewritten message was appended; it may not be visible yet."""

    def run_due(self) -> int:
        """Do everything that is due now. Returns when to be called again, in milliseconds."""

    def stop(self) -> None:
        """Save; the store closes. `run_due` is not called any more."""


@runtime_checkable
class HasFigures(Protocol):
    """A service with figures of its own for `Store.stats`, under RocketMQ's names."""

    def running_stats(self) -> Mapping[str, str]: ...
