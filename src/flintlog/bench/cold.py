"""Batches measured cold: in a process and a store of their own, with nothing put before the clock runs.

One batch is encoded before the clock runs, and put again and again into one queue; its messages have a unique key and a
tag. Nothing has warmed up, not even a compiler, and the first puts make the files.

`python -m flintlog.bench.cold DIRECTORY TASK SECONDS` measures once and prints the measurement as JSON.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec

from flintlog.bench.tasks import BATCH_COUNT, TOPIC, Measurement, Meter, Task, body_of
from flintlog.store.model.encoded_batch import encoded_batch
from flintlog.store.model.message import Message
from flintlog.store.open_store import open_store
from flintlog.store.options.store_config import StoreConfig


def measure_in_own_process(task: Task, seconds: float, directory: Path) -> Measurement:
    """Start another Python and have it measure."""
    asked = msgspec.json.encode(task).decode()
    command = [sys.executable, "-m", "flintlog.bench.cold", str(directory), asked, str(seconds)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return msgspec.json.decode(answer, type=Measurement)


def measure(task: Task, seconds: float, directory: Path) -> Measurement:
    """Put the batch until the time is over, and wait until all of it is visible."""
    batch = encoded_batch([_message(place, body_of(task)) for place in range(BATCH_COUNT)])
    with open_store(directory, StoreConfig(flush="async")) as store:
        count = 0
        meter = Meter()
        deadline = meter.deadline(seconds)
        while time.perf_counter() < deadline:
            count += BATCH_COUNT if store.put_encoded(batch).status == 0 else 0
        meter.stop()
        store.wait_dispatched()
        return meter.measurement(count)


def _message(place: int, body: bytes) -> Message:
    # By default a Java client's message states that its sender waits for it.
    properties = {"UNIQ_KEY": f"7F00000100010000{place}", "WAIT": "true"}
    return Message(TOPIC, body, tags="TagA", properties=properties)


def main(arguments: list[str]) -> None:
    directory, asked, seconds = arguments
    measured = measure(msgspec.json.decode(asked, type=Task), float(seconds), Path(directory))
    sys.stdout.buffer.write(msgspec.json.encode(measured))


if __name__ == "__main__":
    main(sys.argv[1:])
