"""A group of ours on real sockets: elections, proposals, syncs before answers, lines that break, disks that break."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future

import pytest
from tests.replication.ledger_nodes import (
    GROUP,
    SlowDisk,
    entries_of,
    fast_config,
    leader_of,
    patient,
    propose_all,
    running,
    until,
)
from tests.replication.tcp_link import TcpLink

from flintlog.errors import FlintlogError
from flintlog.replication.ledger.core.interface import HardState, Output, Role, RoleChange, Truncation
from flintlog.replication.ledger.core.messages import AppendResponse, ResponseCode
from flintlog.replication.ledger.node.node import LedgerListeners, LedgerNode
from flintlog.testing.free_ports import ledger_addresses

pytestmark = pytest.mark.timeout(120)
IDS = ("n0", "n1", "n2")


class Reported(LedgerListeners):
    def __init__(self) -> None:
        self.roles: list[Role] = []
        self.committed: list[int] = []
        self.halted: list[FlintlogError] = []

    def on_role(self, change: RoleChange) -> None:
        self.roles.append(change.role)

    def on_committed(self, index: int) -> None:
        self.committed.append(index)

    def on_halted(self, error: FlintlogError) -> None:
        self.halted.append(error)


def test_proposed_entries_are_on_every_node_in_one_order() -> None:
    async def scenario() -> None:
        disks = {node_id: SlowDisk() for node_id in IDS}
        reported = {node_id: Reported() for node_id in IDS}
        async with running(*IDS, storages=disks, listeners=reported) as nodes:
            leader = await leader_of(nodes)
            bodies = [b"body %d" % number for number in range(500)]
            answers = await propose_all(leader, bodies)
            await until(lambda: all(node.committed == leader.committed for node in nodes.values()))
            logs = [entries_of(disk) for disk in disks.values()]
            assert logs[0] == logs[1] == logs[2]
            assert sorted(entry.body for entry in logs[0] if entry.body != b"leads") == sorted(bodies)
            by_index = {entry.index: entry for entry in logs[0]}
            for answer, body in zip(answers, bodies, strict=True):
                entry = by_index[answer.index]
                assert (entry.body, entry.position, answer.positions) == (body, answer.position, (entry.position,))
            for each in reported.values():
                assert each.committed == sorted(each.committed)
                assert each.committed[-1] == leader.committed
            assert reported[leader.config.self_id].roles[-1] is Role.LEADER

    asyncio.run(scenario())


def test_a_follower_refuses_proposals_and_names_the_leader() -> None:
    async def scenario() -> None:
        async with running(*IDS) as nodes:
            leader = await leader_of(nodes)
            follower = next(node for node in nodes.values() if node is not leader)
            answer = await follower.propose(b"not here")
            assert (answer.code, answer.leader_id) == (ResponseCode.NOT_LEADER, leader.config.self_id)

    asyncio.run(scenario())


def test_nothing_is_acknowledged_before_a_majority_has_synced() -> None:
    async def scenario() -> None:
        disks = {node_id: SlowDisk() for node_id in IDS}
        async with running(*IDS, storages=disks, configure=patient) as nodes:
            leader = await leader_of(nodes)
            await leader.propose(b"warm")
            for disk in disks.values():
                disk.gate.clear()
            proposal = asyncio.create_task(leader.propose(b"waits"))
            await until(lambda: all(disk.log.end == leader.committed + 1 for disk in disks.values()))
            await asyncio.sleep(0.5)
            assert not proposal.done()
            others = [disk for node_id, disk in disks.items() if node_id != leader.config.self_id]
            others[0].gate.set()
            await asyncio.sleep(0.3)
            assert not proposal.done()  # one of three, and the leader's own does not count
            others[1].gate.set()
            answer = await proposal
            assert answer.code == ResponseCode.SUCCESS
            disks[leader.config.self_id].gate.set()

    asyncio.run(scenario())


async def _let_pass(nodes: Mapping[str, LedgerNode], time_ms: int, step_ms: int = 100) -> None:
    """Move the nodes' clocks on by hand: a machine that is busy makes this slow, and never a heartbeat late."""
    loop = asyncio.get_running_loop()
    now_ms = int(loop.time() * 1000)
    for node in nodes.values():
        node._now_ms = lambda: now_ms  # type: ignore[method-assign]
    for _ in range(time_ms // step_ms):
        now_ms += step_ms
        await asyncio.sleep(0.015)  # a tick, and what it sends


def test_a_disk_that_stands_still_costs_no_leader_its_place() -> None:
    async def scenario() -> None:
        disks = {node_id: SlowDisk() for node_id in IDS}
        async with running(*IDS, storages=disks, configure=patient) as nodes:
            leader = await leader_of(nodes)
            before = (await leader.propose(b"warm")).term
            for disk in disks.values():
                disk.gate.clear()
            proposal = asyncio.create_task(leader.propose(b"waits"))
            # Longer than a leader may be silent, and shorter than a proposal waits.
            await _let_pass(nodes, leader.config.patience_ms * 3 // 2)
            assert (leader.role, leader.term, proposal.done()) == (Role.LEADER, before, False)
            for disk in disks.values():
                disk.gate.set()
            assert (await proposal).code == ResponseCode.SUCCESS

    asyncio.run(scenario())


def test_many_entries_share_one_sync() -> None:
    async def scenario() -> None:
        disks = {node_id: SlowDisk() for node_id in IDS}
        async with running(*IDS, storages=disks, configure=patient) as nodes:
            leader = await leader_of(nodes)
            disk = disks[leader.config.self_id]
            before = disk.sync_count
            await propose_all(leader, [b"x"] * 2_000, producers=500)
            assert disk.sync_count - before < 500

    asyncio.run(scenario())


def test_threads_propose_too() -> None:
    async def scenario() -> None:
        async with running(*IDS, configure=patient) as nodes:
            leader = await leader_of(nodes)
            found: list[list[int]] = []

            def produce() -> None:
                waiting: list[Future[AppendResponse]] = [leader.propose_from_thread(b"x", b"y") for _ in range(200)]
                found.append([each.result(30).index for each in waiting])

            threads = [threading.Thread(target=produce) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
            assert all(indexes == sorted(indexes) for indexes in found)
            assert len({index for indexes in found for index in indexes}) == 800

    asyncio.run(scenario())


def test_the_leadership_is_handed_over() -> None:
    async def scenario() -> None:
        async with running(*IDS) as nodes:
            leader = await leader_of(nodes)
            await propose_all(leader, [b"x"] * 50)
            successor = next(node for node in nodes.values() if node is not leader)
            code = await leader.transfer_leadership(successor.config.self_id)
            assert (code, successor.role) == (ResponseCode.SUCCESS, Role.LEADER)
            assert (await successor.propose(b"y")).code == ResponseCode.SUCCESS

    asyncio.run(scenario())


def test_a_leader_that_stops_is_replaced_within_two_seconds() -> None:
    async def scenario() -> None:
        async with running(*IDS) as nodes:
            leader = await leader_of(nodes)
            kept = (await leader.propose(b"kept")).index
            await leader.stop()
            rest = {node_id: node for node_id, node in nodes.items() if node is not leader}
            loop = asyncio.get_running_loop()
            stopped_at = loop.time()
            successor = await leader_of(rest)
            assert loop.time() - stopped_at < 10  # two, on a machine that is not busy: the bound is in the slow set
            assert (await successor.propose(b"goes on")).index > kept

    asyncio.run(scenario())


def test_a_leader_that_is_cut_off_steps_down_and_takes_the_others_log() -> None:
    async def scenario() -> None:
        real = ledger_addresses(*IDS)
        links = {(a, b): TcpLink(real[b]) for a in IDS for b in IDS if a != b}
        disks = {node_id: SlowDisk() for node_id in IDS}

        def through_links(node_id: str) -> dict[str, str]:
            return {each: real[each] if each == node_id else links[node_id, each].address for each in IDS}

        nodes: dict[str, LedgerNode] = {}
        try:
            for node_id in IDS:
                nodes[node_id] = LedgerNode(GROUP, fast_config(node_id, through_links(node_id)), disks[node_id])
                await nodes[node_id].start()
            old = await leader_of(nodes)
            await propose_all(old, [b"common"] * 20)
            mine = old.config.self_id
            for (one, other), link in links.items():
                if mine in (one, other):
                    await asyncio.to_thread(link.cut)
            lost = asyncio.create_task(old.propose(b"lost"))
            rest = {node_id: node for node_id, node in nodes.items() if node is not old}
            new = await leader_of(rest)
            await propose_all(new, [b"agreed"] * 20)
            await until(lambda: old.role is not Role.LEADER)
            for link in links.values():
                await asyncio.to_thread(link.mend)
            await until(lambda: entries_of(disks[mine]) == entries_of(disks[new.config.self_id]))
            assert b"lost" not in {entry.body for entry in entries_of(disks[mine])}
            assert (await lost).code == ResponseCode.TERM_CHANGED
        finally:
            for node in nodes.values():
                await node.stop()
            for link in links.values():
                link.close()

    asyncio.run(scenario())


def test_a_node_whose_disk_breaks_halts_and_the_others_go_on() -> None:
    async def scenario() -> None:
        disks = {node_id: SlowDisk() for node_id in IDS}
        reported = {node_id: Reported() for node_id in IDS}
        async with running(*IDS, storages=disks, listeners=reported) as nodes:
            leader = await leader_of(nodes)
            mine = leader.config.self_id
            disks[mine].breaks = True
            answer = await leader.propose(b"on a broken disk")
            # The others may have made it a majority before the leader's own sync failed.
            assert answer.code in (ResponseCode.DISK_ERROR, ResponseCode.SUCCESS)
            await until(lambda: leader.halted is not None)
            assert [str(error) for error in reported[mine].halted] == [str(leader.halted)]
            assert "broken" in str(leader.halted)
            rest = {node_id: node for node_id, node in nodes.items() if node is not leader}
            assert (await (await leader_of(rest)).propose(b"goes on")).code == ResponseCode.SUCCESS
            assert (await leader.propose(b"refused")).code == ResponseCode.ILLEGAL_MEMBER_STATE

    asyncio.run(scenario())


def test_the_log_is_not_cut_while_it_is_synced() -> None:
    async def scenario() -> None:
        disk = SlowDisk(sync_s=0.2)
        async with running("n0", storages={"n0": disk}) as nodes:
            node = nodes["n0"]
            await leader_of(nodes)
            waiting = asyncio.create_task(node.propose(b"in a sync"))
            await until(lambda: disk._is_syncing)
            node._carry_out(Output(generation=1, truncation=Truncation(disk.log.end)))
            assert (disk.cut_count, disk.was_cut_during_a_sync) == (1, False)
            assert (await waiting).code == ResponseCode.SUCCESS

    asyncio.run(scenario())


def test_a_vote_that_cannot_be_written_down_is_not_given() -> None:
    class NoVotes(SlowDisk):
        def save_hard_state(self, state: HardState) -> None:
            raise OSError(28, "no space left")

    async def scenario() -> None:
        addresses = ledger_addresses(*IDS)
        heard: list[bytes] = []

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await reader.read(100))
            writer.close()

        host, _, port = addresses["n1"].rpartition(":")
        async with await asyncio.start_server(listen, host, int(port)):
            async with running("n0", storages={"n0": NoVotes()}, addresses=addresses) as nodes:
                await until(lambda: nodes["n0"].halted is not None)
                await asyncio.sleep(0.2)
                assert "no space left" in str(nodes["n0"].halted)
            assert b"".join(heard) == b""  # nobody was asked for a vote in a term that a restart would forget

    asyncio.run(scenario())


def test_too_many_bytes_at_once_are_refused() -> None:
    async def scenario() -> None:
        async with running(*IDS, configure=patient) as nodes:
            leader = await leader_of(nodes)
            large = bytes(1 << 20)
            answers = await asyncio.gather(*(leader.propose(large) for _ in range(80)))
            codes = {answer.code for answer in answers}
            assert ResponseCode.LEADER_PENDING_FULL in codes
            assert (await leader.propose(b"small")).code == ResponseCode.SUCCESS

    asyncio.run(scenario())
