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
    from flintlog.services.transaction.transaction_service import (
        Decision,
    )
    from flintlog.store.options.store_config import (
        StoreConfig,
    )
    from flintlog.store.consume.consumer import (
        Consumer,
    )
    from flintlog.store.model.encoded_batch import (
        encoded_batch,
    )
    from flintlog.store.model.message import (
        Message,
        PutStatus,
        Receipt,
    )
    from flintlog.store.filters.sql92 import (
        Sql92,
    )
    from flintlog.store.store import (
        Store,
        open_store,
    )
    from flintlog.store.model.stored_message import (
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
    "Decision": "flintlog.services.transaction.transaction_service",
    "StoreConfig": "flintlog.store.options.store_config",
    "Consumer": "flintlog.store.consume.consumer",
    "Message": "flintlog.store.model.message",
    "PutStatus": "flintlog.store.model.message",
    "Receipt": "flintlog.store.model.message",
    "Sql92": "flintlog.store.filters.sql92",
    "Store": "flintlog.store.store",
    "encoded_batch": "flintlog.store.model.encoded_batch",
    "open_store": "flintlog.store.store",
    "Arrival": "flintlog.store.model.stored_message",
    "GetStatus": "flintlog.store.model.stored_message",
    "Page": "flintlog.store.model.stored_message",
    "QueueInfo": "flintlog.store.model.stored_message",
    "StoredMessage": "flintlog.store.model.stored_message",
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
