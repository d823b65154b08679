"""The seam between a store and its services: delay levels, timer, transactions.

A service is found by its name in the configuration, as a medium is. The store does not know what services do, only
when they want to be called:

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
    """A message as a service wants it stored: all its properties in `properties`, TAGS and KEYS among them as text.

    `capacity` is that of the Java HashMap whose order the property text gets.
    """

    message: Message
    capacity: int = PARSED_MAP_CAPACITY


class Service(Protocol):
    """What runs beside a store. Its files are its own; only `run_due` may put messages on its own account."""

    def start(self) -> None:
        """The store is open and nobody else puts yet: load what was saved."""

    def rewrite(self, message: Message) -> Rewritten | Receipt:
        """A message that asks for this service, as it is to be stored; a receipt refuses it, as an error does."""

    def stored(self, receipt: Receipt) -> None:
        """A rewritten message is in the log, perhaps not yet visible."""

    def run_due(self) -> int:
        """Do everything that is due now; the time, in milliseconds, at which to be called again."""

    def stop(self) -> None:
        """The store closes: save. Nothing of the service runs any more."""


@runtime_checkable
class HasFigures(Protocol):
    """A service whose figures belong to the store's, under RocketMQ's names."""

    def running_stats(self) -> Mapping[str, str]: ...
