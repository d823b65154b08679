"""A member that was away while its group's retention deleted what it needs next: it is emptied, and filled again."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.replication.ledger_group import Group, config_of, until
from tests.replication.ledger_memory import MemoryLog

from flintlog import Message, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import DiskError, StoreClosed
from flintlog.replication.ledger.core.core import LedgerCore
from flintlog.replication.ledger.core.interface import HardState, LedgerConfig, Received, Role, Tick
from flintlog.replication.ledger.core.messages import (
    OURS,
    Entry,
    HeartbeatRequest,
    PushRequest,
    PushType,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from flintlog.replication.ledger.store_node import LedgerStoreNode
from flintlog.store.ledger.ledger_emptying import empty_member
from flintlog.store.paths import StorePaths

pytestmark = pytest.mark.timeout(180)
PEERS = {"n0": "h0:1", "n1": "h1:1", "n2": "h2:1"}
HOURS_100_S = 100 * 3600


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Group]:
    group = Group(tmp_path, "n0", "n1", "n2", file_reserved_time=72)
    try:
        yield group
    finally:
        group.stop_all()


def _fill(group: Group, name: str, count: int = 400) -> None:
    for number in range(count):
        group.put(Message("orders", f"{name} {number} ".encode() + b"x" * 300, keys=["k"]))


def _let_expire(group: Group) -> None:
    """Let everything that is there now be old, and go, but for the last file."""
    group.settle()
    for node in group.nodes.values():
        begin = node.node.status().begin
        data = node.store.path / f"dledger-{node.node.config.self_id}" / "data"
        for file in data.iterdir():
            reported = file.stat()
            os.utime(file, (reported.st_atime - HOURS_100_S, reported.st_mtime - HOURS_100_S))
        node.store.cleaning.delete_expired_files()
        until(lambda node=node, begin=begin: node.node.status().begin > begin + 100, "old files go")  # type: ignore[misc]


def _served(node: LedgerStoreNode) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset, end = node.store.min_offset("orders", 0), node.store.max_offset("orders", 0)
    while offset < end and (page := node.store.get("orders", 0, offset, 32).messages):
        found.update((message.queue_offset, message.body) for message in page)
        offset += len(page)
    return found


def _end_of(node: LedgerStoreNode) -> int:
    try:
        return node.store.max_offset("orders", 0)
    except StoreClosed:
        return -1  # it is being opened again just now


def test_it_is_emptied_filled_again_and_leads(three: Group, caplog: pytest.LogCaptureFixture) -> None:
    three.start()
    _fill(three, "all are there", 60)
    three.settle()
    gone = three.name_of(next(node for node in three.nodes.values() if not node.is_serving))
    three.stop(gone)
    _fill(three, "one is away")
    _let_expire(three)
    _fill(three, "after that", 60)
    with caplog.at_level(logging.WARNING):
        three.start(gone)
        until(lambda: "emptied" in caplog.text, "it notices")
    back = three.nodes[gone]
    until(lambda: _end_of(back) == 520, "it is filled")
    assert back.node.status().halted is None
    three.settle()
    other = next(node for node in three.nodes.values() if node is not back)
    assert back.node.status().begin >= other.node.status().begin > 100
    until(lambda: len(_served(back)) > 60, "its queue begins where the group's log does")
    theirs = _served(other)
    assert _served(back) == {offset: body for offset, body in theirs.items() if offset in _served(back)}
    assert max(theirs) == max(_served(back)) == 519
    until(lambda: three.leader is back or three.leader.hand_over(gone), "it leads")
    _fill(three, "led by it", 20)
    three.stop_all()
    three.start()
    assert three.leader.store.max_offset("orders", 0) == 540
    for node in three.nodes.values():
        assert node.node.status().halted is None


def test_a_crash_while_it_is_emptied_is_made_up_for_by_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Group(tmp_path, "n0")
    one.start()
    for number in range(300):
        one.put(Message("orders", b"%d " % number + b"x" * 300))
    one.stop_all()
    is_over, steps = False, 0
    while not is_over:
        root, config = tmp_path / f"copy-{steps}", config_of(one.addresses, "n0")
        shutil.copytree(one.root / "n0", root)
        is_over = _empty_up_to(steps, StorePaths.of(root, config), monkeypatch)
        with open_store(root, config) as store:
            assert store.max_offset("orders", 0) == (0 if steps else 300)  # before the mark nothing has happened
        assert (root / "dledger-n0/currterm").exists()
        assert not (root / "dledger-n0/emptying").exists()
        shutil.rmtree(root)
        steps += 1
    assert steps > 10


def _empty_up_to(steps: int, paths: StorePaths, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let the disk refuse after so many changes; whether it had to."""
    left = steps

    def counted(name: str) -> None:
        real = getattr(LocalMedium, name)

        def change(self: LocalMedium, path: Path, *more: object) -> object:
            nonlocal left
            if left == 0:
                raise DiskError("no more", path=path)
            left -= 1
            return real(self, path, *more)

        patch.setattr(LocalMedium, name, change)

    with monkeypatch.context() as patch:
        for name in ("replace", "remove", "remove_tree"):
            counted(name)
        try:
            empty_member(paths, LocalMedium())
        except DiskError:
            return False
    return True


# ------------------------------------------------------------------ votes


def _emptied(promised: tuple[int, int]) -> LedgerCore:
    return LedgerCore(LedgerConfig("n0", PEERS), MemoryLog(), HardState(5, None, promised), random=Random(1))


def _asked(core: LedgerCore, end_term: int, end: int) -> VoteResult:
    output = core.step(Received("n1", 1, VoteRequest(core.term, "n1", end, end_term, OURS)), 0)
    response = output.answers[0].response
    assert isinstance(response, VoteResponse)
    return response.vote_result


def test_what_was_emptied_does_not_come_back_with_a_power_loss(tmp_path: Path) -> None:
    """Names that a power loss brings back are removed again only while the mark is there."""
    medium = FaultyMedium()
    paths = StorePaths(tmp_path, (tmp_path / "commitlog",), ()).with_ledger("n0")
    assert paths.ledger is not None
    gone = [*(directory / f"{0:020d}" for directory in (*paths.commit_logs, paths.ledger / "index")), paths.checkpoint]
    for path in gone:
        medium.make_directories(path.parent)
        medium.replace(path, b"before")
    empty_member(paths, medium)
    for seed in range(20):
        after = medium.crash(seed)
        assert not after.exists(paths.ledger / "emptying")
        assert [path for path in gone if after.exists(path)] == []


@pytest.mark.parametrize(
    ("end_term", "end", "expected"),
    [
        (2, 700, VoteResult.REJECT_EXPIRED_LEDGER_TERM),
        (3, 599, VoteResult.REJECT_SMALL_LEDGER_END_INDEX),
        (3, 600, VoteResult.ACCEPT),
        (4, 10, VoteResult.ACCEPT),
    ],
)
def test_an_emptied_member_votes_as_if_it_had_its_log(end_term: int, end: int, expected: VoteResult) -> None:
    assert _asked(_emptied((3, 600)), end_term, end) is expected


def test_an_emptied_member_does_not_stand_before_it_has_more_than_it_had() -> None:
    core = _emptied((3, 600))
    calls = [call for now_ms in range(0, 30_000, 10) for call in core.step(Tick(), now_ms).calls]
    assert (calls, core.role) == ([], Role.CANDIDATE)
    log = MemoryLog(entries=[Entry(700, 3, 0, b"")])
    filled = LedgerCore(LedgerConfig("n0", PEERS), log, HardState(5, None, (3, 600)), random=Random(1))
    assert [call for now_ms in range(0, 3_000, 10) for call in filled.step(Tick(), now_ms).calls]


def test_what_a_log_held_that_is_given_up_is_part_of_the_output() -> None:
    log = MemoryLog(entries=[Entry(index, 1, index * 48, b"") for index in range(3)])
    core = LedgerCore(LedgerConfig("n0", PEERS), log, HardState(5), 2, random=Random(1))
    core.step(Received("n1", 1, HeartbeatRequest(5, "n1", OURS)), 0)
    begin = Entry(900, 4, 65536, b"the leader's first")
    output = core.step(Received("n1", 2, PushRequest(PushType.TRUNCATE, 5, "n1", (begin,), 2, OURS)), 0)
    assert output.truncation is not None and output.truncation.restart_position == 65536
    assert output.hard_state is not None and output.hard_state.promised == (1, 2)
