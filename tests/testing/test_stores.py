"""The tools for users' tests: the temporary store, the fake clock, the fixtures."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import flintlog.testing
from flintlog import InvalidConfig, Message, StoreClosed
from flintlog.testing import SMALL_FILES, FakeClock, FaultyMedium, temporary_store
from flintlog.testing import plugin as plugin_module

pytest_plugins = ["pytester"]


def test_a_temporary_store_is_deleted_afterwards() -> None:
    with temporary_store() as store:
        store.put(Message("orders", b"x")).check()
        assert (store.path / "commitlog").is_dir()
    assert not store.path.parent.exists()
    with pytest.raises(StoreClosed):
        store.get("orders", 0, 0)


def test_a_temporary_store_is_deleted_after_a_failure_too() -> None:
    with pytest.raises(ZeroDivisionError), temporary_store() as store:
        raise ZeroDivisionError
    assert not store.path.parent.exists()


def test_a_temporary_store_takes_options_a_clock_and_a_disk() -> None:
    clock, disk = FakeClock(1000), FaultyMedium()
    config = SMALL_FILES.with_changes(flush="async")
    with temporary_store(config, clock=clock, medium=disk) as store:
        assert store.config is config
        assert store.put(Message("orders", b"x")).store_timestamp == 1000
        clock.advance(7)
        assert store.put(Message("orders", b"x")).store_timestamp == 1007
        assert not store.path.exists(), "nothing is on the real disk"
    with temporary_store(config, medium=disk) as again:
        assert again.max_offset("orders", 0) == 2, "a disk in memory is the caller's, and keeps what it has"


def test_a_power_loss_can_be_tried() -> None:
    disk = FaultyMedium()
    with temporary_store(medium=disk) as store:
        store.put(Message("orders", b"acknowledged")).check()
        after = disk.crash(seed=1)
    with temporary_store(medium=after) as store:
        assert [message.body for message in store.get("orders", 0, 0).messages] == [b"acknowledged"]


def test_a_fake_clock_stands_still_until_it_is_set() -> None:
    clock = FakeClock(10)
    assert (clock.now_ms(), clock.now_ms()) == (10, 10)
    assert clock.advance(5) == 15
    clock.set(3)
    assert clock.now_ms() == 3 and repr(clock) == "FakeClock(3)"
    with pytest.raises(InvalidConfig):
        clock.advance(-1)


def test_the_plugin_is_announced_to_pytest() -> None:
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    assert f'flintlog = "{plugin_module.__name__}"' in pyproject
    announced = [point.value for point in entry_points(group="pytest11", name="flintlog")]
    assert announced in ([], [plugin_module.__name__])  # empty where the package is not installed


USER_TEST = """
import pytest
from flintlog import Message

paths = []

@pytest.fixture
def flintlog_config(flintlog_config):
    return flintlog_config.with_changes(max_message_size=10)

def test_it(flintlog_store, flintlog_clock):
    flintlog_clock.set(5000)
    assert flintlog_store.put(Message("orders", b"x")).store_timestamp == 5000
    assert flintlog_store.config.max_message_size == 10
    paths.append(flintlog_store.path)

def test_each_test_has_its_own(flintlog_store):
    assert flintlog_store.queues() == []
    assert not paths[0].exists()
"""


@pytest.fixture
def users_tests(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(USER_TEST)
    return pytester


def test_the_fixtures_work_in_a_users_tests(users_tests: pytest.Pytester) -> None:
    installed = bool(list(entry_points(group="pytest11", name="flintlog")))
    arguments = [] if installed else ["-p", plugin_module.__name__]
    users_tests.runpytest_inprocess("-p", "no:cacheprovider", *arguments).assert_outcomes(passed=2)


def test_the_plugin_imports_no_store_before_a_test_needs_one() -> None:
    code = "import sys, flintlog.testing.plugin; sys.exit('flintlog.store.store' in sys.modules)"
    source = str(Path(flintlog.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source}
    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=60, check=False).returncode == 0


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    assert set(dir(flintlog.testing)) == set(flintlog.testing.__all__)
    with pytest.raises(AttributeError, match="FakeClok"):
        getattr(flintlog.testing, "FakeClok")  # noqa: B009 - a misspelt name, as a user would write it
