"""The names of RocketMQ's figures, as its jars have them, and those that a store has nothing to count for.

StoreStatsService     what the store did, in all                    `store.counters`, `store.stats()`
BrokerStats           totals by day                                 `store.broker_stats.values()`, `store.stats()`
BrokerStatsManager    items by topic, queue and group               `store.broker_stats.items(name)`
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

LATENCY_NAMES: Final = frozenset({"GROUP_GET_LATENCY"})
"""Items that say how often and how long on average. TOPIC_PUT_LATENCY is a plain item there, whose sum is the time."""

MOMENT_NAMES: Final = ("GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME")
"""Items without a history: the last value that was told."""

_BY_NAME: Final = {
    "cluster": (
        *("BROKER_PUT_NUMS", "BROKER_GET_NUMS", "BROKER_ACK_NUMS", "BROKER_CK_NUMS"),
        *("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"),
        *("BROKER_GET_FROM_DISK_NUMS", "BROKER_GET_FROM_DISK_SIZE"),
        *("CONSUMER_REGISTER_TIME", "PRODUCER_REGISTER_TIME"),
    ),
    "topic": ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"),
    "topic@queue_id": ("QUEUE_PUT_NUMS", "QUEUE_PUT_SIZE"),
    "topic@group": (
        *("GROUP_GET_NUMS", "GROUP_GET_SIZE", "GROUP_ACK_NUMS", "GROUP_CK_NUMS"),
        *("GROUP_GET_FROM_DISK_NUMS", "GROUP_GET_FROM_DISK_SIZE", "SNDBCK_PUT_NUMS", "DLQ_PUT_NUMS"),
    ),
    "topic@queue_id@group": ("QUEUE_GET_NUMS", "QUEUE_GET_SIZE"),
    "queue_id@topic": ("TOPIC_PUT_LATENCY",),
    "queue_id@topic@group": ("GROUP_GET_LATENCY", *MOMENT_NAMES),
    "owner@topic@group@type": (
        *("SNDBCK2DLQ_TIMES", "COMMERCIAL_SEND_TIMES", "COMMERCIAL_RCV_TIMES", "COMMERCIAL_SEND_SIZE"),
        *("COMMERCIAL_RCV_SIZE", "COMMERCIAL_RCV_EPOLLS", "COMMERCIAL_SNDBCK_TIMES", "COMMERCIAL_PERM_FAILURES"),
    ),
    "activity": ("CHANNEL_ACTIVITY",),
}
KEY_FIELDS: Final = MappingProxyType(
    {name: tuple(shape.split("@")) for shape, names in _BY_NAME.items() for name in names}
)
"""What the key of each item holds, in this order, with an @ between."""

STATS_NAMES: Final = tuple(name for name in KEY_FIELDS if name not in MOMENT_NAMES)

_POP: Final = "checkpoints of pop consumption, which brokers of RocketMQ 5 keep for their clients; a store has none"
_BILLING: Final = "billing by account: the names are in the jars, and nothing in them adds to it"
_CONNECTIONS: Final = "clients that connect to a broker; a store is opened by its own process"
_ACCOUNT_NAMES: Final = (
    *("Owner", "OWNER_PARENT", "OWNER_SELF", "AUTH_TYPE", "AUTH_FAILED"),
    *("SEND", "RCV", "SEND_BACK", "SEND_BACK_TO_DLQ", "SEND_REJ", "RCV_REJ"),
    *("MSG_NUM", "MSG_SIZE", "COMMERCIAL_MSG_NUM", "RT", "INNER_RT", "SUCCESS_REQ_NUM", "FAILURE_REQ_NUM"),
    *("SUCCESS_MSG_NUM", "SUCCESS_MSG_SIZE", "FAILURE_MSG_NUM", "FAILURE_MSG_SIZE"),
)
NOT_COUNTED: Final = MappingProxyType(
    dict.fromkeys(("GROUP_CK_NUMS", "BROKER_CK_NUMS"), _POP)
    | dict.fromkeys((name for name in STATS_NAMES if name.startswith("COMMERCIAL_")), _BILLING)
    | dict.fromkeys(_ACCOUNT_NAMES, _BILLING)
    | dict.fromkeys(("CONSUMER_REGISTER_TIME", "PRODUCER_REGISTER_TIME", "CHANNEL_ACTIVITY"), _CONNECTIONS)
    | dict.fromkeys(("CONNECT", "CLOSE", "IDLE", "EXCEPTION"), _CONNECTIONS)
)
"""Names that stay empty here, and why. Those of items take what somebody has to `add`."""


def parse_key(name: str, key: str) -> dict[str, str]:
    """The parts of an item's key. A topic may hold an @ itself; nothing else does.

    >>> parse_key("QUEUE_GET_NUMS", "a@b@3@billing")
    {'topic': 'a@b', 'queue_id': '3', 'group': 'billing'}
    """
    fields = KEY_FIELDS[name]
    before = fields.index("topic") if "topic" in fields else 0
    *leading, rest = key.split("@", before)
    return dict(zip(fields, (*leading, *rest.rsplit("@", len(fields) - before - 1)), strict=False))
