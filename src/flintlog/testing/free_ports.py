"""Free ports for processes that are started later, or started again.

The system takes ports from its own range for servers that ask for any port and for every outgoing connection. So a
port that it chose may be in use again by the time the process listens. Ports below that range are used only by
processes that ask for them by number.
"""

from __future__ import annotations

import random
import socket

_FIRST, _LAST = 12_000, 31_999  # the system's own begin at 32768 (Linux) or higher


def free_ports(count: int) -> list[int]:
    """So many ports of this machine on which no process listens now."""
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


def ledger_addresses(*node_ids: str) -> dict[str, str]:
    """A free port of this machine for each node."""
    ports = free_ports(len(node_ids))
    return {node_id: f"127.0.0.1:{port}" for node_id, port in zip(node_ids, ports, strict=True)}
