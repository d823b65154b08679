"""The driver of the real broker: what goes in comes out, with the broker's own services between."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintlog import Message
from flintlog.errors import FlintlogError
from interop.java_broker import JavaBroker

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java")]

OPTIONS = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "messageDelayLevel": "1s 2s",
    "timerPrecisionMs": "100",
    "transactionCheckInterval": "500",
    "transactionTimeOut": "500",
}


def test_the_broker_delivers_what_is_due_and_decides_transactions(tmp_path: Path) -> None:
    with JavaBroker(tmp_path / "store", OPTIONS) as broker:
        late = broker.put([Message("orders", b"now", tags="t"), Message("orders", b"late", delay_level=1)])
        assert [receipt.status for receipt in late] == ["PUT_OK", "PUT_OK"]
        kept = broker.put_half(Message("paid", b"kept"), "tellers", "T1")
        dropped = broker.put_half(Message("paid", b"dropped"), "tellers", "T2")
        open_one = broker.put_half(Message("paid", b"open"), "tellers", "T3")
        broker.register_producer("tellers")
        assert broker.commit(kept).code == 0
        assert broker.rollback(dropped).code == 0
        assert [message.body for message in broker.wait_for("paid", 0, 1)] == [b"kept"]
        assert [message.body for message in broker.wait_for("orders", 0, 2)] == [b"now", b"late"]
        assert broker.messages("orders", offset=1)[0].properties["REAL_TOPIC"] == "orders"
        broker.wait_until(lambda: broker.delay_offsets().get(1) == 1, "level 1 was delivered")
        broker.commit_consumer_offset("readers", "orders", 0, 2)
        asked: dict[str | None, bytes] = {}

        def was_asked() -> bool:
            asked.update((check.transaction_id, check.message.body) for check in broker.checks("tellers"))
            return open_one.transaction_id in asked

        broker.wait_until(was_asked, "a check of T3")
        assert asked[open_one.transaction_id] == b"open"
    with JavaBroker(tmp_path / "store", OPTIONS) as broker:
        assert broker.consumer_offset("readers", "orders", 0) == 2
        assert broker.consumer_offset("strangers", "orders", 0) == -1
        assert broker.min_offset("orders", 0) == 0


def test_a_message_with_a_time_is_delivered_then(tmp_path: Path) -> None:
    with JavaBroker(tmp_path / "store", OPTIONS) as broker:
        (first,) = broker.put([Message("orders", b"now")])
        born = broker.wait_for("orders", 0, 1)[0].store_timestamp
        broker.put([Message("orders", b"later", deliver_at_ms=born + 1500)])
        later = broker.wait_for("orders", 0, 2)[1]
        assert later.body == b"later"
        assert later.store_timestamp >= born + 1500 - 100
        assert first.queue_offset == 0


def test_a_killed_broker_leaves_its_abort_file_and_answers_no_more(tmp_path: Path) -> None:
    broker = JavaBroker(tmp_path / "store", OPTIONS)
    broker.put([Message("orders", b"now")])
    broker.kill()
    assert (tmp_path / "store" / "abort").exists()
    with pytest.raises(FlintlogError, match="closed"):
        broker.delay_offsets()
