"""Where the committed part of a ledger ends, read from files that another process may write.

The member's checkpoint names the last committed entry, and the ledger's index says where that entry ends. What follows
may still be cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from flintlog.checks.derived_files import DataFile
from flintlog.derive.log_files import log_files
from flintlog.disk.media.source import ByteSource
from flintlog.format.ledger import INDEX_RECORD_SIZE, parse_index_record, parse_ledger_checkpoint
from flintlog.format.names import CHECKPOINT


def committed_end(source: ByteSource, ledger: PurePath | None, files: Sequence[DataFile]) -> int | None:
    """Where the last entry ends that the member knew to be committed; None for a log without a ledger's folder.

    `files` are those of the log, in order; a plain log may lie before the ledger's own.
    """
    if ledger is None:
        return None
    begin = next((file.base for file in files if PurePath(file.path).is_relative_to(ledger)), 0)
    state = next((info for info in source.listing(ledger) if info.name == CHECKPOINT), None)
    if state is None:
        return begin
    committed = parse_ledger_checkpoint(bytes(source.view(ledger / CHECKPOINT, 0, state.size))).committed_index
    offset = committed * INDEX_RECORD_SIZE
    for file in log_files([(info.name, info.size) for info in source.listing(ledger / "index")], strict=False):
        if committed >= 0 and file.base <= offset < file.end:
            place = offset - file.base
            record = parse_index_record(source.view(ledger / "index" / file.name, place, place + INDEX_RECORD_SIZE))
            return record.position + record.size
    return begin
