"""A member of a ledger group in a process of its own: it takes commands from its input and says what happened.

    start        take part: a process that is ready for that says so  {"ready": true}
    put N        put message N                                        {"put": N, "status": ...}
    read         the numbers of the messages that it serves           {"read": [...]}

It says {"leads": true} when it begins to take puts. While the file `hung` exists none of its syncs returns: a disk
that takes its time.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from pathlib import Path

from msgspec.structs import replace

from flintlog import Message, StoreConfig
from flintlog.disk.media.libc import MemoryMap
from flintlog.disk.media.local import LocalMedium
from flintlog.replication.ledger.core.interface import LedgerConfig
from flintlog.replication.ledger.store_node import LedgerStoreNode
from tests.power.found_files_lives import SMALL
from tests.power.lives import main, say

TIMINGS = {"acknowledge_timeout_ms": 30_000, "commit_interval_ms": 50}
BODY = b"." * 20_000


def group_config(member: str, peers: str) -> StoreConfig:
    return replace(
        SMALL,
        enable_dledger_commit_log=True,
        dledger_group="g",
        dledger_peers=peers,
        dledger_self_id=member,
        ledger_index_file_size=32 * 1024,
    )


def member(name: str, peers: str, folder: str, hung: str) -> None:
    """Run until killed."""
    _hang_syncs_while_there_is(Path(hung))
    say({"ready": True})
    sys.stdin.readline()
    # The put is to wait until the follower is back, however long that takes here.
    setattr(LedgerConfig, "with_fast_timings", lambda config: dataclasses.replace(config, **TIMINGS))  # noqa: B010
    node = LedgerStoreNode(Path(folder), group_config(name, peers), fast=True)
    node.start()
    threading.Thread(target=_say_when_leading, args=(node,), daemon=True).start()
    for line in sys.stdin:
        match line.split():
            case ["put", number]:
                threading.Thread(target=_put, args=(node, int(number)), daemon=True).start()
            case ["read"]:
                say({"read": _numbers(node)})


def _say_when_leading(node: LedgerStoreNode) -> None:
    while not node.is_serving:
        time.sleep(0.02)
    say({"leads": True})


def _put(node: LedgerStoreNode, number: int) -> None:
    receipt = node.store.put(Message("t", b"%d " % number + BODY), check=False)
    say({"put": number, "status": receipt.status.name})


def _numbers(node: LedgerStoreNode) -> list[int]:
    store = node.store
    found = (store.get("t", 0, offset, 1).messages for offset in range(store.max_offset("t", 0)))
    return [int(message.body.split()[0]) for messages in found for message in messages]


def _hang_syncs_while_there_is(hung: Path) -> None:
    sync_map, sync_file = MemoryMap.sync, LocalMedium.sync

    def wait() -> None:
        while hung.exists():
            time.sleep(0.01)

    def slow_map(self: MemoryMap, start: int, stop: int) -> None:
        wait()
        sync_map(self, start, stop)

    def slow_file(self: LocalMedium, path: Path) -> None:
        wait()
        sync_file(self, path)

    setattr(MemoryMap, "sync", slow_map)  # noqa: B010 - a fault, and nothing else
    setattr(LocalMedium, "sync", slow_file)  # noqa: B010


if __name__ == "__main__":
    main(globals())
