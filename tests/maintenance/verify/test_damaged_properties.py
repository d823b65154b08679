"""Properties that changed on the disk: the record is blamed, and what was derived from it stays right."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.maintenance.repair.test_repair_places import files_of

from flintlog import Message, open_store
from flintlog.maintenance.repair.repair import plan_repair, repair
from flintlog.maintenance.verify.verify import verify
from flintlog.testing import SMALL_FILES


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store", SMALL_FILES) as opened:
        for number in range(20):
            opened.put(Message("orders", b"body", tags="express", keys=[f"key-{number}"])).check()
    return tmp_path / "store"


def change(store: Path, old: bytes, new: bytes) -> None:
    """Change one byte of the eighth message's properties."""
    path = store / "commitlog" / f"{0:020d}"
    data = path.read_bytes()
    at = data.index(b"key-7") if old in b"key-7" else data.rindex(old, 0, data.index(b"key-8"))
    place = data.index(old, at)
    path.write_bytes(data[:place] + new + data[place + len(old) :])


@pytest.mark.parametrize(("old", "new"), [(b"express", b"eypress"), (b"key-7", b"kmy-7")], ids=["tags", "keys"])
def test_the_record_is_named_and_nothing_is_rewritten(store: Path, old: bytes, new: bytes) -> None:
    change(store, old, new)
    (finding,) = verify(store).findings
    assert finding.id == "damaged-properties"
    assert finding.file is not None and finding.file.endswith(f"commitlog/{0:020d}")
    before = files_of(store)
    assert plan_repair(store).steps == ()
    repair(store)
    after = files_of(store)
    assert {name for name in before | after if before.get(name) != after.get(name)} <= {"lock"}


def test_queues_that_are_built_again_keep_the_right_tags(store: Path) -> None:
    queue = store / "consumequeue" / "orders" / "0" / f"{0:020d}"
    before = queue.read_bytes()
    change(store, b"express", b"eypress")
    (store / "checkpoint").unlink()
    repair(store)
    assert queue.read_bytes() == before
    assert [finding.id for finding in verify(store).findings] == ["damaged-properties"]


def test_a_wrong_bit_of_an_entry_is_blamed_on_the_entry(store: Path) -> None:
    queue = store / "consumequeue" / "orders" / "0" / f"{0:020d}"
    data = bytearray(queue.read_bytes())
    data[5 * 20 + 18] ^= 2
    queue.write_bytes(data)
    assert [finding.id for finding in verify(store).findings] == ["wrong-queue-entries"]
    repair(store)
    assert verify(store).findings == []


def test_a_stand_in_without_tags_is_not_taken_for_damaged_properties(store: Path) -> None:
    path = store / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    at = data.index(b"key-7")
    data[at - 150 : at + 20] = bytes(170)
    path.write_bytes(data)
    assert repair(store).left == []
    assert plan_repair(store).steps == ()
