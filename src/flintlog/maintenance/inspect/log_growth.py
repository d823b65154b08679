"""What has come to a log since the last look, by topic, read beside whoever writes it.

Each look fixes the log's end first and walks the records from the last look's end to it, so a look costs what was
written meanwhile, and every record is counted once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from flintlog import kernel
from flintlog.checks.derived_files import DataFile
from flintlog.errors import DiskError
from flintlog.format.properties import INNER_NUM
from flintlog.kernel import INNER_BATCH, ROW, Row, ScanStop
from flintlog.maintenance.inspect.log_reader import LogReader
from flintlog.maintenance.inspect.store_files import StoreFiles

_ROWS = 65_536


@dataclass(slots=True)
class Arrived:
    """Messages of one topic that came between two looks."""

    messages: int = 0
    bytes: int = 0
    last_store_timestamp: int | None = None


class LogGrowth:
    """Follows a log's end. `end` is the physical offset after the last record that was published."""

    def __init__(self) -> None:
        self.end = 0
        self._is_known = False
        self._counted: int | None = None

    def advance(self, files: StoreFiles) -> dict[str, Arrived] | None:
        """What came since the last look; None at the first one, and after the log was cut or replaced."""
        start, end = self.end, files.fix_end(self.end)
        if not self._is_known or end < start or not self._is_there(files):
            self.end, self._is_known, self._counted = files.fix_end(), True, None
            return None
        arrived: defaultdict[str, Arrived] = defaultdict(Arrived)
        for file in LogReader(files).files:
            if file.end > start:
                self._walk(files, file, max(start, file.base), min(file.end, end), arrived)
        self.end = end
        return dict(arrived)

    def _is_there(self, files: StoreFiles) -> bool:
        """Whether the log still reaches to where the last look ended, and has the last record that was counted."""
        if not files.log or not files.log[0].base <= self.end <= files.log[-1].end:
            return False
        return self._counted is None or LogReader(files).message_at(self._counted) is not None

    def _walk(
        self, files: StoreFiles, file: DataFile, position: int, stop: int, arrived: defaultdict[str, Arrived]
    ) -> None:
        """Count the records of one file from a position on; damage is passed over."""
        try:
            view = files.read(file.path, 0, file.size)
        except DiskError:
            return  # expired meanwhile
        place, limit = position - file.base, stop - file.base
        while 0 <= place < limit:
            seen = kernel.scan(view, place, limit, file.base, check_crc=True, max_count=_ROWS)
            for row in map(Row._make, ROW.iter_unpack(seen.rows)):
                _count(arrived[seen.queues[row.queue][0]], row, files)
                self._counted = row.physical_offset
            if seen.reason is ScanStop.BLANK:
                return
            place = seen.end
            if seen.reason is not ScanStop.LIMIT:
                place = kernel.find_record(view, place + 1, limit, file.base) if place + 1 < limit else -1


def _count(topic: Arrived, row: Row, files: StoreFiles) -> None:
    topic.messages += _inner_count(files, row) if row.marks & INNER_BATCH else 1
    topic.bytes += row.size
    topic.last_store_timestamp = row.store_timestamp


def _inner_count(files: StoreFiles, row: Row) -> int:
    """How many messages a record of a batch queue holds."""
    message = LogReader(files).message_at(row.physical_offset)
    told = "" if message is None else message.properties.get(INNER_NUM, "")
    return int(told) if told.isascii() and told.isdecimal() else 1
