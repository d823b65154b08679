"""Ports for processes that are started later, and again.

The system gives a port away twice: to whoever asks for any, and to every connection that goes out. One that it chose
and that was closed again may be somebody's by the time the process listens. Below its range only those are taken that
were asked for by number.
"""

from __future__ import annotations

import random
import socket

_FIRST, _LAST = 12_000, 31_999  # the system's own begin at 32768 (Linux) or higher


def free_ports(count: int) -> list[int]:
    """So many ports of this machine that nobody listens on now."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randint(_FIRST, _LAST)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        if port not in ports:
            ports.append(port)
    return ports
