"""Event sourcing: the log of events is the truth, and balances follow from it.

An event is acknowledged when it is on disk. The state in memory is built again from the log at each start, a reader
beside the writer has its own, and an account's history is found by its key.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from flintlog import Message, Store, StoreConfig, open_store

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=1000, max_index_num=4000)
TOPIC = "events"


class Accounts:
    """The balances at an offset of the log of events."""

    def __init__(self, store: Store) -> None:
        self.balances: dict[str, int] = defaultdict(int)
        self._store = store
        self._next = store.min_offset(TOPIC, 0)
        self.catch_up()

    def catch_up(self) -> None:
        """Apply the events since the last one that was applied."""
        while self._next < self._store.max_offset(TOPIC, 0):
            page = self._store.get(TOPIC, 0, self._next)
            for message in page.messages:
                event = json.loads(message.body)
                self.balances[event["account"]] += event["amount"]
            self._next = page.next_offset

    def move(self, account: str, amount: int) -> None:
        """Decide by the state, store the event, then apply it."""
        self.catch_up()
        if self.balances[account] + amount < 0:
            raise ValueError(f"{account} has {self.balances[account]}, and {-amount} was asked for")
        body = json.dumps({"account": account, "amount": amount}).encode()
        self._store.put(Message(TOPIC, body, keys=[account]))
        self.catch_up()


READER = """
import sys
sys.path.insert(0, sys.argv[2])
from event_sourcing import Accounts, open_store
with open_store(sys.argv[1], read_only=True) as store:
    print("a reader beside the writer:", dict(Accounts(store).balances), flush=True)
"""


def main() -> None:
    """Move money, read beside the writer, and start again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        with open_store(path, CONFIG) as store:
            accounts = Accounts(store)
            for account, amount in (("ann", 100), ("bob", 20), ("ann", -30)):
                accounts.move(account, amount)
            try:
                accounts.move("bob", -50)
            except ValueError as error:
                print("refused:", error)
            subprocess.run([sys.executable, "-c", READER, str(path), str(Path(__file__).parent)], check=True)
        with open_store(path) as store:
            print("after a new start:", dict(Accounts(store).balances))
            history = sorted(store.query(TOPIC, "ann"), key=lambda message: message.queue_offset)
            print("ann's history:", [json.loads(message.body)["amount"] for message in history])


if __name__ == "__main__":
    main()
