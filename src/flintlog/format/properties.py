"""A message's properties, as bytes of its record.

    +------+------+-------+------+------+------+-------+------+
    | name | 0x01 | value | 0x02 | name | 0x01 | value | 0x02 |  ...      UTF-8, no escaping
    +------+------+-------+------+------+------+-------+------+

The order is that of a Java `HashMap` (capacity 16 for a new message, 128 for one that was parsed first).
A missing last 0x02 is tolerated; readers skip pairs with an empty name or an empty value. The names below are
RocketMQ's own that this package uses, without their PROPERTY_ prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flintlog.errors import FormatError
from flintlog.format.java import decode_text, encode_text, hash_map_order

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
MAX_PROPERTIES_SIZE: Final = 32767
KEY_SEPARATOR: Final = " "
NEW_MAP_CAPACITY: Final = 16
PARSED_MAP_CAPACITY: Final = 128

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT_STORE_MSG_OK: Final = "WAIT"
DELAY_TIME_LEVEL: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
BUYER_ID: Final = "BUYER_ID"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MSG_REGION: Final = "MSG_REGION"
UNIQ_KEY: Final = "UNIQ_KEY"
TRANS_OFFSET: Final = "TRANS_OFFSET"
EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
DUP_INFO: Final = "DUP_INFO"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
CLUSTER: Final = "CLUSTER"
POP_CK: Final = "POP_CK"
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
REDIRECT: Final = "REDIRECT"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_ROLL_LABEL: Final = "TIMER_ROLL_LABEL"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
CRC32: Final = "__CRC32#"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"


def encode_properties(properties: Mapping[str, str], capacity: int = NEW_MAP_CAPACITY) -> bytes:
    """The bytes of a map whose names were put in the mapping's order, in Java's iteration order.

    >>> encode_properties({"TAGS": "TagA", "KEYS": "k1 k2"})
    b'KEYS\\x01k1 k2\\x02TAGS\\x01TagA\\x02'
    """
    return join_properties({name: properties[name] for name in hash_map_order(properties, capacity)})


def join_properties(properties: Mapping[str, str]) -> bytes:
    """The bytes of the pairs, in the mapping's own order."""
    parts: list[str] = []
    for name, value in properties.items():
        pair = name + value
        if NAME_VALUE_SEPARATOR in pair or PROPERTY_SEPARATOR in pair:
            raise FormatError(f"the property {name!a} holds a separator (0x01 or 0x02), and there is no escaping")
        parts += (name, NAME_VALUE_SEPARATOR, value, PROPERTY_SEPARATOR)
    return encode_text("".join(parts), "a property")


def parse_properties(data: bytes) -> dict[str, str]:
    """All pairs a reader sees, in the record's order; the last value of a repeated name wins.

    >>> parse_properties(b"TAGS\\x01TagA\\x02empty\\x01\\x02n\\x011")
    {'TAGS': 'TagA', 'n': '1'}
    """
    found: dict[str, str] = {}
    for pair in decode_text(data).split(PROPERTY_SEPARATOR):
        name, _, value = pair.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            found[name] = value
    return found


def drop_property(data: bytes, name: str) -> bytes:
    """The same bytes without any pair of this name; everything else stays as it is."""
    start = encode_text(name + NAME_VALUE_SEPARATOR, "a property")
    if start not in data:
        return data
    separator = PROPERTY_SEPARATOR.encode()
    *closed, last = data.split(separator)
    kept = b"".join(pair + separator for pair in closed if not pair.startswith(start))
    return kept if last.startswith(start) else kept + last
