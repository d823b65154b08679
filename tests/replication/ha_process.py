"""One node of a master and its slave as a process, to be killed: `ha_process ROLE DIRECTORY PORT HA_PORT PROMISES`.

A master puts from several threads, a queue for each, and writes down what was acknowledged, as `queue offset body`.
"""

from __future__ import annotations

import os
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


def put_for_ever(node: HaNode, queue_id: int, acknowledged: int) -> None:
    number = 0
    while True:
        body = b"%d-%d-%d " % (os.getpid(), queue_id, number) + b"x" * (number * 37 % 900)
        number += 1
        receipt = node.store.put(Message("orders", body, queue_id=queue_id))
        if receipt.status is PutStatus.PUT_OK:
            os.write(acknowledged, b"%d %d %s\n" % (queue_id, receipt.queue_offset, body))


def main() -> None:
    role, directory, port, ha_port, acknowledged_path = sys.argv[1:]
    if role == "slave":
        config = CONFIG.with_changes(broker_role="SLAVE", ha_master_address=f"127.0.0.1:{ha_port}", ha_listen_port=0)
        HaNode(directory, config, port=0, master_remoting=f"127.0.0.1:{port}", reconnect_s=0.1).start()
    else:
        config = CONFIG.with_changes(
            broker_role="SYNC_MASTER", in_sync_replicas=2, slave_timeout=1000, ha_listen_port=int(ha_port)
        )
        node = HaNode(directory, config, port=int(port))
        node.start()
        acknowledged = os.open(Path(acknowledged_path), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for queue_id in range(THREADS):
            threading.Thread(target=put_for_ever, args=(node, queue_id, acknowledged)).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
