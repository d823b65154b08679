"""Checks that a slave's log is a prefix of its master's, before the slave takes a byte.

    request COMPARE_LOG   start, stop       reply   digest (SHA-256, when the master holds the range), logStart, logEnd,
                                                    reign (the epoch's name), promoted

The slave asks for the digest of the last bytes that both logs hold. If it differs, the slave halves the range until it
finds the first differing byte; the logs diverge at the record that holds it. If the slave's log continues after the
master's end, the logs diverge there.

A master that does not know the request is RocketMQ's. Then nothing can be compared, as between two RocketMQ brokers. A
master that does not answer may be flintlog's, so nothing is taken from it.

The slave's log is cut only for a master that was promoted since the slave last followed (`master_epoch.py`), and never
completely.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from flintlog.errors import DamagedStore, InvalidOffset, PeerFailed
from flintlog.remoting.client import RemotingClient
from flintlog.remoting.codes import COMPARE_LOG, REQUEST_CODE_NOT_SUPPORTED, SUCCESS
from flintlog.remoting.frame import Command
from flintlog.replication.ha.master_epoch import FOREIGN, MasterEpoch
from flintlog.store.read.raw_log import RawLog

WINDOW_BYTES: Final = 64 * 1024
MOST_BYTES: Final = 8 * 1024 * 1024
_COMPARE_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Compared:
    """A master's reply: the range's digest (None when it does not hold the whole range) and the bounds of its log."""

    digest: str | None
    log_start: int
    log_end: int
    epoch: str = FOREIGN
    is_promoted: bool = False


Ask = Callable[[int, int], Awaitable[Compared]]


class Comparisons:
    """Answers comparisons, for one loop. Ranges are read in a thread, one at a time, because any peer may ask."""

    def __init__(self, raw: RawLog, epoch: MasterEpoch | None) -> None:
        self._raw = raw
        self._epoch = epoch
        self._reading = asyncio.Lock()

    async def answer(self, request: Command) -> Command:
        try:
            start, stop = int(request.fields["start"]), int(request.fields["stop"])
        except (KeyError, ValueError):
            raise InvalidOffset("a comparison needs start and stop as numbers") from None
        if stop - start > MOST_BYTES:
            raise InvalidOffset(f"at most {MOST_BYTES} bytes are compared at once", offset=start)
        raw, epoch = self._raw, self._epoch
        fields = {"logStart": str(raw.start), "logEnd": str(raw.end)}
        if epoch is not None and epoch.is_master:
            fields |= {"reign": epoch.name, "promoted": str(epoch.is_promoted).lower()}
        if raw.start <= start <= stop <= raw.end:
            async with self._reading:
                fields["digest"] = await asyncio.to_thread(raw.digest, start, stop)
        return request.reply(SUCCESS, fields=fields)


async def ask_master(client: RemotingClient, start: int, stop: int) -> Compared | None:
    """The master's answer; None from a master that does not know the request."""
    request = Command(COMPARE_LOG, fields={"start": str(start), "stop": str(stop)})
    reply = await client.call(request, _COMPARE_TIMEOUT_S)
    if reply.code == REQUEST_CODE_NOT_SUPPORTED:
        return None
    if reply.code != SUCCESS:
        raise PeerFailed(f"{client.address} refused the comparison: {reply.remark}")
    fields = reply.fields
    try:
        start, end = int(fields["logStart"]), int(fields["logEnd"])
    except (KeyError, ValueError):
        raise PeerFailed(f"{client.address} answers a comparison with {dict(fields)}") from None
    return Compared(fields.get("digest"), start, end, fields.get("reign", FOREIGN), fields.get("promoted") == "true")


async def _common_end(raw: RawLog, theirs: Compared, ask: Ask, max_range_bytes: int) -> int:
    """The offset at which our log diverges from the master's; our own end when it does not."""
    if raw.end == raw.start:
        return raw.end
    low, stop = max(raw.start, theirs.log_start), min(raw.end, theirs.log_end)
    if stop <= low:
        raise DamagedStore(
            f"our log holds {raw.start} to {raw.end}, the master's {theirs.log_start} to {theirs.log_end}",
            advice="they share no range: move this store away and start with an empty one",
        )
    if await _is_same(raw, ask, max(low, stop - WINDOW_BYTES), stop):
        _check_range(raw.end - stop, max_range_bytes)
        return raw.record_start(stop) if stop < raw.end else stop
    same = max(low, raw.end - max_range_bytes)
    if same >= stop or not await _is_same(raw, ask, max(low, same - WINDOW_BYTES), same):
        _check_range(max_range_bytes + 1, max_range_bytes)
    while stop - same > 1:
        middle = (same + stop) // 2
        if await _is_same(raw, ask, same, middle):
            same = middle
        else:
            stop = middle
    return raw.record_start(same)


def _check_range(differing_bytes: int, max_range_bytes: int) -> None:
    """Refuse a difference that is too large for a recent replica: an operator must decide."""
    if differing_bytes > max_range_bytes:
        raise DamagedStore(
            f"our log differs from the master's by more than {max_range_bytes} bytes",
            advice="raise maxChecksumRange, or move this store away and start with an empty one",
        )


async def _is_same(raw: RawLog, ask: Ask, start: int, stop: int) -> bool:
    for place in range(start, stop, MOST_BYTES):
        end = min(stop, place + MOST_BYTES)
        theirs = await ask(place, end)
        if theirs.digest is None or theirs.digest != await asyncio.to_thread(raw.digest, place, end):
            return False
    return True


async def agreed_end(
    raw: RawLog,
    theirs: Compared,
    ask: Ask,
    own: MasterEpoch | None,
    *,
    max_range_bytes: int,
    cuts_for_any: bool = False,
) -> int:
    """The offset at which our log has to end to follow this master: our own end, or where to cut.

    Raises when the log would have to be cut for a master that was not promoted, unless `cuts_for_any`.
    """
    end = await _common_end(raw, theirs, ask, max_range_bytes)
    if end != raw.end and not cuts_for_any:
        _check_cut(raw, end, theirs, own)
    return end


def _check_cut(raw: RawLog, end: int, theirs: Compared, own: MasterEpoch | None) -> None:
    """Raise unless our log may be cut to `end` for this master without an operator's decision."""
    if end == raw.start:
        raise DamagedStore(
            f"our log holds {raw.start} to {raw.end}, and the master's log has none of it: this was not its replica",
            advice="is this the right master? If so, start with --cut-to-master to discard what only this store holds",
        )
    if theirs.is_promoted and (own is None or own.name != theirs.epoch):
        return
    what = "ends" if end >= theirs.log_end else "differs"
    raise DamagedStore(
        f"our log continues to {raw.end}, the master's {what} at {end}, and it was not promoted since we followed it: "
        "it may have lost acknowledged messages",
        advice="promote this store instead, or start it with --cut-to-master to discard what only it holds",
    )
