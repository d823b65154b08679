"""What the tests on golden stores share: their options, their truth, and putting their messages again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flintlog import Message, StoreConfig
from flintlog.format.message_id import format_host
from flintlog.format.properties import parse_properties
from flintlog.format.record import BLANK_MAGIC, Record, parse_record

Line = dict[str, Any]


def config_of(case: Path, **changes: object) -> StoreConfig:
    reported = json.loads((case / "config.json").read_text())
    config = StoreConfig.from_rocketmq({name: str(value) for name, value in reported["set"].items()})
    return config.with_changes(topic_queue_types=reported["topicQueueTypes"], **changes)


def lines(path: Path) -> list[Line]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def records(store: Path) -> Iterator[Record]:
    """Every record of a commit log, in order; the log is known to be whole."""
    for path in sorted((store / "commitlog").iterdir()):
        data = path.read_bytes()
        position = 0
        while int.from_bytes(data[position : position + 4], "big"):
            if int.from_bytes(data[position + 4 : position + 8], "big", signed=True) == BLANK_MAGIC:
                break
            record = parse_record(data, position)
            yield record
            position += record.size


def message_of(record: Record) -> Message:
    """The message whose put gives this record, but for what the store decides."""
    return Message(
        record.topic,
        record.body,
        queue_id=record.queue_id,
        properties=parse_properties(record.properties),
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=format_host(record.born_host),
        store_host=format_host(record.store_host),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )


def host(text: str) -> str:
    """Java's "[ip]:port" as ours: brackets only around IPv6, compressed."""
    import ipaddress

    ip, _, port = text[1:].rpartition("]:")
    address = ipaddress.ip_address(ip.split("%")[0])
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
