"""RocketMQ's names of figures, as its jars have them: each is counted, or is in `NOT_COUNTED` with the reason.

`rocketmq_figures.json` holds the names; `tests/interop/test_figures.py` compares it with the jars.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.store.small_store import SMALL

from flintlog import Message, open_store
from flintlog.format.sys_flag import INNER_BATCH, NEED_UNWRAP
from flintlog.services.retry import send_back
from flintlog.store.stats.broker_stats import BrokerStats
from flintlog.store.stats.figure_names import KEY_FIELDS, parse_key
from flintlog.testing import FakeClock

NAMES: dict[str, list[str]] = json.loads((Path(__file__).parents[1] / "rocketmq_figures.json").read_text())
ITEMS = {name for kind, names in NAMES.items() if kind.endswith("BrokerStatsManager") for name in names}
SHOWN = {name for kind, names in NAMES.items() if not kind.endswith("BrokerStatsManager") for name in names}

POP = "checkpoints of pop consumption, which brokers of RocketMQ 5 keep for their clients; a store has none"
BILLING = "billing by account: the names are in the jars, and nothing in them adds to it"
CONNECTIONS = "clients that connect to a broker; a store is opened by its own process"
ACCOUNT_NAMES = (
    *("Owner", "OWNER_PARENT", "OWNER_SELF", "AUTH_TYPE", "AUTH_FAILED"),
    *("SEND", "RCV", "SEND_BACK", "SEND_BACK_TO_DLQ", "SEND_REJ", "RCV_REJ"),
    *("MSG_NUM", "MSG_SIZE", "COMMERCIAL_MSG_NUM", "RT", "INNER_RT", "SUCCESS_REQ_NUM", "FAILURE_REQ_NUM"),
    *("SUCCESS_MSG_NUM", "SUCCESS_MSG_SIZE", "FAILURE_MSG_NUM", "FAILURE_MSG_SIZE"),
)
NOT_COUNTED = (
    dict.fromkeys(("GROUP_CK_NUMS", "BROKER_CK_NUMS"), POP)
    | dict.fromkeys((name for name in ITEMS if name.startswith("COMMERCIAL_")), BILLING)
    | dict.fromkeys(ACCOUNT_NAMES, BILLING)
    | dict.fromkeys(("CONSUMER_REGISTER_TIME", "PRODUCER_REGISTER_TIME", "CHANNEL_ACTIVITY"), CONNECTIONS)
    | dict.fromkeys(("CONNECT", "CLOSE", "IDLE", "EXCEPTION"), CONNECTIONS)
)


class Done(NamedTuple):
    """The figures of a store that was closed, so that the last put is counted too."""

    figures: BrokerStats
    shown: dict[str, int | float | str]


@pytest.fixture(params=["sync", "async"])
def done(request: pytest.FixtureRequest, tmp_path: Path) -> Done:
    """The figures of a store after a put, a get, an acknowledgement and the like."""
    config = SMALL.with_changes(
        flush=request.param,
        services={"schedule"},
        # No memory at all: every message read is on disk
        access_message_in_memory_max_ratio=0,
    )
    clock = FakeClock()
    with open_store(tmp_path / "store", config, clock=clock) as store:
        store.put(Message("others", b"late", delay_level=1)).check()
        clock.advance(1000)
        store.put(Message("orders", b"x")).check()
        store.put_batch([Message("orders", b"y", queue_id=1)] * 2).check()
        with store.consumer("billing", "orders", timeout_s=0) as consumer:
            first, second, third = list(consumer)
            consumer.acknowledge(first)
            consumer.send_back(second)
            send_back(store._host, "billing", third, -1)
        shown = store.stats()
    return Done(store.broker_stats, shown)


def test_every_item_is_counted_or_has_a_reason(done: Done) -> None:
    figures = done.figures
    counted = {name for name in KEY_FIELDS if any(item.times or item.value for item in figures.items(name).values())}
    assert counted == set(KEY_FIELDS) == ITEMS - set(NOT_COUNTED)
    assert set(NOT_COUNTED) <= ITEMS


def test_every_figure_of_the_store_is_shown(done: Done) -> None:
    found = {name for name in SHOWN if any(key == name or key.startswith(f"{name}_") for key in done.shown)}
    assert found == SHOWN


def test_the_keys_hold_what_the_table_says(done: Done) -> None:
    figures = done.figures
    keys = {name: set(figures.items(name)) for name in KEY_FIELDS if figures.items(name)}
    assert {name: len(next(iter(found)).split("@")) for name, found in keys.items()} == {
        name: len(KEY_FIELDS[name]) for name in keys
    }
    assert keys["GROUP_ACK_NUMS"] == {"orders@billing"}
    assert keys["SNDBCK2DLQ_TIMES"] == {"null@orders@billing@SEND_BACK_TO_DLQ"}
    assert {"0@orders", "1@orders"} <= keys["TOPIC_PUT_LATENCY"]


def test_values_of_what_was_done(done: Done) -> None:
    def value(name: str, key: str) -> int:
        item = done.figures.item(name, key)
        return 0 if item is None else item.value

    assert value("GROUP_ACK_NUMS", "orders@billing") == value("BROKER_ACK_NUMS", "DefaultCluster") == 2
    assert value("SNDBCK_PUT_NUMS", "orders@billing") == 2
    assert value("DLQ_PUT_NUMS", "orders@billing") == 1
    got = value("GROUP_GET_NUMS", "orders@billing")
    assert value("GROUP_GET_FROM_DISK_NUMS", "orders@billing") == got == 3
    assert value("GROUP_GET_FROM_DISK_SIZE", "orders@billing") == value("GROUP_GET_SIZE", "orders@billing")


def test_what_is_near_the_end_of_the_log_is_in_memory(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", SMALL) as store:
        store.put(Message("orders", b"x")).check()
        store.get("orders", 0, 0, group="billing")
        assert not store.broker_stats.items("GROUP_GET_FROM_DISK_NUMS")
        assert not store.broker_stats.items("BROKER_GET_FROM_DISK_SIZE")


@pytest.mark.parametrize(
    ("name", "key", "parts"),
    [
        ("TOPIC_PUT_NUMS", "a@b", {"topic": "a@b"}),
        ("QUEUE_PUT_NUMS", "a@b@3", {"topic": "a@b", "queue_id": "3"}),
        ("TOPIC_PUT_LATENCY", "3@a@b", {"queue_id": "3", "topic": "a@b"}),
        ("GROUP_GET_LATENCY", "3@a@b@g", {"queue_id": "3", "topic": "a@b", "group": "g"}),
        ("BROKER_PUT_NUMS", "my@cluster", {"cluster": "my@cluster"}),
    ],
)
def test_a_key_and_its_parts(name: str, key: str, parts: dict[str, str]) -> None:
    assert parse_key(name, key) == parts


def test_a_group_with_the_name_of_a_deleted_topic_keeps_its_figures(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", SMALL) as store:
        for topic in ("orders", "0"):
            store.put(Message(topic, b"x")).check()
            store.get(topic, 0, 0, group="other")
        store.get("orders", 0, 0, group="0")
        store.broker_stats.forget_topic("0")
        assert set(store.broker_stats.items("GROUP_GET_NUMS")) == {"orders@other", "orders@0"}
        assert set(store.broker_stats.items("GROUP_GET_FALL_SIZE")) == {"0@orders@other", "0@orders@0"}


def test_light_queues_share_a_name(tmp_path: Path) -> None:
    config = SMALL.with_changes(enable_lmq=True, enable_multi_dispatch=True)
    with open_store(tmp_path / "store", config) as store:
        for number in range(3):
            light = f"%LMQ%device-{number}"
            store.put(Message("orders", b"x", properties={"INNER_MULTI_DISPATCH": light})).check()
            store.get(light, 0, 0, group=f"%LMQ%reader-{number}")
        figures = store.broker_stats
        assert {key: item.value for key, item in figures.items("GROUP_GET_NUMS").items()} == {"%LMQ%@%LMQ%": 3}
        assert set(figures.items("GROUP_GET_FALL_SIZE")) == {"0@%LMQ%@%LMQ%"}
        assert set(store.counters.topics) == {"orders"}


def test_an_inner_batch_counts_as_its_messages(tmp_path: Path) -> None:
    config = SMALL.with_changes(topic_queue_types={"batches": "BatchCQ"})
    with open_store(tmp_path / "store", config) as store:
        batch = Message("batches", b"three in one", sys_flag=INNER_BATCH | NEED_UNWRAP, properties={"INNER_NUM": "3"})
        for _ in range(2):
            store.put(batch).check()
        assert len(store.get("batches", 0, 0, group="billing").messages) == 2
        item = store.broker_stats.item("GROUP_GET_NUMS", "batches@billing")
        assert item is not None and item.value == store.counters.get_transferred_count == 6
        assert store.counters.topics["batches"].times == store.counters.put_times_total == 6


def test_acknowledgements_are_counted_while_a_consumer_is_open(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", SMALL) as store:
        for _ in range(3):
            store.put(Message("orders", b"x")).check()
        figures = store.broker_stats
        with store.consumer("billing", "orders") as consumer:
            for done in (1, 2, 3):
                message = consumer.poll(10)
                assert message is not None
                consumer.acknowledge(message)
                consumer.acknowledge(message)  # asked twice, done once
                assert {key: item.value for key, item in figures.items("GROUP_ACK_NUMS").items()} == {
                    "orders@billing": done
                }
        figures.refresh()
        assert figures._tallies == []
