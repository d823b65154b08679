"""One node of a master and its slave as a process, to be killed.

    ha_process ROLE DIRECTORY PORT HA_PORT PROMISES [mixed]

A master puts from several threads, a queue for each, and writes down what was acknowledged, as `queue offset body`.
If `mixed`, some puts are batches, and some are delayed: those are `-1 -1 body`, and are delivered to the topic `later`.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from pathlib import Path

from flintlog import Message, PutStatus, StoreConfig
from flintlog.replication.ha.node import HaNode

THREADS = 3
CONFIG = StoreConfig(
    mapped_file_size_commit_log=256 * 1024,
    mapped_file_size_consume_queue=100 * 20,
    max_hash_slot_num=100,
    max_index_num=400,
    ha_send_heartbeat_interval=200,
)


MIXED = CONFIG.with_changes(services={"schedule"}, message_delay_level="1s 1s")
LATER = "later"


def put_mixed_for_ever(node: HaNode, queue_id: int, acknowledged: int) -> None:
    chance, number = random.Random(f"{os.getpid()} {queue_id}"), 0
    while True:
        bodies = [b"%d-%d-%d-%d" % (os.getpid(), queue_id, number, place) for place in range(chance.choice((1, 2, 5)))]
        number += 1
        if chance.random() < 0.2:
            receipt = node.store.put(Message(LATER, bodies[0], delay_level=1), check=False)
            places = [(-1, bodies[0])] if receipt.status is PutStatus.PUT_OK else []
        else:
            receipts = node.store.put_batch(
                [Message("orders", body, queue_id=queue_id) for body in bodies], check=False
            )
            places = [
                (receipt.queue_offset, body)
                for receipt, body in zip(receipts, bodies, strict=True)
                if receipt.status is PutStatus.PUT_OK
            ]
        lines = [b"%d %d %s\n" % (queue_id if offset >= 0 else -1, offset, body) for offset, body in places]
        os.write(acknowledged, b"".join(lines))


def put_for_ever(node: HaNode, queue_id: int, acknowledged: int) -> None:
    number = 0
    while True:
        body = b"%d-%d-%d " % (os.getpid(), queue_id, number) + b"x" * (number * 37 % 900)
        number += 1
        receipt = node.store.put(Message("orders", body, queue_id=queue_id), check=False)
        if receipt.status is PutStatus.PUT_OK:
            os.write(acknowledged, b"%d %d %s\n" % (queue_id, receipt.queue_offset, body))


def main() -> None:
    role, directory, port, ha_port, acknowledged_path, *kind = sys.argv[1:]
    plain, put = (MIXED, put_mixed_for_ever) if kind else (CONFIG, put_for_ever)
    if role == "slave":
        config = plain.with_changes(broker_role="SLAVE", ha_master_address=f"127.0.0.1:{ha_port}", ha_listen_port=0)
        HaNode(directory, config, port=0, master_remoting=f"127.0.0.1:{port}", reconnect_s=0.1).start()
    else:
        config = plain.with_changes(
            broker_role="SYNC_MASTER", in_sync_replicas=2, slave_timeout=1000, ha_listen_port=int(ha_port)
        )
        node = HaNode(directory, config, port=int(port))
        node.start()
        acknowledged = os.open(Path(acknowledged_path), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for queue_id in range(THREADS):
            threading.Thread(target=put, args=(node, queue_id, acknowledged)).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
