# The native kernel has the names and signatures of its plain twin.

from flintlog.kernel.reference import Decoded as Decoded
from flintlog.kernel.reference import Encoder as Encoder
from flintlog.kernel.reference import Lane as Lane
from flintlog.kernel.reference import PutLane as PutLane
from flintlog.kernel.reference import QueueEnd as QueueEnd
from flintlog.kernel.reference import RecordBody as RecordBody
from flintlog.kernel.reference import Scan as Scan
from flintlog.kernel.reference import Tail as Tail
from flintlog.kernel.reference import check_chains as check_chains
from flintlog.kernel.reference import collect as collect
from flintlog.kernel.reference import count_entries as count_entries
from flintlog.kernel.reference import crc32 as crc32
from flintlog.kernel.reference import decode as decode
from flintlog.kernel.reference import find_record as find_record
from flintlog.kernel.reference import index_entries as index_entries
from flintlog.kernel.reference import index_fill as index_fill
from flintlog.kernel.reference import index_hash as index_hash
from flintlog.kernel.reference import index_insert as index_insert
from flintlog.kernel.reference import index_link as index_link
from flintlog.kernel.reference import java_hash as java_hash
from flintlog.kernel.reference import match_index as match_index
from flintlog.kernel.reference import pack_keys as pack_keys
from flintlog.kernel.reference import queue_runs as queue_runs
from flintlog.kernel.reference import scan as scan
from flintlog.kernel.reference import written_end as written_end

name: str
