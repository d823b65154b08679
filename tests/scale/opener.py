"""A process that opens the huge store and says what that cost.

python opener.py STORE write|read
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from flintlog import Message, open_store
from tests.scale.huge_store import CONFIG, LAST_RECORDS, QUEUES_A_TOPIC, TOPICS, topic_name
from tests.scale.process_cost import Cost, measure


class Opened(msgspec.Struct):
    """What the opener saw."""

    cost: Cost
    queue_count: int
    offset_sum: int
    findings: list[str]
    first_body: bytes
    put_queue_offset: int
    closing_seconds: float


def main(path: Path, read_only: bool) -> None:
    import pyarrow as pa  # so that loading it is not counted

    assert pa.__version__
    cost, store = measure(lambda: open_store(path, CONFIG, read_only=read_only))
    queues = store.queues()
    found = store.get(topic_name(TOPICS - 1), QUEUES_A_TOPIC - 1, 0).messages
    new = Message(topic_name(0), b"new")
    put_at = LAST_RECORDS + 1 if read_only else store.put(new).check().queue_offset
    closing, _ = measure(store.shutdown)
    opened = Opened(
        cost,
        len(queues),
        sum(queue.max_offset for queue in queues),
        [str(finding) for finding in store.recovery],
        found[0].body,
        put_at,
        closing.seconds,
    )
    sys.stdout.buffer.write(msgspec.json.encode(opened))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "read")
