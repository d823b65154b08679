"""How far the index is believed when a store is opened. The rest is deleted, and built again from the log.

After a clean stop all files are believed that the stop has counted. After an unclean one only full files are that the
checkpoint covers; loading has deleted the others. If an index file says that it ends with a record that is not there,
the whole index is built again.
"""

from __future__ import annotations

from flintlog.format.names import FAR
from flintlog.store.index.index_service import IndexService
from flintlog.store.recovery.opening import Opening


class IndexRecovery:
    """The index of one opening."""

    def __init__(self, opening: Opening) -> None:
        self._open = opening
        self._index = opening.parts.index
        self._checkpoint = opening.parts.checkpoint
        self._is_missing = False

    def check(self) -> int:
        """Delete files that are not believed. Returns the offset from which on records must be indexed again."""
        index, clean = self._index, self._open.clean
        if index is None:
            return FAR
        if self._open.is_others and index.files:
            return self._forget(index)
        if not index.files:
            return self._without_files()
        known = self._open.marker.index_file_count
        if clean and known is not None and len(index.files) < known:
            evidence = f"there were {known} index files at the last stop, and there are {len(index.files)}"
            self._open.note("missing-index", evidence, "the index was built again from the log")
            return self._forget(index)
        return FAR if clean else self._check_crashed(index)

    def _check_crashed(self, index: IndexService) -> int:
        last = index.last_header.end_physical_offset
        if not self._ends_with_a_record(index):
            evidence = f"the last file that was full says that it ends with the message at {last}, and does not"
            self._open.note("wrong-index-header", evidence, "the index was built again from the log")
            return self._forget(index)
        # The last record of a kept file may have more keys than that file holds: take it out and put it in again.
        # The checkpoint first stops vouching for the file, in case of a crash while it is changed.
        self._vouch_until(index.files[-2].header.end_timestamp if len(index.files) > 1 else 0)
        index.truncate(last, self._open.parts.commit_log.store_time_at)
        return max(last, self._open.log_min)

    def _ends_with_a_record(self, index: IndexService) -> bool:
        """Whether the index ends at a record: records are indexed again from there on, and none may be missed."""
        header = index.last_header
        last = header.end_physical_offset
        if index.files[-1].last_offset_at(header.next_entry) not in (None, last):
            return False
        return last < self._open.log_min or self._open.parts.commit_log.store_time_at(last) == header.end_timestamp

    def _forget(self, index: IndexService) -> int:
        self._vouch_until(0)
        self._open.mark()
        index.destroy()
        return self._open.log_min

    def _vouch_until(self, timestamp: int) -> None:
        self._checkpoint.set(index_msg_timestamp=timestamp)
        self._checkpoint.flush()

    def _without_files(self) -> int:
        if self._open.clean and self._open.marker.index_file_count == 0:
            return FAR
        self._is_missing = self._open.clean  # a power loss may take all that was not synced
        return self._open.log_min

    def cut(self, end: int) -> None:
        """The log ends here: remove the entries of records that it does not have."""
        index = self._index
        if index is None:
            return
        if index.last_header.end_physical_offset >= end:
            index.truncate(end, self._open.parts.commit_log.store_time_at)
        if self._is_missing and index.files:  # some message has a key
            evidence = "the log has messages and there was no index"
            self._open.note("missing-index", evidence, "it was built from the log")
