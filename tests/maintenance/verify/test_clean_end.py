"""A store that was stopped cleanly and damaged since, at the very end of its log: damage, and not a torn tail."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.golden_cases import config_of, lines

from flintlog import DamagedRecord, Message, StoreConfig, open_store
from flintlog.checks.finding import ERROR
from flintlog.maintenance.repair.repair import plan_repair, repair
from flintlog.maintenance.verify.verify import verify

Golden = Callable[[str], Path]

CONFIG = StoreConfig(
    mapped_file_size_commit_log=8192, mapped_file_size_consume_queue=2000, max_hash_slot_num=40, max_index_num=400
)
BODY = 88 + 40
"""A place in the body of a record whose head has 88 bytes."""
DAMAGES = {"body": (BODY, b"\xff\x55"), "head": (4, b"\xff\x55\xaa\x00"), "begin": (0, bytes(60))}


class Ended:
    """A store of ten messages in one queue, stopped cleanly; `last` is where its last message lies."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with open_store(root, CONFIG) as store:
            receipts = [store.put(Message("orders", b"m%d" % n * 60, keys=[f"k{n}"])).check() for n in range(10)]
            self.end = store.max_physical_offset
        self.last = receipts[-1].physical_offset
        self.size = self.end - self.last
        self.log = root / "commitlog" / ("0" * 20)

    def damage(self, place: int, content: bytes) -> None:
        with self.log.open("r+b") as file:
            file.seek(self.last + place)
            file.write(content)


@pytest.fixture(params=["ours", "as a broker leaves it"])
def ended(request: pytest.FixtureRequest, tmp_path: Path) -> Ended:
    store = Ended(tmp_path / "store")
    if request.param != "ours":
        shutil.rmtree(store.root / "flintlog")
    return store


@pytest.mark.parametrize("where", DAMAGES)
def test_the_last_message_is_damaged_and_not_torn(where: str, ended: Ended) -> None:
    ended.damage(*DAMAGES[where])
    (found,) = verify(ended.root).findings
    kind = "damaged-record" if where == "body" else "damaged-range"
    assert (found.id, found.severity) == (kind, ERROR)
    assert (found.physical_offset, found.offset, found.size) == (ended.last, ended.last, ended.size)
    assert "the last stop was clean" in found.evidence
    assert verify(ended.root, mode="quick").findings == [found]


@pytest.mark.parametrize("where", DAMAGES)
def test_after_an_unclean_stop_the_same_is_a_torn_tail(where: str, ended: Ended) -> None:
    ended.damage(*DAMAGES[where])
    (ended.root / "abort").write_text("1")
    assert [finding.id for finding in verify(ended.root).findings] == ["torn-tail"]


@pytest.mark.parametrize("where", DAMAGES)
def test_a_repair_keeps_the_place_of_the_last_message(where: str, ended: Ended) -> None:
    ended.damage(*DAMAGES[where])
    plan = plan_repair(ended.root)
    assert [step.action for step in plan.steps] == ["stand-in" if where == "body" else "fill", "settle"]
    (lost,) = plan.lost
    assert (lost.physical_offset, lost.size, lost.topic) == (ended.last, ended.size, "orders")
    assert (lost.queue_id, lost.queue_offset) == (0, 9)
    assert repair(ended.root).left == []
    assert verify(ended.root).findings == []
    with open_store(ended.root, CONFIG) as store:
        assert store.max_offset("orders", 0) == 10
        assert store.put(Message("orders", b"next")).check().queue_offset == 10
        assert store.get("orders", 0, 9, 1).messages[0].properties["FLINTLOG_LOST"] == "body"


@pytest.mark.parametrize("where", DAMAGES)
def test_an_opening_keeps_the_place_of_the_last_message(where: str, ended: Ended) -> None:
    ended.damage(*DAMAGES[where])
    with open_store(ended.root, CONFIG) as store:
        (found,) = store.recovery.findings
        assert found.id == ("damaged-record" if where == "body" else "damaged-range")
        assert (found.physical_offset, found.size) == (ended.last, ended.size)
        assert store.recovery.log_end == ended.end
        assert store.max_offset("orders", 0) == 10
        with pytest.raises(DamagedRecord):
            store.get("orders", 0, 9, 1)
        receipt = store.put(Message("orders", b"next")).check()
        assert (receipt.queue_offset, receipt.physical_offset) == (10, ended.end)
        assert store.get("orders", 0, 10, 1).messages[0].body == b"next"
        assert len(store.get("orders", 0, 0, 9).messages) == 9
    assert [finding.id for finding in verify(ended.root).findings] == [found.id]


def test_a_torn_message_amid_lost_ones_is_damage_up_to_the_end(tmp_path: Path) -> None:
    ended = Ended(tmp_path / "store")
    start = ended.last - 2 * ended.size
    with ended.log.open("r+b") as file:
        file.seek(start + 50)
        file.write(bytes(ended.end - start - 50))
    (found,) = verify(ended.root).findings
    assert (found.id, found.physical_offset, found.size) == ("damaged-range", start, 3 * ended.size)
    plan = plan_repair(ended.root)
    assert [(lost.queue_offset, lost.physical_offset) for lost in plan.lost] == [
        (7, start),
        (8, start + ended.size),
        (9, ended.last),
    ]
    assert repair(ended.root).left == []
    assert verify(ended.root).findings == []
    with open_store(ended.root, CONFIG) as store:
        assert store.max_offset("orders", 0) == 10


def test_bytes_after_the_end_of_a_clean_stop_are_no_message(ended: Ended) -> None:
    ended.damage(ended.size + 8, b"stray bytes")
    assert [finding.id for finding in verify(ended.root).findings] == ["torn-tail"]
    with open_store(ended.root, CONFIG) as store:
        assert store.max_physical_offset == ended.end


def test_a_golden_store_of_javas_too(golden: Golden, tmp_path: Path) -> None:
    shutil.copytree(golden("plain") / "store", tmp_path / "store")
    last = lines(golden("plain") / "manifest.jsonl")[-1]
    at, size = last["physicalOffset"], last["size"]
    path = tmp_path / "store" / "commitlog" / f"{at // 1048576 * 1048576:020d}"
    for place, kind in ((4, "damaged-range"), (BODY, "damaged-record")):
        shutil.copy(golden("plain") / "store" / "commitlog" / path.name, path)
        with path.open("r+b") as file:
            file.seek(at % 1048576 + place)
            was = file.read(1)
            file.seek(at % 1048576 + place)
            file.write(bytes([was[0] ^ 0x80]))
        found = verify(tmp_path / "store").findings
        assert [(each.id, each.physical_offset, each.size) for each in found] == [(kind, at, size)], place
    assert repair(tmp_path / "store").left == []
    assert verify(tmp_path / "store").findings == []
    with open_store(tmp_path / "store", config_of(golden("plain")), read_only=True) as store:
        assert store.max_physical_offset == at + size
