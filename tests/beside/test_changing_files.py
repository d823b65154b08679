"""Verification while a store changes what it consists of: files that expire, a writer that begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.disk.media.medium import Medium
from flintlog.format.index_file import HEADER_SIZE
from flintlog.maintenance.inspect.store_files import StoreFiles, look_at
from flintlog.maintenance.verify import verify as module
from flintlog.maintenance.verify.verify import verify

SMALL = StoreConfig(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000, max_hash_slot_num=100, max_index_num=400
)


def put(store: Store, count: int) -> None:
    for number in range(count):
        store.put(Message("orders", bytes(900), properties={"KEYS": f"k{number}"})).check()


class Looks:
    """Looks at a directory, and does something after some of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int, act: Callable[[], None]) -> None:
        self.count = 0
        self.after = after
        self.act = act
        monkeypatch.setattr(module, "look_at", self)

    def __call__(
        self, root: Path, config: StoreConfig | None, medium: Medium | None, *, every_name: bool
    ) -> StoreFiles:
        files = look_at(root, config, medium, every_name=every_name)
        self.count += 1
        if self.count == self.after:
            self.act()
        return files


def test_files_that_expire_while_they_are_verified_are_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def expire() -> None:
        for base in (0, 65536):
            (tmp_path / "commitlog" / f"{base:020d}").unlink()
        (tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}").unlink()

    looks = Looks(monkeypatch, after=2, act=expire)
    with open_store(tmp_path, SMALL) as store:
        put(store, 400)
        assert verify(tmp_path, SMALL).findings == []
    assert looks.count == 4


def test_a_verification_begins_again_if_a_writer_begins_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path, SMALL) as store:
        put(store, 10)
    opened: list[Store] = []

    def begin() -> None:
        opened.append(open_store(tmp_path, SMALL))
        put(opened[0], 100)

    looks = Looks(monkeypatch, after=1, act=begin)
    try:
        answer = verify(tmp_path, SMALL)
        assert answer.findings == []
        assert answer.record_count == 110
    finally:
        opened[0].shutdown()
    assert looks.count == 3


def test_an_index_file_between_two_steps_of_a_put_is_no_missing_index(tmp_path: Path) -> None:
    """Its layout does not follow from its bytes then: the header already names an entry that is not there yet."""
    with open_store(tmp_path, SMALL.with_changes(max_hash_slot_num=64)) as store:
        put(store, 30)
        file = next((tmp_path / "index").iterdir())
        header = file.read_bytes()[:HEADER_SIZE]
        ahead = bytearray(header)
        ahead[-1] += 1  # the count of entries
        with file.open("r+b") as index:
            index.write(ahead)
        answer = verify(tmp_path)
        with file.open("r+b") as index:
            index.write(header)
        assert answer.findings == []
        assert answer.key_count == 30
