"""A process that forks while a store is open: the child leaves the store alone."""

from __future__ import annotations

import os
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.small_store import ASYNC, SMALL, bodies, read_all

from flintlog import Message, PutStatus, StoreConfig, StoreInUse, open_store
from flintlog.errors import StoreClosed

pytestmark = pytest.mark.timeout(60)


def in_child(do: Callable[[], None]) -> None:
    """Run in a forked child; what fails there fails here, and so does a child that hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that the process has threads is the point
        child = os.fork()
    if not child:
        try:
            do()
        except BaseException:  # noqa: BLE001 - a child must not run on in the test
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    deadline = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    assert ended[1] == 0


@pytest.mark.parametrize("config", [SMALL, ASYNC], ids=["sync", "async"])
def test_a_child_neither_puts_nor_stops_its_parents_store(tmp_path: Path, config: StoreConfig) -> None:
    store = open_store(tmp_path, config)
    store.put(Message("orders", b"before")).check()

    def child() -> None:
        assert store.put(Message("orders", b"child"), check=False).status is PutStatus.SERVICE_NOT_AVAILABLE
        with pytest.raises(StoreClosed):
            store.get("orders", 0, 0)
        store.shutdown()
        with pytest.raises(StoreInUse):
            store.destroy()

    in_child(child)
    assert (tmp_path / "abort").exists()
    store.put(Message("orders", b"after")).check()
    assert bodies(read_all(store, "orders")) == [b"before", b"after"]
    store.shutdown()


def test_a_child_that_lives_on_does_not_keep_the_lock(tmp_path: Path) -> None:
    store = open_store(tmp_path, ASYNC)
    reading, writing = os.pipe()
    is_there, says_so = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.write(says_so, b"!")
        os.read(reading, 1)
        os._exit(0)
    try:
        assert os.read(is_there, 1) == b"!"  # a child that has not run yet has not let go of anything
        store.shutdown()
        open_store(tmp_path, ASYNC).shutdown()
    finally:
        os.close(writing)
        os.waitpid(child, 0)
        for descriptor in (reading, is_there, says_so):
            os.close(descriptor)
