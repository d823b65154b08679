"""Where a file of the log belongs, by what is in it.

    file 00000000000000065537      record | record | record …      each holds its own physical offset
                                   ^ at 0: says 65536              so the file begins at 65536, whatever it is called

A ledger's heads stand before its records and make no difference: the place of a record counts from the file's begin.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final

from flintlog import kernel
from flintlog.kernel import ScanStop

_MAGIC = re.compile(rb"\xda\xa3\x20[\xa7\xab]")
_MAGIC_PLACE: Final = 4
_OWN_OFFSET: Final = struct.Struct("!q")
_OWN_OFFSET_PLACE: Final = 28


@dataclass(frozen=True, slots=True)
class Home:
    """The physical offset of a file's first byte, and when the record was stored that tells it."""

    base: int
    store_timestamp: int
    is_sure: bool
    """Whether the record behind it says the same: in a single one it may be a bit that is wrong."""


def find_home(view: memoryview, end: int, base: int | None, *, search: bool = True) -> Home | None:
    """Where a whole file belongs; None when no record in it tells.

    `end`: nothing was ever written behind it. `base`: where the file belongs by its name, if that says anything; one
    record that lies right by it is enough, because what is damaged or stale may say anything; and against a name that
    may be right it takes two. Without `search` a file that begins with zeros is taken for one that was made ahead.
    """
    if base is not None:
        home = _told_at(view, 0, base)
        if home is not None:
            return home
        if kernel.scan(view, 0, len(view), base, max_count=1).reason is ScanStop.BLANK:
            return None
    if not search and not any(view[:8]):
        return None
    if base is not None and end > 0:
        place = kernel.find_record(view, 0, end, base)
        if place >= 0:
            return _told_at(view, place, base)
    home = _first_told(view, end)
    is_name_possible = base is not None and base % len(view) == 0
    return None if home is not None and is_name_possible and not home.is_sure else home


def _first_told(view: memoryview, end: int) -> Home | None:
    """By the first two intact records that agree, wherever they belong, or else by the first one.

    What is no multiple of the file's length is a stray copy.
    """
    place, single = 0, None
    while (match := _MAGIC.search(view, place + _MAGIC_PLACE, end)) is not None:
        place = match.start() - _MAGIC_PLACE
        own_at = place + _OWN_OFFSET_PLACE
        if own_at + _OWN_OFFSET.size <= len(view):
            base = _OWN_OFFSET.unpack_from(view, own_at)[0] - place
            home = _told_at(view, place, base) if base >= 0 and base % len(view) == 0 else None
            if home is not None and home.is_sure:
                return home
            single = single or home
        place += 1
    return single


def _told_at(view: memoryview, place: int, base: int) -> Home | None:
    seen = kernel.scan(view, place, len(view), base, check_crc=True, max_count=2)
    return Home(base, seen.row(0).store_timestamp, seen.count > 1) if seen.count else None
