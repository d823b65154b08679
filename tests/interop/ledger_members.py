"""A DLedger group of whole stores on one machine: some are real RocketMQ brokers, the others ours.

Messages go through the leader, by its own public put. What was acknowledged is remembered with its place, and must
be there, in every member's queues, at the end.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from py4j.protocol import Py4JError

from flintlog import Message, PutStatus, StoreConfig
from flintlog.format.ledger import INDEX_RECORD_SIZE, parse_index_record
from flintlog.replication.ledger.store_node import LedgerStoreNode
from flintlog.testing.free_ports import ledger_addresses
from interop.java_member import JavaMember, member_options

IDS = ("n0", "n1", "n2")
GROUP = "orders"
TOPIC = "orders"
QUEUES = 4
HEARTBEAT_MS = 1_000
PATIENCE_S = 90.0
OPTIONS = {
    "mappedFileSizeCommitLog": str(128 * 1024),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}

Place = tuple[int, int]
"""A queue, and an offset in it."""


@dataclass(frozen=True, slots=True)
class Reported:
    """What a put was answered: its place if it was acknowledged."""

    status: str
    place: Place
    physical_offset: int


@dataclass(frozen=True, slots=True)
class Ends:
    """A member's ledger, and what of it is not in the queues yet."""

    leader_id: str | None
    end: int
    committed: int
    backlog_bytes: int


class Member(Protocol):
    """A store in a group, Java's or ours."""

    def is_serving(self) -> bool: ...
    def put(self, messages: Sequence[Message]) -> list[Reported]: ...
    def read(self, queue_id: int) -> list[tuple[int, bytes]]: ...
    def ends(self) -> Ends: ...
    def hand_over(self, successor: str) -> bool: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


class OurMember:
    """A store of ours in this process."""

    def __init__(
        self,
        directory: Path,
        member_id: str,
        addresses: Mapping[str, str],
        brokers: Mapping[str, str] | None = None,
        services: Sequence[str] = (),
    ) -> None:
        options = StoreConfig.from_rocketmq({**OPTIONS, **member_options(GROUP, member_id, addresses)})
        config = options.with_changes(services=frozenset(services), flush_delay_offset_interval=500)
        port = None if brokers is None else 0
        self.node = LedgerStoreNode(
            directory, config, heartbeat_interval_ms=HEARTBEAT_MS, port=port, brokers=brokers, poll_s=0.5
        )
        self.node.start()

    def is_serving(self) -> bool:
        return self.node.is_serving

    def put(self, messages: Sequence[Message]) -> list[Reported]:
        receipts = [
            put.result(60.0) for put in [self.node.store.put_async(message, check=False) for message in messages]
        ]
        return [
            Reported(receipt.status.name, (message.queue_id, receipt.queue_offset), receipt.physical_offset)
            for message, receipt in zip(messages, receipts, strict=True)
        ]

    def read(self, queue_id: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        while page := self.node.store.get(TOPIC, queue_id, len(found), 64).messages:
            found += [(message.queue_offset, message.body) for message in page]
        return found

    def ends(self) -> Ends:
        status = self.node.node.status()
        assert status.halted is None
        backlog = int(self.node.store.stats()["dispatchBehindBytes"])
        return Ends(status.leader_id, status.end, status.committed, backlog)

    def hand_over(self, successor: str) -> bool:
        return self.node.hand_over(successor)

    def stop(self) -> None:
        self.node.stop()

    kill = stop


class KillableMember:
    """A store of ours in a process of its own, which can be killed."""

    def __init__(self, directory: Path, member_id: str, addresses: Mapping[str, str]) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._line, other = spawning.Pipe()
        self._process = spawning.Process(
            target=_serve, args=(other, directory, member_id, dict(addresses)), daemon=True
        )
        self._process.start()
        other.close()
        self._line.recv()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def _ask(self, what: str, *arguments: object) -> object:
        self._line.send((what, arguments))
        return self._line.recv()

    def is_serving(self) -> bool:
        return bool(self._ask("is_serving"))

    def put(self, messages: Sequence[Message]) -> list[Reported]:
        return self._ask("put", messages)  # type: ignore[return-value]

    def read(self, queue_id: int) -> list[tuple[int, bytes]]:
        return self._ask("read", queue_id)  # type: ignore[return-value]

    def ends(self) -> Ends:
        return self._ask("ends")  # type: ignore[return-value]

    def hand_over(self, successor: str) -> bool:
        return bool(self._ask("hand_over", successor))

    def stop(self) -> None:
        self._ask("stop")
        self._end()

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.join()
        self._line.close()


def _serve(line: Connection, directory: Path, member_id: str, addresses: Mapping[str, str]) -> None:
    """The other end of a `KillableMember`: carries out requests until it is stopped."""
    member = OurMember(directory, member_id, addresses)
    line.send(None)
    while True:
        what, arguments = line.recv()
        line.send(getattr(member, what)(*arguments))
        if what == "stop":
            return


class TheirMember:
    """A RocketMQ broker."""

    def __init__(self, directory: Path, member_id: str, addresses: Mapping[str, str]) -> None:
        self.java = JavaMember(directory, GROUP, member_id, addresses, OPTIONS, heartbeat_ms=HEARTBEAT_MS)

    def is_serving(self) -> bool:
        return self.java.is_master

    @property
    def pid(self) -> int:
        return self.java.pid

    def put(self, messages: Sequence[Message]) -> list[Reported]:
        receipts = self.java.put_many(messages)
        return [
            Reported(receipt.status, (message.queue_id, receipt.queue_offset), receipt.physical_offset)
            for message, receipt in zip(messages, receipts, strict=True)
        ]

    def read(self, queue_id: int) -> list[tuple[int, bytes]]:
        return [(message.queue_offset, message.body) for message in self.java.messages(TOPIC, queue_id)]

    def ends(self) -> Ends:
        info = self.java.ledger()
        return Ends(info.leader_id, info.end_index, info.committed_index, self.java.backlog_bytes)

    def hand_over(self, successor: str) -> bool:
        return self.java.transfer(successor) == 200

    def stop(self) -> None:
        self.java.close()

    def kill(self) -> None:
        self.java.kill()


@dataclass
class StoreGroup:
    """The members that run, and what they acknowledged."""

    directory: Path
    addresses: Mapping[str, str]
    members: dict[str, Member] = field(default_factory=dict)
    acknowledged: dict[Place, bytes] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)
    settled_end: int = -1

    def path(self, member_id: str) -> Path:
        return self.directory / member_id

    def start_ours(self, *member_ids: str) -> None:
        for member_id in member_ids:
            self.members[member_id] = OurMember(self.path(member_id), member_id, self.addresses)

    def start_killable(self, *member_ids: str) -> None:
        for member_id in member_ids:
            self.members[member_id] = KillableMember(self.path(member_id), member_id, self.addresses)

    def start_theirs(self, *member_ids: str) -> None:
        for member_id in member_ids:
            self.members[member_id] = TheirMember(self.path(member_id), member_id, self.addresses)

    def stop(self, *member_ids: str) -> None:
        for member_id in member_ids or tuple(self.members):
            self.members.pop(member_id).stop()

    def kill(self, member_id: str) -> None:
        self.members.pop(member_id).kill()

    def leader(self) -> str:
        """The member that takes puts."""
        found: list[str] = []

        def is_found() -> bool:
            found[:] = [member_id for member_id, member in self.members.items() if _is_serving(member)]
            return len(found) == 1

        until(is_found, lambda: f"not one that serves: {found}")
        return found[0]

    def hand_over(self, successor: str) -> None:
        """Let a certain member lead, and take puts."""
        deadline = time.monotonic() + PATIENCE_S
        while (leader := self.leader()) != successor:
            assert time.monotonic() < deadline, f"{successor} does not become the leader"
            if not self.members[leader].hand_over(successor):
                # It is too far behind still, or waits for something to be committed since it came (decision 0015).
                self.put(1, "so that all have joined")
                time.sleep(0.2)

    def put(self, count: int, name: str) -> None:
        """Put until so many messages were acknowledged, to all queues, each with a key."""
        left = [f"{name} {number} ".encode() + b"x" * (number * 37 % 700) for number in range(count)]
        deadline = time.monotonic() + PATIENCE_S
        while left:
            assert time.monotonic() < deadline, f"{len(left)} puts are not acknowledged"
            leader = self.leader()
            messages = [
                Message(TOPIC, body, queue_id=number % QUEUES, keys=[f"k{number % 100}"], tags="t")
                for number, body in enumerate(left)
            ]
            reported = put_through(self.members[leader], messages)
            left = [body for body, answer in zip(left, reported, strict=True) if not self._note(body, answer)]
            self.refused.update(left)

    def _note(self, body: bytes, reported: Reported) -> bool:
        if reported.status != PutStatus.PUT_OK.name:
            return False
        assert reported.place not in self.acknowledged, f"{reported.place} was given twice"
        self.acknowledged[reported.place] = body
        return True

    def ends(self) -> dict[str, Ends]:
        """Where every member is; all must be alive."""
        return {member_id: member.ends() for member_id, member in self.members.items()}

    def settle(self) -> None:
        """Everybody has everything, knows that it is committed, and shows it."""

        def is_settled() -> bool:
            ends = list(self.ends().values())
            return all(each == ends[0] and each.end == each.committed and not each.backlog_bytes for each in ends)

        until(is_settled, lambda: f"the members do not agree: {self.ends()}")
        self.settled_end = min(each.end for each in self.ends().values())

    def check(self) -> None:
        """Every member shows the same queues: without a gap, all that was acknowledged in its place, nothing twice."""
        self.settle()
        views = {
            member_id: [member.read(queue_id) for queue_id in range(QUEUES)]
            for member_id, member in self.members.items()
        }
        first = next(iter(views.values()))
        for member_id, view in views.items():
            assert view == first, f"{member_id} shows other queues than {next(iter(views))}"
        for queue in first:
            assert [offset for offset, _ in queue] == list(range(len(queue)))
        shown = {(queue_id, offset): body for queue_id, queue in enumerate(first) for offset, body in queue}
        lost = {place: body for place, body in self.acknowledged.items() if shown.get(place) != body}
        assert not lost
        # A put that was not acknowledged may be there all the same, beside its repetition; nothing else may.
        assert set(shown.values()) == set(self.acknowledged.values())
        assert {shown[place] for place in shown.keys() - self.acknowledged.keys()} <= self.refused

    def same_files(self) -> None:
        """Once all have stopped: data and index of the ledger hold the same bytes, up to where all agreed last.

        Who is stopped last may have written an entry more, as the leader of those that were left.
        """
        ledgers = [self.path(member_id) / f"dledger-{member_id}" for member_id in IDS]
        size = (self.settled_end + 1) * INDEX_RECORD_SIZE
        indexes = [_joined(ledger / "index", size) for ledger in ledgers]
        assert len(indexes[0]) == size
        assert indexes[0] == indexes[1] == indexes[2]
        last = parse_index_record(indexes[0], size - INDEX_RECORD_SIZE)
        data = [_joined(ledger / "data", last.position + last.size) for ledger in ledgers]
        assert len(data[0]) == last.position + last.size
        assert data[0] == data[1] == data[2]
        queues = [queue_files(self.path(member_id) / "consumequeue" / TOPIC) for member_id in IDS]
        assert len(queues[0]) >= QUEUES
        assert queues[0] == queues[1] == queues[2]


_DEAD = (Py4JError, EOFError, OSError)
"""What a call to a member raises that was killed."""


def _is_serving(member: Member) -> bool:
    try:
        return member.is_serving()
    except _DEAD:
        return False


def put_through(member: Member, messages: Sequence[Message]) -> list[Reported]:
    """What a member that dies meanwhile had acknowledged is not known: nothing of it counts."""
    try:
        return member.put(messages)
    except _DEAD:
        return [Reported("NO_ANSWER", (0, -1), -1)] * len(messages)


def _joined(directory: Path, size: int) -> bytes:
    """The first bytes of a row of files, as if they were one."""
    found = b""
    for file in sorted(directory.iterdir()):
        with file.open("rb") as opened:
            found += opened.read(size - len(found))
    return found


def queue_files(directory: Path) -> dict[str, bytes]:
    """The files of a topic's queues, without the zeros behind their last byte, and without empty ones."""
    files = [file for file in sorted(directory.rglob("*")) if file.is_file()]
    found = {str(file.relative_to(directory)): file.read_bytes().rstrip(b"\0") for file in files}
    return {name: content for name, content in found.items() if content}


def until(happened: Callable[[], bool], reported: Callable[[], str]) -> None:
    """Look again and again until something has happened."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        if time.monotonic() > deadline:
            raise AssertionError(reported())
        time.sleep(0.05)


@contextmanager
def store_group(directory: Path) -> Iterator[StoreGroup]:
    """A group without members yet."""
    group = StoreGroup(directory, ledger_addresses(*IDS))
    try:
        yield group
    finally:
        for member in group.members.values():
            with suppress(*_DEAD):
                member.kill()
