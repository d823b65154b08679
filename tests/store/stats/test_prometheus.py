"""A store's figures as Prometheus asks for them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.store.small_store import ASYNC, SMALL

from flintlog import Message, open_store
from flintlog.errors import MissingExtra
from flintlog.store.stats.figure_names import KEY_FIELDS
from flintlog.store.stats.prometheus import SHOWN_ITEMS, StoreCollector
from flintlog.testing import FakeClock


def test_what_prometheus_reads(tmp_path: Path) -> None:
    clock = FakeClock()
    registry = CollectorRegistry()
    with open_store(tmp_path, ASYNC, clock=clock) as store:
        registry.register(StoreCollector(store))
        for number in range(12):
            store.put(Message("orders", b"x", queue_id=number % 2)).check()
            clock.advance(1000)
        store.get("orders", 0, 0, 4, group="g")
        store.get("orders", 9, 0)
        size = registry.get_sample_value("flintlog_throughput_in_total", {"topic": "orders"})
        assert size == store.stats()["putMessageSizeTotal"]
        value = registry.get_sample_value
        assert value("flintlog_messages_in_total", {"topic": "orders"}) == 12
        assert value("flintlog_messages_out_total", {"topic": "orders", "group": "g"}) == 4
        assert value("flintlog_gets_missed_total") == 1
        assert value("flintlog_put_tps", {"window": "10"}) == 1.0
        assert value("flintlog_put_tps", {"window": "600"}) is None
        assert value("flintlog_put_latency_seconds_count") == 12
        assert value("flintlog_put_latency_seconds_bucket", {"le": "10.0"}) == 12
        assert value("flintlog_storage_max_offset") == store.max_physical_offset
        assert value("flintlog_storage_dispatch_behind_bytes") == 0
        assert value("flintlog_queues") == 2
        labels = {"queue_id": "0", "topic": "orders", "group": "g"}
        assert value("flintlog_group_fall_behind_seconds", labels) == 6.0
        assert 0 < (value("flintlog_disk_used_ratio", {"path": "consumequeue"}) or 0) <= 1


def test_the_same_names_as_rocketmq_and_a_label_for_each_queue(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    with open_store(tmp_path, SMALL) as store:
        registry.register(StoreCollector(store, prefix="rocketmq", by_queue=True))
        store.put(Message("orders", b"x", queue_id=3)).check()
        found = registry.get_sample_value("rocketmq_messages_in_total", {"topic": "orders", "queue_id": "3"})
        assert found == 1
        assert b"# TYPE rocketmq_put_latency_seconds histogram" in generate_latest(registry)


def test_every_item_that_is_counted_is_a_metric(tmp_path: Path) -> None:
    clock = FakeClock()
    registry = CollectorRegistry()
    config = ASYNC.with_changes(services={"schedule"}, access_message_in_memory_max_ratio=0)
    with open_store(tmp_path, config, clock=clock) as store:
        registry.register(StoreCollector(store, by_queue=True))
        for number in range(5):
            store.put(Message("orders", b"x", queue_id=number % 2)).check()
        with store.consumer("billing", "orders", timeout_s=0) as consumer:
            first, second, *_ = consumer
            consumer.acknowledge(first)
            consumer.send_back(second, -1)
        value = registry.get_sample_value
        group = {"topic": "orders", "group": "billing"}
        counted = {
            "messages_out": 5,
            "messages_out_from_disk": 5,
            "acknowledged_messages": 2,
            "sent_back_messages": 1,
            "send_to_dlq_messages": 1,
        }
        assert {name: value(f"flintlog_{name}_total", group) for name in counted} == counted
        assert value("flintlog_throughput_out_from_disk_total", group) == value("flintlog_throughput_out_total", group)
        assert value("flintlog_queue_messages_out_total", {**group, "queue_id": "0"}) == 3
        assert value("flintlog_dead_letters_total") == 1
        assert value("flintlog_all_acknowledged_messages_total") == 2
        assert value("flintlog_consumer_lag_messages", group) == 3
        assert value("flintlog_queue_put_latency_seconds_count", {"queue_id": "0", "topic": "orders"}) == 3
        assert value("flintlog_group_get_latency_seconds_count", {"queue_id": "1", **group}) == 1
        assert value("flintlog_msg_put_total_today_now") == 6
    assert set(KEY_FIELDS) == SHOWN_ITEMS


def test_without_labels_for_queues_their_times_are_added_up(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    with open_store(tmp_path, ASYNC) as store:
        registry.register(StoreCollector(store))
        for number in range(5):
            store.put(Message("orders", b"x", queue_id=number % 2)).check()
        assert registry.get_sample_value("flintlog_queue_put_latency_seconds_count", {"topic": "orders"}) == 5


def test_slow_puts_are_in_the_histogram_for_good(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    clock = FakeClock()
    with open_store(tmp_path, ASYNC, clock=clock) as store:
        registry.register(StoreCollector(store))
        for _ in range(3):
            store.put(Message("orders", b"x")).check()
        store.counters.put_took(150, 2)
        for _ in range(130):
            clock.advance(1000)
        buckets = {
            le: registry.get_sample_value("flintlog_put_latency_seconds_bucket", {"le": le})
            for le in ("0.1", "0.2", "+Inf")
        }
        assert buckets == {"0.1": 1, "0.2": 3, "+Inf": 3}
        assert (registry.get_sample_value("flintlog_put_latency_seconds_sum") or 0) >= 0.3


def test_without_the_package_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with open_store(tmp_path, SMALL) as store, pytest.raises(MissingExtra, match=r"flintlog\[metrics\]"):
        StoreCollector(store)
