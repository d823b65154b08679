"""A real power cut takes the content of queue files that nobody has synced; the log is synced by each put."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from flintlog import StoreConfig, StoreInUse, open_store
from tests.power.conftest import MakeDevice

CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536,
    mapped_file_size_consume_queue=20 * 50,
    message_index_enable=False,
    flush_interval_consume_queue=3_600_000,
)

WRITER = """
import sys
from flintlog import Message, open_store
from tests.power.test_queue_content import CONFIG
store = open_store(sys.argv[1], CONFIG)
store.topics.create("old")
store.put(Message("old", b"x")).check()
number = 0

def put(count):
    global number
    for _ in range(count):
        messages = [Message("orders", b"%d" % (number + place)) for place in range(20)]
        for receipt in store.put_batch(messages).check():
            assert receipt.queue_offset == number
            number += 1
        print(number, flush=True)

put(5)
store._engine.flushing.queue_flush.flush_all()
if sys.argv[2] == "deleted":
    store.topics.delete("old")
elif sys.argv[2] == "expired":
    store._engine.parts.queues.delete_expired(0)
put(40)
print("done", flush=True)
put(10_000)
"""


@pytest.mark.parametrize("between", ["nothing", "deleted", "expired"])
def test_queue_files_that_lost_their_content_are_built_again(make_device: MakeDevice, between: str) -> None:
    disk = make_device(size_mib=64)
    root = disk.mount / "store"
    command = [sys.executable, "-c", WRITER, str(root), between]
    acknowledged = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if line == "done\n":
                break
            acknowledged = int(line)
        time.sleep(0.1)
        disk.cut()
        writer.kill()
        for line in writer.stdout:
            acknowledged = int(line)
    disk.restore()

    assert acknowledged >= 900
    with open_store(root, CONFIG) as store:
        assert [finding.id for finding in store.recovery if finding.id.endswith("-queues")] == []
        assert ("old" in {queue.topic for queue in store.queues()}) == (between != "deleted")
        for number in range(acknowledged):
            (message,) = store.get("orders", 0, number, 1).messages
            assert message.body == b"%d" % number
        assert store.max_offset("orders", 0) >= acknowledged


def test_the_directory_of_a_store_is_locked_on_a_real_file_system(make_device: MakeDevice) -> None:
    root: Path = make_device(size_mib=64).mount / "store"
    with open_store(root, CONFIG):
        (root / "lock").unlink()
        with pytest.raises(StoreInUse):
            open_store(root, CONFIG)
