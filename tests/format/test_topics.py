"""Which topics are RocketMQ's own, and which are users'."""

from __future__ import annotations

import pytest

from flintlog.format.topics import is_system_topic, is_user_topic


@pytest.mark.parametrize(
    ("topic", "is_system", "is_users"),
    [
        ("SCHEDULE_TOPIC_XXXX", True, False),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", True, False),
        ("rmq_sys_any", True, False),
        ("%RETRY%group", False, False),
        ("%DLQ%group", False, False),
        ("SCHEDULE_TOPIC_OF_MINE", False, True),
        ("orders", False, True),
    ],
)
def test_topics_of_rocketmq_itself(topic: str, is_system: bool, is_users: bool) -> None:
    assert (is_system_topic(topic), is_user_topic(topic)) == (is_system, is_users)
