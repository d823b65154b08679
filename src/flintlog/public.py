"""The public names of flintlog: this is their one listing, and everything that is imported here is public.

`flintlog/__init__.py` imports this module when one of the names is first used. The form `A as A` tells type checkers
that a name is meant for others.
"""

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
from flintlog.store.options.store_config import StoreConfig as StoreConfig
from flintlog.store.store import Store as Store
from flintlog.store.store import open_store as open_store
