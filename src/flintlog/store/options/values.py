"""Checks of options whose values are more than a number or a word: hosts, hours, delay levels, lists of words."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from flintlog.errors import InvalidConfig

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MAX_LEVEL_MS = 100 * 366 * _UNIT_MS["d"]
_MAX_LEVEL_DIGITS = 18


def check_words(name: str, words: Iterable[str], allowed: frozenset[str]) -> None:
    """Refuse a word that is not one of those allowed."""
    for word in words:
        if word not in allowed:
            raise InvalidConfig(f"option {name} has {word!r}", advice="expected " + ", ".join(sorted(allowed)))


def check_hours(name: str, text: str) -> None:
    """Refuse anything but a list of hours such as `04` or `02;14`."""
    for part in text.split(";"):
        if part.strip() and not (part.strip().isascii() and part.strip().isdecimal() and int(part) < 24):
            raise InvalidConfig(f"option {name} = {text!r}", advice="expected hours from 0 to 23, separated by ;")


def check_host(name: str, text: str) -> None:
    """Refuse anything but `ip:port` or `[v6]:port`; records hold addresses, never names."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ipaddress.ip_address(host[1:-1] if bracketed else host)
        fine = bool(colon) and (address.version == 6) == bracketed and port.isascii() and port.isdecimal()
    except ValueError:
        fine = False
    if not fine or int(port) > 65535:
        raise InvalidConfig(f"option {name} = {text!r}", advice="expected ip:port or [ipv6]:port")


def parse_delay_levels(name: str, text: str) -> tuple[int, ...]:
    """Turn `1s 5m 2h` into milliseconds, level 1 first."""
    levels = []
    for part in text.split():
        digits, unit_ms = part[:-1], _UNIT_MS.get(part[-1])
        if unit_ms is None or not (digits.isascii() and digits.isdecimal()):
            raise InvalidConfig(f"option {name} has {part!r}", advice="expected a number with s, m, h or d")
        if len(digits) > _MAX_LEVEL_DIGITS or int(digits) * unit_ms > _MAX_LEVEL_MS:
            raise InvalidConfig(f"option {name} has {part!r}", advice="a level waits for a hundred years at most")
        levels.append(int(digits) * unit_ms)
    return tuple(levels)


DEFAULT_DELAY_LEVELS_MS = parse_delay_levels(
    "message_delay_level", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
)
