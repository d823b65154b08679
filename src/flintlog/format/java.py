"""Java's ways that the formats depend on: big-endian numbers, string hashes, the order of hash maps, UTF-8 decoding.

Tag codes, index slots, and the order of properties inside a record all follow from
`String.hashCode`, which counts UTF-16 code units:

    h = 0;  for each unit u:  h = 31 · h + u   (mod 2^32, read as signed)

A map's bucket is `(h ^ h >>> 16) & (capacity - 1)`; iteration goes over the buckets in order. Buckets
that Java turns into trees (nine or more names in one bucket of a table of 64 or more) are not imitated.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from flintlog.errors import FormatError

TRIMMED: Final = "".join(map(chr, range(0x21)))
"""The characters that `String.trim` removes."""

Buffer = bytes | bytearray | memoryview

_TREEIFY_NODES = 9
_MIN_TREEIFY_CAPACITY = 64
_MAX_CAPACITY = 1 << 30
_MAX_CACHED_CHARACTERS = 1024

# Java takes a UTF-8 encoded surrogate (also a cut one) for one bad character, Python for two or three.
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_DECIMAL_INT = re.compile(r"[+-]?\d+")


def pack(layout: struct.Struct, *fields: int) -> bytes:
    """The bytes of these numbers; a FormatError if one does not fit in its field."""
    try:
        return layout.pack(*fields)
    except struct.error as error:
        raise FormatError(f"a number does not fit in its field: {error}") from error


def check_room(buffer: Buffer, position: int, size: int, what: str) -> None:
    """Raise unless the buffer has `size` bytes at a position."""
    if not 0 <= position <= len(buffer) - size:
        raise FormatError(f"no {what} of {size} bytes at {position} of {len(buffer)}", offset=position)


def string_hash(text: str) -> int:
    """`String.hashCode`: signed, 32 bits.

    >>> string_hash("TagA")
    2598919
    """
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    if _IS_BIG_ENDIAN:
        units.byteswap()
    result = 0
    for unit in units:
        result = (31 * result + unit) & 0xFFFFFFFF
    return result - 0x1_0000_0000 if result & 0x8000_0000 else result


_IS_BIG_ENDIAN = array("H", b"\x00\x01")[0] == 1


def index_hash(key: str) -> int:
    """The hash of an index key: absolute, and 0 where Java's `Math.abs` stays negative."""
    value = abs(string_hash(key))
    return 0 if value == 0x8000_0000 else value


def spread_hash(name: str) -> int:
    """The hash by which Java's maps choose a bucket: unsigned, the upper half mixed into the lower."""
    value = string_hash(name) & 0xFFFFFFFF
    return value ^ (value >> 16)


def hash_map_order(names: Iterable[str], capacity: int = 16) -> list[str]:
    """The order in which a `HashMap` of this initial capacity iterates names put in the given order.

    >>> hash_map_order(["TAGS", "KEYS", "WAIT"])
    ['KEYS', 'WAIT', 'TAGS']
    """
    given = tuple(names)
    # The same few names come again and again; hashing them costs more than the rest of a record.
    if sum(map(len, given)) <= _MAX_CACHED_CHARACTERS:
        return list(_cached_order(given, capacity))
    return _hash_map_order(given, capacity)


@lru_cache(maxsize=1024)
def _cached_order(names: tuple[str, ...], capacity: int) -> tuple[str, ...]:
    return tuple(_hash_map_order(names, capacity))


def _hash_map_order(names: tuple[str, ...], capacity: int) -> list[str]:
    capacity = _table_size(capacity)
    buckets: dict[int, list[tuple[int, str]]] = {}
    for count, name in enumerate(dict.fromkeys(names), start=1):
        spread = spread_hash(name)
        bucket = buckets.setdefault(spread & (capacity - 1), [])
        bucket.append((spread, name))
        crowded = len(bucket) >= _TREEIFY_NODES and capacity < _MIN_TREEIFY_CAPACITY
        # A crowded bucket grows the table on its own, beside the growth by count.
        for grows in (crowded, count > (capacity << crowded) * 3 // 4):
            if grows:
                capacity *= 2
                buckets = _split(buckets, capacity)
    return [name for index in sorted(buckets) for _, name in buckets[index]]


def _split(buckets: dict[int, list[tuple[int, str]]], capacity: int) -> dict[int, list[tuple[int, str]]]:
    split: dict[int, list[tuple[int, str]]] = {}
    for bucket in buckets.values():
        for spread, name in bucket:
            split.setdefault(spread & (capacity - 1), []).append((spread, name))
    return split


def _table_size(capacity: int) -> int:
    if not 0 < capacity <= _MAX_CAPACITY:
        raise FormatError(f"a hash map cannot have the capacity {capacity}")
    return 1 << (capacity - 1).bit_length()


def concurrent_map_order(names: Iterable[str], capacity: int | None = None) -> list[str]:
    """The order of a `ConcurrentHashMap` (the maps of config JSON), of this initial capacity if given.

    Unlike `HashMap` it grows as soon as three quarters are reached, and a bucket's order changes by it.
    """
    size = 16 if capacity is None else _table_size(capacity + (capacity >> 1) + 1)
    buckets: dict[int, list[tuple[int, str]]] = {}
    for count, name in enumerate(dict.fromkeys(names), start=1):
        spread = spread_hash(name)
        buckets.setdefault(spread & (size - 1), []).append((spread, name))
        while count >= size * 3 // 4:
            buckets = _transfer(buckets, size)
            size *= 2
    return [name for index in sorted(buckets) for _, name in buckets[index]]


def _transfer(buckets: dict[int, list[tuple[int, str]]], size: int) -> dict[int, list[tuple[int, str]]]:
    """Double a concurrent table: the tail that stays together keeps its order, the nodes before it turn round."""
    transferred: dict[int, list[tuple[int, str]]] = {}
    for index, bucket in buckets.items():
        run = len(bucket) - 1
        while run > 0 and (bucket[run - 1][0] ^ bucket[-1][0]) & size == 0:
            run -= 1
        for spread, name in (*reversed(bucket[:run]), *bucket[run:]):
            transferred.setdefault(index + (spread & size), []).append((spread, name))
    return transferred


def decode_text(data: bytes) -> str:
    """`new String(data, UTF_8)`: malformed parts become U+FFFD, as many as Java makes of them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(b"\xef\xbf\xbd", data).decode(errors="replace")


def is_text(data: bytes) -> bool:
    """Whether bytes are UTF-8, so that `decode_text` loses none of them."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def encode_text(text: str, what: str) -> bytes:
    """UTF-8, or a FormatError that says what could not be encoded."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise FormatError(f"{what} holds a lone surrogate, which UTF-8 cannot hold: {text!a}") from error


def parse_int(text: str) -> int:
    """`Integer.parseInt`: a sign, digits, and nothing else; 32 bits."""
    if len(text) <= 64 and _DECIMAL_INT.fullmatch(text) and max(text) <= "\uffff":
        value = int(text)
        if -0x8000_0000 <= value <= 0x7FFF_FFFF:
            return value
    raise FormatError(f"not a 32-bit number: {text[:64]!a}")
