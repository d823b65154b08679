"""The two streams between a master and a slave.

    slave to master, again and again          master to slave, again and again
    +--------------------+                    +-----------------+------+----------------------+
    | end of its log     |                    | physical offset | n    | n bytes of the log   |    big-endian
    +--------------------+                    +-----------------+------+----------------------+
    8                                         8                 4      n; 0 is a heartbeat

There is no handshake and no checksum: the state machines check the bytes before they use them. Lengths are bounded
before any bytes are kept.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from flintlog.errors import FormatError

REPORT_BYTES: Final = 8
HEAD_BYTES: Final = 12
MAX_DATA_BYTES: Final = 4 * 1024 * 1024 - HEAD_BYTES
"""The largest data that fits into a Java slave's read buffer with its head."""

_REPORT = struct.Struct(">q")
_HEAD = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes of the log and their offset."""

    offset: int
    data: bytes

    @property
    def is_heartbeat(self) -> bool:
        return not self.data


def encode_report(log_end: int) -> bytes:
    """The end of a slave's log.

    >>> encode_report(258).hex()
    '0000000000000102'
    """
    return _REPORT.pack(log_end)


def encode_frame(offset: int, data: bytes | memoryview = b"") -> bytes:
    """Bytes of the log, or a heartbeat."""
    if len(data) > MAX_DATA_BYTES:
        raise FormatError(f"{len(data)} bytes in one frame; a slave takes {MAX_DATA_BYTES}")
    return _HEAD.pack(offset, len(data)) + bytes(data)


class ReportReader:
    """Splits a slave's stream; of several reports only the last counts."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """The newest whole report; None when there is no new one."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT_BYTES
        self._rest = data[whole:]
        return int(_REPORT.unpack_from(data, whole - REPORT_BYTES)[0]) if whole else None


class FrameReader:
    """Splits a master's stream. It cannot be used after a FormatError: close the connection."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._wanted = HEAD_BYTES
        """The known size of the frame at the start of `_rest`."""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are now complete."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return []
            data, self._rest = bytes(self._rest), bytearray()
        frames: list[Frame] = []
        place, self._wanted = 0, HEAD_BYTES
        while len(data) - place >= HEAD_BYTES:
            offset, size = _HEAD.unpack_from(data, place)
            if offset < 0 or not 0 <= size <= MAX_DATA_BYTES:
                raise FormatError(f"a frame of {size} bytes for offset {offset}")
            end = place + HEAD_BYTES + size
            if len(data) < end:
                self._wanted = end - place
                break
            frames.append(Frame(offset, data[place + HEAD_BYTES : end]))
            place = end
        self._rest += data[place:]
        return frames
