"""Finding the next intact record in bytes of which nothing is known.

Intact means: right magic, lengths that add up, right body CRC, and the record's own physical offset equals the place
where it lies. The last rule is what tells a record from its copy inside a body, a stale buffer or a moved block.
"""

from __future__ import annotations

import re

from flintlog import kernel
from flintlog.kernel import ScanStop

_MAGIC = re.compile(rb"\xda\xa3\x20[\xa7\xab]")
_SIZE_AND_MAGIC = 8


def find_record(view: memoryview, start: int, stop: int, base: int) -> int:
    """The first place in view[start:stop] where an intact record begins; -1 when there is none."""
    for match in _MAGIC.finditer(view, start + 4, stop):
        place = match.start() - 4
        if record_size(view, place, stop, base) > 0:
            return place
    return -1


def record_size(view: memoryview, place: int, stop: int, base: int) -> int:
    """The size of the intact record at a place; 0 when there is none."""
    size = int.from_bytes(view[place : place + 4], "big", signed=True)
    if size < _SIZE_AND_MAGIC or place + size > stop:
        return 0
    seen = kernel.scan(view, place, place + size, base, check_crc=True)
    return size if seen.count == 1 and seen.reason is ScanStop.LIMIT else 0
