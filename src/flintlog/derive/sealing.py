"""Whether a log's records end in a CRC over the whole record, as `enabled_append_prop_crc` writes it.

A tool that inspects a log rarely knows its configuration. A client may send a property of that name, but never a
matching one: the sum covers the record's place in the log.
"""

from __future__ import annotations

from flintlog import kernel
from flintlog.format.record import has_good_crc_property

_LOOKED_AT_RECORDS = 16


def is_sealed(view: memoryview, start: int, base: int) -> bool:
    """Whether one of the first records of view[start:] has a matching CRC property; view[0] has the offset `base`."""
    seen = kernel.scan(view, start, len(view), base, max_count=_LOOKED_AT_RECORDS)
    rows = (seen.row(index) for index in range(seen.count))
    return any(
        has_good_crc_property(view[row.physical_offset - base : row.physical_offset - base + row.size]) for row in rows
    )
