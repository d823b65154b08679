"""The names of the figures by topic, queue and group, and what the key of each consists of. Both are RocketMQ's.

RocketMQ has more names: pop checkpoints, billing by account and client connections. Nothing in a store counts these.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

_BY_KEY: Final = {
    "cluster": (
        *("BROKER_PUT_NUMS", "BROKER_GET_NUMS", "BROKER_ACK_NUMS"),
        *("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"),
        *("BROKER_GET_FROM_DISK_NUMS", "BROKER_GET_FROM_DISK_SIZE"),
    ),
    "topic": ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"),
    "topic@queue_id": ("QUEUE_PUT_NUMS", "QUEUE_PUT_SIZE"),
    "topic@group": (
        *("GROUP_GET_NUMS", "GROUP_GET_SIZE", "GROUP_ACK_NUMS"),
        *("GROUP_GET_FROM_DISK_NUMS", "GROUP_GET_FROM_DISK_SIZE", "SNDBCK_PUT_NUMS", "DLQ_PUT_NUMS"),
    ),
    "topic@queue_id@group": ("QUEUE_GET_NUMS", "QUEUE_GET_SIZE"),
    "queue_id@topic": ("TOPIC_PUT_LATENCY",),
    "queue_id@topic@group": ("GROUP_GET_LATENCY", "GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME"),
    "owner@topic@group@type": ("SNDBCK2DLQ_TIMES",),
}
KEY_FIELDS: Final = MappingProxyType(
    {name: tuple(fields.split("@")) for fields, names in _BY_KEY.items() for name in names}
)
"""The name of each figure, and the parts of its key in order. An @ separates them."""


def parse_key(name: str, key: str) -> dict[str, str]:
    """The parts of a figure's key. Only a topic may contain an @.

    >>> parse_key("QUEUE_GET_NUMS", "a@b@3@billing")
    {'topic': 'a@b', 'queue_id': '3', 'group': 'billing'}
    """
    fields = KEY_FIELDS[name]
    before = fields.index("topic") if "topic" in fields else 0
    *leading, rest = key.split("@", before)
    return dict(zip(fields, (*leading, *rest.rsplit("@", len(fields) - before - 1)), strict=False))
