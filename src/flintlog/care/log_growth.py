"""What has come to a log since the last look, by topic, read beside whoever writes it.

Each look walks the records behind the last place and no others, so a look costs what was written meanwhile. The last
record of a log may still be being written: its body is there before its topic is. It is counted at the look after,
when it is seen a second time, or as soon as another record follows it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from flintlog import kernel
from flintlog.care.log_reader import LogReader
from flintlog.care.store_files import StoreFiles
from flintlog.derive.derived_files import DataFile
from flintlog.derive.log_end import records_end
from flintlog.errors import DiskError
from flintlog.format.properties import INNER_NUM
from flintlog.kernel import INNER_BATCH, ROW, Row, ScanStop

_ROWS = 65_536


@dataclass(slots=True)
class Arrived:
    """Messages of one topic that came between two looks."""

    messages: int = 0
    bytes: int = 0
    last_store_timestamp: int | None = None


class LogGrowth:
    """Follows a log's end. `end` is the physical offset behind the last record that was seen."""

    def __init__(self) -> None:
        self.end = 0
        self._position: int | None = None
        self._last: int | None = None
        self._last_before: int | None = None
        self._counted: int | None = None

    def advance(self, files: StoreFiles) -> dict[str, Arrived] | None:
        """What came since the last look; None at the first one, and after the log was cut or replaced."""
        if self._position is None or not self._is_there(files):
            self.end = self._position = _find_end(files)
            self._last = self._counted = None
            return None
        arrived: defaultdict[str, Arrived] = defaultdict(Arrived)
        self._last_before = self._last
        while (file := LogReader(files).file_of(self._position)) is not None:
            self._position = self._walk(files, file, self._position, arrived)
            if self._position < file.end and not self._skip(files, file):
                break
        return dict(arrived)

    def _is_there(self, files: StoreFiles) -> bool:
        """Whether the log still reaches to where the last look ended, and has the last record that was counted."""
        if not files.log or not files.log[0].base <= self.end <= files.log[-1].end:
            return False
        return self._counted is None or LogReader(files).message_at(self._counted) is not None

    def _walk(self, files: StoreFiles, file: DataFile, position: int, arrived: defaultdict[str, Arrived]) -> int:
        """Count the records of one file from a position on; gives the position behind them."""
        try:
            view = files.read(file.path, 0, file.size)
        except DiskError:
            return file.end  # expired meanwhile
        while position < file.end:
            seen = kernel.scan(view, position - file.base, file.size, file.base, check_crc=True, max_count=_ROWS)
            rows = [Row._make(row) for row in ROW.iter_unpack(seen.rows)]
            is_complete = seen.reason in (ScanStop.LIMIT, ScanStop.BLANK)
            self.end = max(self.end, file.end if seen.reason is ScanStop.BLANK else file.base + seen.end)
            if not is_complete and rows and rows[-1].physical_offset != self._last_before:
                self._last = rows.pop().physical_offset
            for row in rows:
                _count(arrived[seen.queues[row.queue][0]], row, files)
                self._counted, position = row.physical_offset, row.physical_offset + row.size
            if seen.reason is ScanStop.BLANK:
                return file.end
            if not is_complete or not rows:
                break
        return position

    def _skip(self, files: StoreFiles, file: DataFile) -> bool:
        """Go on with the next file that has records, when damage or a crash has left this one without an end."""
        for later in files.log:
            if later.base > file.base and LogReader(files).first_store_time(later) is not None:
                self._position = later.base
                return True
        return False


def _find_end(files: StoreFiles) -> int:
    reader = LogReader(files)
    for file in reversed(files.log):
        if reader.first_store_time(file) is not None:
            view = files.read(file.path, 0, file.size)
            return records_end(view, file.base, file.base, max(1, _written(files, file)))
    return files.log[0].base if files.log else 0


def _written(files: StoreFiles, file: DataFile) -> int:
    return min(file.size, files.source.data_end(Path(file.path), 0))


def _count(topic: Arrived, row: Row, files: StoreFiles) -> None:
    topic.messages += _inner_count(files, row) if row.marks & INNER_BATCH else 1
    topic.bytes += row.size
    topic.last_store_timestamp = row.store_timestamp


def _inner_count(files: StoreFiles, row: Row) -> int:
    """How many messages a record of a batch queue holds."""
    message = LogReader(files).message_at(row.physical_offset)
    told = "" if message is None else message.properties.get(INNER_NUM, "")
    return int(told) if told.isascii() and told.isdecimal() else 1
