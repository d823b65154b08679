"""When the owner of an undecided transaction is asked, and what is done instead.

In the order of RocketMQ, for half messages in the order of their queue, once a round:

    checked transaction_check_max times, or stored longer ago than files   given up: moved to TRANS_CHECK_MAX_TIME_TOPIC
    are kept (only where retention deletes undecided transactions)
    stored in this very moment                                             the round ends
    within its own CHECK_IMMUNITY_TIME_IN_SECONDS                          put off: a copy at the queue's end
    younger than transaction_time_out                                      the round ends
    else                                                                   a copy likewise, and its owner is asked

RocketMQ counts that age from the born timestamp, which is the caller's, and where nothing is deleted too.

The copy comes before the question, so a question that ends the process counts too. While nobody listens, nobody is
asked and nothing is copied or counted; RocketMQ counts such questions, and gives up what was never asked about.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flintlog.services.transaction.transaction_records import Half, immunity_ms
from flintlog.store.options.store_config import StoreConfig

HOUR_MS = 3_600_000


class Verdict(Enum):
    """What a round does with one half message."""

    GIVE_UP = "give up"
    END_ROUND = "end the round"
    PUT_OFF = "put off"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class CheckRules:
    """The options that decide."""

    time_out_ms: int
    check_max: int
    keep_ms: int | None
    """How long after it was stored a half message may be deleted; None when retention never does."""

    @classmethod
    def of(cls, config: StoreConfig) -> CheckRules:
        goes_by_age = config.retention == "on" and not config.protect_unconsumed
        keep_ms = config.file_reserved_time * HOUR_MS if goes_by_age else None
        return cls(config.transaction_time_out, config.transaction_check_max, keep_ms)

    def judge(self, half: Half, now_ms: int) -> Verdict:
        """What is to be done with a half message in a round that began now."""
        if (half.check_times is not None and half.check_times >= self.check_max) or self._is_about_to_go(half, now_ms):
            return Verdict.GIVE_UP
        if half.store_timestamp >= now_ms:
            return Verdict.END_ROUND
        age_ms = now_ms - half.born_timestamp
        if half.immunity is not None:
            return Verdict.PUT_OFF if age_ms <= immunity_ms(half.immunity, self.time_out_ms) else Verdict.ASK
        return Verdict.END_ROUND if 0 <= age_ms <= self.time_out_ms else Verdict.ASK

    def _is_about_to_go(self, half: Half, now_ms: int) -> bool:
        """Whether retention may delete it: what is moved on before that is not lost."""
        return self.keep_ms is not None and now_ms - half.store_timestamp > self.keep_ms
