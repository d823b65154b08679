"""A topic that was named and is not there: refused when that is certain, with the one that was meant."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.pipeline.conftest import fill, small_config

from flintlog import Message, open_store
from flintlog.errors import InvalidConfig
from flintlog.pipeline.reading import known_topics
from flintlog.pipeline.reading.known_topics import check_topics
from flintlog.pipeline.reading.logs import find_logs
from flintlog.store.log.batch_markers import MARKER_TOPIC


def look(path: Path | str, *topics: str) -> None:
    check_topics(topics, find_logs((str(path),)))


def test_a_misspelt_topic_is_refused_with_the_one_that_was_meant(store: Path) -> None:
    look(store, "orders", "payments", MARKER_TOPIC)
    with pytest.raises(InvalidConfig, match=r"no messages of topic oders .*did you mean orders\?"):
        look(store, "orders", "oders")
    with pytest.raises(InvalidConfig, match=r"no messages of topic nothing .*there are: orders, payments"):
        look(store, "nothing")
    with pytest.raises(InvalidConfig, match="did you mean orders"):
        look(store / "commitlog", "oders")


def test_a_topic_whose_first_message_is_not_dispatched_yet_is_found_in_the_log(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", 30)
    shutil.rmtree(store / "consumequeue" / "payments")
    look(store, "payments")


def test_topics_without_messages_are_there_when_they_were_made_or_deleted(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", small_config()) as store:
        store.put(Message("orders", b"x"))
        store.topics.create("made")
        store.put(Message("deleted", b"x"))
        store.topics.delete("deleted")
    look(tmp_path / "store", "made", "deleted")


def test_a_log_without_queues_is_looked_at_whole_or_nothing_is_said(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(store / "commitlog", tmp_path / "alone" / "commitlog")
    look(tmp_path / "alone", "payments")
    with pytest.raises(InvalidConfig, match="did you mean orders"):
        look(tmp_path / "alone", "oders")
    monkeypatch.setattr(known_topics, "LOOK_BYTES", 10_000)
    look(tmp_path / "alone", "oders")  # it might lie further back
    with pytest.raises(InvalidConfig, match="did you mean orders"):
        look(store, "oders")  # the queues know what lies further back


def test_of_several_stores_one_is_enough(tmp_path: Path, store: Path) -> None:
    shutil.copytree(store, tmp_path / "a" / "store")
    with open_store(tmp_path / "b" / "store", small_config()) as other:
        other.put(Message("invoices", b"x"))
    look(tmp_path / "*" / "store", "orders", "invoices")
    with pytest.raises(InvalidConfig, match=r"topic invoice .*did you mean invoices\?"):
        look(tmp_path / "*" / "store", "invoice")
