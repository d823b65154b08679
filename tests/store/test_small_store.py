"""A small store takes little of the disk, though its files have the lengths that RocketMQ expects."""

from __future__ import annotations

import subprocess
from pathlib import Path

from flintlog import Message, open_store

MB = 1_000_000


def used_bytes(folder: Path) -> int:
    """As `du` reports it."""
    done = subprocess.run(["du", "--summarize", "--block-size=1", folder], check=True, capture_output=True, text=True)
    return int(done.stdout.split()[0])


def test_a_store_without_keys_takes_kilobytes(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.put(Message("orders", b"42 pieces"))
        store.flush()
    assert used_bytes(tmp_path / "store") <= 200_000


def test_one_message_and_a_thousand_queues_take_a_few_megabytes(tmp_path: Path) -> None:
    root = tmp_path / "orders-store"
    with open_store(root) as store:
        store.put(Message("orders", b"42 pieces", keys=["o-17"]))
        store.flush()
        hello = used_bytes(root)
        for number in range(1000):
            store.put(Message("many", b"one each", queue_id=number))
        store.flush()
        assert used_bytes(root) - hello <= 32 * MB
    assert hello <= 24 * MB
    assert used_bytes(root) - hello <= 32 * MB
    (log,) = (root / "commitlog").iterdir()
    assert log.stat().st_size == 1 << 30
    with open_store(root) as store:
        assert store.get("orders", 0, 0).messages[0].body == b"42 pieces"
        assert store.get("many", 999, 0).messages[0].body == b"one each"
