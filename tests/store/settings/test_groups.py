"""Consumer groups: created, changed, deleted, listed, and kept in `subscriptionGroup.json` as RocketMQ keeps them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.conftest import Golden
from tests.store.small_store import SMALL

from flintlog import InvalidConfig, open_store
from flintlog.store.settings.groups import SYSTEM_GROUPS, GroupConfig, GroupValues
from flintlog.store.settings.topics import TopicConfig, TopicValues
from flintlog.testing import temporary_store

_TIMESTAMP = re.compile(rb'"timestamp":[0-9]+')


def test_the_file_is_the_one_that_java_writes(golden: Golden, tmp_path: Path) -> None:
    theirs = (golden("delay") / "store/config/subscriptionGroup.json").read_bytes()
    with open_store(tmp_path, SMALL) as store:
        store.groups.create("CG_delay")
        store.groups.get_or_create("CG_timer")
    ours = (tmp_path / "config/subscriptionGroup.json").read_bytes()
    assert _TIMESTAMP.sub(b"", ours) == _TIMESTAMP.sub(b"", theirs)


def test_a_group_through_its_life(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        created = store.groups.create("billing", retry_max_times=3, attributes={"priority.factor": "5"})
        assert (created.retry_queue_nums, created.consume_enable, created.retry_max_times) == (1, True, 3)
        store.groups.change("billing", consume_enable=False)
        assert store.groups.get_or_create("audit").retry_max_times == 16
    with open_store(tmp_path, SMALL) as store:
        assert [group.name for group in store.groups] == ["audit", "billing"] and len(store.groups) == 2
        billing = store.groups.get("billing")
        assert billing is not None and not billing.consume_enable and billing.retry_max_times == 3
        store.groups.delete("billing")
        assert "billing" not in store.groups and store.groups.get("billing") is None
        system = {group.name for group in store.groups.list(system=True)} - {"audit"}
        assert system == {group.name for group in SYSTEM_GROUPS}


def test_offsets_stay_with_the_name_unless_they_are_to_go() -> None:
    with temporary_store(SMALL) as store:
        for clean, left in ((False, 5), (True, None)):
            store.groups.create("g")
            store.consumer_offsets.commit("g", "orders", 0, 5)
            store.groups.delete("g", clean_offsets=clean)
            assert store.consumer_offsets.get("g", "orders", 0) == left


@pytest.mark.parametrize("name", ["", "a b", "a@b", "a.b", "x" * 121, 5, None])
def test_names_that_a_broker_would_refuse(name: str) -> None:
    with temporary_store(SMALL) as store, pytest.raises(InvalidConfig):
        store.groups.create(name)


@pytest.mark.parametrize(
    "values",
    [
        {"retry_max_times": -2},
        {"retry_queue_nums": "1"},
        {"retry_queue_nums": True},
        {"consume_enable": 1},
        {"attributes": {"a": 1}},
        {"attributes": 5},
        {"group_name": "other"},
        {"colour": "red"},
    ],
)
def test_values_that_cannot_be(values: dict[str, object]) -> None:
    with temporary_store(SMALL) as store:
        with pytest.raises(InvalidConfig):
            store.groups.create("g", **values)  # type: ignore[arg-type]
        assert store.groups.list() == []


def test_type_checkers_know_every_value() -> None:
    assert ("group_name", *GroupValues.__annotations__) == GroupConfig.__struct_fields__
    assert ("topic_name", *TopicValues.__annotations__) == TopicConfig.__struct_fields__


def test_what_is_not_there_or_not_ours_is_not_changed() -> None:
    with temporary_store(SMALL) as store:
        store.groups.create("g")
        with pytest.raises(InvalidConfig, match="already"):
            store.groups.create("g")
        for change in (store.groups.change, store.groups.delete):
            with pytest.raises(InvalidConfig, match="no group"):
                change("nobody")
            with pytest.raises(InvalidConfig, match="RocketMQ's own"):
                change("CID_RMQ_SYS_TRANS")
