"""Three nodes of ours as processes on this machine, with a line between each two that can be cut, and clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.replication.ledger_history import History
from tests.replication.ledger_nodes import GROUP, entries_of, open_files
from tests.replication.ledger_process import DATA_FILE_BYTES
from tests.replication.tcp_link import TcpLink

from flintlog.errors import FlintlogError
from flintlog.remoting.client import RemotingClient
from flintlog.remoting.frame import Command
from flintlog.replication.ledger.core.messages import (
    AppendRequest,
    AppendResponse,
    GetRequest,
    GetResponse,
    MetadataRequest,
    MetadataResponse,
    Request,
    Response,
    ResponseCode,
)
from flintlog.replication.ledger.node.wire import Envelope, encode_request, parse_response
from flintlog.testing.free_ports import ledger_addresses

IDS = ("n0", "n1", "n2")


class Cluster:
    """The processes. Every method is for the test's own thread."""

    def __init__(self, directory: Path, timings: str = "fast", module: str = "ledger_process") -> None:
        """`module` is what runs a node; it gets the last argument too."""
        self.directory = directory
        self._module = f"tests.replication.{module}"
        self.real = ledger_addresses(*IDS)
        self._timings = timings
        self._starts = 0
        self._links = {(one, other): TcpLink(self.real[other]) for one in IDS for other in IDS if one != other}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, node_id: str) -> None:
        peers = ";".join(
            f"{each}-{self.real[each] if each == node_id else self._links[node_id, each].address}" for each in IDS
        )
        self._starts += 1
        arguments = [str(self.directory), node_id, peers, self._timings, str(self._starts)]
        with (self.directory / f"{node_id}.log").open("ab") as output:
            self._processes[node_id] = subprocess.Popen(
                [sys.executable, "-m", self._module, *arguments], stdout=output, stderr=output
            )

    def kill(self, node_id: str) -> None:
        self._processes[node_id].kill()
        self._processes[node_id].wait()

    def pause(self, node_id: str) -> None:
        self._processes[node_id].send_signal(signal.SIGSTOP)

    def resume(self, node_id: str) -> None:
        self._processes[node_id].send_signal(signal.SIGCONT)

    def cut_off(self, node_id: str) -> None:
        """Cut both directions between a node and all others."""
        for pair, link in self._links.items():
            if node_id in pair:
                link.cut()

    def mend(self) -> None:
        for link in self._links.values():
            link.mend()

    def settle(self) -> None:
        """Return when all nodes have the same log, and know that it is committed."""
        deadline = time.monotonic() + 60
        while not self._agree():
            assert time.monotonic() < deadline, f"the nodes do not agree: {self._statuses()} {self.output()}"
            time.sleep(0.1)

    def _agree(self) -> bool:
        statuses = list(self._statuses().values())
        return len(statuses) == len(IDS) and all(
            status[1:] == statuses[0][1:] and status[2] == status[3] for status in statuses
        )

    def _statuses(self) -> dict[str, list[object]]:
        return {file.stem: json.loads(file.read_text()) for file in self.directory.glob("*.status")}

    def leader(self) -> str:
        """Who says that it leads, in the latest term."""
        leaders = [(status[1], node_id) for node_id, status in self._statuses().items() if status[0] == "LEADER"]
        return str(max(leaders)[1]) if leaders else IDS[0]

    def stop(self) -> dict[str, list[bytes]]:
        """Stop every node cleanly once they agree; the bodies of each node's log."""
        self.end_processes()
        return {node_id: self.bodies(node_id) for node_id in IDS}

    def end_processes(self) -> None:
        """Stop every node cleanly once they agree."""
        self.mend()
        self.settle()
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        ended = {node_id: process.wait(60) for node_id, process in self._processes.items()}
        assert set(ended.values()) == {0}, f"{ended}: {self.output()}"

    def bodies(self, node_id: str) -> list[bytes]:
        storage = open_files(self.directory, node_id, data_file_bytes=DATA_FILE_BYTES)
        try:
            return [entry.body for entry in entries_of(storage)]
        finally:
            storage.close()

    def close(self) -> None:
        """End whatever still runs."""
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        for link in self._links.values():
            link.close()

    def output(self) -> str:
        """The last lines that the nodes printed."""
        return "\n".join(file.read_text()[-2000:] for file in sorted(self.directory.glob("*.log")))


@contextlib.contextmanager
def cluster(directory: Path, timings: str = "fast", module: str = "ledger_process") -> Iterator[Cluster]:
    """Three nodes that run."""
    made = Cluster(directory, timings, module)
    try:
        for node_id in IDS:
            made.start(node_id)
        yield made
    finally:
        made.close()


class Client:
    """Sends and reads through the leader of the moment. For one asyncio loop."""

    def __init__(self, addresses: dict[str, str]) -> None:
        self._lines = {node_id: RemotingClient(address, timeout_s=4.0) for node_id, address in addresses.items()}
        self.leader: str | None = None

    async def close(self) -> None:
        for line in self._lines.values():
            await line.close()

    async def append(self, body: bytes) -> int | None:
        """The index once the entry is committed; None if that is not known."""
        answer = await self._ask_leader(AppendRequest((body,)))
        is_done = isinstance(answer, AppendResponse) and answer.code == ResponseCode.SUCCESS
        return answer.index if is_done and isinstance(answer, AppendResponse) else None

    async def get(self, index: int) -> bytes | None:
        """A committed entry, if the leader has it."""
        answer = await self._ask_leader(GetRequest(index))
        return answer.entries[0].body if isinstance(answer, GetResponse) and answer.entries else None

    async def find_leader(self) -> None:
        """Ask one after the other; the one that takes itself for the leader is asked from now on."""
        self.leader = None
        for node_id in self._lines:
            answer = await self._ask(node_id, MetadataRequest(), 0.5)
            if isinstance(answer, MetadataResponse) and answer.leader_id == node_id:
                self.leader = node_id
                return
        await asyncio.sleep(0.05)

    async def _ask_leader(self, request: Request) -> Response | None:
        if self.leader is None:
            await self.find_leader()
        if self.leader is None:
            return None
        answer = await self._ask(self.leader, request, 4.0)
        if answer is None or getattr(answer, "code", 0) in (ResponseCode.NOT_LEADER, ResponseCode.TERM_CHANGED):
            self.leader = None
        return answer

    async def _ask(self, node_id: str, request: Request, timeout_s: float) -> Response | None:
        code, body = encode_request(request, Envelope(GROUP, "", node_id))
        try:
            answer = await self._lines[node_id].call(Command(code, body=body), timeout_s)
            return parse_response(code, answer.body)[1]
        except FlintlogError:
            return None


class Load:
    """Clients in a thread of their own that send and read, and write down what they see."""

    def __init__(self, addresses: dict[str, str], writers: int = 6) -> None:
        self.history = History()
        self._addresses = addresses
        self._writers = writers
        self._is_over = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    def end(self) -> History:
        """Stop sending; the history."""
        self._is_over = True
        self._thread.join(60)
        return self.history

    def wait_for_more(self, count: int, timeout_s: float = 60.0) -> float:
        """Return once so many more sends have succeeded; how long that took."""
        began, before = time.monotonic(), len(self.history.acknowledged)
        while len(self.history.acknowledged) < before + count:
            assert time.monotonic() < began + timeout_s, f"no {count} sends succeed in {timeout_s} s"
            time.sleep(0.01)
        return time.monotonic() - began

    async def _run(self) -> None:
        await asyncio.gather(*(self._write(number) for number in range(self._writers)), self._read())

    async def _write(self, number: int) -> None:
        client = Client(self._addresses)
        count = 0
        while not self._is_over:
            send = self.history.begin(b"writer %d send %d " % (number, count) + b"x" * (count % 300))
            index = await client.append(send.body)
            if index is not None:
                self.history.acknowledge(send, index)
            else:
                await asyncio.sleep(0.02)
            count += 1
        await client.close()

    async def _read(self) -> None:
        client = Client(self._addresses)
        index = 0
        while not self._is_over:
            body = await client.get(index)
            if body is None:
                await asyncio.sleep(0.02)
                continue
            self.history.read(index, body)
            index = index + 1 if len(self.history.reads) % 50 else 0  # now and then from the beginning
        await client.close()
