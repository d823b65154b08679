"""When the owner of an undecided transaction is asked, and what is done instead.

In the order of RocketMQ, for half messages in the order of their queue, once a round:

    checked transaction_check_max times, or older than files are kept      given up: moved to TRANS_CHECK_MAX_TIME_TOPIC
    stored in this very moment                                             the round ends
    within its own CHECK_IMMUNITY_TIME_IN_SECONDS                          put off: a copy at the queue's end
    younger than transaction_time_out                                      the round ends
    else                                                                   a copy likewise, and its owner is asked

The copy comes before the question, so a question that ends the process counts too. While nobody listens, nobody is
asked and nothing is copied or counted; RocketMQ counts such questions, and gives up what was never asked about.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flintlog.services.transaction_records import Half, immunity_ms
from flintlog.store.config import StoreConfig

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
    keep_ms: int

    @classmethod
    def of(cls, config: StoreConfig) -> CheckRules:
        return cls(config.transaction_time_out, config.transaction_check_max, config.file_reserved_time * HOUR_MS)

    def judge(self, half: Half, now_ms: int) -> Verdict:
        """What is to be done with a half message in a round that began now."""
        age_ms = now_ms - half.born_timestamp
        if (half.check_times is not None and half.check_times >= self.check_max) or age_ms > self.keep_ms:
            return Verdict.GIVE_UP
        if half.store_timestamp >= now_ms:
            return Verdict.END_ROUND
        if half.immunity is not None:
            return Verdict.PUT_OFF if age_ms <= immunity_ms(half.immunity, self.time_out_ms) else Verdict.ASK
        return Verdict.END_ROUND if 0 <= age_ms <= self.time_out_ms else Verdict.ASK
