"""The request and response codes that flintlog uses, with RocketMQ's numbers."""

from __future__ import annotations

from typing import Final

SUCCESS: Final = 0
SYSTEM_ERROR: Final = 1
REQUEST_CODE_NOT_SUPPORTED: Final = 3

GET_ALL_TOPIC_CONFIG: Final = 21
GET_ALL_CONSUMER_OFFSET: Final = 43
GET_ALL_DELAY_OFFSET: Final = 45
GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Final = 201
GET_ALL_MESSAGE_REQUEST_MODE: Final = 402
GET_BROKER_HA_STATUS: Final = 907

COMPARE_LOG: Final = 19_001
"""Ours: the digest of a range of the log, by which a slave checks that it holds the same bytes."""
ANNOUNCE_REPLICA: Final = 19_002
"""Ours: the store of the HA connection from an address, so that a store with two connections counts once."""
