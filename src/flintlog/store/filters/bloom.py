"""Bloom filters over consumer groups: the filters that a message passes, as bits in the queue's extension.

When a message is dispatched, its properties are checked against the SQL filter of every group that subscribed to the
topic, and each group whose filter passes sets its bits. A reader of that group can then skip an entry whose bits are
not all set, without reading the log. All filters have one size, which follows from the allowed rate of false positives
and the number of groups:

    bits per group  k = ceil(log_0.5 rate)
    bits in all     m = ceil(groups · log2(1 / rate) · log2 e), rounded up to whole bytes
    bit b           byte b / 8, mask 1 << b % 8

A group's bits come from the first 8 bytes of MurmurHash3 (x64, 128 bits, seed 0) of `group#topic`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flintlog.errors import InvalidConfig
from flintlog.store.filters.sql92 import Sql92
from flintlog.store.filters.tags import Extension, HasProperties

_MASK_32 = 0xFFFF_FFFF
_MASK_64 = 0xFFFF_FFFF_FFFF_FFFF
_C1 = 0x87C3_7B91_1142_53D5
_C2 = 0x4CF5_AD43_2745_937F


class BloomFilter:
    """The size of a store's bitmaps, and the positions of a group's bits.

    >>> BloomFilter(20, 64).positions("g1#T")
    (61, 89, 117)
    """

    __slots__ = ("bit_count", "bits_per_key")

    def __init__(self, error_rate_percent: int = 20, expected_groups: int = 32) -> None:
        if not 1 <= error_rate_percent < 100:
            raise InvalidConfig(f"maxErrorRateOfBloomFilter is {error_rate_percent}; it must be 1 to 99")
        if expected_groups < 1:
            raise InvalidConfig(f"expectConsumerNumUseFilter is {expected_groups}; it must be at least 1")
        rate = error_rate_percent / 100
        self.bits_per_key = math.ceil(_log(0.5, rate))
        bit_count = math.ceil(expected_groups * _log(2, 1 / rate) * _log(2, math.e))
        self.bit_count = (bit_count + 7) // 8 * 8

    def positions(self, key: str) -> tuple[int, ...]:
        """The bits of a key; one bit may appear more than once."""
        first = murmur3_first_64(key.encode("utf-8", "replace"))
        low, high = first & _MASK_32, first >> 32
        return tuple(self._position(low + i * high) for i in range(1, self.bits_per_key + 1))

    def _position(self, combined: int) -> int:
        combined &= _MASK_32
        # Java inverts a number that is negative as an int
        return (combined ^ _MASK_32 if combined & 0x8000_0000 else combined) % self.bit_count


def _log(base: float, number: float) -> float:
    return math.log(number) / math.log(base)


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """The SQL filter of one consumer group, with its bits, so that it reads fewer messages.

    A message that was stored before the filter existed (`born_timestamp`) was not checked against it, and a bitmap of
    another size was made with other settings. The entries of both pass, and the message itself is checked.
    """

    condition: Sql92
    positions: tuple[int, ...]
    bit_count: int
    born_timestamp: int

    @staticmethod
    def of(group: str, topic: str, condition: Sql92, bloom: BloomFilter, born_timestamp: int) -> GroupFilter:
        """The filter of a group, as it subscribes to a topic."""
        return GroupFilter(condition, bloom.positions(f"{group}#{topic}"), bloom.bit_count, born_timestamp)

    def matches_entry(self, tags_code: int | None, ext: Extension | None) -> bool:
        """False only for a message that was checked at dispatch and did not pass."""
        if ext is None or ext.store_timestamp <= self.born_timestamp:
            return True
        bitmap = ext.bitmap
        if len(bitmap) * 8 != self.bit_count:
            return True
        return all(bitmap[bit >> 3] & 1 << (bit & 7) for bit in self.positions)

    def matches_message(self, stored: HasProperties) -> bool:
        """Whether the condition is true of the message."""
        return self.condition.matches_message(stored)


@dataclass(frozen=True, slots=True)
class _Properties:
    properties: Mapping[str, str]


def filter_bitmap(bloom: BloomFilter, filters: Iterable[GroupFilter], properties: Mapping[str, str]) -> bytes:
    """The bitmap of a message: the bits of every filter that it passes."""
    bitmap = bytearray(bloom.bit_count // 8)
    message = _Properties(properties)
    for group_filter in filters:
        if group_filter.bit_count == bloom.bit_count and group_filter.matches_message(message):
            for bit in group_filter.positions:
                bitmap[bit >> 3] |= 1 << (bit & 7)
    return bytes(bitmap)


def murmur3_first_64(data: bytes) -> int:
    """The first 64 bits of MurmurHash3_x64_128 with seed 0, unsigned."""
    h1 = h2 = 0
    whole = len(data) & ~15
    for start in range(0, whole, 16):
        h1 ^= _mix_low(int.from_bytes(data[start : start + 8], "little"))
        h1 = ((_rotate(h1, 27) + h2) * 5 + 0x52DC_E729) & _MASK_64
        h2 ^= _mix_high(int.from_bytes(data[start + 8 : start + 16], "little"))
        h2 = ((_rotate(h2, 31) + h1) * 5 + 0x3849_5AB5) & _MASK_64
    tail = data[whole:]
    h1 ^= _mix_low(int.from_bytes(tail[:8], "little")) ^ len(data)
    h2 ^= _mix_high(int.from_bytes(tail[8:], "little")) ^ len(data)
    h1 = (h1 + h2) & _MASK_64
    h2 = (h2 + h1) & _MASK_64
    return (_finish(h1) + _finish(h2)) & _MASK_64


def _mix_low(word: int) -> int:
    return _rotate(word * _C1 & _MASK_64, 31) * _C2 & _MASK_64


def _mix_high(word: int) -> int:
    return _rotate(word * _C2 & _MASK_64, 33) * _C1 & _MASK_64


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _MASK_64


def _finish(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51_AFD7_ED55_8CCD & _MASK_64
    word = (word ^ word >> 33) * 0xC4CE_B9FE_1A85_EC53 & _MASK_64
    return word ^ word >> 33
