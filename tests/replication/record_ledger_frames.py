"""Records what two real DLedger nodes say to each other: `python -m tests.replication.record_ledger_frames FILE`.

A line for each kind of frame, the first that was seen: {"name": "vote request", "frame": "…"}. The frame is its bytes
as characters 0 to 255, so that the JSON in it can be read.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.replication.tcp_link import TcpLink, Watch

from flintlog.remoting.frame import Command, FrameReader, encode_frame
from flintlog.replication.ledger.core.messages import RequestCode
from flintlog.testing.free_ports import ledger_addresses
from interop.java_ledger import QUICK_LEDGER, JavaLedger


class Recorder:
    """Gives every frame a name, and keeps the first of each."""

    def __init__(self) -> None:
        self.frames: dict[str, bytes] = {}
        self._asked: dict[tuple[int, int], str] = {}

    def line(self, number: int) -> Watch:
        """What watches one line."""
        streams = {True: _Frames(), False: _Frames()}

        def watch(towards: bool, data: bytes) -> None:
            for frame, command in streams[towards].feed(data):
                self._take(number, frame, command)

        return watch

    def _take(self, number: int, frame: bytes, command: Command) -> None:
        if command.is_response:
            name = f"{self._asked.get((number, command.opaque), 'unknown')} answer"
            code = json.loads(command.body).get("code", 200)
            result = json.loads(command.body).get("voteResult")
            self.frames.setdefault(f"{name} {result or code}", frame)
            return
        body = json.loads(command.body)
        name = RequestCode(command.code).name.lower().replace("_", " ")
        kind = f"{name} {body['type'].lower()}{' of many' if body.get('batch') else ''}" if "type" in body else name
        self._asked[number, command.opaque] = kind
        self.frames.setdefault(f"{kind} request", frame)


class _Frames:
    """Cuts a stream into frames and keeps their bytes."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> list[tuple[bytes, Command]]:
        self._pending += data
        found = []
        while len(self._pending) >= 4:
            end = 4 + int.from_bytes(self._pending[:4], "big")
            if len(self._pending) < end:
                break
            frame, self._pending = self._pending[:end], self._pending[end:]
            found.append((frame, FrameReader().feed(frame)[0]))
        return found


def _ask(address: str, code: RequestCode, body: Mapping[str, object], watch: Watch) -> None:
    host, _, port = address.rpartition(":")
    frame = encode_frame(Command(code, opaque=int(code), body=json.dumps(body).encode()))
    with socket.create_connection((host, int(port))) as line:
        watch(True, frame)
        line.sendall(frame)
        head = line.recv(4, socket.MSG_WAITALL)
        watch(False, head + line.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))


def record() -> dict[str, bytes]:
    """Let two nodes elect, append singly and in batches, hand over, part and meet again."""
    recorder = Recorder()
    real = ledger_addresses("n0", "n1")
    links = {node: TcpLink(address, recorder.line(number)) for number, (node, address) in enumerate(real.items())}
    seen_by = {
        "n0": {"n0": real["n0"], "n1": links["n1"].address},
        "n1": {"n0": links["n0"].address, "n1": real["n1"]},
    }
    with tempfile.TemporaryDirectory() as room, JavaLedger("orders", real, QUICK_LEDGER) as java:
        for node in real:
            java.start(node, room, {"enableBatchPush": node == "n1"}, addresses=seen_by[node])
        for _ in range(2):
            leader = java.wait_for_leader()
            other = "n1" if leader == "n0" else "n0"
            java.append(leader, [b"body %d \xff" % number for number in range(50)])
            java.transfer(leader, other)
        leader = java.wait_for_leader()
        java.append(leader, [b"the last"])
        base: dict[str, object] = {"group": "orders", "remoteId": leader}
        watch = recorder.line(9)
        _ask(real[leader], RequestCode.METADATA, base, watch)
        _ask(real[leader], RequestCode.APPEND, {**base, "body": "AQID/w=="}, watch)
        _ask(real[leader], RequestCode.GET, {**base, "beginIndex": 3}, watch)
        _ask(real[leader], RequestCode.METADATA, {**base, "group": "others"}, watch)
        _ask(real[leader], RequestCode.METADATA, {**base, "remoteId": "n9"}, watch)
    for link in links.values():
        link.close()
    return recorder.frames


def main(file: str) -> None:
    """Write the file."""
    frames = record()
    lines = [json.dumps({"name": name, "frame": frames[name].decode("latin-1")}) for name in sorted(frames)]
    Path(file).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
