"""Finds deliveries that a crash left unrecorded, so that they are not repeated.

    delayOffset.json      level 1: 15          saved every few seconds, in RocketMQ's form
    flintlog/delay.json   {1: 15} at 81920     the same table, and the end of the log when it was saved

A member of a ledger group reads both from the group (`MARK_PART`), because another leader may have delivered.

After a crash RocketMQ repeats every delivery since its last save. Here the log shows which messages were delivered.
The deliveries of a level are in the order of its queue, and those after the noted end belong to messages from the saved
offset on. So each waiting message is compared with the deliveries after that end in its real queue, in order. The
first message without an equal delivery ends the search. The comparison covers everything that a delivery copies. At
worst a message is delivered twice, as in RocketMQ; none is skipped.

The note is used only if its table equals the one in `delayOffset.json` (it differs after a RocketMQ broker has run),
and only if its checksum is right: if a flipped bit lowered the end, older equal messages would be taken for deliveries.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from flintlog.errors import DamagedRecord, FormatError, InvalidMessage
from flintlog.format.properties import DELAY_TIME_LEVEL
from flintlog.format.record import SCHEDULE_TOPIC
from flintlog.services.delay.delay_message import destination
from flintlog.services.delay.delay_offsets import DelayOffsets
from flintlog.services.queue_reading import first_after
from flintlog.store.model.stored_message import StoredMessage
from flintlog.store.runtime.note_file import NoteFile, Offset

if TYPE_CHECKING:
    from flintlog.store.put.service_host import ServiceHost

log = logging.getLogger(__name__)

STALE_BYTES: Final = 64 * 1024 * 1024
"""A note is renewed when the log has grown by this much; this bounds the search at the next opening."""

MARK_PART: Final = "delayMark"
"""The note's name in the state that a ledger group shares."""


class Noted(msgspec.Struct, frozen=True):
    """A note: each level's next offset when the log ended at `log_end`."""

    offsets: dict[int, Offset]
    log_end: Offset


class DeliveryMark:
    """The file with the note. Owned by the thread that delivers."""

    def __init__(self, host: ServiceHost) -> None:
        self._host = host
        self._store = host.store
        self._file = NoteFile(self._store.path / "flintlog" / "delay.json", host.medium, Noted)
        self._log_end = -1

    def load(self, offsets: Mapping[int, int]) -> Noted | None:
        """The note, if it was saved with these offsets."""
        noted = self._load()
        return noted if noted is not None and noted.offsets == dict(offsets) else None

    def _load(self) -> Noted | None:
        shared = self._host.shared(MARK_PART)
        if shared is None:
            return self._file.load().checked
        try:
            return msgspec.convert(shared, Noted, strict=False)
        except msgspec.ValidationError as error:
            log.warning("the group's shared note about delay deliveries is ignored: %s", error)
            return None

    def note(self, offsets: Mapping[int, int]) -> Noted:
        """Make a note: all deliveries so far are of messages below these offsets, and lie before the log's end."""
        return Noted(dict(offsets), self._store.max_physical_offset)

    def save(self, noted: Noted) -> None:
        self._log_end = noted.log_end
        self._file.save(noted)

    @property
    def is_stale(self) -> bool:
        """Whether the note must be renewed before the next delivery."""
        return self._log_end < 0 or self._store.max_physical_offset - self._log_end >= STALE_BYTES


class _Deliveries:
    """Deliveries after a note, by level and real queue. Each is taken once and in order."""

    def __init__(self, host: ServiceHost, log_end: int) -> None:
        self._host = host
        self._log_end = log_end
        self._queues: dict[tuple[str, int], dict[int, deque[bytes]]] = {}

    def take(self, level: int, waiting: StoredMessage) -> bool:
        """Whether this message was delivered; if so, its delivery is taken."""
        topic, queue_id = destination(waiting.properties)
        if (topic, queue_id) not in self._queues:
            self._queues[topic, queue_id] = self._read(topic, queue_id)
        found = self._queues[topic, queue_id].get(level)
        wanted = _fingerprint(waiting)
        if found is None or wanted not in found:
            return False
        while found.popleft() != wanted:
            continue
        return True

    def _read(self, topic: str, queue_id: int) -> dict[int, deque[bytes]]:
        by_level: dict[int, deque[bytes]] = {}
        start = first_after(self._host, topic, queue_id, self._log_end)
        for message in _messages(self._host, topic, queue_id, start):
            text = "" if message is None else message.properties.get(DELAY_TIME_LEVEL, "")
            if message is not None and text.isdecimal():
                by_level.setdefault(int(text), deque()).append(_fingerprint(message))
        return by_level


def deliveries_after(
    noted: Noted | None, host: ServiceHost, offsets: DelayOffsets, delays_ms: Sequence[int]
) -> dict[int, int]:
    """The next offset of each level that was delivered further than recorded."""
    if noted is None:
        return {}
    deliveries = _Deliveries(host, noted.log_end)
    found: dict[int, int] = {}
    for level in range(1, len(delays_ms) + 1):
        for waiting in _messages(host, SCHEDULE_TOPIC, level - 1, offsets.get(level) or 0):
            # After an unreadable message, a later equal one might be taken for delivered.
            if waiting is None:
                break
            try:
                if not deliveries.take(level, waiting):
                    break
            except (InvalidMessage, FormatError):
                continue  # skipped when it was due
            found[level] = waiting.queue_offset + 1
    return found


def _messages(host: ServiceHost, topic: str, queue_id: int, offset: int) -> Iterator[StoredMessage | None]:
    """The messages of a queue from an offset on; None for an unreadable one."""
    store = host.store
    for place in range(max(offset, store.min_offset(topic, queue_id)), store.max_offset(topic, queue_id)):
        entry = host.entry(topic, queue_id, place)
        try:
            yield None if entry is None else store.message_at(entry.physical_offset)
        except DamagedRecord:
            yield None


def _fingerprint(message: StoredMessage) -> bytes:
    """Everything that a delivery has in common with the message that waited."""
    digest = hashlib.sha256(message.body)
    fields = (
        sorted(message.properties.items()),
        message.flag,
        message.sys_flag,
        message.born_timestamp,
        message.born_host,
        message.store_host,
        message.reconsume_times,
    )
    digest.update(msgspec.json.encode(fields))
    return digest.digest()
