"""Finding out, before a byte is taken, whether a slave's log is the beginning of its master's.

    request COMPARE_LOG   start, stop       reply   digest (SHA-256, when the master holds the range), logStart, logEnd,
                                                    reign, promoted

The slave asks for the digest of the last bytes that both have. When that differs it halves the range until it has the
first byte that differs; the record that holds it is where the two logs part. A log that goes on behind its master's
end parts there.

A master that does not know the request is RocketMQ's: then nothing can be compared, as between two of RocketMQ's own.
One that does not answer may be ours: nothing is taken from it.

Only for a master that was promoted since we last followed (`reign.py`) is anything of ours cut, and never all of it.
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
from flintlog.replication.ha.master_epoch import FOREIGN, Reign
from flintlog.store.read.raw_log import RawLog

WINDOW_BYTES: Final = 64 * 1024
MOST_BYTES: Final = 8 * 1024 * 1024
_COMPARE_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Compared:
    """What a master says of a range: its digest, None when it does not hold all of it, and what its log holds."""

    digest: str | None
    log_start: int
    log_end: int
    reign: str = FOREIGN
    is_promoted: bool = False


Ask = Callable[[int, int], Awaitable[Compared]]


class Comparisons:
    """The master's side, for one loop. Ranges are read in a thread, one at a time: anybody may ask."""

    def __init__(self, raw: RawLog, reign: Reign | None) -> None:
        self._raw = raw
        self._reign = reign
        self._reading = asyncio.Lock()

    async def answer(self, request: Command) -> Command:
        try:
            start, stop = int(request.fields["start"]), int(request.fields["stop"])
        except (KeyError, ValueError):
            raise InvalidOffset("start and stop are needed, as numbers") from None
        if stop - start > MOST_BYTES:
            raise InvalidOffset(f"at most {MOST_BYTES} bytes are compared at once", offset=start)
        raw, reign = self._raw, self._reign
        fields = {"logStart": str(raw.start), "logEnd": str(raw.end)}
        if reign is not None and reign.is_master:
            fields |= {"reign": reign.name, "promoted": str(reign.is_promoted).lower()}
        if raw.start <= start <= stop <= raw.end:
            async with self._reading:
                fields["digest"] = await asyncio.to_thread(raw.digest, start, stop)
        return request.reply(SUCCESS, fields=fields)


async def ask_master(client: RemotingClient, start: int, stop: int) -> Compared | None:
    """The master's answer; None from one that does not know the question."""
    request = Command(COMPARE_LOG, fields={"start": str(start), "stop": str(stop)})
    reply = await client.call(request, _COMPARE_TIMEOUT_S)
    if reply.code == REQUEST_CODE_NOT_SUPPORTED:
        return None
    if reply.code != SUCCESS:
        raise PeerFailed(f"{client.address} does not compare: {reply.remark}")
    told = reply.fields
    try:
        start, end = int(told["logStart"]), int(told["logEnd"])
    except (KeyError, ValueError):
        raise PeerFailed(f"{client.address} answers a comparison with {dict(told)}") from None
    return Compared(told.get("digest"), start, end, told.get("reign", FOREIGN), told.get("promoted") == "true")


async def _common_end(raw: RawLog, theirs: Compared, ask: Ask, max_range_bytes: int) -> int:
    """Where our log and the master's part; our own end when they do not. `theirs` tells what the master holds."""
    if raw.end == raw.start:
        return raw.end
    low, stop = max(raw.start, theirs.log_start), min(raw.end, theirs.log_end)
    if stop <= low:
        raise DamagedStore(
            f"our log holds {raw.start} to {raw.end}, the master's {theirs.log_start} to {theirs.log_end}",
            advice="nothing in common: move this store away and begin with an empty one",
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
    """Whoever differs in more than this was not a replica a moment ago: somebody must look at it."""
    if differing_bytes > max_range_bytes:
        raise DamagedStore(
            f"our log differs from the master's by more than {max_range_bytes} bytes",
            advice="raise maxChecksumRange, or move this store away and begin with an empty one",
        )


async def _is_same(raw: RawLog, ask: Ask, start: int, stop: int) -> bool:
    for place in range(start, stop, MOST_BYTES):
        behind = min(stop, place + MOST_BYTES)
        theirs = await ask(place, behind)
        if theirs.digest is None or theirs.digest != await asyncio.to_thread(raw.digest, place, behind):
            return False
    return True


async def agreed_end(
    raw: RawLog, theirs: Compared, ask: Ask, own: Reign | None, *, max_range_bytes: int, cuts_for_any: bool = False
) -> int:
    """Where our log has to end so that this master can be followed: our own end, or a place to cut it at.

    Refused when something would be cut for a master that has no right to that, unless we cut for any.
    """
    end = await _common_end(raw, theirs, ask, max_range_bytes)
    if end != raw.end and not cuts_for_any:
        _check_cut(raw, end, theirs, own)
    return end


def _check_cut(raw: RawLog, end: int, theirs: Compared, own: Reign | None) -> None:
    """Whether our log may be cut to `end` for this master, or somebody has to decide."""
    if end == raw.start:
        raise DamagedStore(
            f"our log holds {raw.start} to {raw.end}, and nothing of it is in the master's: this was no replica of it",
            advice="is this the right master? If so, start with --cut-to-master to give up what only this store holds",
        )
    if theirs.is_promoted and (own is None or own.name != theirs.reign):
        return
    what = "ends" if end >= theirs.log_end else "says something else"
    raise DamagedStore(
        f"our log goes on to {raw.end}, the master's {what} at {end}, and it was not promoted since we followed it: "
        "it may have lost what was acknowledged",
        advice="promote this store instead, or start it with --cut-to-master to give up what only it holds",
    )
