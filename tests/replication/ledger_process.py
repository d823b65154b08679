"""A node in a process of its own: `python -m tests.replication.ledger_process DIRECTORY ID PEERS fast|java`.

It runs until SIGTERM. PEERS is DLedger's own form, `n0-host:port;n1-host:port`. Role, term, end and committed index
are in `DIRECTORY/ID.status`, about ten times a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path

from tests.replication.ledger_nodes import GROUP, fast_config, open_files

from flintlog.replication.ledger.core.interface import LedgerConfig
from flintlog.replication.ledger.node.node import LedgerNode

DATA_FILE_BYTES = 1 << 20


def _tell(file: Path, node: LedgerNode) -> None:
    status = node.status()
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps([status.role.value, status.term, status.end, status.committed]))
    draft.replace(file)


async def run(directory: Path, node_id: str, peers: str, timings: str) -> None:
    """Take part in the group until asked to stop."""
    addresses = dict(each.split("-", 1) for each in peers.split(";"))
    config = fast_config(node_id, addresses)
    if timings == "java":
        config = LedgerConfig(node_id, addresses, leader_record=lambda: b"leads")
    storage = open_files(directory, node_id, data_file_bytes=DATA_FILE_BYTES)
    node = LedgerNode(GROUP, config, storage)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await node.start()
    while not stop.is_set() and node.halted is None:
        _tell(directory / f"{node_id}.status", node)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.1)
    if node.halted is not None:
        raise node.halted
    await node.stop()
    storage.close()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), *sys.argv[2:5]))
