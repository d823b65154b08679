"""An outbox: a row of a database and a message that says so, both or neither.

The message is stored first as half a transaction, which nobody sees. Then the row is written, then the transaction is
committed. If the process dies between, the store asks the program at its next start, and the row decides.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from flintlog import Decision, Message, Store, StoreConfig, open_store
from flintlog.services.transaction.transaction_service import UndecidedTransaction

CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 20,
    max_hash_slot_num=1000,
    max_index_num=4000,
    services={"transaction"},
    transaction_check_interval=200,
    transaction_time_out=100,
)


def open_database(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path / "shop.db", check_same_thread=False)
    database.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, pieces INTEGER CHECK (pieces > 0))")
    return database


def take_order(store: Store, database: sqlite3.Connection, order: str, pieces: int) -> None:
    """Write the row and publish the message. An exception inside rolls both back."""
    transactions = store.service("transaction")
    with transactions.begin(Message("orders", b"%d pieces" % pieces, keys=[order])), database:
        database.execute("INSERT INTO orders VALUES (?, ?)", (order, pieces))


def die_between(path: Path) -> None:
    """Begin two transactions, write one of the two rows, and end without a word."""
    store, database = open_store(path / "store", CONFIG), open_database(path)
    for order, pieces in (("o-3", 3), ("o-4", 4)):
        store.service("transaction").begin(Message("orders", b"%d pieces" % pieces, keys=[order]))
        if order == "o-3":
            with database:
                database.execute("INSERT INTO orders VALUES (?, ?)", (order, pieces))
    os._exit(9)


def settle(path: Path) -> None:
    """Answer the store's questions from the database until none is left."""
    with open_store(path / "store", CONFIG) as store:
        database = open_database(path)

        def decide(asked: UndecidedTransaction) -> Decision:
            row = database.execute("SELECT 1 FROM orders WHERE id = ?", (asked.message.keys[0],)).fetchone()
            return Decision.ROLLBACK if row is None else Decision.COMMIT

        transactions = store.service("transaction")
        print("undecided:", len(transactions.undecided()))
        transactions.on_check(decide)
        end = time.monotonic() + 20
        while transactions.undecided() and time.monotonic() < end:
            time.sleep(0.05)
        rows = [order for (order,) in database.execute("SELECT id FROM orders ORDER BY id")]
        messages = sorted(message.keys[0] for message in store.get("orders", 0, 0).messages)
        print("rows:", rows)
        print("messages:", messages)


def main() -> None:
    """Take orders, refuse one, lose the process in the middle, settle."""
    if len(sys.argv) > 1:
        die_between(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        with open_store(path / "store", CONFIG) as store:
            database = open_database(path)
            take_order(store, database, "o-1", 1)
            try:
                take_order(store, database, "o-2", 0)
            except sqlite3.IntegrityError:
                print("refused: o-2")
        subprocess.run([sys.executable, __file__, folder], check=False)
        settle(path)


if __name__ == "__main__":
    main()
