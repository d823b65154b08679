"""Decodes the wanted records of one split into Arrow's buffers, column by column; the GIL is released meanwhile.

If the wanted records are known by their topics alone, the kernel passes over the others. Other conditions are decided
by the few fields that they name, and only the records that satisfy them are decoded whole.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from flintlog import kernel
from flintlog.derive.columns import to_record_batch
from flintlog.derive.sealing import is_sealed
from flintlog.derive.splits import Gap, Split, Window, first_record, plan_splits, scan_split
from flintlog.errors import DamagedRecord, DamagedStore
from flintlog.kernel import Crc, Decoded, ScanStop
from flintlog.pipeline.reading.filters import Wanted
from flintlog.pipeline.reading.partitions import LogSplit, load_window

BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 16 * 1024 * 1024
PROBE_ROWS: Final = 65_536

_SEEN: Final = {
    ScanStop.BAD_CRC: "a body does not match its CRC",
    ScanStop.BAD_LENGTH: "a record's lengths do not add up",
    ScanStop.BAD_OFFSET: "a record says that it belongs elsewhere",
    ScanStop.SHORT: "a record is longer than its file",
    ScanStop.BAD_RECORD_CRC: "a record does not match the CRC over all of it",
}


@dataclass(slots=True)
class Decoding:
    """The decoding of one split: what is wanted of it, and which fields."""

    planned: LogSplit
    wanted: Wanted
    fields: frozenset[str]
    fail_on_data_loss: bool
    passed: list[int] = field(default_factory=list)
    """The physical offsets of damaged places that were passed over, where data loss is allowed."""

    topics: frozenset[bytes] | None = field(init=False)
    rest: Wanted = field(init=False)
    """What the kernel does not decide by itself."""

    def __post_init__(self) -> None:
        self.fields |= {"physical_offset"}  # an array without any column would not know its length
        self.topics = self.wanted.exact_topics()
        self.rest = self.wanted
        if self.topics is not None:
            self.rest = replace(self.wanted, topics=None, topic_prefixes=(), topic_pattern=None)

    def parts(self, most_bytes: int) -> list[Decoding]:
        """The same of neighbouring parts of the split."""
        split = self.planned.split
        return [
            Decoding(replace(self.planned, split=part), self.wanted, self.fields, self.fail_on_data_loss, self.passed)
            for part in plan_splits([split.file], split.start, split.stop, split_bytes=most_bytes)
        ]

    # ------------------------------------------------------------------ ranges

    def scan(self, start: int | None = None, stop: int | None = None) -> Iterator[pa.RecordBatch]:
        """The wanted records that begin in the split, or in a part of it. A record need not begin at `start`."""
        split = self.planned.split
        start, stop = split.start if start is None else start, split.stop if stop is None else stop
        planned = replace(self.planned, split=Split(split.file, start, stop))
        window, split = load_window(planned), planned.split
        position = first_record(window, split)
        until = split.stop
        while position < split.stop:
            decoded = self._decode(window, position, until)
            yield from self._chosen(window, decoded)
            position, until = window.base + decoded.end, split.stop
            if decoded.reason is ScanStop.BLANK:
                return
            if decoded.reason is ScanStop.LIMIT or position >= split.stop:
                continue
            until = position + _whole_size(window, position)  # the last record may end in the next split
            if until > position:
                continue
            if decoded.reason is ScanStop.SHORT and not window.is_whole:
                window, until = load_window(planned, to_end=True), split.stop
                continue
            position, until = self._pass_gap(window, position, split.stop, decoded.reason), split.stop

    def scan_checked(self) -> Iterator[pa.RecordBatch]:
        """The same, after a check of the CRC of every body and, where records have one, of the whole record."""
        planned = self.planned
        window = load_window(planned, to_end=True)
        first = first_record(window, planned.split)
        checked = Crc.RECORD if is_sealed(window.view, first - window.base, window.base) else Crc.BODY
        for piece in scan_split(window, planned.split, check_crc=checked, start=first):
            if isinstance(piece, Gap):
                self._refuse(piece.start, piece.reason)
                continue
            position, stop = piece.row(0).physical_offset, window.base + piece.end
            while position < stop:
                decoded = self._decode(window, position, stop)
                yield from self._chosen(window, decoded)
                position = window.base + decoded.end

    def walk(self, window: Window, start: int, stop: int) -> Iterator[pa.RecordBatch | int]:
        """The wanted records of a chain from `start` to `stop`, and the place where it breaks, if it does.

        Only at the split's end may the last record end later, and a blank fill the rest of the file.
        """
        position, until = start, stop
        while position < stop:
            decoded = self._decode(window, position, until)
            yield from self._chosen(window, decoded)
            position, until = window.base + decoded.end, stop
            if decoded.reason is ScanStop.LIMIT or position >= stop:
                continue
            is_end = stop == self.planned.split.stop
            if is_end and decoded.reason is ScanStop.BLANK:
                return
            until = position + _whole_size(window, position)
            if until <= position or not is_end:
                yield position
                return

    def _decode(self, window: Window, start: int, stop: int) -> Decoded:
        probed = self.rest.fields()
        return kernel.decode(
            window.view,
            start - window.base,
            min(stop - window.base, len(window.view)),
            window.base,
            topics=self.topics,
            max_rows=PROBE_ROWS if probed else BATCH_ROWS,
            max_bytes=BATCH_BYTES,
            delay_levels_ms=self.planned.levels.lengths_ms,
            columns=probed | {"physical_offset"} if probed else self.fields,
        )

    def _chosen(self, window: Window, decoded: Decoded) -> Iterator[pa.RecordBatch]:
        if not decoded.count:
            return
        records = to_record_batch(decoded)
        mask = self.rest.mask(records)
        if mask is None:
            yield records
            return
        records = records.filter(mask)
        if self.fields <= set(records.schema.names):
            yield records.select(sorted(self.fields))
        elif records.num_rows:
            offsets = records.column("physical_offset").to_pylist()
            for batch in self.decode_at(window, offsets):
                if isinstance(batch, int):
                    self._refuse(batch, ScanStop.NO_RECORD)  # it was there a moment ago
                else:
                    yield batch

    def decode_at(self, window: Window, offsets: Sequence[int]) -> Iterator[pa.RecordBatch | int]:
        """The records at these physical offsets, and the first offset at which there is none."""
        places, done = array("q", (offset - window.base for offset in offsets)), 0
        while done < len(places):
            decoded = kernel.decode_at(
                window.view,
                places[done:],
                window.base,
                max_rows=BATCH_ROWS,
                max_bytes=BATCH_BYTES,
                delay_levels_ms=self.planned.levels.lengths_ms,
                columns=self.fields,
            )
            if decoded.count:
                yield to_record_batch(decoded)
            done += decoded.end
            if decoded.reason is not ScanStop.LIMIT:
                yield offsets[done]
                return

    # ------------------------------------------------------------------ damage

    def _pass_gap(self, window: Window, position: int, stop: int, reason: ScanStop) -> int:
        self._refuse(position, reason)
        found = kernel.find_record(window.view, position + 1 - window.base, len(window.view), window.base)
        return stop if found < 0 else window.base + found

    def _refuse(self, position: int, reason: ScanStop) -> None:
        """Raise an error for a gap, unless data loss is allowed."""
        if not self.fail_on_data_loss:
            self.passed.append(position)
            return
        kind = DamagedRecord if reason in (ScanStop.BAD_CRC, ScanStop.BAD_RECORD_CRC) else DamagedStore
        raise kind(
            f"the log is damaged: {_SEEN.get(reason, 'no record begins here')}",
            path=f"{self.planned.uri}/{self.planned.split.file.name}",
            offset=position,
            advice="option failOnDataLoss=false reads what is around it; `flintlog verify` says what is lost",
        )


def _whole_size(window: Window, position: int) -> int:
    """The size of the record at a physical offset; 0 when none begins there."""
    place = position - window.base
    seen = kernel.scan(window.view, place, len(window.view), window.base, max_count=1)
    return seen.end - place if seen.count else 0
