"""For the tests of programs that use flintlog: a temporary store, a clock to turn, a disk that fails.

    with temporary_store() as store:
        store.put(Message("orders", b"...")).check()

`pytest` finds the fixtures of `flintlog.testing.plugin` by itself: a test that takes `flintlog_store` gets an empty
store.
"""

from flintlog.disk.faulty import FaultyMedium
from flintlog.testing.clock import FakeClock
from flintlog.testing.stores import SMALL_FILES, temporary_store

__all__ = ["SMALL_FILES", "FakeClock", "FaultyMedium", "temporary_store"]
