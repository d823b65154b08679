"""Every error that flintlog raises, in one tree.

    FlintlogError
    ├── InvalidMessage          a message that can never be stored
    │   └── InvalidTopic
    ├── InvalidConfig           an option that does not exist, or a value out of its bounds
    ├── InvalidFilter           a filter expression that does not parse
    ├── InvalidOffset           an offset or id that cannot belong to a store
    ├── FormatError             bytes that are not what they should be
    │   └── BodyTooLarge        a compressed body that unpacks to more than was allowed
    ├── DamagedStore            a store directory that cannot be read as one
    │   ├── WrongFileSize
    │   └── DamagedRecord       reading a message whose bytes were damaged
    ├── StoreInUse              another process holds the directory
    ├── StoreClosed             the store was shut down, or was opened read-only
    ├── ServiceNotEnabled       a message asks for a service that is not on
    ├── TransactionError        a transaction that cannot be decided as it was asked
    │   ├── UnknownTransaction  there is no such transaction
    │   └── TransactionDecided  it was decided before
    ├── MissingExtra            a feature whose optional package is not installed
    ├── JobFailed               a job on Spark that ended without a result
    ├── DiskFull                no room for a file
    ├── DiskError               the operating system refused an operation on a file
    ├── SyncFailed              the operating system could not make data durable
    ├── PeerFailed              another node did not answer, or answered what cannot be
    ├── LedgerHalted            a node of a ledger group that stopped rather than give up what was committed
    ├── NotLeading              a member of a ledger group was asked for what only its leader does
    ├── LedgerLeftBehind        a member that was away so long that its group has deleted what it needs next
    └── PutFailed               a put that was not acknowledged; it carries the receipt and its status

Each says what was wrong, where (file and offset, when there is one), and what the reader can do.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintlog.store.model.message import PutStatus, Receipt, Receipts

_SHOWN_BEFORE = 60


def _printable(text: str, otherwise: str = "backslashreplace") -> str:
    """Text of which parts were given to us: a lone surrogate cannot be printed, and the error would be lost over it."""
    return text.encode("utf-8", otherwise).decode()


class FlintlogError(Exception):
    """The root of all errors raised by flintlog."""

    code = "flintlog-error"

    def __init__(
        self,
        what: str,
        *,
        path: str | os.PathLike[str] | None = None,
        offset: int | None = None,
        advice: str | None = None,
    ) -> None:
        self.what = what
        self.path = None if path is None else os.fspath(path)
        self.offset = offset
        self.advice = advice
        super().__init__(what, self.path, offset, advice)

    def __str__(self) -> str:
        place = "" if self.path is None else f" [{self.path}]"
        if self.offset is not None:
            place += f" at {self.offset}"
        advice = "" if self.advice is None else f" ({self.advice})"
        return _printable(f"{self.what}{place}{advice}")


class InvalidMessage(FlintlogError):
    """A message that can never be stored; `status` is RocketMQ's name for it."""

    code = "invalid-message"

    def __init__(self, what: str, *, status: str = "MESSAGE_ILLEGAL", advice: str | None = None) -> None:
        super().__init__(what, advice=advice)
        self.status = status


class InvalidTopic(InvalidMessage):
    """A topic name that cannot be a directory of a store."""

    code = "invalid-topic"


class InvalidConfig(FlintlogError):
    """An unknown option, or a value out of its bounds."""

    code = "invalid-config"


class InvalidFilter(FlintlogError):
    """A filter expression that does not parse; `expression` is all of it, `offset` the place in it."""

    code = "invalid-filter"
    expression: str | None = None

    def __str__(self) -> str:
        """The error, and below it the line of the expression with a mark under the place."""
        text = super().__str__()
        if self.expression is None or self.offset is None:
            return text
        start = self.expression.rfind("\n", 0, self.offset) + 1
        line = self.expression[start:].split("\n", 1)[0]
        cut = max(0, self.offset - start - _SHOWN_BEFORE)
        shown = _printable(line[cut : cut + 2 * _SHOWN_BEFORE].replace("\t", " "), "replace")
        return f"{text}\n  {shown}\n  {' ' * (self.offset - start - cut)}^"


class InvalidOffset(FlintlogError):
    """An offset or a message id that cannot belong to a store."""

    code = "invalid-offset"


class FormatError(FlintlogError):
    """Bytes that are not what the format says they should be."""

    code = "format-error"


class BodyTooLarge(FormatError):
    """A compressed body that unpacks to more than the caller allowed."""

    code = "body-too-large"


class DamagedStore(FlintlogError):
    """A directory that cannot be opened as a store without losing something."""

    code = "damaged-store"


class WrongFileSize(DamagedStore):
    """A file whose length is not the configured one."""

    code = "wrong-file-size"


class DamagedRecord(DamagedStore):
    """A message whose bytes were damaged; everything around it is served, from `next_queue_offset` on."""

    code = "damaged-record"
    next_queue_offset: int | None = None


class StoreInUse(FlintlogError):
    """Another process holds the store's lock, or the caller is in the store's own work."""

    code = "store-in-use"


class StoreClosed(FlintlogError):
    """The store was shut down, or was opened read-only."""

    code = "store-closed"


class ServiceNotEnabled(FlintlogError):
    """A message asks for a service that the configuration does not start."""

    code = "service-not-enabled"


class TransactionError(FlintlogError):
    """A transaction that cannot be committed or rolled back as it was asked."""

    code = "transaction-error"


class UnknownTransaction(TransactionError):
    """The store has no transaction of this id."""

    code = "unknown-transaction"


class TransactionDecided(TransactionError):
    """The transaction was committed, rolled back or given up before."""

    code = "transaction-decided"


class MissingExtra(FlintlogError):
    """A feature needs an optional package that is not installed."""

    code = "missing-extra"


class JobFailed(FlintlogError):
    """A job on Spark ended without a result, for a reason that is not the store's."""

    code = "job-failed"


class DiskFull(FlintlogError):
    """The file system has no room for another file."""

    code = "disk-full"


class DiskError(FlintlogError):
    """The operating system refused an operation on a file."""

    code = "disk-error"


class SyncFailed(FlintlogError):
    """The operating system could not make data durable."""

    code = "sync-failed"


class PutFailed(FlintlogError):
    """A put that was not acknowledged; `status` says why, and `receipt` whether the message lies in the log.

    `receipts` are those of a batch, of which `receipt` is the first that failed. All are None where no put was begun.
    """

    code = "put-failed"

    def __init__(
        self,
        what: str,
        *,
        path: str | os.PathLike[str] | None = None,
        advice: str | None = None,
        receipt: Receipt | None = None,
        receipts: Receipts | None = None,
    ) -> None:
        super().__init__(what, path=path, advice=advice)
        self.receipt = receipt
        self.receipts = receipts

    @property
    def status(self) -> PutStatus | None:
        """RocketMQ's status of the put."""
        return None if self.receipt is None else self.receipt.status


class PeerFailed(FlintlogError):
    """Another node did not answer, or answered what cannot be."""

    code = "peer-failed"


class LedgerHalted(FlintlogError):
    """A node of a ledger group was asked to give up what is committed, and stopped instead."""

    code = "ledger-halted"


class NotLeading(FlintlogError):
    """A member of a ledger group was asked for what only its leader does."""

    code = "not-leading"


class LedgerLeftBehind(FlintlogError):
    """The group's log begins behind the end of this member's: what comes between was deleted."""

    code = "ledger-left-behind"
