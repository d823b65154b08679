"""How a log has grown in the last days, and when its disk is full if that goes on.

Pure: the caller passes samples of the log (`flintlog.maintenance.inspect.log_samples`), the state of the disk and the
time. It is assumed that the log grew evenly between two samples, and that other files on the disk stay as they are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from flintlog.disk.media.medium import DiskUsage

DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
LEAST_SPAN_MS: Final = 60_000
"""A log of a shorter span gives no rate: one burst says nothing about days."""


class Sample(NamedTuple):
    """A record's physical offset and store time."""

    store_timestamp: int
    physical_offset: int


def room_bytes(disk: DiskUsage, percent: int) -> float:
    """How many bytes fill a disk to so many percent; negative when it is fuller already.

    The administrator's reserve counts neither as used nor as free.
    """
    usable = disk.free / (1 - disk.used_ratio) if 0 <= disk.used_ratio < 1 else disk.total
    return usable * (percent / 100 - disk.used_ratio)


@dataclass(frozen=True, slots=True)
class Limit:
    """A fill of the disk at which something happens."""

    percent: int
    means: str


@dataclass(frozen=True, slots=True)
class DayVolume:
    """How much the log grew in one day of UTC; the first and last may be parts of a day."""

    begin_ms: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Reached:
    """When the disk reaches a limit; None if retention deletes files before that.

    `holds_hours`: messages can be kept for so long without reaching the limit; None when a single day is too much.
    """

    percent: int
    means: str
    at_ms: int | None
    at_busiest_ms: int | None
    holds_hours: int | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast. Volumes are those of the log; queues and index add `derived_ratio` times as much."""

    from_ms: int
    until_ms: int
    days: tuple[DayVolume, ...]
    bytes_a_day: float | None
    busiest_day_bytes: float | None
    log_bytes: int
    derived_ratio: float
    kept_bytes: float | None
    limits: tuple[Reached, ...]


class _Curve:
    """The log's length over time. Store times that go back a little are raised to the greatest before them."""

    def __init__(self, samples: Sequence[Sample], now_ms: int) -> None:
        ordered = sorted(samples, key=lambda sample: sample.physical_offset)
        self.times = list(accumulate((min(sample.store_timestamp, now_ms) for sample in ordered), max))
        self.places = [sample.physical_offset for sample in ordered]

    def at(self, moment_ms: int) -> float:
        """Where the log ended at a moment."""
        after = bisect_left(self.times, moment_ms)
        if after == 0:
            return self.places[0]
        if after == len(self.times):
            return self.places[-1]
        begin, end = self.times[after - 1], self.times[after]
        share = (moment_ms - begin) / (end - begin)
        return self.places[after - 1] + share * (self.places[after] - self.places[after - 1])

    def volume(self, begin_ms: int, end_ms: int) -> float:
        return self.at(end_ms) - self.at(begin_ms)


def forecast(
    samples: Sequence[Sample],
    disk: DiskUsage | None,
    limits: Sequence[Limit],
    *,
    now_ms: int,
    days: int,
    reserved_ms: int | None,
    derived_ratio: float = 0.0,
) -> Forecast:
    """Make the forecast. `samples` cover the log from its first record to its end; None as `reserved_ms` keeps all."""
    if not samples:
        return Forecast(now_ms, now_ms, (), None, None, 0, derived_ratio, None, ())
    curve = _Curve(samples, now_ms)
    begin = max(curve.times[0], now_ms - days * DAY_MS)
    log_bytes = curve.places[-1] - curve.places[0]
    volumes = tuple(_days(curve, begin, now_ms))
    if now_ms - begin < LEAST_SPAN_MS or curve.volume(begin, now_ms) <= 0:
        rate = 0.0 if now_ms - begin >= LEAST_SPAN_MS else None
        kept = None if rate is None or reserved_ms is None else 0.0
        return Forecast(begin, now_ms, volumes, rate, rate, log_bytes, derived_ratio, kept, ())
    rate = curve.volume(begin, now_ms) / (now_ms - begin) * DAY_MS
    busiest = max(rate, *(volume.bytes for volume in volumes))
    kept = None if reserved_ms is None else _kept(rate, reserved_ms)
    reached = tuple(
        _reach(limit, disk, now_ms, rate, busiest, reserved_ms, log_bytes, 1 + derived_ratio)
        for limit in limits
        if disk is not None
    )
    return Forecast(begin, now_ms, volumes, rate, busiest, log_bytes, derived_ratio, kept, reached)


def _days(curve: _Curve, begin_ms: int, now_ms: int) -> Iterator[DayVolume]:
    moment = begin_ms
    while moment < now_ms:
        following = min(now_ms, (moment // DAY_MS + 1) * DAY_MS)
        yield DayVolume(moment, round(curve.volume(moment, following)))
        moment = following


def _kept(bytes_a_day: float, reserved_ms: int) -> float:
    """The log's size once retention deletes as much as is put; an expired file waits up to a day for the hour."""
    return bytes_a_day * (reserved_ms / DAY_MS + 1)


def _reach(
    limit: Limit,
    disk: DiskUsage,
    now_ms: int,
    rate: float,
    busiest: float,
    reserved_ms: int | None,
    log_bytes: int,
    factor: float,
) -> Reached:
    room = room_bytes(disk, limit.percent) / factor  # in bytes of the log
    moments = []
    for bytes_a_day in (rate, busiest):
        to_come = float("inf") if reserved_ms is None else _kept(bytes_a_day, reserved_ms) - log_bytes
        is_reached = room <= 0 or to_come > room
        moments.append(now_ms + int(max(0.0, room) / bytes_a_day * DAY_MS) if is_reached else None)
    hours = int((log_bytes + room) / rate * DAY_MS - DAY_MS) // HOUR_MS
    return Reached(limit.percent, limit.means, moments[0], moments[1], hours if hours > 0 else None)
