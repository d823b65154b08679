"""A store that loses its process: what was acknowledged is there.

    1. another process puts messages as fast as the disk takes them, each acknowledged after a sync
    2. it is killed (SIGKILL) in the middle of its work
    3. the store is opened again, which recovers it
    4. messages are read by queue, by key and by time, and compared with what was acknowledged
    5. Spark goes on with the same store, if it is installed (demo_spark.py)

Every number that is printed was checked; the exit code is 1 if anything is missing.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from demo_spark import go_on_in_spark
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from flintlog import Message, Store, StoreConfig, open_store

TOPIC = "orders"
QUEUES = 8
BATCH = 250
LOOKUPS = 1000
STATES = ("open", "paid", "shipped")

CONFIG = StoreConfig(
    flush="sync",
    mapped_file_size_commit_log=16 << 20,
    mapped_file_size_consume_queue=20 * 20_000,
    max_hash_slot_num=200_000,
    max_index_num=800_000,
    max_transfer_count_on_message_in_memory=1000,
    max_transfer_bytes_on_message_in_memory=1 << 20,
)


def order(number: int) -> Message:
    """The message with this number: number, queue and content follow from each other, so that each can be checked."""
    return Message(
        TOPIC,
        b"order %08d, %d pieces" % (number, number % 97),
        tags=STATES[number % 3],
        keys=[f"o-{number}"],
        queue_id=number // BATCH % QUEUES,
    )


def write_until_killed(path: Path) -> None:
    """Put batch after batch and say what was acknowledged."""
    store = open_store(path, CONFIG)
    number = 0
    while True:
        store.put_batch([order(number + place) for place in range(BATCH)])
        number += BATCH
        print(number, flush=True)


@dataclass
class Report:
    """What was done, how long it took, and what was wrong."""

    steps: list[tuple[str, float, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    closing: list[str] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[list[str]]:
        """Time one step; what it appends to the list is its result."""
        results: list[str] = []
        began = time.perf_counter()
        yield results
        self.steps.append((name, time.perf_counter() - began, ", ".join(results)))

    def expect(self, is_so: bool, what: str) -> None:
        if not is_so:
            self.failures.append(what)

    def table(self) -> Table:
        table = Table(title="What happened")
        for column in ("step", "seconds", "result"):
            table.add_column(column, justify="right" if column == "seconds" else "left")
        for name, seconds, result in self.steps:
            table.add_row(name, f"{seconds:.2f}", result)
        return table


def bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )


def put_and_kill(path: Path, count: int, report: Report, progress: Progress) -> int:
    """Let another process write, and kill it when it has acknowledged enough; the last number it acknowledged."""
    bar = progress.add_task("put, in another process", total=count)
    with report.step("put, acknowledged") as results:
        command = [sys.executable, __file__, "--write", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            acknowledged = 0
            for line in writer.stdout:
                acknowledged = int(line)
                progress.update(bar, completed=min(acknowledged, count))
                if acknowledged >= count:
                    break
            writer.send_signal(signal.SIGKILL)
            # What it had said by then, it had acknowledged too.
            acknowledged = max([acknowledged, *(int(line) for line in writer.stdout if line.endswith("\n"))])
        results.append(f"{acknowledged:,} messages, then SIGKILL")
        report.expect(writer.returncode == -signal.SIGKILL, f"the writer ended with {writer.returncode}")
    return acknowledged


def recover(path: Path, report: Report, progress: Progress) -> Store:
    """Open the store again."""
    bar = progress.add_task("recover", total=None)
    with report.step("recovered") as results:
        store = open_store(path, CONFIG, progress=lambda done, total: progress.update(bar, completed=done, total=total))
        progress.update(bar, completed=store.recovery.log_end, total=store.recovery.log_end)
        results.append(f"{store.recovery.log_end / 1e6:.1f} MB of log")
        results += [f"{found.id} at {found.physical_offset}" for found in store.recovery]
        report.expect(not store.recovery.clean, "the stop was taken for a clean one")
    return store


def read_by_queue(store: Store, acknowledged: int, report: Report, progress: Progress) -> None:
    """Read every queue from its begin to its end; each acknowledged message must be there, once, as it was put."""
    bar = progress.add_task("read by queue", total=acknowledged)
    seen = bytearray(acknowledged)
    beyond = 0
    with report.step("read by queue") as results:
        for info in store.queues():
            offset = info.min_offset
            while offset < info.max_offset:
                page = store.get(TOPIC, info.queue_id, offset, max_count=1000)
                for message in page.messages:
                    number = int(message.body[6:14])
                    report.expect(message.body == order(number).body, f"message {number} is not what was put")
                    if number < acknowledged:
                        seen[number] += 1
                    else:
                        beyond += 1
                offset = page.next_offset
                progress.update(bar, advance=len(page.messages))
        results.append(f"{seen.count(1):,} of {acknowledged:,} acknowledged messages")
        results.append(f"{beyond} written but not acknowledged yet")
        report.expect(seen.count(1) == acknowledged, f"{acknowledged - seen.count(1)} messages are missing or double")


def read_by_key(store: Store, acknowledged: int, report: Report, progress: Progress) -> None:
    """Look some messages up by their keys."""
    numbers = random.Random(7).sample(range(acknowledged), min(LOOKUPS, acknowledged))
    bar = progress.add_task("read by key", total=len(numbers))
    with report.step("read by key") as results:
        for number in numbers:
            found = [bytes(message.body) for message in store.query(TOPIC, f"o-{number}")]
            report.expect(order(number).body in found, f"message {number} is not found by its key")
            progress.update(bar, advance=1)
        results.append(f"{len(numbers):,} keys looked up")


def read_by_time(store: Store, report: Report) -> None:
    """Find the place of a point in time in each queue, and check both sides of it."""
    with report.step("read by time") as results:
        for info in store.queues():
            middle = store.get(TOPIC, info.queue_id, info.max_offset // 2, max_count=1).messages[0]
            when = middle.store_timestamp
            offset = store.offset_at(TOPIC, info.queue_id, when)
            around = store.get(TOPIC, info.queue_id, max(0, offset - 1), max_count=2).messages
            report.expect(around[-1].store_timestamp == when, f"queue {info.queue_id}: nothing at {when}")
            report.expect(not offset or around[0].store_timestamp < when, f"queue {info.queue_id}: {offset} is late")
        results.append(f"the middle of {len(store.queues())} queues")


def main() -> int:
    """Run the demo in a directory that is removed at the end."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=200_000, help="messages to be acknowledged before the kill")
    options.add_argument("--without-spark", action="store_true", help="stop before Spark")
    options.add_argument("--write", type=Path, metavar="STORE", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.write is not None:
        write_until_killed(chosen.write)
    console, report = Console(), Report()
    with tempfile.TemporaryDirectory(prefix="flintlog-demo-") as folder:
        path = Path(folder) / "store"
        with bars(console) as progress:
            acknowledged = put_and_kill(path, chosen.count, report, progress)
            with recover(path, report, progress) as store:
                read_by_queue(store, acknowledged, report, progress)
                read_by_key(store, acknowledged, report, progress)
                read_by_time(store, report)
                report.expect(bool(store.put(order(0), check=False)), "the store takes no more messages")
        if not chosen.without_spark:
            go_on_in_spark(path, CONFIG, report, console)
    console.print(report.table())
    for failure in report.failures[:10]:
        console.print(f"[red]wrong:[/red] {failure}")
    console.print("[red]not everything is there[/red]" if report.failures else "nothing that was acknowledged is lost")
    for line in report.closing:
        console.print(line, soft_wrap=True, highlight=False)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
