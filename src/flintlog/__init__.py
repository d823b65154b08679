"""flintlog: a message store for Python that reads and writes Apache RocketMQ's store directories, byte for byte."""

from flintlog.errors import (
    DamagedRecord,
    DamagedStore,
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
    WrongFileSize,
)
from flintlog.store.config import StoreConfig
from flintlog.store.message import Message, PutStatus, Receipt
from flintlog.store.sql92 import Sql92
from flintlog.store.store import Store, open_store
from flintlog.store.stored import Arrival, GetStatus, Page, QueueInfo, StoredMessage

__version__ = "0.1.0"

__all__ = [
    "Arrival",
    "DamagedRecord",
    "DamagedStore",
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
    "WrongFileSize",
    "open_store",
]
