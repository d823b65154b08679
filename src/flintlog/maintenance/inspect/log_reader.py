"""The messages of a store directory in log order, without opening the store.

Only the log is read; nothing is recovered. A reader goes from record to record. Where none begins, it searches for the
next intact one and reports the bytes that it skipped. So a damaged store can be read, and only the requested part is.

Beside a writer the end is fixed before the first byte is read (`published_end.py`). The log below it no longer changes;
after it neither damage nor a message is reported. A reader that follows the log begins exactly where it last ended.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

from flintlog import kernel
from flintlog.checks.derived_files import DataFile, file_at
from flintlog.errors import DamagedRecord, DiskError
from flintlog.format.record import parse_record
from flintlog.kernel import ROW, Crc, Decoded, Row, Scan, ScanStop
from flintlog.maintenance.inspect.store_files import StoreFiles
from flintlog.store.model.stored_message import StoredMessage

SCAN_ROWS = 4096
_MIN, _MAX = -(1 << 63), 1 << 63
OnDamage = Callable[[int, int, str], None]
"""(start, end, evidence): bytes of the log that hold no record, with records after them."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages are wanted; None sets no limit. Times are store times, in milliseconds."""

    topic: str | None = None
    queue_id: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    start: int | None = None
    stop: int | None = None
    but_topic: str | None = None
    """A topic that is not wanted."""

    def takes(self, row: Row, queue: tuple[str, int]) -> bool:
        """Whether a scanned record is wanted."""
        if queue[0] == self.but_topic or (self.topic is not None and queue[0] != self.topic):
            return False
        if self.queue_id is not None and queue[1] != self.queue_id:
            return False
        if self.start is not None and row.physical_offset < self.start:
            return False
        if self.stop is not None and row.physical_offset >= self.stop:
            return False
        if self.from_ms is not None and row.store_timestamp < self.from_ms:
            return False
        return self.until_ms is None or row.store_timestamp < self.until_ms

    def places(self, seen: Scan, base: int) -> array[int]:
        """Where in a view of the log the wanted records of a scan begin; `base` is the view's physical offset."""
        queues = {
            ordinal
            for ordinal, (topic, queue_id) in enumerate(seen.queues)
            if topic != self.but_topic
            and (self.topic is None or topic == self.topic)
            and (self.queue_id is None or queue_id == self.queue_id)
        }
        first, stop = (_MIN if self.start is None else self.start), (_MAX if self.stop is None else self.stop)
        from_ms, until_ms = (_MIN if self.from_ms is None else self.from_ms), self.until_ms
        return array(
            "q",
            (
                offset - base
                for offset, _, _, stored_ms, _, queue, *_ in ROW.iter_unpack(seen.rows)
                if queue in queues
                and first <= offset < stop
                and from_ms <= stored_ms
                and (until_ms is None or stored_ms < until_ms)
            ),
        )


@dataclass(frozen=True, slots=True)
class DamagedPlace:
    """A damaged place of the log, with the message if its head can still be read."""

    error: DamagedRecord
    message: StoredMessage | None = None


class LogReader:
    """Reads a store's log from its files, up to its end when the reader was made.

    `files` are the log's files below that end, `position` is the physical offset after the last record read.
    """

    def __init__(self, files: StoreFiles, on_damage: OnDamage | None = None) -> None:
        self._store = files
        self._on_damage = on_damage
        self._levels = files.delay_levels_ms
        self.files = tuple(file for file in files.log if files.end is None or file.base < files.end)
        self._crc = files.checked_crc
        self.position = files.min_offset

    def messages(self, wanted: Wanted | None = None) -> Iterator[StoredMessage]:
        """All records that are wanted, in log order, up to the end."""
        wanted = Wanted() if wanted is None else wanted
        for file in self._files_for(wanted):
            yield from self.read_file(file, wanted)

    def columns(
        self, wanted: Wanted, columns: Collection[str]
    ) -> Iterator[tuple[Decoded, Callable[[int], StoredMessage]]]:
        """The same messages as columns, and a function that makes the message at the physical offset of one of them."""
        for file in self._files_for(wanted):
            for view, seen in self._scans(file, 0):
                places = wanted.places(seen, file.base)
                while places:
                    found = kernel.decode_at(
                        view, places, file.base, delay_levels_ms=self._levels, columns=columns,
                        include_body="body" in columns,
                    )  # fmt: skip
                    if not found.count:
                        break
                    yield found, partial(self._message_in, view, file)
                    places = places[found.end :]

    def look_for_damage(self, stop: int) -> None:
        """Report the damage of the files that end before an offset, without making their messages."""
        for file in self.files:
            if file.end <= stop:
                for _ in self._scans(file, 0):
                    pass

    def _message_in(self, view: memoryview, file: DataFile, physical_offset: int) -> StoredMessage:
        place = physical_offset - file.base
        return self._message(view, file, kernel.scan(view, place, len(view), file.base, max_count=1).row(0))

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """The intact record that begins at an offset."""
        file = self.file_of(physical_offset)
        if file is None:
            return None
        view = self._store.view(file)
        place, stop = physical_offset - file.base, self._stop_of(file)
        seen = kernel.scan(view, place, stop, file.base, check_crc=self._crc, max_count=1)
        return self._message(view, file, seen.row(0)) if seen.count else None

    def damage_at(self, physical_offset: int) -> DamagedPlace | None:
        """What is wrong at an offset where no intact record begins; None when the log does not reach there."""
        file = self.file_of(physical_offset)
        if file is None:
            return None
        for message in self.damaged_messages(physical_offset, physical_offset + 1):
            what = "the body of the message does not match its CRC"
            if self._crc > Crc.BODY and parse_record(message.record).has_good_body:
                what = "the message does not match the CRC over all of it"
            return DamagedPlace(self._damaged_record(what, file, physical_offset), message)
        for start, stop, evidence in self._damage_of(file):
            if start <= physical_offset < stop:
                what = f"the log is damaged from {start} to {stop} ({evidence})"
                return DamagedPlace(self._damaged_record(what, file, physical_offset))
        return None

    def damaged_messages(self, start: int, stop: int) -> Iterator[StoredMessage]:
        """The consecutive records from `start` on, read without checking their CRC."""
        file = self.file_of(start)
        while file is not None and start < min(stop, file.end):
            view = self._store.view(file)
            seen = kernel.scan(view, start - file.base, self._stop_of(file), file.base, check_crc=False, max_count=1)
            if not seen.count:
                return
            yield self._message(view, file, seen.row(0))
            start += seen.row(0).size

    def _damage_of(self, file: DataFile) -> list[tuple[int, int, str]]:
        damage: list[tuple[int, int, str]] = []
        reader = LogReader(self._store, lambda *place: damage.append(place))
        for _ in reader.read_file(file, Wanted(stop=file.base)):
            pass
        return damage

    @staticmethod
    def _damaged_record(what: str, file: DataFile, physical_offset: int) -> DamagedRecord:
        advice = f"it is at {physical_offset - file.base} of the file; `flintlog verify` shows all damage"
        return DamagedRecord(what, path=file.path, offset=physical_offset, advice=advice)

    def file_of(self, physical_offset: int) -> DataFile | None:
        """The file that holds an offset below the end."""
        if self._store.end is not None and physical_offset >= self._store.end:
            return None
        return file_at(self.files, physical_offset)

    def more(self, wanted: Wanted) -> Iterator[StoredMessage]:
        """The wanted records after `position`."""
        for file in self.files:
            if file.end > self.position:
                yield from self._read(file, max(0, self.position - file.base), wanted)

    def read_file(self, file: DataFile, wanted: Wanted) -> Iterator[StoredMessage]:
        """The wanted records of one file."""
        return self._read(file, 0, wanted)

    # ------------------------------------------------------------------ one file

    def _files_for(self, wanted: Wanted) -> Iterator[DataFile]:
        """The files that may hold wanted records: store times grow along the log."""
        files = self.files
        for number, file in enumerate(files):
            if wanted.stop is not None and file.base >= wanted.stop:
                return
            if wanted.start is not None and file.end <= wanted.start:
                continue
            if wanted.from_ms is not None and number + 1 < len(files):
                following = self.first_store_time(files[number + 1])
                if following is not None and following < wanted.from_ms:
                    continue
            yield file

    def first_store_time(self, file: DataFile) -> int | None:
        """The store time of a file's first record; None when there is none, or the file was deleted since."""
        try:
            view = self._store.view(file)
        except DiskError:
            return None
        seen = kernel.scan(view, 0, self._stop_of(file), file.base, max_count=1)
        return seen.row(0).store_timestamp if seen.count else None

    def _message(self, view: memoryview, file: DataFile, row: Row) -> StoredMessage:
        start = row.physical_offset - file.base
        return StoredMessage(bytes(view[start : start + row.size]), self._levels)

    def _stop_of(self, file: DataFile) -> int:
        """The place in a file where reading ends."""
        end = self._store.end
        return file.size if end is None else max(0, min(file.size, end - file.base))

    def _read(self, file: DataFile, place: int, wanted: Wanted) -> Iterator[StoredMessage]:
        for view, seen in self._scans(file, place):
            for index in range(seen.count):
                row = seen.row(index)
                if wanted.takes(row, seen.queues[row.queue]):
                    yield self._message(view, file, row)
                self.position = row.physical_offset + row.size

    def _scans(self, file: DataFile, place: int) -> Iterator[tuple[memoryview, Scan]]:
        """The intact records of a file from a place on, some thousand at a time; `position` follows them."""
        try:
            view = self._store.view(file)
        except DiskError:
            return  # retention has deleted it since
        stop = self._stop_of(file)
        if place > stop:
            return  # the log was cut since: show nothing twice
        self.position = file.base + place
        while place < stop:
            seen = kernel.scan(view, place, stop, file.base, check_crc=self._crc, max_count=SCAN_ROWS)
            if seen.count:
                yield view, seen
                self.position = file.base + seen.end
            place = seen.end
            if seen.reason is ScanStop.BLANK:
                self.position = file.end
                return
            if seen.reason is not ScanStop.LIMIT:
                place = self._pass_damage(file, view, place, seen.reason)
                if place < 0:
                    break
        if place >= 0 or file is not self.files[-1]:
            self.position = file.base + stop

    def _pass_damage(self, file: DataFile, view: memoryview, place: int, reason: ScanStop) -> int:
        """Where the next record of the file begins; -1 when there is none."""
        end = kernel.written_end(view, place, self._stop_of(file))
        found = kernel.find_record(view, place + 1, end, file.base) if place + 1 < end else -1
        if found >= 0 and kernel.scan(view, place, found, file.base, check_crc=self._crc, max_count=1).count:
            return place  # it was being written at first; with a whole record after it, it is complete now
        is_last = file is self.files[-1] or not self._goes_on_after(file)
        if self._on_damage is not None and (found >= 0 or not is_last):
            stop = file.base + found if found >= 0 else file.end
            self._on_damage(file.base + place, stop, reason.name.lower().replace("_", " "))
        return found

    def _goes_on_after(self, file: DataFile) -> bool:
        return any(other.base > file.base and self.first_store_time(other) is not None for other in self.files)
