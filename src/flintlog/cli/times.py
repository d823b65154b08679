"""Times on the command line: ISO 8601 or milliseconds in, ISO 8601 in UTC out."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

_EPOCH = datetime.fromtimestamp(0, UTC)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"([+-]?[0-9]{1,15})(ms|s|m|h|d)")


def format_ms(value: object) -> str | None:
    """A moment for people; None stays None.

    >>> format_ms(1700000000123)
    '2023-11-14T22:13:20.123Z'
    """
    if not isinstance(value, int) or value < 0:
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=value)
    except OverflowError:
        return str(value)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{value % 1000:03d}Z"


def format_moment(moment: datetime) -> str:
    """The same for a moment; one without a time zone is of this machine's.

    >>> format_moment(datetime.fromisoformat("2023-11-14T23:13:20.123+01:00"))
    '2023-11-14T22:13:20.123Z'
    """
    spec = "microseconds" if moment.microsecond % 1000 else "milliseconds"
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=spec)}Z"


def parse_ms(text: str) -> int:
    """Milliseconds since 1970 as a number, or a date and time; without a zone it is UTC.

    >>> parse_ms("2023-11-14T22:13:20"), parse_ms("1700000000000")
    (1700000000000, 1700000000000)
    """
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no time; 2026-01-31T18:00 or milliseconds are") from error
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int((moment - _EPOCH) / timedelta(milliseconds=1))


def parse_span_ms(text: str) -> int:
    """A span of time, forwards or backwards: 1500ms, 90s, 5m, -2h, 7d.

    >>> parse_span_ms("-2h"), parse_span_ms("90s")
    (-7200000, 90000)
    """
    found = _SPAN.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no span of time; 90s, 5m, -2h and 7d are")
    return int(found[1]) * _UNIT_MS[found[2]]
