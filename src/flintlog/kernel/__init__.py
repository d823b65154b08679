"""The few hot loops, in two kernels: `reference` defines the behaviour, `native` does the same fast.

The native kernel is used if it was built, unless FLINTLOG_KERNEL=reference asks for the other. `name` says which one
is in use.

Reasons and costs: docs/decisions/0002.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flintlog.kernel.types import (
    INNER_BATCH,
    KEY,
    LINK,
    MULTI_DISPATCH,
    ROW,
    ROW_PLACE,
    Buffer,
    ChainFault,
    ClosedFor,
    Column,
    Crc,
    LaneStop,
    Moves,
    QueueRun,
    Row,
    ScanStop,
)

if TYPE_CHECKING:
    from flintlog.kernel import native as _kernel
elif os.environ.get("FLINTLOG_KERNEL") == "reference":
    from flintlog.kernel import reference as _kernel
else:
    try:
        from flintlog.kernel import native as _kernel
    except ImportError:  # not built: no compiler was there at installation
        from flintlog.kernel import reference as _kernel

Decoded = _kernel.Decoded
Encoder = _kernel.Encoder
Lane = _kernel.Lane
PutLane = _kernel.PutLane
QueueEnd = _kernel.QueueEnd
RecordBody = _kernel.RecordBody
Scan = _kernel.Scan
Tail = _kernel.Tail
check_chains = _kernel.check_chains
collect = _kernel.collect
count_entries = _kernel.count_entries
crc32 = _kernel.crc32
decode = _kernel.decode
find_record = _kernel.find_record
index_entries = _kernel.index_entries
index_fill = _kernel.index_fill
index_hash = _kernel.index_hash
index_insert = _kernel.index_insert
index_link = _kernel.index_link
java_hash = _kernel.java_hash
match_index = _kernel.match_index
name = _kernel.name
pack_keys = _kernel.pack_keys
queue_runs = _kernel.queue_runs
scan = _kernel.scan
written_end = _kernel.written_end

__all__ = [
    "INNER_BATCH",
    "KEY",
    "LINK",
    "MULTI_DISPATCH",
    "ROW",
    "ROW_PLACE",
    "Buffer",
    "ChainFault",
    "ClosedFor",
    "Column",
    "Crc",
    "Decoded",
    "Encoder",
    "Lane",
    "LaneStop",
    "Moves",
    "PutLane",
    "QueueEnd",
    "QueueRun",
    "RecordBody",
    "Row",
    "Scan",
    "ScanStop",
    "Tail",
    "check_chains",
    "collect",
    "count_entries",
    "crc32",
    "decode",
    "find_record",
    "index_entries",
    "index_fill",
    "index_hash",
    "index_insert",
    "index_link",
    "java_hash",
    "match_index",
    "name",
    "pack_keys",
    "queue_runs",
    "scan",
    "written_end",
]
