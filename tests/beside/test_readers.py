"""Readers beside a process that writes: no finding, no message passed over, none shown twice.

The quick tests read for seconds, the slow ones for minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition

from flintlog import open_store
from flintlog.maintenance.inspect.log_reader import LogReader
from flintlog.maintenance.inspect.store_files import look_at
from flintlog.maintenance.verify.verify import verify
from flintlog.pipeline.reading.options import parse_source_options
from flintlog.pipeline.reading.rows import RowShape
from flintlog.pipeline.reading.stream import LogStreamReader
from flintlog.pipeline.source import BatchReader
from tests.beside.busy_writer import config_with
from tests.beside.conftest import ENVIRONMENT, Begin

SMALL, LARGE = 128 * 1024, 16 * 1024 * 1024
LENGTHS = [
    pytest.param(2.0, id="seconds"),
    pytest.param(120.0, id="minutes", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
]
WRITERS = [pytest.param(SMALL, 0.002, id="small-files"), pytest.param(LARGE, 0.0005, id="large-files")]

pytestmark = pytest.mark.parametrize(("file_bytes", "pause_s"), WRITERS)


def rounds(seconds: float) -> Iterator[int]:
    """Count for so long, once at least."""
    end, number = time.monotonic() + seconds, 0
    while not number or time.monotonic() < end:
        yield number
        number += 1


def flintlog(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "flintlog.cli.main", *map(str, arguments)]


def shown(lines: str) -> list[int]:
    """The places of messages that were printed as JSON lines."""
    return [json.loads(line)["physical_offset"] for line in lines.split("\n") if line]


@pytest.mark.parametrize("seconds", LENGTHS)
def test_verify_finds_nothing(begin: Begin, file_bytes: int, pause_s: float, seconds: float) -> None:
    store = begin(file_bytes, pause_s)
    for number in rounds(seconds):
        mode = "quick" if number % 4 == 3 else "full"
        assert verify(store.root, mode=mode, range_bytes=1 << 20).findings == []  # type: ignore[arg-type]
    store.stop()
    assert verify(store.root).findings == []


@contextmanager
def following(store: Path, output: Path) -> Iterator[None]:
    """`flintlog tail -f` runs meanwhile."""
    with output.open("w") as lines:
        command = flintlog("tail", "-f", "-n", 3, "-o", "jsonl", "--body", "none", store)
        tail = subprocess.Popen(command, env=ENVIRONMENT, stdout=lines)
        try:
            while not output.stat().st_size:
                assert tail.poll() is None
                time.sleep(0.05)
            yield
            time.sleep(0.6)
        finally:
            tail.terminate()
            tail.wait(timeout=30)


@pytest.mark.parametrize("seconds", LENGTHS)
def test_each_message_is_read_once(
    begin: Begin, file_bytes: int, pause_s: float, seconds: float, tmp_path: Path
) -> None:
    store = begin(file_bytes, pause_s)
    asked = parse_source_options({"path": str(store.root), "startingOffsets": "earliest", "includeBody": "false"})
    stream = LogStreamReader(asked, RowShape())
    streamed, start = [], stream.initialOffset()
    readings: list[list[int]] = []
    damage: list[tuple[int, int, str]] = []
    with following(store.root, tmp_path / "tail"):
        for _ in rounds(seconds):
            reader = LogReader(look_at(store.root), lambda *place: damage.append(place))
            readings.append([message.physical_offset for message in reader.messages()])
            end = stream.latestOffset()
            streamed += places(stream, [] if end == start else stream.partitions(start, end))
            start = end
            batch = BatchReader(asked, RowShape())
            readings.append(places(batch, batch.partitions()))
        time.sleep(0.5)
        written = store.offsets()
    assert damage == []
    for reading in (*readings, streamed):
        assert reading
        assert reading == written[: len(reading)]
    tailed = shown((tmp_path / "tail").read_text())
    assert len(tailed) > 3
    first = written.index(tailed[0])
    assert tailed == written[first : first + len(tailed)], "a tail on a busy machine may lag, and leaves nothing out"


def places(reader: LogStreamReader | BatchReader, parts: Iterable[InputPartition]) -> list[int]:
    """Where the messages lie that Spark's tasks would read."""
    return [at for part in parts for rows in reader.read(part) for at in rows.column("physical_offset").to_pylist()]


def test_a_command_passes_over_nothing(begin: Begin, file_bytes: int, pause_s: float) -> None:
    store = begin(file_bytes, pause_s)
    printed = []
    for command in (flintlog("cat", "-o", "jsonl", "--body", "none", store.root), flintlog("export", store.root)):
        done = subprocess.run(command, check=False, env=ENVIRONMENT, capture_output=True, text=True)
        assert (done.stderr, done.returncode) == ("", 0)
        printed.append(shown(done.stdout))
    written = store.offsets()
    for offsets in printed:
        assert offsets
        assert offsets == written[: len(offsets)]


def test_a_store_opened_read_only_serves_what_was_there(begin: Begin, file_bytes: int, pause_s: float) -> None:
    store = begin(file_bytes, pause_s)
    readings = []
    for _ in rounds(1.0):
        with open_store(store.root, config_with(file_bytes), read_only=True) as opened:
            assert opened.recovery.findings == ()
            readings.append([at for rows in opened.scan() for at in rows.column("physical_offset").to_pylist()])
    written = store.offsets()
    for reading in readings:
        assert reading
        assert reading == written[: len(reading)]
