"""A group of ours over DLedger's files: the same bytes on every node, through stops, crashes and an empty newcomer."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.replication.ledger_nodes import data_files, entries_of, leader_of, open_files, propose_all, running, until

from flintlog.replication.ledger.core.interface import HardState, Truncation
from flintlog.replication.ledger.core.messages import Entry, ResponseCode
from flintlog.replication.ledger.node.file_storage import RECENT_BYTES, FileStorage
from flintlog.testing.free_ports import ledger_addresses

pytestmark = pytest.mark.timeout(120)
IDS = ("n0", "n1", "n2")


def _bodies(count: int, seed: int = 0) -> list[bytes]:
    return [b"%d-%d " % (seed, number) + b"x" * (number * 37 % 900) for number in range(count)]


def _close(storages: dict[str, FileStorage]) -> None:
    for storage in storages.values():
        storage.close()


def test_all_nodes_have_the_same_files_through_restarts(tmp_path: Path) -> None:
    addresses = ledger_addresses(*IDS)
    proposed: list[bytes] = []

    async def life(seed: int) -> None:
        storages = {node_id: open_files(tmp_path, node_id) for node_id in IDS}
        async with running(*IDS, storages=storages, addresses=addresses) as nodes:
            leader = await leader_of(nodes)
            bodies = _bodies(300, seed)
            await propose_all(leader, bodies)
            proposed.extend(bodies)
            await until(lambda: all(node.committed == leader.committed for node in nodes.values()))
            terms = {node.term for node in nodes.values()}
        assert {storage.hard_state.term for storage in storages.values()} == terms
        _close(storages)

    for seed in range(3):
        asyncio.run(life(seed))
        files = [data_files(tmp_path, node_id) for node_id in IDS]
        assert files[0] == files[1] == files[2]
    storage = open_files(tmp_path, "n1")
    found = [entry.body for entry in entries_of(storage) if entry.body != b"leads"]
    storage.close()
    assert sorted(found) == sorted(proposed)
    assert len(files[0]) > 3


def test_a_node_that_lost_everything_is_filled_again(tmp_path: Path) -> None:
    addresses = ledger_addresses(*IDS)

    async def life(*node_ids: str) -> None:
        storages = {node_id: open_files(tmp_path, node_id) for node_id in node_ids}
        async with running(*node_ids, storages=storages, addresses=addresses) as nodes:
            leader = await leader_of(nodes)
            await propose_all(leader, _bodies(200))
            await until(lambda: all(node.committed == leader.committed for node in nodes.values()))
        _close(storages)

    asyncio.run(life(*IDS))
    shutil.rmtree(tmp_path / "dledger-n2")
    asyncio.run(life("n0", "n1"))
    asyncio.run(life(*IDS))
    files = [data_files(tmp_path, node_id) for node_id in IDS]
    assert files[0] == files[1] == files[2]


def test_a_node_with_other_file_sizes_takes_nothing_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        storages = {node_id: open_files(tmp_path, node_id) for node_id in IDS[:2]}
        storages["n2"] = open_files(tmp_path, "n2", data_file_bytes=4096)
        async with running(*IDS, storages=storages) as nodes:
            leader = await leader_of(nodes)
            while leader.config.self_id == "n2":
                await leader.transfer_leadership("n0")
                leader = await leader_of(nodes)
            answers = await propose_all(leader, [b"x" * 400] * 40)
            assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
            await until(lambda: storages["n1"].log.end == leader.committed)
            await asyncio.sleep(0.3)
            assert storages["n2"].log.end_position <= 4096  # its first file, where the places are still the same
            reported = [record.message for record in caplog.records if "has another position here" in record.message]
            assert len(reported) == 1
        _close(storages)

    asyncio.run(scenario())


def test_entries_are_the_same_from_memory_and_from_the_files(tmp_path: Path) -> None:
    storage = open_files(tmp_path, "n0", data_file_bytes=4 << 20)
    written: list[Entry] = []
    position = 0
    for index in range(40):
        body = bytes([index]) * (RECENT_BYTES // 20)
        position = storage.log.place(position, 48 + len(body))
        written.append(Entry(index, index // 7, position, body))
        position += 48 + len(body)
        storage.write(written[-1:])
    assert entries_of(storage) == written
    storage.truncate(Truncation(30))
    assert entries_of(storage) == written[:31]
    other = Entry(31, 9, written[31].position, b"another")
    storage.write([other])
    assert storage.log.entry(31) == other
    storage.save_hard_state(HardState(9, "n1"))
    storage.close()
    again = open_files(tmp_path, "n0", data_file_bytes=4 << 20)
    assert entries_of(again) == [*written[:31], other]
    assert again.hard_state == HardState(9, "n1")
    again.truncate(Truncation(99, 8 << 20))
    again.write([Entry(100, 9, 8 << 20, b"anew")])
    assert (again.log.begin, again.log.end, again.log.entry(100).body) == (100, 100, b"anew")
    again.close()
