"""When each part of a log was written, from a few of its records; no file is read whole.

Samples are the first record of each file and, in the files of the requested days, a few between. A record can be found
from any place, because it holds its own physical offset.
"""

from __future__ import annotations

from flintlog import kernel
from flintlog.checks.derived_files import DataFile
from flintlog.format.index_file import ENTRY_SIZE as INDEX_ENTRY_SIZE
from flintlog.format.index_file import HEADER_SIZE, parse_index_header
from flintlog.format.queue_entry import ENTRY_SIZE
from flintlog.maintenance.inspect.forecast import Sample
from flintlog.maintenance.inspect.log_reader import LogReader
from flintlog.maintenance.inspect.overview import log_end
from flintlog.maintenance.inspect.queue_ends import queue_begin, queue_end
from flintlog.maintenance.inspect.store_files import StoreFiles
from flintlog.store.runtime.jobs import Counted, Progress

MOST_SAMPLES = 512
MOST_A_FILE = 16
_SEARCH_BYTES = 8 << 20


def sample_log(files: StoreFiles, since_ms: int, progress: Progress | None = None) -> list[Sample]:
    """Offsets and store times in log order, the last one of the log's end; more of them after `since_ms`.

    `progress` counts files.
    """
    reader = LogReader(files)
    firsts = [(file, time) for file in files.log if (time := reader.first_store_time(file)) is not None]
    if not firsts:
        return []
    ended = [*(time for _, time in firsts[1:]), since_ms]
    young = [file for (file, _), time in zip(firsts, ended, strict=True) if time >= since_ms]
    between = max(1, min(MOST_A_FILE, MOST_SAMPLES // len(young)))
    samples = [Sample(time, file.base) for file, time in firsts]
    end, _, latest = log_end(files)
    counted = Counted(progress, len(young))
    for file in young:
        stop = min(file.end, end)
        step = max(1, (stop - file.base) // between)
        samples += (
            found
            for place in range(file.base + step, stop, step)
            if (found := _record_from(files, file, place, stop)) is not None
        )
        counted.add(1)
    samples.append(Sample(firsts[-1][1] if latest is None else latest, end))
    return sorted(set(samples), key=lambda sample: sample.physical_offset)


def _record_from(files: StoreFiles, file: DataFile, place: int, stop: int) -> Sample | None:
    view = files.view(file)
    limit = min(stop - file.base, place - file.base + _SEARCH_BYTES)
    found = kernel.find_record(view, place - file.base, limit, file.base)
    if found < 0:
        return None
    seen = kernel.scan(view, found, file.size, file.base, max_count=1)
    return Sample(seen.row(0).store_timestamp, file.base + found) if seen.count else None


def derived_bytes(files: StoreFiles, progress: Progress | None = None) -> int:
    """The bytes of all queue and index entries; the files are longer, because they are allocated whole.

    `progress` counts queues.
    """
    total, counted = 0, Counted(progress, len(files.queues))
    for queue in files.queues.values():
        counted.add(1)
        if queue.is_batch:
            total += sum(kernel.written_end(files.view(file), 0, file.size) for file in queue.files)
        else:
            end = queue_end(files, queue)
            total += ENTRY_SIZE * (end - queue_begin(files, queue, files.min_offset, end))
    headers = (parse_index_header(files.read(path, 0, HEADER_SIZE)) for path in files.index)
    return total + sum(INDEX_ENTRY_SIZE * max(0, header.next_entry - 1) for header in headers)
