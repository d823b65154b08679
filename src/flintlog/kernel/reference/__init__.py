"""The kernel in plain Python: it defines the behaviour, as clearly as possible.

`flintlog.kernel.native` does the same fast; the same tests run over both.
"""

from flintlog.kernel.reference.checks import check_chains, match_index, queue_runs
from flintlog.kernel.reference.claims import claim, find_keys, named_records, unclaimed
from flintlog.kernel.reference.columns import Decoded, decode, decode_at
from flintlog.kernel.reference.encoder import Encoder
from flintlog.kernel.reference.fast_dispatch import FastDispatch, index_insert
from flintlog.kernel.reference.fast_put import FastPut
from flintlog.kernel.reference.keys import index_entries, index_fill, index_link, pack_keys
from flintlog.kernel.reference.reading import KeptRecord, collect
from flintlog.kernel.reference.scanning import Scan, count_entries, find_record, scan, written_end
from flintlog.kernel.reference.sums import crc32, index_hash
from flintlog.kernel.reference.tails import QueueEnd, Tail

name = "reference"

__all__ = [
    "Decoded",
    "Encoder",
    "FastDispatch",
    "FastPut",
    "KeptRecord",
    "QueueEnd",
    "Scan",
    "Tail",
    "check_chains",
    "claim",
    "collect",
    "count_entries",
    "crc32",
    "decode",
    "decode_at",
    "find_keys",
    "find_record",
    "index_entries",
    "index_fill",
    "index_hash",
    "index_insert",
    "index_link",
    "match_index",
    "name",
    "named_records",
    "pack_keys",
    "queue_runs",
    "scan",
    "unclaimed",
    "written_end",
]
