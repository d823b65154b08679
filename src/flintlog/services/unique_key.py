"""New values for UNIQ_KEY, in the form of RocketMQ's clients.

In Java the class loader's hash separates two producers with the same machine and process id; here a random number does.
"""

from __future__ import annotations

import itertools
import os
import secrets
from datetime import datetime

from flintlog.format.message_id import UniqueKey, encode_unique_key, parse_host
from flintlog.store.runtime.clock import Milliseconds

_COUNTER_LIMIT = 1 << 16
_PROCESS_LIMIT = 1 << 16
_HASH_BITS = 31
_PORT_BYTES = 4


class UniqueKeys:
    """Makes unique keys. Any thread may call."""

    def __init__(self, host: str, now_ms: Milliseconds) -> None:
        self._ip = parse_host(host)[:-_PORT_BYTES]
        self._now_ms = now_ms
        self._hash = secrets.randbits(_HASH_BITS)
        self._counter = itertools.count(secrets.randbits(8))

    def next(self) -> str:
        count = next(self._counter)
        if count and count % _COUNTER_LIMIT == 0:
            # The counter wraps: without a new hash, two keys of one millisecond could be equal.
            self._hash = secrets.randbits(_HASH_BITS)
        now_ms = self._now_ms()
        since_ms = now_ms - _month_start_ms(now_ms)
        key = UniqueKey(self._ip, os.getpid() % _PROCESS_LIMIT, self._hash, since_ms, count % _COUNTER_LIMIT)
        return encode_unique_key(key)


def _month_start_ms(now_ms: int) -> int:
    first = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int(first.timestamp()) * 1000
