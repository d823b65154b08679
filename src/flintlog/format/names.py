"""The names in a store directory, and the contents of its smallest files.

Under the store's root:

    commitlog/00000000001073741824                      a segment: the offset it starts at, 20 digits
    consumequeue/<topic>/<queue id>/00000000000006000000
    index/20261115231728745                             yyyyMMddHHmmssSSS, local time of its creation
    abort                                               process id; there while the store runs
    lock                                                the four letters "lock"; byte 0 is locked while the store runs
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from flintlog.errors import FormatError

COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUE: Final = "consumequeue"
CONSUME_QUEUE_EXT: Final = "consumequeue_ext"
BATCH_CONSUME_QUEUE: Final = "batchconsumequeue"
INDEX: Final = "index"
CONFIG: Final = "config"
CHECKPOINT: Final = "checkpoint"
ABORT: Final = "abort"
ABORT_BACKUP: Final = "abort.bak"
LOCK: Final = "lock"
TIMER_WHEEL: Final = "timerwheel"
TIMER_LOG: Final = "timerlog"
TIMER_CHECK: Final = "timercheck"
BACKUP_SUFFIX: Final = ".bak"

FAR: Final = 1 << 62
"""No log is that long: a larger offset is damaged."""
SEGMENT_NAME_DIGITS: Final = 20

_MAX_OFFSET: Final = (1 << 63) - 1
_MAX_QUEUE_ID: Final = (1 << 31) - 1
_SEGMENT_NAME = re.compile(rf"[0-9]{{{SEGMENT_NAME_DIGITS}}}")
_INDEX_NAME = re.compile(r"([0-9]{4})" + r"([0-9]{2})" * 5 + r"([0-9]{3})")
_PROCESS_ID = re.compile(rb"[0-9]{1,10}")


def segment_name(offset: int) -> str:
    """The file name of the segment that starts at this offset.

    >>> segment_name(1048576)
    '00000000000001048576'
    """
    if not 0 <= offset <= _MAX_OFFSET:
        raise FormatError(f"no segment can start at {offset}")
    return f"{offset:0{SEGMENT_NAME_DIGITS}d}"


def parse_segment_name(name: str) -> int:
    """The offset at which the segment of this file name starts."""
    offset = int(name) if _SEGMENT_NAME.fullmatch(name) else -1
    if not 0 <= offset <= _MAX_OFFSET:
        raise FormatError(f"not the name of a segment: {name[:80]!a}")
    return offset


def is_segment_name(name: str) -> bool:
    """Whether a file is named like a segment: RocketMQ and this package make no other names of 20 digits."""
    return _SEGMENT_NAME.fullmatch(name) is not None


def is_number(name: str) -> bool:
    """Whether a file's name is a number, as the creation time of an index file is."""
    return name.isascii() and name.isdigit()


def parse_queue_id(name: str) -> int | None:
    """The queue that has this name for its directory; None when no queue has it.

    >>> parse_queue_id("7"), parse_queue_id("007"), parse_queue_id("4294967296")
    (7, None, None)
    """
    number = int(name) if is_number(name) and len(name) <= len(str(_MAX_QUEUE_ID)) else -1
    return number if 0 <= number <= _MAX_QUEUE_ID and str(number) == name else None


def index_file_name(created_ms: int, zone: tzinfo | None = None) -> str:
    """The name of an index file made at this time; in local time unless a zone is given."""
    try:
        # Counted in whole milliseconds from the epoch: a float of seconds would round some of them down.
        moment = (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=created_ms)).astimezone(zone)
    except (OverflowError, ValueError) as error:
        raise FormatError(f"no time of day: {created_ms} ms") from error
    return f"{moment.year:04d}{moment:%m%d%H%M%S}" + f"{moment.microsecond // 1000:03d}"


def parse_index_file_name(name: str) -> datetime:
    """When the index file of this name was made, in the local time of its maker (the name has no zone)."""
    matched = _INDEX_NAME.fullmatch(name)
    if not matched:
        raise FormatError(f"not the name of an index file: {name[:80]!a}")
    year, month, day, hour, minute, second, millisecond = map(int, matched.groups())
    try:
        return datetime(year, month, day, hour, minute, second, millisecond * 1000)
    except ValueError as error:
        raise FormatError(f"not the name of an index file: {name}") from error


def encode_abort(process_id: int) -> bytes:
    """The content of `abort`."""
    if not 0 <= process_id < 10**10:
        raise FormatError(f"not a process id: {process_id}")
    return str(process_id).encode()


def parse_abort(data: bytes) -> int | None:
    """The process id in `abort`; None if there is none (the file is created empty, and counts from then on)."""
    return int(data) if _PROCESS_ID.fullmatch(data) else None
