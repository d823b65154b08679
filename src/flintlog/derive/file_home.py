"""Finds where a file of the log belongs, from the records in it.

    file 00000000000000065537      record | record | record …      each holds its own physical offset
                                   ^ at 0: says 65536              so the file begins at 65536, whatever it is called

The heads that a ledger writes before its records make no difference: positions count from the file's first byte.
"""

from __future__ import annotations

from dataclasses import dataclass

from flintlog import kernel
from flintlog.format.record import MAGIC_AT, MAGIC_BYTES, OWN_OFFSET
from flintlog.kernel import ScanStop


@dataclass(frozen=True, slots=True)
class Home:
    """The physical offset of a file's first byte, and the store time of the record that names it."""

    base: int
    store_timestamp: int
    is_sure: bool
    """Whether the record after it agrees. A single record may have a flipped bit in its offset."""


def find_home(view: memoryview, end: int, base: int | None, *, search: bool = True) -> Home | None:
    """Where a whole file belongs; None when its records do not settle it.

    Nothing was ever written after `end`. `base` is the offset in the file's name, if it has one. A single record that
    lies where the name puts it confirms the name. Two records that agree are needed to contradict a name that is a
    possible one, because a damaged or stale record may hold any offset. Without `search`, a file that begins with zeros
    counts as made ahead and unused.
    """
    if base is not None:
        home = _home_by(view, 0, base)
        if home is not None:
            return home
        if kernel.scan(view, 0, len(view), base, max_count=1).reason is ScanStop.BLANK:
            return None
    if not search and not any(view[:8]):
        return None
    if base is not None and end > 0:
        place = kernel.find_record(view, 0, end, base)
        if place >= 0:
            return _home_by(view, place, base)
    home = _search_home(view, end)
    is_name_possible = base is not None and base % len(view) == 0
    return None if home is not None and is_name_possible and not home.is_sure else home


def _search_home(view: memoryview, end: int) -> Home | None:
    """The home by the first two intact records that agree, or else by the first intact one.

    A record whose home is no multiple of the file's length is a stray copy, and is passed over.
    """
    place, single = 0, None
    while (match := MAGIC_BYTES.search(view, place + MAGIC_AT, end)) is not None:
        place = match.start() - MAGIC_AT
        if place + OWN_OFFSET.size <= len(view):
            base = OWN_OFFSET.unpack_from(view, place)[0] - place
            home = _home_by(view, place, base) if base >= 0 and base % len(view) == 0 else None
            if home is not None and home.is_sure:
                return home
            single = single or home
        place += 1
    return single


def _home_by(view: memoryview, place: int, base: int) -> Home | None:
    """`base`, if an intact record at `place` agrees with it."""
    seen = kernel.scan(view, place, len(view), base, check_crc=True, max_count=2)
    return Home(base, seen.row(0).store_timestamp, seen.count > 1) if seen.count else None
