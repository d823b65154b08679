"""flintlog: a message store for Python that reads and writes Apache RocketMQ's store directories, byte for byte.

The names below are imported when they are first used: `flintlog --version` passes through here too, and should not
wait for a store.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from flintlog.version import VERSION

if TYPE_CHECKING:
    from flintlog.errors import (
        DamagedRecord,
        DamagedStore,
        DiskFull,
        FlintlogError,
        InvalidConfig,
        InvalidFilter,
        InvalidMessage,
        InvalidOffset,
        InvalidTopic,
        PutFailed,
        ServiceNotEnabled,
        StoreClosed,
        StoreInUse,
        SyncFailed,
        TransactionDecided,
        TransactionError,
        UnknownTransaction,
        WrongFileSize,
    )
    from flintlog.services.transaction import (
        Decision,
    )
    from flintlog.store.config import (
        StoreConfig,
    )
    from flintlog.store.consumer import (
        Consumer,
    )
    from flintlog.store.encoded_batch import (
        encoded_batch,
    )
    from flintlog.store.message import (
        Message,
        PutStatus,
        Receipt,
    )
    from flintlog.store.sql92 import (
        Sql92,
    )
    from flintlog.store.store import (
        Store,
        open_store,
    )
    from flintlog.store.stored import (
        Arrival,
        GetStatus,
        Page,
        QueueInfo,
        StoredMessage,
    )

__version__ = VERSION

_HOMES = {
    "DamagedRecord": "flintlog.errors",
    "DamagedStore": "flintlog.errors",
    "DiskFull": "flintlog.errors",
    "FlintlogError": "flintlog.errors",
    "InvalidConfig": "flintlog.errors",
    "InvalidFilter": "flintlog.errors",
    "InvalidMessage": "flintlog.errors",
    "InvalidOffset": "flintlog.errors",
    "InvalidTopic": "flintlog.errors",
    "PutFailed": "flintlog.errors",
    "ServiceNotEnabled": "flintlog.errors",
    "StoreClosed": "flintlog.errors",
    "StoreInUse": "flintlog.errors",
    "SyncFailed": "flintlog.errors",
    "TransactionDecided": "flintlog.errors",
    "TransactionError": "flintlog.errors",
    "UnknownTransaction": "flintlog.errors",
    "WrongFileSize": "flintlog.errors",
    "Decision": "flintlog.services.transaction",
    "StoreConfig": "flintlog.store.config",
    "Consumer": "flintlog.store.consumer",
    "Message": "flintlog.store.message",
    "PutStatus": "flintlog.store.message",
    "Receipt": "flintlog.store.message",
    "Sql92": "flintlog.store.sql92",
    "Store": "flintlog.store.store",
    "encoded_batch": "flintlog.store.encoded_batch",
    "open_store": "flintlog.store.store",
    "Arrival": "flintlog.store.stored",
    "GetStatus": "flintlog.store.stored",
    "Page": "flintlog.store.stored",
    "QueueInfo": "flintlog.store.stored",
    "StoredMessage": "flintlog.store.stored",
}

__all__ = [
    "Arrival",
    "Consumer",
    "DamagedRecord",
    "DamagedStore",
    "Decision",
    "DiskFull",
    "FlintlogError",
    "GetStatus",
    "InvalidConfig",
    "InvalidFilter",
    "InvalidMessage",
    "InvalidOffset",
    "InvalidTopic",
    "Message",
    "Page",
    "PutFailed",
    "PutStatus",
    "QueueInfo",
    "Receipt",
    "ServiceNotEnabled",
    "Sql92",
    "Store",
    "StoreClosed",
    "StoreConfig",
    "StoreInUse",
    "StoredMessage",
    "SyncFailed",
    "TransactionDecided",
    "TransactionError",
    "UnknownTransaction",
    "WrongFileSize",
    "encoded_batch",
    "open_store",
]


if not TYPE_CHECKING:  # a type checker would take every misspelt name for one of ours

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'flintlog' has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
