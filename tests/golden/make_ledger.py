"""Makes `ledger.tar.xz`: DLedger directories written by the real RocketMQ 5.5.0 and its DLedger 0.3.2, with the truth.

    python -m tests.golden.make_ledger FOLDER [CASE…]      (needs Java 17 and Maven, as the interoperability tests do)

FOLDER/ledger then holds the cases, and FOLDER/ledger.tar.xz is to be kept. Store times, and who is elected, differ from
run to run, so the result is never the same bytes twice: the truth is written with it.
"""

from __future__ import annotations

import json
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from py4j.protocol import Py4JJavaError

from flintlog.store.model.message import Message
from flintlog.testing.free_ports import ledger_addresses
from interop.java_ledger import QUICK_LEDGER, JavaLedger
from interop.java_store import JavaStore
from interop.questions import questions_about
from interop.workload import QUEUE_TYPES, Put, workload

OPTIONS = {
    "mappedFileSizeCommitLog": str(64 * 1024),
    "mappedFileSizeConsumeQueue": str(100 * 20),
    "mapperFileSizeBatchConsumeQueue": str(50 * 46),
    "maxHashSlotNum": "100",
    "maxIndexNum": "500",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}
ELECTION_PATIENCE_S = 30.0
CLOCK_MS = 1_700_000_000_000


def ledger_options() -> dict[str, str]:
    """A group of one, on a port that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "golden",
        "dLegerPeers": f"n0-127.0.0.1:{port}",
        "dLegerSelfId": "n0",
    }


def make_broker(case: Path) -> None:
    """All kinds of messages through DLedgerCommitLog, over two lives of the store."""
    options = OPTIONS | ledger_options()
    for seed, is_last in ((1, False), (2, True)):
        with JavaStore(case / "store", options, topic_queue_types=QUEUE_TYPES) as java:
            await_leader(java)
            put_all(java, workload(200, seed=seed))
            if is_last:
                write_truth(java, case, options)


def make_mixed(case: Path) -> None:
    """A plain commit log of three files, then DLedger behind it."""
    with JavaStore(case / "store", OPTIONS, topic_queue_types=QUEUE_TYPES, clock_ms=CLOCK_MS) as java:
        put_all(java, workload(250, seed=3))
    options = OPTIONS | ledger_options()
    with JavaStore(case / "store", options, topic_queue_types=QUEUE_TYPES) as java:
        await_leader(java)
        put_all(java, workload(150, seed=4))
        write_truth(java, case, options)


# A leader that is left alone must notice it late enough to write some entries that nobody else gets.
GROUP_OPTIONS = {
    **QUICK_LEDGER,
    "maxHeartBeatLeak": 10,
    "mappedFileSizeForEntryData": 8 * 1024,
    "mappedFileSizeForEntryIndex": 32 * 64,
}


def make_group(case: Path) -> None:
    """A group of three with leaders that come and go; `diverged` is a leader that wrote on when it was alone."""
    addresses = ledger_addresses("n0", "n1", "n2")
    chance = random.Random(6)

    def bodies(count: int) -> list[bytes]:
        return [chance.randbytes(chance.choice((0, 1, 40, 200, 900))) for _ in range(count)]

    with JavaLedger("golden", addresses, GROUP_OPTIONS) as java:
        for node_id in addresses:
            java.start(node_id, case)
        for _ in range(4):
            leader = java.wait_for_leader()
            append_all(java, leader, bodies(40))
            hand_over(java, leader, next(node_id for node_id in addresses if node_id != leader))
        leader = java.wait_for_leader()
        append_all(java, leader, bodies(40))
        others = [node_id for node_id in addresses if node_id != leader]
        for node_id in others:
            await_end(java, node_id, java.info(leader).end_index)
            java.stop(node_id)
        with suppress(Py4JJavaError):  # nobody answers for them, and Java may wait longer for that than our patience
            java.append(leader, bodies(10))
        info = java.info(leader)
        if info.end_index != info.committed_index + 10:
            raise ValueError(f"the leader that is alone has no ten entries of its own: {info}")
        write_entries(java, leader, case / "diverged.jsonl")
        java.stop(leader)
        shutil.copytree(case / f"dledger-{leader}", case / "diverged")
        for node_id in others:
            java.start(node_id, case)
        winner = java.wait_for_leader()
        append_all(java, winner, bodies(30))
        java.start(leader, case)
        end = java.info(winner).end_index
        for node_id in addresses:
            await_end(java, node_id, end)
        write_entries(java, winner, case / "entries.jsonl")
    (case / "config.json").write_text(json.dumps({"set": GROUP_OPTIONS}, indent=1))


def hand_over(java: JavaLedger, leader: str, successor: str) -> None:
    """A new leader, and so a new term."""
    await_end(java, successor, java.info(leader).end_index)
    code = java.transfer(leader, successor)
    if code != 200 or java.wait_for_leader() != successor:
        raise ValueError(f"{leader} did not hand over to {successor}: {code}")


def append_all(java: JavaLedger, node_id: str, bodies: Sequence[bytes]) -> None:
    """Each entry until it was committed: right after an election Java refuses some."""
    waiting = list(bodies)
    patience = time.monotonic() + ELECTION_PATIENCE_S
    while waiting:
        codes = [receipt.code for receipt in java.append(node_id, waiting)]
        waiting = [body for body, code in zip(waiting, codes, strict=True) if code != 200]
        if time.monotonic() > patience:
            raise TimeoutError(f"the leader does not take entries: {codes}")


def await_end(java: JavaLedger, node_id: str, index: int) -> None:
    patience = time.monotonic() + ELECTION_PATIENCE_S
    while (info := java.info(node_id)).end_index != index or info.committed_index != index:
        if time.monotonic() > patience:
            raise TimeoutError(f"{node_id} does not come to {index}: {info}")
        time.sleep(0.05)


def write_entries(java: JavaLedger, node_id: str, file: Path) -> None:
    """The entries as Java reads them, and in the first line what it knows of them."""
    info = {"kind": "node", **msgspec.to_builtins(java.info(node_id))}
    write_lines(file, (info, *(msgspec.to_builtins(entry) for entry in java.entries(node_id))))


def await_leader(java: JavaStore) -> None:
    """Until a first put is taken: before the election each is refused."""
    patience = time.monotonic() + ELECTION_PATIENCE_S
    while java.put([Message("elected", b"")])[0].status != "PUT_OK":
        if time.monotonic() > patience:
            raise TimeoutError("the Java store did not become a leader")
        time.sleep(0.1)


def put_all(java: JavaStore, puts: Iterable[Put]) -> None:
    receipts = java.put(puts)
    refused = [receipt for receipt in receipts if receipt.status != "PUT_OK"]
    if refused:
        raise ValueError(f"Java did not take {len(refused)} puts, the first: {refused[0]}")


def write_truth(java: JavaStore, case: Path, options: dict[str, str]) -> None:
    """What Java sees, in the lines that the other golden cases have."""
    settings = options | {"dLegerPeers": "n0-127.0.0.1:40911"}
    (case / "config.json").write_text(json.dumps({"set": settings, "topicQueueTypes": QUEUE_TYPES}, indent=1))
    view = java.view()
    write_lines(case / "manifest.jsonl", (msgspec.to_builtins(message) for message in java.messages()))
    queues = ({"kind": "queue", **msgspec.to_builtins(queue)} for queue in java.queues())
    entries = ({"kind": "entry", **msgspec.to_builtins(entry)} for entry in java.entries())
    write_lines(case / "queues.jsonl", (*queues, *entries))
    questions = questions_about(view, seed=5, key_count=60)
    answers = java.answers(questions)
    asked = zip(questions, answers, strict=True)
    write_lines(case / "queries.jsonl", ({**msgspec.to_builtins(q), **msgspec.to_builtins(a)} for q, a in asked))


def write_lines(file: Path, lines: Iterable[Mapping[str, object]]) -> None:
    with file.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


CASES: Mapping[str, Callable[[Path], None]] = {
    "broker": make_broker,
    "mixed": make_mixed,
    "group": make_group,
}


def main(folder: Path, names: Sequence[str]) -> None:
    for name in names or CASES:
        case = folder / "ledger" / name
        shutil.rmtree(case, ignore_errors=True)
        case.mkdir(parents=True)
        CASES[name](case)
        shutil.rmtree(case / "store" / "rocksdbstore", ignore_errors=True)  # empty, and RocketMQ makes it again
    archive = folder / "ledger.tar.xz"
    subprocess.run(["tar", "--sparse", "-cJf", archive, "-C", folder, "ledger"], check=True)
    sys.stdout.write(f"{archive}: {archive.stat().st_size} bytes\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
