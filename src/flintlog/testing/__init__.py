"""For the tests of programs that use flintlog: a temporary store, a clock that can be set, a disk that fails.

    with temporary_store() as store:
        store.put(Message("orders", b"..."))

`pytest` finds the fixtures of `flintlog.testing.plugin` by itself: a test that takes `flintlog_store` gets an empty
store. Names are imported when they are first used, because pytest passes through here in every run.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintlog.disk.faulty.faulty_disk import FaultyMedium
    from flintlog.testing.clock import FakeClock
    from flintlog.testing.stores import SMALL_FILES, temporary_store

__all__ = ["SMALL_FILES", "FakeClock", "FaultyMedium", "temporary_store"]

_HOMES = {
    "FakeClock": "flintlog.testing.clock",
    "FaultyMedium": "flintlog.disk.faulty.faulty_disk",
    "SMALL_FILES": "flintlog.testing.stores",
    "temporary_store": "flintlog.testing.stores",
}

if not TYPE_CHECKING:  # a type checker would take every misspelt name for one of ours

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'flintlog.testing' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
