"""The public face: exactly these names, with these signatures, each with a docstring whose example runs."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable
from importlib import import_module

import pytest

import flintlog
from flintlog import (
    FlintlogError,
    Message,
    Page,
    Receipt,
    Sql92,
    Store,
    StoreConfig,
    StoredMessage,
    encoded_batch,
    open_store,
)
from flintlog.testing import temporary_store

NAMES = {
    *("Consumer", "Decision", "Message", "Sql92", "Store", "StoreConfig", "encoded_batch", "open_store"),
    *("Arrival", "GetStatus", "Page", "PutStatus", "QueueInfo", "Receipt", "StoredMessage"),
    *("FlintlogError", "DamagedRecord", "DamagedStore", "InvalidConfig", "InvalidFilter", "InvalidMessage"),
    *("InvalidOffset", "InvalidTopic", "PutFailed", "ServiceNotEnabled", "StoreClosed", "StoreInUse", "WrongFileSize"),
    *("DiskFull", "SyncFailed", "TransactionDecided", "TransactionError", "UnknownTransaction"),
}

SIGNATURES: dict[Callable[..., object], str] = {
    open_store: "(path, config=None, *, clock=None, read_only=False, medium=None, progress=None)",
    Message: "(topic, body, *, tags=None, keys=(), queue_id=0, properties=None, flag=0, sys_flag=0, "
    "born_timestamp=None, born_host=None, store_host=None, reconsume_times=0, prepared_transaction_offset=0, "
    "delay_level=0, deliver_at_ms=None, compress=None)",
    StoreConfig.from_rocketmq: "(values)",
    StoreConfig.load: "(path)",
    Store.put: "(self, message, key=None, *, check=True)",
    Store.put_batch: "(self, messages, *, check=True)",
    Store.put_encoded: "(self, batch, *, check=True)",
    encoded_batch: "(messages)",
    Store.put_async: "(self, message, key=None, *, check=True)",
    Store.aput: "(self, message, key=None, *, check=True)",
    Store.aput_batch: "(self, messages, *, check=True)",
    Store.wait_dispatched: "(self)",
    Store.get: "(self, topic, queue_id, offset, max_count=32, filter=None, max_bytes=134217728, *, group=None, "
    "exact=True)",
    Store.messages: "(self, topic, queue_id, start=None, *, filter=None)",
    Store.query: "(self, topic, key, begin=0, end=9223372036854775807, max_count=None, index_type=None, *, exact=True)",
    Store.message_at: "(self, physical_offset)",
    Store.message_by_id: "(self, message_id)",
    Store.offset_at: "(self, topic, queue_id, timestamp_ms, boundary='lower')",
    Store.min_offset: "(self, topic, queue_id)",
    Store.max_offset: "(self, topic, queue_id)",
    Store.queues: "(self)",
    Store.stats: "(self)",
    Store.on_arrival: "(self, callback)",
    Store.consumer: "(self, group, topic, *, filter=None, queue_ids=None, start='earliest', timeout_s=None, "
    "ack_timeout_s=None, retries=True, max_unacknowledged=10000)",
    Store.scan: "(self, topics=None, start=None, end=None, include_body=True)",
    Store.shutdown: "(self)",
    Store.destroy: "(self)",
    Receipt.check: "(self)",
}

MEMBERS = {
    *("put", "put_batch", "put_encoded", "put_async", "put_closed", "aput", "aput_batch", "producer", "add_put_hook"),
    *("flush", "wait_dispatched", "on_arrival", "set_bitmap_hook"),
    *("get", "messages", "query", "message_at", "message_by_id", "scan", "queues"),
    *("offset_at", "min_offset", "max_offset", "min_physical_offset", "max_physical_offset", "flushed_offset"),
    *("topics", "groups", "subscriptions", "consumer", "consumer_offsets", "service", "run_due", "replication"),
    *("stats", "counters", "broker_stats", "recovery", "path", "config", "read_only"),
    *("cleaning", "close", "shutdown", "destroy"),
}

STORED_FIELDS = (
    "topic queue_id queue_offset physical_offset size message_id body body_crc tags uniq_key tags_code keys "
    "properties flag sys_flag born_timestamp born_host store_timestamp store_host reconsume_times "
    "prepared_transaction_offset magic"
)


def test_the_package_has_exactly_these_names() -> None:
    assert set(flintlog.__all__) == NAMES
    assert len(flintlog.__all__) == len(set(flintlog.__all__))
    for name in flintlog.__all__:
        assert inspect.getdoc(getattr(flintlog, name)), f"{name} has no docstring"


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__qualname__)
def test_signatures(function: Callable[..., object]) -> None:
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
    ]
    assert str(inspect.Signature(plain)) == SIGNATURES[function]


def test_signatures_promise_no_any() -> None:
    for function in SIGNATURES:
        annotations = inspect.get_annotations(function)
        assert not any("Any" in str(annotation) for annotation in annotations.values()), function


def test_what_comes_out_has_its_fields() -> None:
    assert all(hasattr(StoredMessage, name) for name in STORED_FIELDS.split())
    assert set(Page.__struct_fields__) == {"status", "next_offset", "min_offset", "max_offset", "messages"}
    for name in ("status", "physical_offset", "queue_offset", "size", "message_id"):
        assert hasattr(Receipt, name)


def test_a_store_has_exactly_these_public_members() -> None:
    with temporary_store() as store:
        assert {name for name in dir(store) if not name.startswith("_")} == MEMBERS


def test_public_methods_of_a_store_have_docstrings() -> None:
    methods = inspect.getmembers(Store, lambda member: inspect.isfunction(member) or isinstance(member, property))
    undocumented = [name for name, member in methods if not name.startswith("_") and not inspect.getdoc(member)]
    assert undocumented == []


def test_errors_have_one_root_and_a_code_each() -> None:
    errors = [getattr(flintlog, name) for name in NAMES if isinstance(getattr(flintlog, name), type)]
    kinds = [kind for kind in errors if issubclass(kind, BaseException)]
    assert all(issubclass(kind, FlintlogError) for kind in kinds)
    assert len({kind.code for kind in kinds}) == len(kinds)


@pytest.mark.parametrize(
    "name",
    [
        "store.open_store",
        "store.model.message",
        "store.options.store_config",
        "store.read.readable",
        "store.filters.sql92",
        "testing.stores",
        "testing.clock",
    ],
)
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(import_module(f"flintlog.{name}"))
    assert result.attempted > 0 and result.failed == 0


def test_a_filter_by_sql_is_at_hand() -> None:
    assert Sql92("region = 'eu'").matches_message(_Has({"region": "eu"}))


class _Has:
    def __init__(self, properties: dict[str, str]) -> None:
        self.properties = properties
