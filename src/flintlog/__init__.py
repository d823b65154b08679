"""flintlog: a message store for Python that reads and writes Apache RocketMQ's store directories, byte for byte.

The public names are listed here, with the modules that define them. A module is imported when one of its names is first
used: `flintlog --version` passes through here too, and a program that may need a store starts without one.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from flintlog.version import VERSION

__version__ = VERSION

_NAMES = {
    "flintlog.errors": (
        "DamagedRecord",
        "DamagedStore",
        "DiskFull",
        "FlintlogError",
        "InvalidConfig",
        "InvalidFilter",
        "InvalidMessage",
        "InvalidOffset",
        "InvalidTopic",
        "PutFailed",
        "ServiceNotEnabled",
        "StoreClosed",
        "StoreInUse",
        "SyncFailed",
        "TransactionDecided",
        "TransactionError",
        "UnknownTransaction",
        "WrongFileSize",
    ),
    "flintlog.services.transaction.transaction_service": ("Decision",),
    "flintlog.store.consume.consumer": ("Consumer",),
    "flintlog.store.filters.sql92": ("Sql92",),
    "flintlog.store.model.encoded_batch": ("encoded_batch",),
    "flintlog.store.model.message": ("Message", "PutStatus", "Receipt"),
    "flintlog.store.model.stored_message": ("Arrival", "GetStatus", "Page", "QueueInfo", "StoredMessage"),
    "flintlog.store.options.store_config": ("StoreConfig",),
    "flintlog.store.store": ("Store",),
    "flintlog.store.open_store": ("open_store",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

if TYPE_CHECKING:  # the same names, for type checkers; `A as A` says that a name is meant for others
    from flintlog.errors import DamagedRecord as DamagedRecord
    from flintlog.errors import DamagedStore as DamagedStore
    from flintlog.errors import DiskFull as DiskFull
    from flintlog.errors import FlintlogError as FlintlogError
    from flintlog.errors import InvalidConfig as InvalidConfig
    from flintlog.errors import InvalidFilter as InvalidFilter
    from flintlog.errors import InvalidMessage as InvalidMessage
    from flintlog.errors import InvalidOffset as InvalidOffset
    from flintlog.errors import InvalidTopic as InvalidTopic
    from flintlog.errors import PutFailed as PutFailed
    from flintlog.errors import ServiceNotEnabled as ServiceNotEnabled
    from flintlog.errors import StoreClosed as StoreClosed
    from flintlog.errors import StoreInUse as StoreInUse
    from flintlog.errors import SyncFailed as SyncFailed
    from flintlog.errors import TransactionDecided as TransactionDecided
    from flintlog.errors import TransactionError as TransactionError
    from flintlog.errors import UnknownTransaction as UnknownTransaction
    from flintlog.errors import WrongFileSize as WrongFileSize
    from flintlog.services.transaction.transaction_service import Decision as Decision
    from flintlog.store.consume.consumer import Consumer as Consumer
    from flintlog.store.filters.sql92 import Sql92 as Sql92
    from flintlog.store.model.encoded_batch import encoded_batch as encoded_batch
    from flintlog.store.model.message import Message as Message
    from flintlog.store.model.message import PutStatus as PutStatus
    from flintlog.store.model.message import Receipt as Receipt
    from flintlog.store.model.stored_message import Arrival as Arrival
    from flintlog.store.model.stored_message import GetStatus as GetStatus
    from flintlog.store.model.stored_message import Page as Page
    from flintlog.store.model.stored_message import QueueInfo as QueueInfo
    from flintlog.store.model.stored_message import StoredMessage as StoredMessage
    from flintlog.store.open_store import open_store as open_store
    from flintlog.store.options.store_config import StoreConfig as StoreConfig
    from flintlog.store.store import Store as Store

    __all__: list[str]
else:  # a type checker would take every misspelt name for one of ours
    __all__ = sorted(_HOMES)  # noqa: PLE0605 - no second listing

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'flintlog' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__all__", "__version__"])
