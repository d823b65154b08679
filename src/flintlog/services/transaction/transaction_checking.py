"""The rules for checking undecided transactions: when the producer is asked, and what is done instead.

A round goes through the half messages in the order of their queue. For each, the first rule that applies decides, in
RocketMQ's order:

    checked transaction_check_max times, or stored longer ago than files   given up: moved to TRANS_CHECK_MAX_TIME_TOPIC
    are kept (only where retention deletes undecided transactions)
    stored when the round began, or later                                  the round ends
    within its own CHECK_IMMUNITY_TIME_IN_SECONDS                          put off: a copy at the queue's end
    younger than transaction_time_out                                      the round ends
    else                                                                   a copy likewise, and the producer is asked

For giving up, RocketMQ counts the age from the born timestamp, which the caller sets, and does so even where retention
deletes nothing.

The copy is put before the question, so a question during which the process dies is counted. Without a callback nobody
is asked, and nothing is copied or counted; RocketMQ counts such questions, and gives up transactions that were never
asked about.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flintlog.services.transaction.transaction_records import Half, immunity_ms
from flintlog.store.options.store_config import StoreConfig

HOUR_MS = 3_600_000


class Verdict(Enum):
    """The action of a round for one half message."""

    GIVE_UP = "give up"
    END_ROUND = "end the round"
    PUT_OFF = "put off"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class CheckRules:
    """The options of the rules."""

    time_out_ms: int
    check_max: int
    keep_ms: int | None
    """The age since storing at which retention may delete a half message; None when it never does."""

    @classmethod
    def of(cls, config: StoreConfig) -> CheckRules:
        deletes_undecided = config.retention == "on" and not config.protect_unconsumed
        keep_ms = config.file_reserved_time * HOUR_MS if deletes_undecided else None
        return cls(config.transaction_time_out, config.transaction_check_max, keep_ms)

    def judge(self, half: Half, now_ms: int) -> Verdict:
        """Decide about a half message in a round that began at `now_ms`."""
        if (half.check_times is not None and half.check_times >= self.check_max) or self._may_be_deleted(half, now_ms):
            return Verdict.GIVE_UP
        if half.store_timestamp >= now_ms:
            return Verdict.END_ROUND
        age_ms = now_ms - half.born_timestamp
        if half.immunity is not None:
            return Verdict.PUT_OFF if age_ms <= immunity_ms(half.immunity, self.time_out_ms) else Verdict.ASK
        return Verdict.END_ROUND if 0 <= age_ms <= self.time_out_ms else Verdict.ASK

    def _may_be_deleted(self, half: Half, now_ms: int) -> bool:
        """Whether retention may delete it: it is given up first, so that its message is not lost."""
        return self.keep_ms is not None and now_ms - half.store_timestamp > self.keep_ms
