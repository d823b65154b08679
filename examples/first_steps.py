"""A store's life in a minute: put, read, find, lose the process, open again."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from flintlog import Message, Sql92, StoreConfig, open_store

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=1000, max_index_num=4000)
"""Small files: the defaults suit a broker, and would take gigabytes for three messages."""

CRASHING = """
import os, sys
sys.path.insert(0, sys.argv[2])
from first_steps import CONFIG
from flintlog import Message, open_store
store = open_store(sys.argv[1], CONFIG)
print("  acknowledged:", store.put(Message("orders", b"the last one", keys=["o-99"])).status.name, flush=True)
os._exit(9)
"""


def fill(path: Path) -> None:
    """Put three orders."""
    print("put")
    with open_store(path, CONFIG) as store:
        for number, state in ((17, "paid"), (18, "open"), (19, "shipped")):
            message = Message(
                "orders", f"order {number}".encode(), tags=state, keys=[f"o-{number}"], properties={"region": "eu"}
            )
            receipt = store.put(message)
            print(f"  {receipt.status.name}: queue offset {receipt.queue_offset}, id {receipt.message_id}")


def read(path: Path) -> None:
    """Read by queue with filters, and by key."""
    with open_store(path, CONFIG) as store:
        print("get, by tag and by SQL")
        for wanted in ("paid || shipped", Sql92("region = 'eu' AND TAGS <> 'open'")):
            page = store.get("orders", queue_id=0, offset=0, filter=wanted)
            print(f"  {page.status.name}: {[bytes(message.body).decode() for message in page.messages]}")
        print("query, by key")
        for message in store.query("orders", "o-18"):
            print(f"  {message.queue_offset}: {bytes(message.body).decode()}")


def crash(path: Path) -> None:
    """Put in a process that ends without a word, then look what is there."""
    print("a process that dies right after a put")
    subprocess.run([sys.executable, "-c", CRASHING, str(path), str(Path(__file__).parent)], check=False)
    with open_store(path, CONFIG) as store:
        found = [bytes(message.body).decode() for message in store.query("orders", "o-99")]
        print(f"  after opening again: {found}, next offset {store.max_offset('orders', 0)}")


def main() -> None:
    """Run the steps in a directory that is removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        fill(path)
        read(path)
        crash(path)


if __name__ == "__main__":
    main()
