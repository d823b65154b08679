"""A pytest plugin, found through the entry point `pytest11` of the installed package.

    def test_an_order_is_stored(flintlog_store, flintlog_clock):
        flintlog_store.put(Message("orders", b"..."))
        flintlog_clock.advance(1000)

A test or module that wants other options defines its own `flintlog_config`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig
    from flintlog.store.store import Store
    from flintlog.testing.clock import FakeClock

# pytest loads plugins in every run, also where no test needs a store: import late.


@pytest.fixture
def flintlog_config() -> StoreConfig:
    """The options of `flintlog_store`; override it to change them."""
    from flintlog.testing.stores import SMALL_FILES

    return SMALL_FILES


@pytest.fixture
def flintlog_clock() -> FakeClock:
    """The clock of `flintlog_store`: it stands still until it is advanced."""
    from flintlog.testing.clock import FakeClock

    return FakeClock()


@pytest.fixture
def flintlog_store(flintlog_config: StoreConfig, flintlog_clock: FakeClock) -> Iterator[Store]:
    """An empty store in a directory of its own, shut down and removed after the test."""
    from flintlog.testing.stores import temporary_store

    with temporary_store(flintlog_config, clock=flintlog_clock) as store:
        yield store
