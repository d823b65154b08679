"""Makes `ledger.tar.xz`: DLedger directories written by the real RocketMQ 5.5.0 and its DLedger 0.3.2, with the truth.

    python -m tests.golden.make_ledger FOLDER      (needs Java 17 and Maven, as the interoperability tests do)

FOLDER/ledger then holds the cases, and FOLDER/ledger.tar.xz is to be kept. Times and the order in which Java writes some
properties differ from run to run, so the result is never the same bytes twice: the truth is written with it.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from flintlog.store.message import Message
from flintlog.testing.java_store import JavaStore
from flintlog.testing.questions import questions_about
from flintlog.testing.workload import QUEUE_TYPES, Put, workload

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


def write_truth(java: JavaStore, case: Path, options: Mapping[str, str]) -> None:
    """What Java sees, in the lines that the other golden cases have."""
    settings = {name: value for name, value in options.items() if not name.startswith("dLegerPeers")}
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


CASES: Mapping[str, Callable[[Path], None]] = {"broker": make_broker, "mixed": make_mixed}


def main(folder: Path) -> None:
    shutil.rmtree(folder / "ledger", ignore_errors=True)
    for name, make in CASES.items():
        case = folder / "ledger" / name
        case.mkdir(parents=True)
        make(case)
        shutil.rmtree(case / "store" / "rocksdbstore", ignore_errors=True)  # empty, and RocketMQ makes it again
    archive = folder / "ledger.tar.xz"
    subprocess.run(["tar", "--sparse", "-cJf", archive, "-C", folder, "ledger"], check=True)
    print(archive, archive.stat().st_size, "bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
