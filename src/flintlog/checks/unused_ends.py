"""Ends of log files that are empty or missing, and whether a message was lost there.

    file n   … record | zeros, or nothing more |   file n+1   record …

The last record of a file is followed by a blank. Where that has lost its head, the log alone does not tell whether
records lay there. The queues tell it: they are built in the log's order, so if one has an entry for a later record,
each message before it got its own. If no entry points there, and no queue lacks an offset, no message is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from flintlog import kernel
from flintlog.checks.derived_files import DataFile, Read
from flintlog.checks.finding import WARNING, Finding
from flintlog.checks.log_judgement import LogJudgement
from flintlog.checks.queue_judgement import QueueJudgement
from flintlog.derive.stretches import QueueTally
from flintlog.format.queue_entry import QueueKey
from flintlog.format.record import END_RESERVE


def excuse_unused_ends(
    log: LogJudgement,
    files: Sequence[DataFile],
    read: Read,
    queues: QueueJudgement,
    tallies: Mapping[QueueKey, QueueTally],
    odd: Collection[int],
) -> None:
    """Take damages and their findings back where no message was.

    `odd` are the physical offsets of index entries that no record accounts for.
    """
    if queues.findings:
        return  # an entry may be what is lost
    for file, start, end in _empty_ends(log, files, read):
        is_seen = any(start <= at < end for at in (*queues.lost, *odd))
        if is_seen or queues.dispatched_to < end or any(_has_gap(tally, start, end) for tally in tallies.values()):
            continue
        log.damages.remove((start, end))
        log.findings = [found for found in log.findings if (found.physical_offset, found.size) != (start, end - start)]
        if file.end < end:
            log.cut_blanks.add(file.path)
        else:
            log.findings.append(_lost_mark(file, start))


def _empty_ends(log: LogJudgement, files: Sequence[DataFile], read: Read) -> Iterator[tuple[DataFile, int, int]]:
    """Damages that go from inside a file to the next one, in which nothing is written."""
    length = max((file.size for file in files), default=0)
    before = {after.base: file for file, after in pairwise(files) if after.base - file.base == length}
    for start, end in list(log.damages):
        file = before.get(end)
        if file is not None and file.base < start <= file.end:
            view = read(file.path, start - file.base, file.size)
            if not kernel.written_end(view, 0, len(view)):
                yield file, start, end


def _has_gap(tally: QueueTally, start: int, end: int) -> bool:
    """Whether a queue's offsets do not go on where the log goes on after a place."""
    return any(
        left.last_physical_offset < start and right.first_physical_offset >= end and right.first != left.stop
        for left, right in pairwise(tally.records.in_log_order())
    )


def _lost_mark(file: DataFile, start: int) -> Finding:
    evidence = "the blank at the file's end is empty, and no queue has a message there"
    remedy = "none is needed to read it; repair writes it again"
    return Finding("damaged-blank", WARNING, evidence, remedy, file.path, start - file.base, start, END_RESERVE)
